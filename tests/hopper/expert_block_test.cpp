// Hopper's contractions with counts of filled rows: which tiles each task makes, and the experts of a mixture.
#include "tests/support/expert_block.h"

#include "compiler/schedule/sm90/gemm_tiles.h"
#include "compiler/schedule/sm90/templates.h"
#include "tests/support/golden.h"
#include "tests/support/ptxas.h"
#include "tests/support/run_gpu.h"

namespace stepc::sm90 {
namespace {

test::Scheduler hopper(const GpuTarget& target) {
  return [target](const Program& program, const Group& group) -> Result<ScheduledKernel> {
    STEPC_ASSIGN(std::optional<ScheduledKernel> kernel, schedule_gemm(program, group, target));
    if (!kernel) return user_error("kernel @{}: the template does not take it", group.name);
    return std::move(*kernel);
  };
}

// A row, a row less than a tile, a tile, a row more, two tiles; all and more than all; none.
const std::vector<double> kCounts{1, 127, 128, 0, 129, 256, 264, 900, 0};

TEST_CASE("experts of a mixture with lopsided counts: counted rows and all rows give the same bits") {
  for (const int64_t processors : {2, 5})
    test::check_expert_block({264, 72, 128, kCounts}, hopper({"sm_90a", processors}), test::on_gpu({"sm_90a"}), 128);
}

TEST_CASE("experts whose slots are all empty, and all full, in any order of what happens") {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const test::Executor execute = test::on_gpu({"sm_90a"}, seed);
    test::check_expert_block({200, 64, 64, {0, 0, 0}}, hopper({"sm_90a", 2}), execute, 128);
    test::check_expert_block({200, 64, 64, {250, 0, 130}}, hopper({"sm_90a", 2}), execute, 128);
  }
}

// A kernel that writes down for each tile of [batch, tiles m, tiles n] its task, place in the task's sequence of
// turns, blocks, and the turn of its results.
std::vector<Tensor> walk(const MatmulProblem& problem, const GemmConfig& config, const std::vector<double>& counts) {
  kernel::KernelBuilder builder("walk", kernel::Target::host);
  const int64_t tiles_m = config.units_m(problem) * config.cluster, tiles_n = config.tiles_n(problem);
  const Shape shape{problem.batch, tiles_m, tiles_n};
  const kernel::BufferId count = builder.global("count", Dtype::i32, {problem.batch});
  std::vector<kernel::BufferId> logs;
  for (const char* name : {"task", "turn", "blocks", "results"})
    logs.push_back(builder.global(name, Dtype::i32, shape));
  builder.set_grid(config.tasks(problem));
  builder.begin_role("main");
  GemmTiles tiles(builder, problem, config, count);
  tiles.each([&](const GemmTile& tile) {
    const std::vector<kernel::Index> at{tile.batch, tile.row / config.tile_m,
                                        tile.column / config.tile_columns(problem)};
    const kernel::Index told[] = {builder.task(), tile.turn, tile.live * tile.blocks, tile.results};
    for (size_t i = 0; i < logs.size(); ++i) builder.store(builder.from_index(told[i]), logs[i], at);
  });
  const kernel::Kernel kernel = builder.finish();
  std::vector<Tensor> tensors{{{Dtype::i32, {problem.batch}}, counts}};
  for (size_t i = 0; i < logs.size(); ++i)
    tensors.push_back({{Dtype::i32, shape}, std::vector<double>(static_cast<size_t>(numel(shape)), -1)});
  std::vector<Tensor*> pointers;
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  const Status status = kernel::interpret(kernel, pointers);
  REQUIRE_MESSAGE(status.has_value(), status.error().text() << "\n" << kernel::print_kernel(kernel));
  return tensors;
}

// Every tile is made once, the turns of a task follow one another, and none has more than its share of blocks.
void check_walk(const MatmulProblem& problem, const GemmConfig& config, const std::vector<double>& counts) {
  CAPTURE(describe(config));
  const std::vector<Tensor> log = walk(problem, config, counts);
  const int64_t tiles_m = config.units_m(problem) * config.cluster;
  const size_t in_batch = static_cast<size_t>(tiles_m * config.tiles_n(problem));
  std::map<double, std::map<double, double>> turns;  // by task: how many, by the first
  std::map<double, double> blocks_of, dead_of;       // by task
  for (size_t i = 0; i < log[1].data.size(); ++i) {
    const double task = log[1].data[i], turn = log[2].data[i], blocks = log[3].data[i];
    REQUIRE(task >= 0);
    const double count = counts[i / in_batch];
    const auto row = static_cast<double>(i % in_batch / static_cast<size_t>(config.tiles_n(problem)) /
                                         static_cast<size_t>(config.cluster) * static_cast<size_t>(config.cluster) *
                                         static_cast<size_t>(config.tile_m));
    const double deep = std::ceil(std::min(count, static_cast<double>(problem.k)) / kBlockK);
    const double all = std::ceil(static_cast<double>(problem.k) / kBlockK);
    const bool has_rows = problem.counted == CountedAxis::none || row < count;
    CHECK(blocks == (problem.counted == CountedAxis::k ? deep : has_rows ? all : 0));
    CHECK(log[4].data[i] == turn + blocks);
    blocks_of[task] += blocks;
    dead_of[task] += blocks == 0;
    const double all_turns = blocks + static_cast<double>(config.result_turns);
    if (all_turns > 0) CHECK(turns[task].emplace(turn, all_turns).second);
  }
  for (const auto& [task, sequence] : turns) {
    double next = 0;
    for (const auto& [turn, number] : sequence) {
      CHECK(turn == next);
      next = turn + number;
    }
  }
  if (problem.counted != CountedAxis::m) return;
  const auto spread = [](const std::map<double, double>& by_task) {
    double low = 1e9, high = 0;
    for (const auto& [task, number] : by_task) {
      low = std::min(low, number);
      high = std::max(high, number);
    }
    return high - low;
  };
  CHECK(spread(blocks_of) <= std::ceil(static_cast<double>(problem.k) / kBlockK));
  CHECK(spread(dead_of) <= 1);
}

TEST_CASE("a product's tiles: each once, turns in sequence, live tiles shared out evenly") {
  std::mt19937 random(5);
  for (int i = 0; i < 40; ++i) {
    const auto up_to = [&](uint32_t most) { return static_cast<int64_t>(random() % most) + 1; };
    MatmulProblem problem{.m = up_to(3000), .n = up_to(1500), .k = up_to(900), .batch = up_to(9)};
    GemmConfig config;
    config.processors = 2 * up_to(20);
    config.group_m = up_to(16);
    config.cluster = up_to(2);
    std::vector<double> counts;
    for (int64_t b = 0; b < problem.batch; ++b) {
      const uint32_t kind = random() % 3;
      counts.push_back(kind == 0 ? 0 : static_cast<double>(up_to(kind == 1 ? 4000 : 500)));
    }
    for (const CountedAxis axis : {CountedAxis::none, CountedAxis::m, CountedAxis::k})
      for (const int64_t result_turns : {0, 8}) {
        problem.counted = axis;
        config.result_turns = result_turns;
        check_walk(problem, config, counts);
      }
  }
}

// As moe-4b's, but for the number of slots.
TEST_CASE("the text of a counted product, and of one with counted depth") {
  const auto text = [](const test::GroupCase& test) {
    const Module module = test::one_group_module(test);
    const auto made = hopper({"sm_90a"})(module.programs[0], module.programs[0].groups[0]);
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    return fmt::format("// {}; {}\n{}", made->problem, made->config, kernel::print_kernel(made->kernel));
  };
  test::check_golden("schedule/counted_rows.sm90.kir",
                     text({"", Template::matmul, [](GraphBuilder& g) {
                             const ValueId x = g.input("x", {Dtype::bf16, {8, 8192, 4096}});
                             const ValueId w = g.input("w", {Dtype::bf16, {8, 4096, 3072}});
                             const ValueId n = g.input("n", {Dtype::i32, {8}});
                             g.output("y", g.matmul(x, w, Dtype::bf16, false, false, n));
                           }}));
  test::check_golden("schedule/counted_k.sm90.kir",
                     text({"", Template::matmul, [](GraphBuilder& g) {
                             const ValueId x = g.input("x", {Dtype::bf16, {8, 8192, 4096}});
                             const ValueId d = g.input("d", {Dtype::bf16, {8, 8192, 3072}});
                             const ValueId n = g.input("n", {Dtype::i32, {8}});
                             g.output("y", g.matmul(x, d, Dtype::f32, true, false, n));
                           }}));
}

}  // namespace
}  // namespace stepc::sm90
