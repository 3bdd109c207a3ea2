// Bounds: every access is a box in a buffer, and the checker asks of each dimension whether the ranges prove
// 0 <= start and start + extent <= size. What holds in a branch (its condition) is taken into account.
#include <algorithm>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/print.h"
#include "ir/kernel/verify.h"
#include "ir/kernel/verify_rules.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

// The extent of an access along one dimension: at most `limit`, or `count` + `extra` if there is a count. It
// is counted in parts of an element where the dimension is of units or panels, `parts` to each.
struct Extent {
  int64_t limit = 1;
  ExprId count = ExprId::none;
  int64_t extra = 0;
  int64_t parts = 1;
};

struct Access {
  const KOp* op = nullptr;
  const Ref* ref = nullptr;
  std::vector<Extent> extents;  // one a dimension
};

size_t rows_dimension(const KOp& op, const Buffer& buffer) {
  return static_cast<size_t>(integer_attr(op, "rows", static_cast<int64_t>(buffer.shape.size()) - 2));
}

Access fragment_access(const Kernel& kernel, const KOp& op, const Frag& frag) {
  const Buffer& buffer = kernel.buffer(op.refs[0].buffer);
  Access access{&op, &op.refs[0], std::vector<Extent>(buffer.shape.size())};
  if (frag.shape.empty()) return access;
  access.extents.back() = {frag.shape.back(), op.indices.empty() ? ExprId::none : op.indices[0]};
  if (frag.shape.size() == 2)
    access.extents[rows_dimension(op, buffer)] = {frag.shape[0], op.indices.size() > 1 ? op.indices[1] : ExprId::none};
  return access;
}

// (source, target, height, width): both have the tile's extents, but the source is read only to height and width.
std::vector<Access> copy_async_accesses(const Kernel& kernel, const KOp& op) {
  const auto& tile = std::get<std::vector<int64_t>>(find_attr(op, "tile")->value);
  const Buffer& source = kernel.buffer(op.refs[0].buffer);
  Access from{&op, &op.refs[0], std::vector<Extent>(source.shape.size())};
  from.extents.back() = {tile[1], op.indices[1]};
  from.extents[rows_dimension(op, source)] = {tile[0], op.indices[0]};
  Access to{&op, &op.refs[1], std::vector<Extent>(op.refs[1].at.size())};
  to.extents.back().limit = tile[1];
  to.extents[to.extents.size() - 2].limit = tile[0];
  return {from, to};
}

// The box of a map lies along the last dimensions of the shared tile, leaving out its leading ones.
Access box_access(const Kernel& kernel, const KOp& op, const Ref& shared, const Ref& place) {
  const Shape& box = kernel.buffer(place.buffer).box;
  Access access{&op, &shared, std::vector<Extent>(shared.at.size())};
  Shape wide = box;
  std::erase(wide, 1);
  const size_t dims = std::min(wide.size(), access.extents.size());
  for (size_t i = 1; i <= dims; ++i) access.extents[access.extents.size() - i].limit = wide[wide.size() - i];
  return access;
}

// A tile of `rows` by `cols`; in panels of 64 columns where it is wider and of bf16.
Access panel_access(const Kernel& kernel, const KOp& op, const Ref& ref, int64_t rows, int64_t cols) {
  constexpr int64_t kPanelColumns = 64;
  const bool is_panelled = kernel.buffer(ref.buffer).dtype == Dtype::bf16;
  Access access{&op, &ref, std::vector<Extent>(ref.at.size())};
  const size_t rank = access.extents.size();
  access.extents[rank - 1].limit = is_panelled ? std::min(cols, kPanelColumns) : cols;
  access.extents[rank - 2].limit = rows;
  if (rank >= 3 && is_panelled) access.extents[rank - 3].limit = (cols + kPanelColumns - 1) / kPanelColumns;
  return access;
}

// A shared operand of a product whose own extent is `mn`.
Access product_access(const Kernel& kernel, const KOp& op, const Ref& ref, std::string_view major_name, int64_t mn) {
  const int64_t depth = integer_attr(op, "k", 0);
  const bool k_major = std::get<std::string>(find_attr(op, major_name)->value) == "k";
  return k_major ? panel_access(kernel, op, ref, mn, depth) : panel_access(kernel, op, ref, depth, mn);
}

