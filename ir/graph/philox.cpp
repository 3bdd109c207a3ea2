// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
#include <array>

#include "ir/graph/evaluate.h"

namespace stepc {

uint32_t philox_word(uint32_t seed, uint32_t stream, uint32_t step, uint64_t index) {
  constexpr uint64_t kMultiplier0 = 0xd2511f53;
  constexpr uint64_t kMultiplier1 = 0xcd9e8d57;
  constexpr uint32_t kWeyl0 = 0x9e3779b9;
  constexpr uint32_t kWeyl1 = 0xbb67ae85;
  const uint64_t block = index / 4;
  std::array<uint32_t, 4> counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), step, 0};
  uint32_t key0 = seed;
  uint32_t key1 = stream;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter[index % 4];
}

}  // namespace stepc
