#include "compiler/schedule/region/tile_plan.h"

#include <algorithm>

#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using kernel::Index;

class Planner {
 public:
  Planner(const Program& program, const Group& group, const MatmulGroup& matmul, int64_t rows, int64_t columns)
      : program_(program), group_(group), matmul_(matmul), rows_(rows), columns_(columns) {
    values_ = group_operands(program, group);
    const std::vector<ValueId> results = group_results(program, group);
    values_.insert(values_.end(), results.begin(), results.end());
  }

  bool operands_agree() const { return matmul_.a != matmul_.b || shape_a() == shape_b(); }

  // Buffers of as many elements as the product (or half or twice as many columns) are declared like it, where tiles
  // then lie as tiles.
  Result<TilePlan> plan(int64_t step) {
    std::map<ValueId, Shape> like_product;
    for (ValueId value : values_)
      if (const auto shape = product_shape(value)) like_product[value] = *shape;
    TilePlan plan;
    plan.shapes = {{matmul_.a, shape_a()}, {matmul_.b, shape_b()}};
    if (matmul_.count != ValueId::none) plan.shapes[matmul_.count] = {matmul_.sizes.batch};
    for (const auto& [value, shape] : like_product) plan.shapes.insert({value, shape});
    const Dry first = run(step, plan.shapes);
    for (ValueId value : first.unfit)
      if (value != matmul_.a && value != matmul_.b && value != matmul_.count) plan.shapes.erase(value);
    const Dry last = first.unfit.empty() ? first : run(step, plan.shapes);
    if (last.failure) return user_error("{}", *last.failure);
    plan.step = step;
    plan.scattered = last.scattered;
    plan.tile_loads = last.tile_loads;
    return plan;
  }

 private:
  struct Dry {
    std::set<ValueId> unfit;
    std::optional<std::string> failure;
    int64_t scattered = 0;
    int64_t tile_loads = 0;
  };

  Shape operand_shape(bool transposed, int64_t rows, int64_t columns) const {
    return transposed ? Shape{matmul_.sizes.batch, columns, rows} : Shape{matmul_.sizes.batch, rows, columns};
  }
  Shape shape_a() const { return operand_shape(matmul_.sizes.transpose_a, matmul_.sizes.m, matmul_.sizes.k); }
  Shape shape_b() const { return operand_shape(matmul_.sizes.transpose_b, matmul_.sizes.k, matmul_.sizes.n); }

  std::optional<Shape> product_shape(ValueId value) const {
    const MatmulProblem& sizes = matmul_.sizes;
    const int64_t count = numel(program_.type(value).shape);
    const int64_t rows = sizes.batch * sizes.m;
    if (rows == 0 || count % rows != 0) return std::nullopt;
    for (int64_t width : {sizes.n, 2 * sizes.n, sizes.columns()})
      if (count == rows * width) return Shape{sizes.batch, sizes.m, width};
    return std::nullopt;
  }

  // Makes the code of one tile somewhere in the product, to see what it needs.
  Dry run(int64_t step, const std::map<ValueId, Shape>& shapes) const {
    const MatmulProblem& sizes = matmul_.sizes;
    kernel::KernelBuilder builder("plan", kernel::Target::host);
    std::map<ValueId, kernel::BufferId> buffers;
    for (ValueId value : values_) {
      const TensorType& type = program_.type(value);
      const auto given = shapes.find(value);
      buffers[value] = builder.global("x", type.dtype, given == shapes.end() ? type.shape : given->second);
    }
    const int64_t m_tiles = (sizes.m + rows_ - 1) / rows_;
    const int64_t n_tiles = (sizes.columns() + columns_ - 1) / columns_;
    Dry dry;
    if (sizes.batch * m_tiles * n_tiles == 0) return dry;
    builder.set_grid(sizes.batch * m_tiles * n_tiles);
    builder.begin_role("main");
    ProductTile tile{builder.task() / Index(n_tiles * m_tiles),
                     builder.task() / Index(n_tiles) % Index(m_tiles) * Index(rows_),
                     builder.task() % Index(n_tiles) * Index(columns_),
                     {}};
    for (int64_t part = 0; part < sizes.parts(); ++part)
      tile.sums.push_back(builder.constant(0, Dtype::f32, {rows_, columns_}));
    TileRegion region(builder, program_, group_, matmul_, buffers, step);
    region.store(tile);
    dry.unfit = region.unfit();
    dry.failure = region.failure();
    const int64_t steps = columns_ / step;
    dry.scattered = (region.scattered() + steps - 1) / steps;
    for (const kernel::KOp& op : builder.kernel().ops)
      dry.tile_loads += op.op == kernel::Op::load && builder.kernel().frag(op.results[0]).shape.size() == 2;
    dry.tile_loads = (dry.tile_loads + steps - 1) / steps;
    return dry;
  }

  const Program& program_;
  const Group& group_;
  const MatmulGroup& matmul_;
  int64_t rows_;
  int64_t columns_;
  std::vector<ValueId> values_;  // operands, then results
};

}  // namespace

Result<TilePlan> plan_tiles(const Program& program, const Group& group, const MatmulGroup& matmul, int64_t tile_rows,
                            int64_t tile_columns, int64_t max_step, int64_t live_columns) {
  const auto refuse = [&](std::string_view reason) {
    return user_error("kernel @{}: its results cannot be made on tiles of {} x {}: {}", group.name, tile_rows,
                      tile_columns, reason);
  };
  Planner planner(program, group, matmul, tile_rows, tile_columns);
  if (!planner.operands_agree()) return refuse("one operand is both sides of the product, in two shapes");
  std::optional<TilePlan> best;
  bool best_fits = false;
  std::string reason = fmt::format("no number of columns that is a multiple of 8 divides {}", tile_columns);
  // Fewer columns may stay in dimensions of their own where more do not.
  for (int64_t step = std::min(max_step, tile_columns); step >= 8; step /= 2) {
    if (tile_columns % step != 0 || step % 8 != 0) continue;
    Result<TilePlan> plan = planner.plan(step);
    if (!plan && !best) reason = plan.error().message;
    if (!plan) continue;
    const int64_t results = static_cast<int64_t>(matmul.stores.size()) * matmul.sizes.parts();
    const bool fits = step <= 16 || (plan->tile_loads + results + 1) * step <= live_columns;
    if (best && plan->scattered >= best->scattered && !(plan->scattered == best->scattered && fits && !best_fits))
      continue;
    best = *std::move(plan);
    best_fits = fits;
    if (fits && best->scattered == 0) break;
  }
  if (!best) return refuse(reason);
  best->columns = column_map(program, group);
  return *std::move(best);
}

}  // namespace stepc