std::vector<Access> product_accesses(const Kernel& kernel, const KOp& op) {
  const Shape& acc = kernel.frag(op.results[0]).shape;
  std::vector<Access> accesses;
  if (op.refs.size() == 2) accesses.push_back(product_access(kernel, op, op.refs[0], "a", acc[0]));
  accesses.push_back(product_access(kernel, op, op.refs.back(), "b", acc[1]));
  return accesses;
}

// ---- host contractions ----------------------------------------------------------------------------------------

constexpr int64_t kAnyLength = INT64_MAX;  // only the count bounds it

int64_t unit_of(const Buffer& panels) { return panels.dtype == Dtype::bf16 ? 2 : 1; }

Access pack_source(const Kernel& kernel, const KOp& op) {
  const Buffer& source = kernel.buffer(op.refs[0].buffer);
  Access access{&op, &op.refs[0], std::vector<Extent>(source.shape.size())};
  const size_t transposed = flag_attr(op, "transposed");
  access.extents[rows_dimension(op, source)] = {kAnyLength, op.indices[transposed]};
  access.extents.back() = {kAnyLength, op.indices[1 - transposed]};
  return access;
}

Access pack_target(const Kernel& kernel, const KOp& op) {
  const Buffer& target = kernel.buffer(op.refs[1].buffer);
  Access access{&op, &op.refs[1], std::vector<Extent>(target.shape.size())};
  access.extents[0] = {kAnyLength, op.indices[1], 0, target.shape[2]};
  access.extents[1] = {kAnyLength, op.indices[0], 0, unit_of(target)};
  access.extents[2].limit = target.shape[2];
  if (unit_of(target) == 2) access.extents[3].limit = 2;
  return access;
}

Access mma_panel(const Kernel& kernel, const KOp& op, const Ref& ref, int64_t columns) {
  const Buffer& panels = kernel.buffer(ref.buffer);
  Access access{&op, &ref, std::vector<Extent>(panels.shape.size())};
  access.extents[1] = {kAnyLength, op.indices[0], 0, unit_of(panels)};
  access.extents[2].limit = columns;
  if (unit_of(panels) == 2) access.extents[3].limit = 2;
  return access;
}

Access mma_rows(const Kernel& kernel, const KOp& op, int64_t rows) {
  const Buffer& a = kernel.buffer(op.refs[0].buffer);
  Access access{&op, &op.refs[0], std::vector<Extent>(a.shape.size())};
  access.extents[rows_dimension(op, a)].limit = rows;
  const bool may_be_odd = unit_of(a) == 2 && multiple_of(kernel, op.indices[0]) % 2 != 0;
  access.extents.back() = {kAnyLength, op.indices[0], may_be_odd ? 1 : 0};
  return access;
}

std::vector<Access> mma_accesses(const Kernel& kernel, const KOp& op) {
  const Shape& acc = kernel.frag(op.frags[0]).shape;
  const bool a_rows = std::get<std::string>(find_attr(op, "a")->value) == "rows";
  return {a_rows ? mma_rows(kernel, op, acc[0]) : mma_panel(kernel, op, op.refs[0], acc[0]),
          mma_panel(kernel, op, op.refs[1], acc[1])};
}

// Single elements of a dimension each: barriers, and places whose extent is in bytes or unknown.
std::vector<Access> element_accesses(const Kernel& kernel, const KOp& op) {
  std::vector<Access> accesses;
  for (const Ref& ref : op.refs)
    if (kernel.buffer(ref.buffer).space != Space::map)
      accesses.push_back({&op, &ref, std::vector<Extent>(ref.at.size())});
  return accesses;
}

