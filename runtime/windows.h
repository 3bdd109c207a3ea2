// The order in which a shard's windows become batches. Window w is tokens [w T, w T + T) with targets one
// later; there are floor((count - 1) / T). A position counts windows from the start of training, so a
// checkpoint needs one number: epoch = position / windows. Shuffled, each epoch is a permutation of its own,
// a function of (seed, epoch) alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/shard.h"

namespace stepc {

class Windows {
 public:
  enum class Order { sequential, shuffled };

  // An error when the shard is too short for one window.
  static Result<Windows> create(const Shard& shard, int64_t window_tokens, Order order, uint32_t seed);

  int64_t count() const { return count_; }
  // Fills `batch` windows from `position` on: tokens and targets are i32[batch, T].
  void fill(int64_t position, int64_t batch, std::span<int32_t> tokens, std::span<int32_t> targets);

 private:
  Windows(std::span<const uint16_t> tokens, int64_t window_tokens, int64_t count, Order order, uint32_t seed)
      : tokens_(tokens), window_tokens_(window_tokens), count_(count), order_(order), seed_(seed) {}
  int64_t window_at(int64_t position);

  std::span<const uint16_t> tokens_;
  int64_t window_tokens_;
  int64_t count_;
  Order order_;
  uint32_t seed_;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<int64_t> permutation_;
};

}  // namespace stepc
