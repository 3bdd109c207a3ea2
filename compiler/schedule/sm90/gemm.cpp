// From a kernel group to Hopper's contraction kernel. The group's results are made on the accumulators by TileRegion;
// bf16 panels that lie in a result as they do in the product go out through shared memory, everything else by plain
// stores.
#include "compiler/schedule/sm90/gemm.h"

#include <algorithm>

#include "compiler/schedule/region/tile_plan.h"
#include "compiler/schedule/sm90/gemm_stream.h"
#include "compiler/schedule/sm90/templates.h"
#include "ir/graph/fused.h"
#include "ir/support/check.h"

namespace stepc::sm90 {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;

// Of a thread's registers a product of 256 columns takes 128; as it is used up, results take its place. A group with
// several f32 results (an optimizer's) has more in registers than its tiles tell.
constexpr int64_t kLiveBf16 = 330;
constexpr int64_t kLiveF32 = 130;
constexpr int64_t kHeavyColumns = 192;  // then, of a tile
constexpr int64_t kAnyLive = 1 << 20;   // where operands wait in shared memory

// All that the producer can spare: what is read beside the product waits in registers too.
void give_registers(GemmConfig& config) {
  config.producer_registers = 24;
  config.consumer_registers = 240;
}

// Where the results take much beside the product, they are made while the next product is under way. A product that is
// stored as it is gains nothing, as it would have a stage less for it.
bool should_hand_over(const Program& program, const MatmulGroup& matmul, const TilePlan& plan) {
  return program.type(matmul.product).dtype == Dtype::bf16 && (plan.tile_loads > 1 || matmul.sizes.parts() > 1);
}

// A group, and how its kernel is made.
struct Recipe {
  const Program& program;
  const Group& group;
  const MatmulGroup& matmul;
  const std::vector<ValueId>& operands;
  const std::vector<ValueId>& results;
  GemmConfig config;
  TilePlan plan;
  int64_t slice_columns;               // 0: all of a tile
  std::vector<ValueId> streamed = {};  // operands that come through the ring
  std::vector<ValueId> sent = {};      // results that leave from there
};

bool fits_map(const Program& program, ValueId value, const Shape& shape) {
  return program.type(value).dtype == Dtype::bf16 && shape.back() % 8 == 0;
}

bool is_like_product(const Recipe& recipe, ValueId value) {
  const MatmulProblem& sizes = recipe.matmul.sizes;
  const auto given = recipe.plan.shapes.find(value);
  const Shape& shape = given == recipe.plan.shapes.end() ? recipe.program.type(value).shape : given->second;
  return sizes.parts() == 1 && shape == Shape{sizes.batch, sizes.m, sizes.n};
}

class GemmKernel {
 public:
  GemmKernel(const Recipe& recipe, std::optional<int64_t> panels_per_tile)
      : recipe_(recipe), builder_("gemm", kernel::Target::sm90), panels_(builder_, recipe.config, panels_per_tile) {
    for (size_t i = 0; i < recipe.operands.size(); ++i) declare(recipe.operands[i], fmt::format("x{}", i));
    for (size_t i = 0; i < recipe.results.size(); ++i) declare(recipe.results[i], fmt::format("y{}", i));
    builder_.set_grid(recipe.config.tasks(recipe.matmul.sizes));
    builder_.set_cluster(recipe.config.cluster);
    if (!recipe.streamed.empty()) declare_stream();
  }

  // An error says what the region cannot make.
  Result<kernel::Kernel> build() {
    TileRegion region(builder_, recipe_.program, recipe_.group, recipe_.matmul, buffers_, recipe_.plan.step);
    region.on_store([&](const TileStore& store) { return stream_ ? put(store) : store_panel(store); });
    GemmEpilogue epilogue;
    if (stream_) {
      epilogue.stream = &*stream_;
      region.set_pace({[&](int64_t first) { stream_->begin_piece(first); },
                       [&](int64_t first) { stream_->end_piece(first); },
                       [&](ValueId operand) { return stream_->operand(operand); }});
    }
    epilogue.slice_columns = recipe_.slice_columns;
    epilogue.begin_tile = [&] { panels_.begin_tile(); };
    epilogue.store = [&](const ProductTile& tile) { region.store(tile); };
    epilogue.finish = [&] { panels_.finish(); };
    const MatmulGroup& matmul = recipe_.matmul;
    const BufferId count = matmul.count == ValueId::none ? BufferId::none : buffers_.at(matmul.count);
    emit_gemm(builder_, matmul.sizes, recipe_.config, {buffers_.at(matmul.a), buffers_.at(matmul.b), count}, epilogue);
    if (region.failure()) return user_error("{}", *region.failure());
    return builder_.finish();
  }
  int64_t panels() const { return panels_.done(); }
  const GemmStream& stream() const { return *stream_; }