std::vector<Access> accesses_of(const Kernel& kernel, const KOp& op) {
  if (op.op == Op::load) return {fragment_access(kernel, op, kernel.frag(op.results[0]))};
  if (op.op == Op::store) return {fragment_access(kernel, op, kernel.frag(op.frags[0]))};
  if (op.op == Op::pack) return {pack_source(kernel, op), pack_target(kernel, op)};
  if (op.op == Op::mma) return mma_accesses(kernel, op);
  if (op.op == Op::prefetch) return {};  // a hint may be anywhere
  if (op.op == Op::copy_async) return copy_async_accesses(kernel, op);
  if (op.op == Op::wgmma || op.op == Op::wgmma_rs || op.op == Op::mma_sync || op.op == Op::mma_sync_rs)
    return product_accesses(kernel, op);
  if (op.op == Op::stmatrix) {
    const Shape& shape = kernel.frag(op.frags[0]).shape;
    const bool transposed = flag_attr(op, "transposed");
    return {panel_access(kernel, op, op.refs[0], shape[transposed ? 1 : 0], shape[transposed ? 0 : 1])};
  }
  if (op.op == Op::tma_load) {
    std::vector<Access> accesses = element_accesses(kernel, op);
    accesses[0] = box_access(kernel, op, op.refs[1], op.refs[0]);
    return accesses;
  }
  if (op.op == Op::tma_store) return {box_access(kernel, op, op.refs[0], op.refs[1])};
  return element_accesses(kernel, op);
}

enum class Verdict : uint8_t { inside, unknown, outside };

class Prover {
 public:
  explicit Prover(const Kernel& kernel) : kernel_(kernel), definitions_(definitions_of(kernel)) {}

  // Calls `report(access, dimension, verdict)` for what is not proved.
  template <class Report>
  void body(const Body& body, const Report& report) {
    for (OpId id : body.ops) {
      const KOp& op = kernel_.op(id);
      for (const Access& access : accesses_of(kernel_, op)) check(access, report);
      for (size_t i = 0; i < op.bodies.size(); ++i) {
        const bool is_then = op.op == Op::branch && i == 0;
        const size_t facts = facts_.size();
        if (is_then) assume(op.indices[0]);
        this->body(op.bodies[i], report);
        facts_.resize(facts);
      }
    }
  }

 private:
  // In the body of a branch on less(a, b), a - b + 1 <= 0. Conditions joined by a product hold all.
  void assume(ExprId condition) {
    const Expr& expr = kernel_.expr(condition);
    if (expr.kind == ExprKind::mul) {
      assume(expr.a);
      assume(expr.b);
    }
    if (expr.kind != ExprKind::less) return;
    auto fact = add_scaled(linear_of(kernel_, expr.a), linear_of(kernel_, expr.b), -1);
    if (fact) fact = add_scaled(*fact, Linear{1, {}}, 1);
    if (fact) facts_.push_back(std::move(*fact));
  }

  bool is_at_most_zero(const Linear& sum) const {
    if (range_of(kernel_, sum, &definitions_).high <= 0) return true;
    return std::any_of(facts_.begin(), facts_.end(), [&](const Linear& fact) { return follows(sum, fact); });
  }

  // sum <= 0 where scale * sum <= fact + something below scale, or sum <= scale * fact, for a scale at which the two
  // share a term.
  bool follows(const Linear& sum, const Linear& fact) const {
    for (const Linear::Term& have : fact.terms)
      for (const Linear::Term& want : sum.terms) {
        if (have.atom != want.atom) continue;
        if (follows_scaled(sum, fact, have.coefficient, want.coefficient)) return true;
        if (want.coefficient % have.coefficient != 0) continue;
        const int64_t scale = want.coefficient / have.coefficient;
        const auto rest = scale > 0 ? add_scaled(sum, fact, -scale) : std::nullopt;
        if (rest && range_of(kernel_, *rest, &definitions_).high <= 0) return true;
      }
    return false;
  }

  bool follows_scaled(const Linear& sum, const Linear& fact, int64_t have, int64_t want) const {
    if (have % want != 0) return false;
    const int64_t scale = have / want;
    const auto scaled = scale > 0 ? add_scaled({}, sum, scale) : std::nullopt;
    const auto rest = scaled ? add_scaled(*scaled, fact, -1) : std::nullopt;
    return rest && range_of(kernel_, *rest, &definitions_).high < scale;
  }

