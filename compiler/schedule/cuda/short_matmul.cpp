// Products of few k, such as the gradient of a router's input: a row of the result is a sum of few rows of B, so memory
// is all that counts. A thread keeps its columns of B in registers and walks rows; what follows the product is
// evaluated on rows as in the templates of core ops, so that every access is 16 bytes a thread along a row. Several
// rows are under way at once.
#include <algorithm>
#include <bit>

#include "compiler/graph/fuse_check.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/boxes.h"
#include "compiler/schedule/region/matmul_group.h"
#include "compiler/schedule/region/views.h"
#include "ir/graph/fused.h"

namespace stepc::cuda {
namespace {

using host::Built;
using host::Draft;
using host::Problem;
using kernel::Index;
using kernel::KernelBuilder;
using schedule::Box;
using schedule::Fragment;
using schedule::LaneIndex;
using schedule::Position;
using schedule::Region;
using schedule::Widths;

constexpr int64_t kHeldNumbers = 64;  // of B, in a thread
constexpr int64_t kMostNeighbours = 8;
constexpr int kWarps = 4;
constexpr int64_t kThreads = 32 * kWarps;
constexpr int kRegisters = 128;        // of a thread: four tasks share a multiprocessor
constexpr int64_t kTasksTogether = 4;  // that then run on one
constexpr int64_t kRowsTogether = 4;
constexpr int64_t kFewestRows = 16;  // that are worth bringing B for

struct ShortConfig {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t width = 0;  // columns of a task
  int64_t column_tasks = 0;
  int64_t task_rows = 0;
  int64_t row_tasks = 0;
};

// As many tasks as run at once, if there are rows for them.
ShortConfig pick_short(const MatmulProblem& sizes) {
  ShortConfig config{.rows = sizes.m, .columns = sizes.n};
  const auto held = static_cast<uint64_t>(kHeldNumbers / sizes.k);
  const int64_t neighbours = std::min(static_cast<int64_t>(std::bit_floor(held)), kMostNeighbours);
  config.width = host::pick_width(sizes.n, kThreads, neighbours);
  config.column_tasks = (sizes.n + config.width - 1) / config.width;
  const int64_t wanted = std::max<int64_t>(schedule::kMultiprocessors * kTasksTogether / config.column_tasks, 1);
  const int64_t share = std::max((sizes.m + wanted - 1) / wanted, kFewestRows);
  config.task_rows = (share + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  config.row_tasks = (sizes.m + config.task_rows - 1) / config.task_rows;
  return config;
}

class ShortBuilder {
 public:
  ShortBuilder(const ShortConfig& config, const std::vector<Box>& boxes, KernelBuilder& builder, Region& region)
      : config_(config), boxes_(boxes), builder_(builder), region_(region) {}

  void build() {
    const Index column_task = builder_.task() % config_.column_tasks;
    const int64_t full = config_.columns / config_.width;
    const int64_t rest = config_.columns % config_.width;
    const auto columns = [&](int64_t active) {
      region_.scope({config_.width, active, std::nullopt},
                    [&] { walk_rows(region_.math().along(column_task * config_.width)); });
    };
    if (full > 0) builder_.when(less(column_task, full), [&] { columns(config_.width); });
    if (rest > 0) builder_.when(equal(column_task, full), [&] { columns(rest); });
  }

 private:
  void walk_rows(const LaneIndex& column) {
    const Index first = builder_.task() / config_.column_tasks * config_.task_rows;
    const Index last = min(first + config_.task_rows, config_.rows);
    const int64_t whole = config_.rows / kRowsTogether * kRowsTogether;
    each_row(first, min(last, whole), kRowsTogether, column);
    if (whole < config_.rows) each_row(max(first, whole), last, 1, column);
  }

  // Nothing is stored before all of the rows' loads are made.
  void each_row(Index low, Index high, int64_t together, const LaneIndex& column) {
    const schedule::Lanes lanes = region_.lanes();
    builder_.loop("row", low, high, together, [&](Index row) {
      region_.scope(lanes, [&] {
        for (int64_t r = 0; r < together; ++r)
          for (const Box& box : boxes_) {
            const Position at = reshape_position(region_.math(), {host::uniform_index(row + r), column},
                                                 {config_.rows, config_.columns}, box.extents);
            region_.store(region_.at(box.value, at), box.result,
                          stored_position(region_.math(), region_.program(), box, at));
          }
      });
    });
  }

  const ShortConfig& config_;
  const std::vector<Box>& boxes_;
  KernelBuilder& builder_;
  Region& region_;
};

}  // namespace

bool is_short(const Program& program, const Group& group, const MatmulGroup& matmul) {
  const MatmulProblem& sizes = matmul.sizes;
  return sizes.math_dtype == Dtype::f32 && sizes.batch == 1 && sizes.counted == CountedAxis::none && sizes.m > 0 &&
         sizes.k > 0 && sizes.k <= schedule::kUnrolledReduction && sizes.n >= kThreads &&
         column_map(program, group) == ColumnMap::identity;
}

Result<ScheduledKernel> schedule_short_matmul(const Program& program, const Group& group, const MatmulGroup& matmul) {
  const HostTarget no_host;
  Problem problem{program, group, no_host, {}, group_operands(program, group), group_results(program, group)};
  problem.widths = Widths{.target = kernel::Target::cuda, .warps = kWarps, .native = kThreads};
  const ShortConfig config = pick_short(matmul.sizes);
  std::vector<Box> boxes;
  for (ValueId result : problem.results)
    for (Box& box : schedule::boxes_of(program, group, result, INT64_MAX, true)) boxes.push_back(std::move(box));
  const auto has_all = [&](const Box& box) { return numel(box.extents) == config.rows * config.columns; };
  if (!std::all_of(boxes.begin(), boxes.end(), has_all))
    return user_error("kernel @{}: results of other sizes than the product's", group.name);
  const int64_t grid = config.column_tasks * config.row_tasks;
  STEPC_ASSIGN(Draft draft, host::build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
                 builder.set_grid(grid);
                 builder.begin_role("main", kWarps, kRegisters);
                 ShortBuilder(config, boxes, builder, region).build();
                 return Built{grid, fmt::format("{} columns of b in registers, {} rows a task, {} together",
                                                config.width, config.task_rows, kRowsTogether)};
               }));
  ScheduledKernel scheduled;
  STEPC_ASSIGN(scheduled.problem, group_problem(program, group));
  scheduled.kernel = std::move(draft.kernel);
  scheduled.operands = problem.operands;
  scheduled.results = problem.results;
  scheduled.grid = grid;
  scheduled.config = std::move(draft.built.config);
  return scheduled;
}

}  // namespace stepc::cuda
