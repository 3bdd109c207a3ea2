#include "ir/kernel/layout.h"

#include <numeric>

#include "ir/kernel/types.h"
#include "ir/kernel/verify_rules.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

constexpr int64_t kWarpRows = 16;  // of a tile block that one warp holds
constexpr int64_t kMaxVector = 8;

// Vectors that must be held alike are joined; a tile that one is reduced from or spread to says how.
class LayoutSolver {
 public:
  explicit LayoutSolver(const Kernel& kernel)
      : kernel_(kernel), parent_(kernel.frags.size()), known_(kernel.frags.size()) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }

  Result<std::vector<FragLayout>> solve() {
    for (const Role& role : kernel_.roles) {
      warps_ = std::max(role.warps, 1);
      STEPC_TRY(body(role.body, nullptr));
    }
    std::vector<FragLayout> layouts;
    for (size_t i = 0; i < kernel_.frags.size(); ++i) {
      const size_t rank = kernel_.frags[i].shape.size();
      const FragLayout vector = known_[root(i)].value_or(FragLayout::lanes);
      layouts.push_back(rank == 0 ? FragLayout::scalar : rank == 1 ? vector : FragLayout::tile);
    }
    return layouts;
  }

 private:
  size_t root(size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  bool is_vector(FragId id) const { return kernel_.frag(id).shape.size() == 1; }

  Status conflict(const KOp& op, FragId id, FragLayout a, FragLayout b) const {
    return op_error(op, "%{} would have to be held both as {} and as {}", kernel_.frag(id).name, layout_name(a),
                    layout_name(b));
  }

  Status set(const KOp& op, FragId id, FragLayout layout) {
    std::optional<FragLayout>& known = known_[root(index_of(id))];
    if (known && *known != layout) return conflict(op, id, *known, layout);
    known = layout;
    return {};
  }

  Status join(const KOp& op, FragId a, FragId b) {
    if (!is_vector(a) || !is_vector(b)) return {};
    const size_t x = root(index_of(a)), y = root(index_of(b));
    if (x == y) return {};
    if (known_[x] && known_[y] && *known_[x] != *known_[y]) return conflict(op, b, *known_[x], *known_[y]);
    parent_[y] = x;
    if (!known_[x]) known_[x] = known_[y];
    return {};
  }

  Status tie(const KOp& op) {
    const bool reduces = op.op == Op::reduce_sum || op.op == Op::reduce_max || op.op == Op::reduce_min;
    if (reduces && is_vector(op.results[0])) return set(op, op.results[0], FragLayout::tile_row);
    if (op.op == Op::splat && is_vector(op.frags[0]) && !is_vector(op.results[0]))
      return set(op, op.frags[0], integer_attr(op, "axis", 1) == 0 ? FragLayout::tile_row : FragLayout::tile_column);
    if (op.op == Op::scatter) return join(op, op.frags[0], op.frags[1]);
    if (is_pointwise(op.op) || op.op == Op::gather)
      for (FragId id : op.frags) STEPC_TRY(join(op, op.results[0], id));
    return {};
  }

  Status check_tiles(const KOp& op) const {
    for (FragId id : op.results) {
      const Frag& frag = kernel_.frag(id);
      if (frag.shape.size() == 2 && frag.shape[0] % (kWarpRows * warps_) != 0)
        return op_error(op, "%{} is {}, expected a multiple of {} rows for {} warps", frag.name, frag_type_text(frag),
                        kWarpRows * warps_, warps_);
      if (frag.shape.size() == 2 && frag.shape[1] % 8 != 0)
        return op_error(op, "%{} is {}, expected a multiple of 8 columns", frag.name, frag_type_text(frag));
    }
    return {};
  }

  Status body(const Body& body, const KOp* owner) {
    for (OpId id : body.ops) {
      const KOp& op = kernel_.op(id);
      STEPC_TRY(check_tiles(op));
      STEPC_TRY(tie(op));
      for (const Body& inner : op.bodies) {
        for (size_t i = 0; i < inner.carried.size(); ++i) {
          STEPC_TRY(join(op, op.results[i], inner.carried[i]));
          STEPC_TRY(join(op, op.results[i], op.frags[i]));
        }
        STEPC_TRY(this->body(inner, &op));
      }
      if (op.op == Op::yield && owner)
        for (size_t i = 0; i < op.frags.size(); ++i) STEPC_TRY(join(op, owner->results[i], op.frags[i]));
    }
    return {};
  }

  const Kernel& kernel_;
  std::vector<size_t> parent_;
  std::vector<std::optional<FragLayout>> known_;  // by root
  int64_t warps_ = 1;
};

}  // namespace

std::string_view layout_name(FragLayout layout) {
  switch (layout) {
    case FragLayout::scalar: return "a scalar";
    case FragLayout::lanes: return "lanes";
    case FragLayout::tile: return "a tile";
    case FragLayout::tile_row: return "a number per row of a tile";
    case FragLayout::tile_column: return "a number per column of a tile";
  }
  STEPC_UNREACHABLE("layout {}", static_cast<int>(layout));
}

int64_t lane_vector(int64_t n, int64_t threads) {
  int64_t vector = kMaxVector;
  while (vector > 1 && n % (threads * vector) != 0) vector /= 2;
  return vector;
}

int64_t slot_count(FragLayout layout, const Shape& shape, int64_t threads) {
  const int64_t warps = threads / 32;
  switch (layout) {
    case FragLayout::scalar: return 1;
    case FragLayout::lanes: return (shape[0] + threads - 1) / threads;
    case FragLayout::tile: return shape[0] / (kWarpRows * warps) * (shape[1] / 8) * 4;
    case FragLayout::tile_row: return shape[0] / (kWarpRows * warps) * 2;
    case FragLayout::tile_column: return shape[0] / 8 * 2;
  }
  STEPC_UNREACHABLE("layout {}", static_cast<int>(layout));
}

Result<std::vector<FragLayout>> fragment_layouts(const Kernel& kernel) { return LayoutSolver(kernel).solve(); }

}  // namespace stepc::kernel
