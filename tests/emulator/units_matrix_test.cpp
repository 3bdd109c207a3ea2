// wgmma's operands: every chunk must lie where an independent description of the layout puts its elements.
#include <doctest/doctest.h>

#include <set>

#include "runtime/emulator/units/clocks.h"
#include "runtime/emulator/units/matrix.h"

namespace stepc::emulator {
namespace {

constexpr uint32_t kBase = 4096;

uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride, uint64_t mode) {
  return uint64_t{start >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 | mode << 62;
}

// The byte of element (row, column) of a stack of row-major tiles `span` bytes wide, where the 16-byte chunk number
// is xored with the low bits of the row: span 128 all three bits, 64 two (of row / 2), 32 one (of row / 4).
uint32_t tile_byte(uint32_t span, uint32_t row, uint32_t column) {
  const uint32_t chunk = column * 2 / 16;
  const uint32_t mask = span / 16 - 1;
  const uint32_t turn = row * span / 128 & mask;
  return row * span + (chunk ^ turn) * 16 + column * 2 % 16;
}

MatrixDescriptor decode(uint64_t bits) {
  MatrixDescriptor d;
  const std::string wrong = decode_descriptor(bits, &d);
  CHECK(wrong == "");
  return d;
}

struct Mode {
  uint64_t bits;
  uint32_t span;
};
constexpr Mode kModes[] = {{1, 128}, {2, 64}, {3, 32}};

TEST_CASE("a K-major operand: rows of one tile, k along them, a step of k inside") {
  for (const Mode mode : kModes)
    for (uint32_t step = 0; step * 32 < mode.span; ++step) {
      const MatrixDescriptor d = decode(descriptor(kBase + step * 32, 16, 8 * mode.span, mode.bits));
      std::vector<MatrixChunk> chunks;
      list_chunks(d, false, 0, 256, &chunks);
      CHECK(chunks.size() == 512);
      int wrong = 0;
      for (const MatrixChunk& c : chunks) wrong += c.address != kBase + tile_byte(mode.span, c.mn, step * 16 + c.k);
      CHECK(wrong == 0);
    }
}

TEST_CASE("an MN-major operand: k down the rows, panels of mn side by side") {
  for (const Mode mode : kModes) {
    const uint32_t columns = mode.span / 2;
    const uint32_t panel_bytes = 64 * mode.span;  // 64 deep
    for (uint32_t step = 0; step < 4; ++step) {
      const MatrixDescriptor d =
          decode(descriptor(kBase + step * 16 * mode.span, panel_bytes, 8 * mode.span, mode.bits));
      std::vector<MatrixChunk> chunks;
      list_chunks(d, true, 0, 192, &chunks);
      CHECK(chunks.size() == 384);
      int wrong = 0;
      for (const MatrixChunk& c : chunks)
        wrong +=
            c.address != kBase + c.mn / columns * panel_bytes + tile_byte(mode.span, step * 16 + c.k, c.mn % columns);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("without a swizzle, core matrices of 128 bytes lie where the two offsets say") {
  const MatrixDescriptor d = decode(descriptor(kBase, 2048, 256, 0));
  std::vector<MatrixChunk> chunks;
  list_chunks(d, false, 0, 64, &chunks);
  for (const MatrixChunk& c : chunks) CHECK(c.address == kBase + c.k / 8 * 2048 + c.mn / 8 * 256 + c.mn % 8 * 16);
  list_chunks(d, true, 0, 64, &chunks);
  for (const MatrixChunk& c : chunks) CHECK(c.address == kBase + c.k / 8 * 2048 + c.mn / 8 * 256 + c.k % 8 * 16);
}

TEST_CASE("a warp's rows of A are a part of the warpgroup's, and every chunk comes once") {
  const MatrixDescriptor d = decode(descriptor(kBase, 16, 1024, 1));
  std::vector<MatrixChunk> all, part;
  list_chunks(d, false, 0, 64, &all);
  std::set<uint32_t> addresses, whole;
  for (const MatrixChunk& c : all) whole.insert(c.address);
  for (uint32_t w = 0; w < 4; ++w) {
    list_chunks(d, false, w * 16, 16, &part);
    for (const MatrixChunk& c : part) {
      CHECK(c.mn / 16 == w);
      addresses.insert(c.address);
    }
  }
  CHECK(addresses == whole);
  CHECK(whole.size() == 128);
}

TEST_CASE("descriptors that mean nothing are refused") {
  MatrixDescriptor d;
  CHECK(decode_descriptor(descriptor(kBase, 16, 1024, 1) | 1ull << 15, &d) ==
        "matrix descriptor 0x4000004000018100 has reserved bits set");
  CHECK(decode_descriptor(descriptor(kBase, 16, 1024, 1) | 1ull << 49, &d) ==
        "a matrix descriptor with a base offset is not modelled");
  CHECK(decode_descriptor(descriptor(kBase + 512, 16, 1024, 1), &d) ==
        "matrix at 0x1200 does not begin at a multiple of 1024 bytes, where the pattern of swizzle 128 does");
  CHECK(decode_descriptor(descriptor(kBase + 512, 16, 512, 2), &d) == "");
}

TEST_CASE("a release is seen through a chain of acquires, and nothing after it is") {
  Clocks clocks(3);
  VectorClock first, second;
  const Epoch before = clocks.epoch(0);
  CHECK_FALSE(clocks.seen(2, 0, before));
  clocks.release(0, &first);
  CHECK(clocks.epoch(0) == before + 1);
  clocks.acquire(1, first);
  CHECK(clocks.seen(1, 0, before));
  CHECK_FALSE(clocks.seen(1, 0, clocks.epoch(0)));
  clocks.release(1, &second);
  clocks.acquire(2, second);
  CHECK(clocks.seen(2, 0, before));
  CHECK(clocks.seen(2, 1, 1));
  CHECK_FALSE(clocks.seen(0, 1, 1));
}

}  // namespace
}  // namespace stepc::emulator