  // start + extent <= size?
  Verdict ends_inside(const Linear& start, const Extent& extent, int64_t size) const {
    const auto past = [&](const Linear& length) -> std::optional<Linear> {
      const auto left = add_scaled(start, Linear{size, {}}, -1);
      const auto parts = left ? add_scaled({}, *left, extent.parts) : std::nullopt;
      return parts ? add_scaled(*parts, length, 1) : std::nullopt;
    };
    const auto whole = extent.limit == kAnyLength ? std::nullopt : past(Linear{extent.limit, {}});
    if (whole && is_at_most_zero(*whole)) return Verdict::inside;
    if (extent.count != ExprId::none) {
      const auto counted = past(linear_of(kernel_, extent.count));
      const auto with_extra = counted ? add_scaled(*counted, Linear{extent.extra, {}}, 1) : std::nullopt;
      return with_extra && is_at_most_zero(*with_extra) ? Verdict::inside : Verdict::unknown;
    }
    return whole && range_of(kernel_, *whole, &definitions_).low > 0 ? Verdict::outside : Verdict::unknown;
  }

  Verdict starts_inside(const Linear& start) const {
    const auto negated = add_scaled({}, start, -1);
    if (negated && is_at_most_zero(*negated)) return Verdict::inside;
    return range_of(kernel_, start, &definitions_).high < 0 ? Verdict::outside : Verdict::unknown;
  }

  template <class Report>
  void check(const Access& access, const Report& report) const {
    const Buffer& buffer = kernel_.buffer(access.ref->buffer);
    for (size_t i = 0; i < access.extents.size(); ++i) {
      const Linear start = linear_of(kernel_, access.ref->at[i]);
      const Verdict worst = std::max(starts_inside(start), ends_inside(start, access.extents[i], buffer.shape[i]));
      if (worst != Verdict::inside) report(access, i, worst);
    }
  }

  const Kernel& kernel_;
  Definitions definitions_;
  std::vector<Linear> facts_;  // sums that are at most 0 here
};

// A kernel of no tasks touches nothing.
bool never_runs(const Kernel& kernel) { return range_of(kernel, kernel.grid).high <= 0; }

std::string bound_text(int64_t bound) {
  if (bound == INT64_MIN || bound == INT64_MAX) return "?";
  return fmt::format("{}", bound);
}

std::string described(const Kernel& kernel, const Access& access, size_t dimension) {
  const Buffer& buffer = kernel.buffer(access.ref->buffer);
  const Definitions definitions = definitions_of(kernel);
  const Extent& extent = access.extents[dimension];
  const ExprId at = access.ref->at[dimension];
  const Range start = range_of(kernel, linear_of(kernel, at), &definitions);
  std::string length = extent.limit == 1 ? "" : fmt::format(" and {} more", extent.limit - 1);
  if (extent.count != ExprId::none) length = fmt::format(", {} of them", expr_text(kernel, extent.count));
  if (extent.parts != 1) length += fmt::format(", {} in one", extent.parts);
  return fmt::format("%{}{}, dimension {}: {} ({} to {}){}", buffer.name, shape_text(buffer.shape), dimension,
                     expr_text(kernel, at), bound_text(start.low), bound_text(start.high), length);
}

}  // namespace

Status check_bounds(const Kernel& kernel) {
  Status status;
  if (never_runs(kernel)) return status;
  const auto report = [&](const Access& access, size_t dimension, Verdict verdict) {
    if (verdict == Verdict::outside && status)
      status = op_error(*access.op, "out of bounds of {}", described(kernel, access, dimension));
  };
  Prover prover(kernel);
  for (const Role& role : kernel.roles) prover.body(role.body, report);
  return status;
}

std::vector<std::string> unproved_accesses(const Kernel& kernel) {
  std::vector<std::string> unproved;
  if (never_runs(kernel)) return unproved;
  const auto report = [&](const Access& access, size_t dimension, Verdict) {
    unproved.push_back(fmt::format("{} {}", op_info(access.op->op).name, described(kernel, access, dimension)));
  };
  Prover prover(kernel);
  for (const Role& role : kernel.roles) prover.body(role.body, report);
  return unproved;
}

}  // namespace stepc::kernel
