// Runs the epilogue of a contraction's group as a GPU template makes it, tile by tile through TileRegion, and compares
// it with the graph evaluator: in the interpreter of kernel IR, and as code for this CPU. The product itself is given.
#pragma once

#include <set>

#include "compiler/schedule/region/tile_plan.h"
#include "ir/kernel/layout.h"
#include "tests/support/run_group.h"

namespace stepc::test {

struct TileKernel {
  kernel::Kernel kernel;
  TilePlan plan;
  std::vector<ValueId> values;  // operands, then results; the last buffer is the product, f32
};

// A kernel for the host's interpreter: one task a tile.
inline TileKernel build_tiles(const Program& program, const Group& group, int64_t rows, int64_t columns) {
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  const auto plan = plan_tiles(program, group, matmul, rows, columns);
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  TileKernel made{{}, *plan, group_operands(program, group)};
  const size_t operands = made.values.size();
  for (ValueId result : group_results(program, group)) made.values.push_back(result);
  kernel::KernelBuilder builder("tiles", kernel::Target::host);
  std::map<ValueId, kernel::BufferId> buffers;
  for (size_t i = 0; i < made.values.size(); ++i) {
    const TensorType& type = program.type(made.values[i]);
    const auto shape = plan->shapes.find(made.values[i]);
    buffers[made.values[i]] = builder.global(i < operands ? fmt::format("x{}", i) : fmt::format("y{}", i - operands),
                                             type.dtype, shape == plan->shapes.end() ? type.shape : shape->second);
  }
  const MatmulProblem& sizes = matmul.sizes;
  const auto product = builder.global("product", Dtype::f32, {sizes.batch, sizes.m, sizes.n});
  const int64_t m_tiles = (sizes.m + rows - 1) / rows;
  const int64_t n_tiles = (sizes.columns() + columns - 1) / columns;
  builder.set_grid(sizes.batch * m_tiles * n_tiles);
  builder.begin_role("main");
  ProductTile tile{builder.name("batch", builder.task() / (m_tiles * n_tiles)),
                   builder.name("row", builder.task() / n_tiles % m_tiles * rows),
                   builder.name("column", builder.task() % n_tiles * columns),
                   {}};
  for (int64_t part = 0; part < sizes.parts(); ++part)
    tile.sums.push_back(builder.load_tile(product, {tile.batch, tile.row, tile.column + part * sizes.columns()},
                                          {rows, columns}, 1, min(sizes.columns() - tile.column, columns),
                                          min(sizes.m - tile.row, rows)));
  TileRegion region(builder, program, group, matmul, buffers, plan->step);
  region.store(tile);
  REQUIRE_MESSAGE(!region.failure(), *region.failure());
  made.kernel = builder.finish();
  return made;
}

// What a GPU asks of a tile's kernel: one layout for every fragment, columns that stay in their thread.
inline void check_fits_gpu(const kernel::Kernel& kernel) {
  const auto layouts = kernel::fragment_layouts(kernel);
  REQUIRE_MESSAGE(layouts.has_value(), layouts.error().text() << "\n" << kernel::print_kernel(kernel));
  for (const kernel::KOp& op : kernel.ops) {
    if (op.op != kernel::Op::permute) continue;
    CHECK(kernel.frag(op.results[0]).shape.size() == 2);
    CHECK(moves_in_thread(std::get<std::vector<int64_t>>(find_attr(op, "lanes")->value)));
  }
}

inline void check_tiles(const Program& program, const Group& group, const TensorMap& trace, int64_t rows,
                        int64_t columns, Tolerance tolerance) {
  CAPTURE(group.name);
  CAPTURE(rows);
  CAPTURE(columns);
  const TileKernel made = build_tiles(program, group, rows, columns);
  check_kernel(made.kernel, true);
  if (rows % 16 == 0) check_fits_gpu(made.kernel);
  const MatmulGroup matmul = analyse_matmul(program, group, group_results(program, group));
  const size_t operands = group_operands(program, group).size();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < made.values.size(); ++i) {
    Tensor tensor = trace.at(program.value(made.values[i]).name);
    tensor.type.shape = made.kernel.buffers[i].shape;
    if (i >= operands) std::fill(tensor.data.begin(), tensor.data.end(), 77.0);
    tensors.push_back(std::move(tensor));
  }
  tensors.push_back(trace.at(program.value(matmul.product).name));
  tensors.back().type = {Dtype::f32, made.kernel.buffers.back().shape};
  ScheduledKernel scheduled;
  scheduled.kernel = made.kernel;
  scheduled.grid = made.kernel.expr(made.kernel.grid).value;
  std::vector<Executor> executors{interpreted()};
  static std::set<std::string> compiled_texts;  // equal groups give equal kernels
  if (compiled_texts.insert(kernel::print_kernel(made.kernel)).second)
    executors.push_back(compiled(baseline_host_target()));
  for (const Executor& execute : executors) {
    std::vector<Bytes> memory;
    std::vector<std::byte*> pointers;
    for (const Tensor& tensor : tensors) memory.push_back(to_bytes(tensor));
    for (Bytes& bytes : memory) pointers.push_back(bytes.data());
    execute(scheduled, pointers);
    for (size_t i = operands; i < made.values.size(); ++i) {
      const Value& value = program.value(made.values[i]);
      const std::string difference = differences(from_bytes(value.type, pointers[i]), trace.at(value.name), tolerance);
      CHECK_MESSAGE(difference.empty(), "%" << value.name << ": " << difference << "\n"
                                            << kernel::print_kernel(made.kernel));
    }
  }
}

}  // namespace stepc::test
