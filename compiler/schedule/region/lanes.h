// Index arithmetic for all lanes of a vector at once. An index along one dimension is a uniform part (an
// expression of the kernel) plus what each lane adds: a pattern known now, or an i32 fragment. Views move
// positions about by add, scale, split and join; as long as the pattern stays known a load can be a plain
// vector load or a permuted one, and only `dynamic` lanes need a gather.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "ir/kernel/builder.h"

namespace stepc::schedule {

using Fragment = kernel::Value;
using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Range;

struct LaneIndex {
  Index base;
  std::vector<int64_t> pattern;  // added to lane i; empty: nothing
  Fragment dynamic;              // i32[lanes], added too; not valid: nothing
  Range dynamic_range{0, 0};

  bool uniform() const { return pattern.empty() && !dynamic.valid(); }
};

// One index a dimension.
using Position = std::vector<LaneIndex>;

// The lanes that a piece of code works on. Lanes from `active` on are idle: they compute on the operands of
// the last active lane, and nothing of theirs is stored. `count`, if set, is the number of active lanes
// where only the running kernel knows it; idle lanes then see zeros, and only contiguous access is possible.
struct Lanes {
  int64_t width = 1;
  int64_t active = 1;
  std::optional<Index> count;
};

class LaneMath {
 public:
  explicit LaneMath(KernelBuilder& builder) : builder_(builder) {}
  void set_lanes(Lanes lanes) { lanes_ = std::move(lanes); }
  const Lanes& lanes() const { return lanes_; }

  // base, base + 1, ... in successive lanes.
  LaneIndex along(Index base) const;
  LaneIndex zero() const { return {Index(0), {}, {}, {0, 0}}; }
  LaneIndex add(const LaneIndex& a, const LaneIndex& b);
  LaneIndex shift(const LaneIndex& x, int64_t by) const {
    return {x.base + Index(by), x.pattern, x.dynamic, x.dynamic_range};
  }
  LaneIndex scale(const LaneIndex& x, int64_t factor);
  // The quotient and the remainder by `divisor`, for x in [0, extent).
  std::pair<LaneIndex, LaneIndex> split(const LaneIndex& x, int64_t divisor, int64_t extent);
  // quotient * divisor + remainder; what split took apart comes together again.
  LaneIndex join(const LaneIndex& quotient, int64_t divisor, const LaneIndex& remainder);
  LaneIndex clamp(const LaneIndex& x, int64_t low, int64_t high);
  Range range(const LaneIndex& x);

  // pred: low <= x < high, a scalar where x is uniform. Nothing where it is the same for all of x's range;
  // `always` then tells which.
  struct Test {
    bool known = false;
    bool always = false;
    Fragment inside;
  };
  Test inside(const LaneIndex& x, int64_t low, int64_t high);

  // As an i32 fragment, a scalar where x is uniform.
  Fragment materialise(const LaneIndex& x);
  // Has some fragment been made of an index that does not fit 32 bits? What holds it is then of no use.
  bool overflowed() const { return overflowed_; }
  // i32[width] of numbers known now.
  Fragment pattern(const std::vector<int64_t>& lanes);
  // Can the lanes of a fragment this wide be put in that order? On a GPU they may not leave their thread.
  bool can_permute(const std::vector<int64_t>& from, int64_t source_width) const;
  Fragment splat(Fragment scalar);

 private:
  Fragment computed_pattern(const std::vector<int64_t>& lanes);
  Fragment number_by_number(const std::vector<int64_t>& lanes);
  Range range(Index x) const;
  std::optional<std::pair<LaneIndex, LaneIndex>> split_pattern(const LaneIndex& x, int64_t divisor);
  std::optional<std::pair<LaneIndex, LaneIndex>> split_far(const LaneIndex& x, int64_t divisor);
  Fragment i32(int64_t value);
  Fragment op(kernel::Op op, Fragment a, Fragment b) { return builder_.pointwise(op, {a, b}); }
  LaneIndex tidy(LaneIndex x) const;

  // Splits of lanes that are known only at run time, for join to undo.
  struct Split {
    LaneIndex whole;
    int64_t divisor = 1;
    Fragment quotient;
    Fragment remainder;
  };

  KernelBuilder& builder_;
  Lanes lanes_;
  std::vector<Split> splits_;
  bool overflowed_ = false;
};

// The position's identity: equal vectors mean equal positions.
std::vector<int64_t> position_key(KernelBuilder& builder, const Position& position);

}  // namespace stepc::schedule
