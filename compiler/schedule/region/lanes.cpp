#include "compiler/schedule/region/lanes.h"

#include <algorithm>
#include <numeric>

#include "compiler/schedule/region/ranges.h"
#include "ir/kernel/layout.h"
#include "ir/support/check.h"

namespace stepc::schedule {
namespace {

using kernel::floor_div;
using kernel::floor_rem;

int64_t low_of(const std::vector<int64_t>& pattern) { return *std::min_element(pattern.begin(), pattern.end()); }
int64_t high_of(const std::vector<int64_t>& pattern) { return *std::max_element(pattern.begin(), pattern.end()); }

}  // namespace

LaneIndex LaneMath::tidy(LaneIndex x) const {
  if (x.pattern.empty()) return x;
  const int64_t first = x.pattern.front();
  if (std::any_of(x.pattern.begin(), x.pattern.end(), [&](int64_t p) { return p != first; })) return x;
  x.pattern.clear();
  x.base = x.base + Index(first);
  return x;
}

LaneIndex LaneMath::along(Index base) const {
  LaneIndex x{base, {}, {}, {0, 0}};
  if (lanes_.width == 1) return x;
  for (int64_t lane = 0; lane < lanes_.width; ++lane) x.pattern.push_back(std::min(lane, lanes_.active - 1));
  return tidy(std::move(x));
}

LaneIndex LaneMath::add(const LaneIndex& a, const LaneIndex& b) {
  LaneIndex sum{a.base + b.base, a.pattern, a.dynamic, add_ranges(a.dynamic_range, b.dynamic_range)};
  if (sum.pattern.empty()) {
    sum.pattern = b.pattern;
  } else if (!b.pattern.empty()) {
    for (size_t lane = 0; lane < sum.pattern.size(); ++lane) sum.pattern[lane] += b.pattern[lane];
  }
  if (b.dynamic.valid()) sum.dynamic = a.dynamic.valid() ? op(kernel::Op::add, a.dynamic, b.dynamic) : b.dynamic;
  return tidy(std::move(sum));
}

LaneIndex LaneMath::scale(const LaneIndex& x, int64_t factor) {
  if (factor == 1) return x;
  LaneIndex scaled{x.base * Index(factor), x.pattern, {}, {0, 0}};
  for (int64_t& lane : scaled.pattern) lane *= factor;
  if (x.dynamic.valid()) {
    scaled.dynamic = op(kernel::Op::mul, x.dynamic, splat(i32(factor)));
    scaled.dynamic_range = scale_range(x.dynamic_range, factor);
  }
  return tidy(std::move(scaled));
}

// The split where it leaves the pattern known: the base decides alone in which quotient all lanes lie.
std::optional<std::pair<LaneIndex, LaneIndex>> LaneMath::split_pattern(const LaneIndex& x, int64_t divisor) {
  const int64_t multiple = builder_.multiple_of(x.base.id(builder_));
  LaneIndex quotient{x.base, x.pattern, {}, {0, 0}};
  LaneIndex remainder = quotient;
  if (multiple % divisor == 0) {  // also the constant 0
    for (size_t lane = 0; lane < x.pattern.size(); ++lane) {
      quotient.pattern[lane] = floor_div(x.pattern[lane], divisor);
      remainder.pattern[lane] = floor_rem(x.pattern[lane], divisor);
    }
    quotient.base = x.base / Index(divisor);
    remainder.base = Index(0);
    return std::pair{tidy(quotient), tidy(remainder)};
  }
  const int64_t step = std::gcd(multiple, divisor);
  const int64_t block = floor_div(low_of(x.pattern), step);
  if (floor_div(high_of(x.pattern), step) != block) return std::nullopt;
  const Index start = x.base + Index(block * step);
  for (int64_t& lane : remainder.pattern) lane -= block * step;
  quotient.base = start / Index(divisor);
  quotient.pattern.clear();
  remainder.base = start % Index(divisor);
  return std::pair{tidy(quotient), tidy(remainder)};
}

// An index past 32 bits: the base's quotient and remainder are found in 64, and lanes hold what they add to those.
std::optional<std::pair<LaneIndex, LaneIndex>> LaneMath::split_far(const LaneIndex& x, int64_t divisor) {
  if (fits_i32(range(x)) || x.dynamic.valid() || low_of(x.pattern) < 0) return std::nullopt;
  const Fragment all = materialise({x.base % Index(divisor), x.pattern, {}, {0, 0}});
  const Fragment by = splat(i32(divisor));
  const int64_t carried = (divisor - 1 + high_of(x.pattern)) / divisor;
  return std::pair{LaneIndex{x.base / Index(divisor), {}, op(kernel::Op::div, all, by), {0, carried}},
                   LaneIndex{Index(0), {}, op(kernel::Op::rem, all, by), {0, divisor - 1}}};
}

std::pair<LaneIndex, LaneIndex> LaneMath::split(const LaneIndex& x, int64_t divisor, int64_t extent) {
  STEPC_CHECK(divisor > 0, "split by {}", divisor);
  if (divisor >= extent) return {LaneIndex{Index(0), {}, {}, {0, 0}}, x};
  if (divisor == 1) return {x, LaneIndex{Index(0), {}, {}, {0, 0}}};
  if (x.uniform()) {
    return {LaneIndex{x.base / Index(divisor), {}, {}, {0, 0}}, LaneIndex{x.base % Index(divisor), {}, {}, {0, 0}}};
  }
  if (!x.dynamic.valid()) {
    if (x.base.is_constant()) {
      LaneIndex moved{Index(0), x.pattern, {}, {0, 0}};
      for (int64_t& lane : moved.pattern) lane += x.base.constant();
      return *split_pattern(moved, divisor);
    }
    if (auto halves = split_pattern(x, divisor)) return *halves;
    const Range bounds = range(x);
    if (bounds.low >= 0 && bounds.high < divisor) return {LaneIndex{Index(0), {}, {}, {0, 0}}, x};
  }
  if (auto halves = split_far(x, divisor)) return *halves;
  const Fragment all = materialise(x);
  const Fragment by = splat(i32(divisor));
  LaneIndex quotient{Index(0), {}, op(kernel::Op::div, all, by), {0, (extent - 1) / divisor}};
  LaneIndex remainder{Index(0), {}, op(kernel::Op::rem, all, by), {0, divisor - 1}};
  splits_.push_back({x, divisor, quotient.dynamic, remainder.dynamic});
  return {quotient, remainder};
}

LaneIndex LaneMath::join(const LaneIndex& quotient, int64_t divisor, const LaneIndex& remainder) {
  const auto is_split = [&](const Split& split) {
    return split.divisor == divisor && split.quotient.id == quotient.dynamic.id &&
           split.remainder.id == remainder.dynamic.id;
  };
  if (quotient.dynamic.valid() && remainder.dynamic.valid()) {
    const auto split = std::find_if(splits_.begin(), splits_.end(), is_split);
    const auto is_zero = [](Index x) { return x.is_constant() && x.constant() == 0; };
    const bool alone =
        quotient.pattern.empty() && remainder.pattern.empty() && is_zero(quotient.base) && is_zero(remainder.base);
    if (alone && split != splits_.end()) return split->whole;
  }
  return add(scale(quotient, divisor), remainder);
}

Range LaneMath::range(Index x) const {
  if (x.is_constant()) return {x.constant(), x.constant()};
  return builder_.range(x.id(builder_));
}

Range LaneMath::range(const LaneIndex& x) {
  Range bounds = add_ranges(range(x.base), x.dynamic_range);
  if (!x.pattern.empty()) bounds = add_ranges(bounds, {low_of(x.pattern), high_of(x.pattern)});
  return bounds;
}

LaneIndex LaneMath::clamp(const LaneIndex& x, int64_t low, int64_t high) {
  const Range bounds = range(x);
  if (bounds.low >= low && bounds.high <= high) return x;
  if (x.uniform()) return {max(min(x.base, Index(high)), Index(low)), {}, {}, {0, 0}};
  if (!x.dynamic.valid() && x.base.is_constant()) {
    LaneIndex clamped{Index(0), x.pattern, {}, {0, 0}};
    for (int64_t& lane : clamped.pattern) lane = std::clamp(lane + x.base.constant(), low, high);
    return tidy(std::move(clamped));
  }
  const Fragment below = op(kernel::Op::min, materialise(x), splat(i32(std::min<int64_t>(high, INT32_MAX))));
  return {Index(0), {}, op(kernel::Op::max, below, splat(i32(low))), {low, high}};
}

LaneMath::Test LaneMath::inside(const LaneIndex& x, int64_t low, int64_t high) {
  const Range bounds = range(x);
  if (bounds.low >= low && bounds.high < high) return {true, true, {}};
  if (bounds.high < low || bounds.low >= high) return {true, false, {}};
  const Fragment all = materialise(x);
  const bool wide = !x.uniform();
  const auto limit = [&](int64_t value) { return wide ? splat(i32(value)) : i32(value); };
  Fragment result;
  if (bounds.low < low) result = op(kernel::Op::less_equal, limit(low), all);
  if (bounds.high >= high) {
    const Fragment below = op(kernel::Op::less, all, limit(high));
    result = result.valid() ? op(kernel::Op::logical_and, result, below) : below;
  }
  return {false, false, result};
}

Fragment LaneMath::i32(int64_t value) {
  if (!fits_i32({value, value})) overflowed_ = true, value = 0;
  return builder_.constant(static_cast<double>(value), Dtype::i32);
}

Fragment LaneMath::splat(Fragment scalar) { return builder_.splat(scalar, {lanes_.width}); }

Fragment LaneMath::materialise(const LaneIndex& x) {
  if (!fits_i32(range(x))) overflowed_ = true;
  if (x.uniform()) return builder_.from_index(x.base);
  Fragment sum = x.dynamic;
  if (!x.pattern.empty()) {
    const Fragment lanes = pattern(x.pattern);
    sum = sum.valid() ? op(kernel::Op::add, sum, lanes) : lanes;
  }
  if (x.base.is_constant() && x.base.constant() == 0) return sum;
  return op(kernel::Op::add, sum, splat(builder_.from_index(x.base)));
}

// Numbers are made of `lane` by permuting it: what is constant the emitter folds.
Fragment LaneMath::pattern(const std::vector<int64_t>& lanes) {
  if (builder_.kernel().target != kernel::Target::host) return computed_pattern(lanes);
  const int64_t width = lanes_.width;
  const int64_t low = low_of(lanes);
  int64_t factor = 0;
  for (int64_t lane : lanes) factor = std::gcd(factor, lane - low);
  std::vector<int64_t> digits;
  std::vector<int64_t> rest;
  for (int64_t lane : lanes) {
    const int64_t scaled = factor == 0 ? 0 : (lane - low) / factor;
    digits.push_back(scaled % width);
    rest.push_back(scaled / width);
  }
  std::vector<int64_t> identity(lanes.size());
  std::iota(identity.begin(), identity.end(), 0);
  Fragment sum = builder_.lane({width});
  if (digits != identity) sum = builder_.permute(sum, digits);
  if (high_of(rest) > 0) {
    const Fragment upper = op(kernel::Op::mul, pattern(rest), splat(i32(width)));
    sum = op(kernel::Op::add, sum, upper);
  }
  if (factor > 1) sum = op(kernel::Op::mul, sum, splat(i32(factor)));
  if (low != 0) sum = op(kernel::Op::add, sum, splat(i32(low)));
  return sum;
}

// A GPU's threads compute their numbers: as sums of digits of the lane's own number, the digits found from the pattern.
// From the first of the equal lanes at the end on, lanes count as that one.
Fragment LaneMath::computed_pattern(const std::vector<int64_t>& lanes) {
  std::vector<int64_t> rest = lanes;
  while (rest.size() > 1 && rest[rest.size() - 1] == rest[rest.size() - 2]) rest.pop_back();
  const auto wide = [&](int64_t value) { return splat(i32(value)); };
  Fragment number = builder_.lane({lanes_.width});
  if (rest.size() < lanes.size()) number = op(kernel::Op::min, number, wide(static_cast<int64_t>(rest.size()) - 1));
  Fragment sum = wide(rest[0]);
  const auto add_digit = [&](Fragment digit, int64_t factor) {
    if (factor != 0) sum = op(kernel::Op::add, sum, factor == 1 ? digit : op(kernel::Op::mul, digit, wide(factor)));
  };
  // Each round takes the longest run of equal steps as one digit, and goes on with the first elements of the runs.
  while (rest.size() > 1) {
    const int64_t step = rest[1] - rest[0];
    size_t run = 1;
    while (run < rest.size() && rest[run] - rest[run - 1] == step) ++run;
    bool whole = run > 1;
    for (size_t i = 0; whole && i < rest.size(); ++i)
      whole = rest[i] - rest[i / run * run] == step * static_cast<int64_t>(i % run);
    if (!whole) return number_by_number(lanes);
    const Fragment length = wide(static_cast<int64_t>(run));
    const bool is_last = run >= rest.size();
    add_digit(is_last ? number : op(kernel::Op::rem, number, length), step);
    if (is_last) break;
    number = op(kernel::Op::div, number, length);
    std::vector<int64_t> firsts;
    for (size_t i = 0; i < rest.size(); i += run) firsts.push_back(rest[i]);
    rest = std::move(firsts);
  }
  return sum;
}

// Nothing regular: one selection for each change.
Fragment LaneMath::number_by_number(const std::vector<int64_t>& lanes) {
  const Fragment number = builder_.lane({lanes_.width});
  Fragment sum = splat(i32(lanes.back()));
  for (size_t lane = lanes.size() - 1; lane-- > 0;) {
    if (lanes[lane] == lanes[lane + 1]) continue;
    const Fragment before = op(kernel::Op::less_equal, number, splat(i32(static_cast<int64_t>(lane))));
    sum = builder_.pointwise(kernel::Op::select, {before, splat(i32(lanes[lane])), sum});
  }
  return sum;
}

bool LaneMath::can_permute(const std::vector<int64_t>& from, int64_t source_width) const {
  const kernel::Kernel& kernel = builder_.kernel();
  if (kernel.target == kernel::Target::host) return true;
  if (kernel.roles.empty() || source_width != static_cast<int64_t>(from.size())) return false;
  const int64_t vector = kernel::lane_vector(source_width, int64_t{32} * kernel.roles.back().warps);
  // The same move in every thread, within the neighbours that it holds.
  for (size_t lane = 0; lane < from.size(); ++lane) {
    const auto own = static_cast<int64_t>(lane);
    if (from[lane] / vector != own / vector) return false;
    if (from[lane] % vector != from[lane % static_cast<size_t>(vector)]) return false;
  }
  return true;
}

std::vector<int64_t> position_key(KernelBuilder& builder, const Position& position) {
  std::vector<int64_t> key;
  for (const LaneIndex& x : position) {
    key.push_back(static_cast<int64_t>(x.base.id(builder)));
    key.push_back(static_cast<int64_t>(x.dynamic.id));
    key.push_back(static_cast<int64_t>(x.pattern.size()));
    key.insert(key.end(), x.pattern.begin(), x.pattern.end());
  }
  return key;
}

}  // namespace stepc::schedule
