#include "runtime/windows.h"

#include <numeric>

#include "ir/graph/evaluate.h"

namespace stepc {
namespace {

constexpr uint32_t kShuffleStream = 0x73687566;  // "shuf"

// Fisher and Yates with Philox words; the bias of a 64-bit product over so few windows is far below 2^-32.
std::vector<int64_t> permute(int64_t count, uint32_t seed, uint32_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (auto i = static_cast<uint64_t>(count); i > 1; --i) {
    const uint64_t high = philox_word(seed, kShuffleStream, epoch, 2 * i);
    const uint64_t word = high << 32 | philox_word(seed, kShuffleStream, epoch, 2 * i + 1);
    const auto j = static_cast<uint64_t>(static_cast<unsigned __int128>(word) * i >> 64);
    std::swap(order[i - 1], order[j]);
  }
  return order;
}

}  // namespace

Result<Windows> Windows::create(const Shard& shard, int64_t window_tokens, Order order, uint32_t seed) {
  if (shard.count() < window_tokens + 1)
    return user_error("{}: {} tokens are too few for one window of {} and its last target", shard.path(), shard.count(),
                      window_tokens);
  return Windows(shard.tokens(), window_tokens, (shard.count() - 1) / window_tokens, order, seed);
}

int64_t Windows::window_at(int64_t position) {
  const int64_t epoch = position / count_;
  if (order_ == Order::sequential) return position % count_;
  if (epoch != epoch_) {
    permutation_ = permute(count_, seed_, static_cast<uint32_t>(epoch));
    epoch_ = epoch;
  }
  return permutation_[static_cast<size_t>(position % count_)];
}

void Windows::fill(int64_t position, int64_t batch, std::span<int32_t> tokens, std::span<int32_t> targets) {
  for (int64_t row = 0; row < batch; ++row) {
    const auto start = static_cast<size_t>(window_at(position + row) * window_tokens_);
    for (size_t i = 0; i < static_cast<size_t>(window_tokens_); ++i) {
      const size_t at = static_cast<size_t>(row * window_tokens_) + i;
      tokens[at] = tokens_[start + i];
      targets[at] = tokens_[start + i + 1];
    }
  }
}

}  // namespace stepc
