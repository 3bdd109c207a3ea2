#include "runtime/emulator/units/matrix.h"

#include <fmt/format.h>

namespace stepc::emulator {
namespace {

constexpr uint64_t kUsedBits = 0xc00e3fff3fff3fffull;

// Rows are mn, eight to a core matrix; a row's 16 columns are two chunks, side by side in a swizzled row, a leading
// offset apart without swizzling.
uint32_t k_major_address(const MatrixDescriptor& d, uint32_t mn, uint32_t chunk) {
  const uint32_t pitch = d.swizzle == Swizzle::none ? 16 : swizzle_span(d.swizzle);
  const uint32_t step = d.swizzle == Swizzle::none ? d.leading : 16;
  return d.start + mn / 8 * d.stride + mn % 8 * pitch + chunk * step;
}

// Rows are k, eight to a core matrix. A swizzled row holds span / 16 chunks of mn, the next ones a leading offset
// away; without swizzling each chunk column is a matrix of its own, and the two offsets change their places.
uint32_t mn_major_address(const MatrixDescriptor& d, uint32_t mn_chunk, uint32_t k) {
  if (d.swizzle == Swizzle::none) return d.start + mn_chunk * d.stride + k / 8 * d.leading + k % 8 * 16;
  const uint32_t span = swizzle_span(d.swizzle);
  const uint32_t chunks = span / 16;
  return d.start + mn_chunk / chunks * d.leading + mn_chunk % chunks * 16 + k / 8 * d.stride + k % 8 * span;
}

}  // namespace

std::string decode_descriptor(uint64_t bits, MatrixDescriptor* out) {
  if ((bits & ~kUsedBits) != 0) return fmt::format("matrix descriptor {:#018x} has reserved bits set", bits);
  constexpr Swizzle kModes[] = {Swizzle::none, Swizzle::b128, Swizzle::b64, Swizzle::b32};
  out->start = static_cast<uint32_t>(bits & 0x3fff) << 4;
  out->leading = static_cast<uint32_t>(bits >> 16 & 0x3fff) << 4;
  out->stride = static_cast<uint32_t>(bits >> 32 & 0x3fff) << 4;
  out->swizzle = kModes[bits >> 62];
  if ((bits >> 49 & 7) != 0) return "a matrix descriptor with a base offset is not modelled";
  // The permutation comes from address bits, so a tile has to begin where the pattern does; steps within its first
  // line (the next 16 columns of k) are fine.
  const uint32_t lines = swizzle_pattern(out->swizzle) / 128;
  if (lines > 1 && (out->start >> 7) % lines != 0)
    return fmt::format("matrix at {:#x} does not begin at a multiple of {} bytes, where the pattern of swizzle {} does",
                       out->start, swizzle_pattern(out->swizzle), swizzle_name(out->swizzle));
  return "";
}

void list_chunks(const MatrixDescriptor& matrix, bool mn_major, uint32_t first_mn, uint32_t count_mn,
                 std::vector<MatrixChunk>* out) {
  out->clear();
  const auto add = [&](uint32_t address, uint32_t mn, uint32_t k) {
    out->push_back({swizzled(matrix.swizzle, address), static_cast<uint16_t>(mn), static_cast<uint16_t>(k)});
  };
  if (mn_major) {
    for (uint32_t k = 0; k < 16; ++k)
      for (uint32_t mn = first_mn; mn < first_mn + count_mn; mn += 8) add(mn_major_address(matrix, mn / 8, k), mn, k);
  } else {
    for (uint32_t mn = first_mn; mn < first_mn + count_mn; ++mn)
      for (uint32_t chunk = 0; chunk < 2; ++chunk) add(k_major_address(matrix, mn, chunk), mn, chunk * 8);
  }
}

}  // namespace stepc::emulator
