// Tensor maps: what may be encoded, and boxes against copies written the naive way, element by element.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "runtime/emulator/units/tensor_map.h"

namespace stepc::emulator {
namespace {

struct Shape {
  std::vector<uint64_t> extents;
  std::vector<uint64_t> strides;
  std::vector<uint32_t> box;
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  uint64_t address = 4096;
};

std::optional<TensorMap> make(const Shape& shape, std::string* why) {
  const std::vector<uint32_t> ones(5, 1);
  return check_tensor_map({shape.type, static_cast<uint32_t>(shape.extents.size()), shape.address, shape.extents.data(),
                           shape.strides.data(), shape.box.data(), ones.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                           shape.swizzle, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
                          why);
}

std::string refusal(const std::function<void(Shape&)>& change) {
  Shape shape{{64, 100}, {256}, {64, 32}};
  change(shape);
  std::string why;
  const auto map = make(shape, &why);
  CHECK(map.has_value() == why.empty());
  return why;
}

TEST_CASE("a tensor map is refused where the driver refuses it") {
  CHECK(refusal([](Shape&) {}) == "");
  CHECK(refusal([](Shape& s) { s.address = 4104; }) == "address 0x1008 is not a multiple of 16");
  CHECK(refusal([](Shape& s) { s.strides[0] = 200; }) ==
        "stride 200 of dimension 1, expected a multiple of 16 below 2^40");
  CHECK(refusal([](Shape& s) { s.strides[0] = uint64_t{1} << 40; }) ==
        "stride 1099511627776 of dimension 1, expected a multiple of 16 below 2^40");
  CHECK(refusal([](Shape& s) { s.box[1] = 257; }) == "box extent 257 of dimension 1, expected 1 to 256");
  CHECK(refusal([](Shape& s) { s.box[1] = 0; }) == "box extent 0 of dimension 1, expected 1 to 256");
  CHECK(refusal([](Shape& s) { s.extents[1] = 0; }) == "extent 0 of dimension 1, expected 1 to 2^32");
  CHECK(refusal([](Shape& s) { s.box[0] = 4; }) == "8 bytes in a row of the box, expected a multiple of 16");
  CHECK(refusal([](Shape& s) {
          s.box[0] = 128;
          s.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
        }) == "256 bytes in a row of the box, swizzle 128 allows 128");
  CHECK(refusal([](Shape& s) { s.extents = {64, 2, 2, 2, 2, 2}; }) == "rank 6, expected 1 to 5");
}

TEST_CASE("a tensor map survives its encoding, and other bytes are no map") {
  const Shape shape{{uint64_t{1} << 32, 7, 5, 3, 2},
                    {16, 1 << 20, 48, uint64_t{1} << 39},
                    {64, 256, 1, 3, 2},
                    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                    CU_TENSOR_MAP_SWIZZLE_128B};
  std::string why;
  const auto map = make(shape, &why);
  REQUIRE_MESSAGE(map.has_value(), why);
  CUtensorMap bytes;
  encode_tensor_map(*map, &bytes);
  const auto back = decode_tensor_map(reinterpret_cast<const uint8_t*>(&bytes));
  REQUIRE(back.has_value());
  CHECK(back->address == map->address);
  CHECK(back->extents == map->extents);
  CHECK(back->strides == map->strides);
  CHECK(back->box == map->box);
  CHECK(back->rank == 5);
  CHECK(back->swizzle == Swizzle::b128);
  CHECK(back->type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  bytes.opaque[1] ^= 16;
  CHECK_FALSE(decode_tensor_map(reinterpret_cast<const uint8_t*>(&bytes)).has_value());
}

// A tensor whose every element is known from its coordinates, in a buffer with gaps between rows.
struct Tensor {
  explicit Tensor(const Shape& shape) : shape_(shape) {
    uint64_t bytes = shape.extents[0] * 2;
    for (size_t d = 1; d < shape.extents.size(); ++d) bytes += (shape.extents[d] - 1) * shape.strides[d - 1];
    bytes_.assign(bytes, 0xee);
    std::vector<int64_t> at(shape.extents.size(), 0);
    fill(shape.extents.size() - 1, at);
  }
  // The element at a place that may lie outside, where it is zero.
  uint16_t at(const std::vector<int64_t>& place) const {
    uint64_t offset = 0;
    for (size_t d = 0; d < place.size(); ++d) {
      if (place[d] < 0 || place[d] >= static_cast<int64_t>(shape_.extents[d])) return 0;
      offset += static_cast<uint64_t>(place[d]) * (d == 0 ? 2 : shape_.strides[d - 1]);
    }
    uint16_t v;
    std::memcpy(&v, bytes_.data() + offset, 2);
    return v;
  }
  const uint8_t* bytes() const { return bytes_.data(); }

 private:
  void fill(size_t d, std::vector<int64_t>& at) {
    for (at[d] = 0; at[d] < static_cast<int64_t>(shape_.extents[d]); ++at[d]) {
      if (d > 0) {
        fill(d - 1, at);
        continue;
      }
      uint64_t offset = static_cast<uint64_t>(at[0]) * 2;
      for (size_t k = 1; k < at.size(); ++k) offset += static_cast<uint64_t>(at[k]) * shape_.strides[k - 1];
      const uint16_t v = static_cast<uint16_t>(1 + next_++ % 65535);
      std::memcpy(bytes_.data() + offset, &v, 2);
    }
  }

  Shape shape_;
  std::vector<uint8_t> bytes_;
  int next_ = 0;
};

// What the tile holds at element `inner` of box row `row`, after swizzling with base 0.
uint16_t tile_element(const std::vector<uint8_t>& tile, const TensorMap& map, uint32_t row, uint32_t inner) {
  uint16_t v;
  std::memcpy(&v, tile.data() + swizzled(map.swizzle, row * map.row_bytes() + inner * 2), 2);
  return v;
}

void check_box(const Shape& shape, const std::array<int32_t, kMaxRank>& corner) {
  std::string why;
  const auto map = make(shape, &why);
  REQUIRE_MESSAGE(map.has_value(), why);
  const Tensor tensor(shape);
  std::vector<uint8_t> tile(map->box_bytes(), 0);
  for (uint32_t r = 0; r < map->rows(); ++r) {
    const BoxRow row = box_row(*map, corner, r);
    for (uint32_t b = row.begin; b < row.end; ++b) {
      const uint8_t byte = tensor.bytes()[row.address + b - map->address];
      tile[swizzled(map->swizzle, (row.box_offset + b) & ~15u) + b % 16] = byte;
    }
  }
  int different = 0;
  for (uint32_t r = 0; r < map->rows(); ++r)
    for (uint32_t x = 0; x < map->box[0]; ++x) {
      std::vector<int64_t> place{corner[0] + int64_t{x}};
      uint32_t rest = r;
      for (size_t d = 1; d < shape.extents.size(); ++d) {
        place.push_back(corner[d] + int64_t{rest % shape.box[d]});
        rest /= shape.box[d];
      }
      different += tile_element(tile, *map, r, x) != tensor.at(place);
    }
  CHECK(different == 0);
}

TEST_CASE("boxes inside, across the edges and outside hold the right elements") {
  const Shape flat{{100}, {}, {64}};
  for (const int32_t x : {0, 8, 36, 37, 99, 100, -5, -64, -1000}) check_box(flat, {x});
  for (const auto swizzle : {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B}) {
    const Shape plane{{200, 33}, {416}, {64, 32}, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, swizzle};
    for (const int32_t x : {0, 64, 192, -7, 150})
      for (const int32_t y : {0, 32, -3, 20, 40}) check_box(plane, {x, y});
  }
  const Shape narrow{{40, 9}, {96}, {32, 8}, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_64B};
  for (const int32_t x : {0, 16, -2}) check_box(narrow, {x, 3});
  const Shape narrower{{40, 9}, {96}, {16, 8}, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_32B};
  check_box(narrower, {33, 5});
}

TEST_CASE("boxes of rank 4 and 5, with a stride below the one before it") {
  // The MN-major operand of a product: columns in panels of 64, so the panel's stride is below the row's.
  const Shape panels{{64, 30, 3, 2},
                     {384, 128, 30 * 384},
                     {64, 16, 3, 1},
                     CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                     CU_TENSOR_MAP_SWIZZLE_128B};
  for (const int32_t row : {0, 16, 20, -1}) check_box(panels, {0, row, 0, 1});
  const Shape five{{24, 3, 2, 3, 2}, {48, 144, 288, 864}, {8, 2, 2, 2, 2}};
  check_box(five, {8, 1, 0, 2, 1});
  check_box(five, {20, -1, 1, -1, 0});
}

TEST_CASE("swizzling permutes 16-byte chunks within their rows, by the row's number") {
  CHECK(swizzled(Swizzle::none, 0x7f0) == 0x7f0);
  CHECK(swizzled(Swizzle::b128, 0x000) == 0x000);
  CHECK(swizzled(Swizzle::b128, 0x080) == 0x090);
  CHECK(swizzled(Swizzle::b128, 0x0a0) == 0x0b0);
  CHECK(swizzled(Swizzle::b128, 0x3f4) == 0x384);
  CHECK(swizzled(Swizzle::b128, 0x400) == 0x400);
  CHECK(swizzled(Swizzle::b64, 0x080) == 0x090);
  CHECK(swizzled(Swizzle::b64, 0x1b0) == 0x180);
  CHECK(swizzled(Swizzle::b64, 0x200) == 0x200);
  CHECK(swizzled(Swizzle::b32, 0x080) == 0x090);
  CHECK(swizzled(Swizzle::b32, 0x110) == 0x110);
}

}  // namespace
}  // namespace stepc::emulator