 private:
  void declare_stream() {
    stream_.emplace(builder_, recipe_.config);
    // The widest first: what is left of a stage is then for narrow ones.
    for (const int64_t bytes : {4, 2})
      for (ValueId operand : recipe_.streamed)
        if (dtype_bytes(recipe_.program.type(operand).dtype) == bytes)
          stream_->add_operand(operand, buffers_.at(operand));
    const MatmulProblem& sizes = recipe_.matmul.sizes;
    const bool whole = sizes.m % recipe_.config.tile_m == 0 && sizes.n % recipe_.config.tile_n == 0;
    for (ValueId result : recipe_.sent) stream_->add_result(result, buffers_.at(result), whole);
  }
  bool put(const TileStore& store) {
    return store.in_order && store.shift == 0 && stream_->put(store.result, store.value);
  }

  void declare(ValueId value, std::string name) {
    const TensorType& type = recipe_.program.type(value);
    const auto given = recipe_.plan.shapes.find(value);
    buffers_[value] =
        builder_.global(std::move(name), type.dtype, given == recipe_.plan.shapes.end() ? type.shape : given->second);
  }

  bool store_panel(const TileStore& store) {
    if (!store.in_order || !store.place || recipe_.plan.step != kPanel) return false;
    const BufferId buffer = store.place->buffer;
    const Shape shape = builder_.kernel().buffer(buffer).shape;
    if (!fits_map(recipe_.program, store.result, shape)) return false;
    // A map cuts off what lies past the result's columns, but not where others of the result follow.
    const int64_t columns = recipe_.matmul.sizes.columns();
    if (columns % kPanel != 0 && shape.back() != columns) return false;
    const auto [map, is_new] = maps_.try_emplace(store.result, buffer);
    if (is_new)
      map->second = builder_.tensor_map(builder_.kernel().buffer(buffer).name + "_map", buffer,
                                        {1, recipe_.config.store_rows(), kPanel}, 128);
    panels_.put(store.value, map->second, store.place->at);
    return true;
  }

  const Recipe& recipe_;
  KernelBuilder builder_;
  PanelStores panels_;
  std::optional<GemmStream> stream_;
  std::map<ValueId, BufferId> buffers_;
  std::map<ValueId, BufferId> maps_;
};

// The kernel is made twice: how often the boxes are used is known when it is there.
Result<kernel::Kernel> build(const Recipe& recipe) {
  GemmKernel trial(recipe, std::nullopt);
  STEPC_ASSIGN(kernel::Kernel kernel, trial.build());
  // Pieces past the last column are not stored: then the boxes' use differs from tile to tile.
  const MatmulProblem& sizes = recipe.matmul.sizes;
  if (trial.panels() == 0 || sizes.columns() % recipe.config.tile_columns(sizes) != 0) return kernel;
  return GemmKernel(recipe, trial.panels()).build();
}

// Results through the ring of stages: operands that lie as the product does and are read there alone come that way.
std::optional<Recipe> through_ring(Recipe recipe) {
  const MatmulGroup& matmul = recipe.matmul;
  for (ValueId operand : recipe.operands) {
    const bool is_other = operand == matmul.a || operand == matmul.b || operand == matmul.count;
    if (!is_other && is_like_product(recipe, operand)) recipe.streamed.push_back(operand);
  }
  if (recipe.streamed.empty()) return std::nullopt;
  for (ValueId result : recipe.results)
    if (is_like_product(recipe, result)) recipe.sent.push_back(result);
  recipe.config.result_turns = recipe.config.tile_n / kStreamColumns;
  give_registers(recipe.config);
  GemmKernel trial(recipe, std::nullopt);
  if (!trial.build()) return std::nullopt;
  recipe.streamed = trial.stream().read();
  recipe.sent = trial.stream().written();  // others of the product's shape lie in another order
  return recipe.streamed.empty() ? std::nullopt : std::optional(std::move(recipe));
}

std::optional<Recipe> find_ring(const Program& program, const Group& group, const MatmulGroup& matmul,
                                const ScheduledKernel& scheduled, const GpuTarget& target) {
  for (const GemmConfig& config : gemm_candidates(matmul.sizes, false, target)) {
    const auto plan = plan_tiles(program, group, matmul, kGroupRows, config.tile_n, kStreamStep, kAnyLive);
    if (!plan || plan->step != kStreamStep) continue;
    auto recipe = through_ring({program, group, matmul, scheduled.operands, scheduled.results, config, *plan, 0});
    if (recipe) return recipe;
  }
  return std::nullopt;
}

Result<std::optional<ScheduledKernel>> finished(ScheduledKernel scheduled, const Recipe& recipe,
                                                kernel::Kernel kernel) {
  const MatmulProblem& sizes = recipe.matmul.sizes;
  scheduled.kernel = std::move(kernel);
  scheduled.grid = recipe.config.tasks(sizes);
  STEPC_ASSIGN(scheduled.problem, group_problem(recipe.program, recipe.group));
  scheduled.config =
      fmt::format("{}{}, {} columns at once", describe(recipe.config), describe(sizes.counted), recipe.plan.step);
  return std::optional(std::move(scheduled));
}

}  // namespace

