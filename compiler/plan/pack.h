// Offsets for buffers of which each is live over an interval of steps, so that those live together never
// share a byte and the whole is small. Pure functions; the answer depends on the intervals, not on the order
// in which they are given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stepc {

struct Interval {
  int64_t bytes = 0;
  int first = 0;  // step
  int last = 0;   // step, inclusive
};

struct Packing {
  std::vector<int64_t> offsets_bytes;  // as the intervals are given
  int64_t peak_bytes = 0;
  std::string method;  // which of the orders tried gave the smallest peak
};

// Tries several orders of placing (largest first, largest area first, longest-lived first, earliest first),
// each interval going into the smallest gap that fits among those already placed, and keeps the best.
Packing pack(const std::vector<Interval>& intervals, int64_t alignment_bytes);

// The most bytes live at one step, sizes rounded up to the alignment: no packing needs less.
int64_t packing_lower_bound(const std::vector<Interval>& intervals, int64_t alignment_bytes);

// Two intervals that are live together and share a byte, if there are any: walks the steps and, at each,
// the live intervals by offset. Uses nothing of pack.
std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<Interval>& intervals,
                                                      const std::vector<int64_t>& offsets_bytes);

}  // namespace stepc
