#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "compiler/plan/pack.h"

namespace stepc {
namespace {

std::vector<Interval> random_intervals(std::mt19937& random) {
  const int count = static_cast<int>(random() % 60);
  const int steps = 1 + static_cast<int>(random() % 40);
  std::vector<Interval> intervals;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(steps));
    const int last = first + static_cast<int>(random() % static_cast<unsigned>(steps - first));
    const int64_t sizes[] = {0, 1, 63, 64, 65, 4099, static_cast<int64_t>(random() % 100000)};
    intervals.push_back({sizes[random() % 7], first, last});
  }
  return intervals;
}

std::vector<std::tuple<int64_t, int, int, int64_t>> placements(const std::vector<Interval>& intervals,
                                                               const Packing& packing) {
  std::vector<std::tuple<int64_t, int, int, int64_t>> sorted;
  for (size_t i = 0; i < intervals.size(); ++i)
    sorted.emplace_back(intervals[i].bytes, intervals[i].first, intervals[i].last, packing.offsets_bytes[i]);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

TEST_CASE("packing obeys its laws on random intervals") {
  std::mt19937 random(7);
  double worst_ratio = 1, ratio_sum = 0;
  int ratios = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Interval> intervals = random_intervals(random);
    const int64_t alignment = int64_t{1} << (random() % 9);
    const Packing packing = pack(intervals, alignment);
    REQUIRE(!find_overlap(intervals, packing.offsets_bytes));
    int64_t end = 0;
    for (size_t i = 0; i < intervals.size(); ++i) {
      REQUIRE(packing.offsets_bytes[i] % alignment == 0);
      end = std::max(end, packing.offsets_bytes[i] + intervals[i].bytes);
    }
    REQUIRE(end <= packing.peak_bytes);
    const int64_t bound = packing_lower_bound(intervals, alignment);
    REQUIRE(packing.peak_bytes >= bound);
    if (bound > 0) {
      const double ratio = static_cast<double>(packing.peak_bytes) / static_cast<double>(bound);
      worst_ratio = std::max(worst_ratio, ratio);
      ratio_sum += ratio;
      ++ratios;
    }
    const auto before = placements(intervals, packing);
    std::shuffle(intervals.begin(), intervals.end(), random);
    const Packing again = pack(intervals, alignment);
    REQUIRE(again.peak_bytes == packing.peak_bytes);
    REQUIRE(again.method == packing.method);
    REQUIRE(placements(intervals, again) == before);
  }
  CHECK(worst_ratio < 1.45);
  CHECK(ratio_sum / ratios < 1.08);
}

TEST_CASE("the lower bound is the fullest step, and known packings reach it") {
  CHECK(packing_lower_bound({}, 64) == 0);
  CHECK(pack({}, 64).peak_bytes == 0);
  const std::vector<Interval> chain = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {100, 3, 4}};
  CHECK(packing_lower_bound(chain, 64) == 256);
  CHECK(pack(chain, 64).peak_bytes == 256);
  CHECK(packing_lower_bound({{10, 0, 0}, {10, 1, 1}}, 1) == 10);
  // Placed in order of time the last one finds only two separate holes; largest first leaves none.
  const std::vector<Interval> holes = {{10, 0, 2}, {5, 0, 5}, {10, 1, 3}, {15, 4, 6}, {20, 4, 5}};
  CHECK(pack(holes, 1).peak_bytes == packing_lower_bound(holes, 1));
}

TEST_CASE("the sweep sees every kind of overlap") {
  CHECK(find_overlap({{10, 0, 1}, {10, 1, 2}}, {0, 9}) == std::pair<size_t, size_t>(0, 1));
  CHECK(find_overlap({{10, 0, 1}, {10, 1, 2}}, {9, 0}) == std::pair<size_t, size_t>(1, 0));
  CHECK(find_overlap({{10, 0, 1}, {1, 1, 1}}, {0, 0}) == std::pair<size_t, size_t>(0, 1));
  CHECK(!find_overlap({{10, 0, 1}, {10, 1, 2}}, {0, 10}));
  CHECK(!find_overlap({{10, 0, 1}, {10, 2, 2}}, {0, 0}));
  CHECK(!find_overlap({{10, 0, 1}, {0, 0, 1}}, {0, 5}));
}

}  // namespace
}  // namespace stepc
