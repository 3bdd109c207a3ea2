// A small warp-specialised product for tests of the asynchronous units, as PTX text: C[64, 64] = A[64, K] B[64, K]^T.
// Warps 0-3 multiply, warp 4 brings tiles of 64 columns through a ring of two stages; C leaves through shared memory
// by TMA. Each line that matters carries a tag, so that a test can take it away or change it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stepc::emulator {

struct PipelineLayout {
  static constexpr int kThreads = 160;
  static constexpr int kA = 0;  // byte offsets in shared memory: two stages each
  static constexpr int kB = 16384;
  static constexpr int kC = 32768;
  static constexpr int kFull = 40960;   // two mbarriers
  static constexpr int kEmpty = 40976;  // two mbarriers
  static constexpr int kBytes = 41984;
};

class PtxText {
 public:
  explicit PtxText(std::string text) : text_(std::move(text)) {}
  // The line that ends with "//@tag"; exactly one there is.
  PtxText& remove(const std::string& tag) { return replace(tag, ""); }
  PtxText& replace(const std::string& tag, const std::string& line);
  // Every occurrence of `from` in the tagged line.
  PtxText& change(const std::string& tag, const std::string& from, const std::string& to);
  PtxText& move_after(const std::string& tag, const std::string& other);
  int line_of(const std::string& tag) const;  // from 1
  const std::string& str() const { return text_; }

 private:
  size_t find(const std::string& tag, size_t* begin) const;
  std::string text_;
};

// Entry `product(u32 blocks of 64 columns, map of A, map of B, map of C)`.
PtxText product_kernel();

}  // namespace stepc::emulator
