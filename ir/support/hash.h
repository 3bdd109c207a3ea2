// SHA-256 (FIPS 180-4) as hex text: the content key of caches and bundles. The same bytes give the same
// text on every machine and in every version.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace stepc {

class Sha256 {
 public:
  void update(std::string_view bytes);
  // 64 hex digits. The object is finished afterwards.
  std::string hex();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_ = {};
  size_t pending_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

std::string content_hash(std::string_view bytes);

}  // namespace stepc
