#include "compiler/plan/pack.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "ir/support/check.h"
#include "ir/support/checked.h"

namespace stepc {
namespace {

int64_t aligned(int64_t bytes, int64_t alignment) {
  const auto result = checked_align_up(bytes, alignment);
  STEPC_CHECK(result.has_value(), "{} bytes", bytes);
  return *result;
}

using SortKey = std::array<int64_t, 4>;

struct Method {
  const char* name;
  SortKey (*key)(const Interval&);
};

int64_t steps_of(const Interval& i) { return i.last - i.first + 1; }
int64_t area_of(const Interval& i) { return saturating_mul(i.bytes, steps_of(i)); }

// Keys end in first and last, so that equal keys mean equal intervals and ties do not matter.
const std::array kMethods = {
    Method{"largest first", [](const Interval& i) { return SortKey{-i.bytes, -steps_of(i), i.first, i.last}; }},
    Method{"largest area first", [](const Interval& i) { return SortKey{-area_of(i), -i.bytes, i.first, i.last}; }},
    Method{"longest-lived first", [](const Interval& i) { return SortKey{-steps_of(i), -i.bytes, i.first, i.last}; }},
    Method{"earliest first", [](const Interval& i) { return SortKey{i.first, -i.bytes, -i.last, 0}; }},
};

std::vector<size_t> placing_order(const std::vector<Interval>& intervals, const Method& method) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return method.key(intervals[a]) < method.key(intervals[b]); });
  return order;
}

struct Placed {
  int64_t offset;
  int64_t end;
  int first;
  int last;
};

// The smallest gap of at least `bytes` between those of `placed` (by offset) that are live with `interval`.
int64_t best_gap(const std::vector<Placed>& placed, const Interval& interval, int64_t bytes) {
  int64_t cursor = 0, best = -1, best_gap_bytes = 0;
  for (const Placed& other : placed) {
    if (other.first > interval.last || interval.first > other.last) continue;
    const int64_t gap = other.offset - cursor;
    if (gap >= bytes && (best < 0 || gap < best_gap_bytes)) {
      best = cursor;
      best_gap_bytes = gap;
    }
    cursor = std::max(cursor, other.end);
  }
  return best >= 0 ? best : cursor;
}

Packing pack_in_order(const std::vector<Interval>& intervals, int64_t alignment, const Method& method) {
  Packing packing{std::vector<int64_t>(intervals.size(), 0), 0, method.name};
  std::vector<Placed> placed;  // by offset
  for (size_t i : placing_order(intervals, method)) {
    const Interval& interval = intervals[i];
    const int64_t bytes = aligned(interval.bytes, alignment);
    if (bytes == 0) continue;
    const int64_t offset = best_gap(placed, interval, bytes);
    packing.offsets_bytes[i] = offset;
    packing.peak_bytes = std::max(packing.peak_bytes, offset + bytes);
    const Placed entry{offset, offset + bytes, interval.first, interval.last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), entry,
                                   [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                  entry);
  }
  return packing;
}

}  // namespace

Packing pack(const std::vector<Interval>& intervals, int64_t alignment_bytes) {
  std::optional<Packing> best;
  for (const Method& method : kMethods) {
    Packing packing = pack_in_order(intervals, alignment_bytes, method);
    if (!best || packing.peak_bytes < best->peak_bytes) best = std::move(packing);
  }
  const auto overlap = find_overlap(intervals, best->offsets_bytes);
  STEPC_CHECK(!overlap, "'{}' put intervals {} and {} on one another", best->method, overlap->first, overlap->second);
  return std::move(*best);
}

int64_t packing_lower_bound(const std::vector<Interval>& intervals, int64_t alignment_bytes) {
  std::map<int, int64_t> change_at;  // step -> bytes that come (or go)
  for (const Interval& interval : intervals) {
    const int64_t bytes = aligned(interval.bytes, alignment_bytes);
    change_at[interval.first] += bytes;
    change_at[interval.last + 1] -= bytes;
  }
  int64_t live = 0, most = 0;
  for (const auto& [step, change] : change_at) most = std::max(most, live += change);
  return most;
}

std::optional<std::pair<size_t, size_t>> find_overlap(const std::vector<Interval>& intervals,
                                                      const std::vector<int64_t>& offsets_bytes) {
  struct Event {
    int step;
    bool begins;  // ends of step s come before begins of step s + 1
    size_t interval;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].bytes == 0) continue;
    events.push_back({intervals[i].first, true, i});
    events.push_back({intervals[i].last + 1, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.step, a.begins, a.interval) < std::tuple(b.step, b.begins, b.interval);
  });
  std::map<int64_t, size_t> live;  // by offset
  for (const Event& event : events) {
    const int64_t offset = offsets_bytes[event.interval];
    if (!event.begins) {
      live.erase(offset);
      continue;
    }
    const auto [at, fresh] = live.try_emplace(offset, event.interval);
    if (!fresh) return std::pair(at->second, event.interval);
    if (const auto next = std::next(at); next != live.end() && next->first < offset + intervals[event.interval].bytes)
      return std::pair(event.interval, next->second);
    if (at == live.begin()) continue;
    const auto before = std::prev(at);
    if (before->first + intervals[before->second].bytes > offset) return std::pair(before->second, event.interval);
  }
  return std::nullopt;
}

}  // namespace stepc