Result<std::optional<ScheduledKernel>> schedule_gemm(const Program& program, const Group& group,
                                                     const GpuTarget& target) {
  ScheduledKernel scheduled;
  scheduled.operands = group_operands(program, group);
  scheduled.results = group_results(program, group);
  const MatmulGroup matmul = analyse_matmul(program, group, scheduled.results);
  if (gemm_obstacle(matmul.sizes)) return std::optional<ScheduledKernel>();
  const bool stores_panels = std::any_of(scheduled.results.begin(), scheduled.results.end(),
                                         [&](ValueId value) { return program.type(value).dtype == Dtype::bf16; });
  const auto f32_results = std::count_if(scheduled.results.begin(), scheduled.results.end(),
                                         [&](ValueId value) { return program.type(value).dtype == Dtype::f32; });
  const bool is_heavy = f32_results > 1;
  const auto plan_for = [&](int64_t rows, int64_t columns) {
    return plan_tiles(program, group, matmul, rows, columns, kPanel, is_heavy ? kLiveF32 : kLiveBf16);
  };
  const auto trial = plan_for(kGroupRows, kPanel);
  if (!trial) return std::optional<ScheduledKernel>();  // the results cannot be made on tiles
  if (is_heavy)
    if (const auto recipe = find_ring(program, group, matmul, scheduled, target)) {
      STEPC_ASSIGN(kernel::Kernel kernel, GemmKernel(*recipe, std::nullopt).build());
      return finished(std::move(scheduled), *recipe, std::move(kernel));
    }
  // What a whole tile reads is under way a piece ahead; but tables that repeat along its columns would all stay in
  // registers.
  const bool whole = trial->columns != ColumnMap::pairs;
  for (GemmConfig& config : gemm_candidates(matmul.sizes, stores_panels && trial->step == kPanel, target)) {
    if (is_heavy && config.tile_n > kHeavyColumns) continue;
    auto plan = plan_for(kGroupRows, whole ? config.tile_columns(matmul.sizes) : kPanel);
    if (!plan) continue;
    const auto handed = should_hand_over(program, matmul, *plan) ? handed_over(config) : std::nullopt;
    if (handed) {
      config = *handed;
      // Strips divide a consumer's rows: what keeps these apart from other rows keeps those, so `trial` stands for
      // them.
      plan = plan_for(kStripRows, kPanel);
      STEPC_CHECK(plan.has_value(), "{}", plan.error().message);
    }
    // The walk over counted rows needs more of the producer's registers than are left it then.
    if (!handed && plan->tile_loads > 1 && matmul.sizes.counted != CountedAxis::m) give_registers(config);
    const Recipe recipe{program,           group,  matmul, scheduled.operands,
                        scheduled.results, config, *plan,  whole ? 0 : kPanel};
    auto kernel = build(recipe);
    if (!kernel) continue;
    return finished(std::move(scheduled), recipe, std::move(*kernel));
  }
  return std::optional<ScheduledKernel>();
}

}  // namespace stepc::sm90
