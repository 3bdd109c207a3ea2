// Runs that are started before the one before is done, as graphs and without, with buffers in arenas and apart: on the
// host, and on a GPU (tests/support/gpu.h).
#include <doctest/doctest.h>

#include "runtime/executor.h"
#include "tests/runtime/gpu_kernels.h"
#include "tests/runtime/host_kernels.h"
#include "tests/support/gpu.h"

namespace stepc {
namespace {

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }

// program @step: y = s / x is an output, then @total = @total + y + y
Bundle ahead_bundle(const std::vector<KernelCode>& codes) {
  Bundle bundle{"any", "m", {}, {}, {}, {}};
  bundle.persistents.tensors = {{"total", PlanArena::weights, f32({3}), 12, 0}};
  bundle.persistents.arena_bytes = {12, 0, 0};
  bundle.kernels = {{"add", "", "", codes[0].code, "", "", 3, 2, 0, codes[0].launch},
                    {"divide", "", "", codes[1].code, "", "", 3, 0, 64, codes[1].launch}};
  Plan plan;
  plan.program = "step";
  plan.buffers = {
      {"x", PlanArena::io, f32({3}), 12, 64},          {"s", PlanArena::io, f32({}), 4, 0},
      {"y", PlanArena::io, f32({3}), 12, 128},         {"twice", PlanArena::activations, f32({3}), 12, 0, -1, 1, 2},
      {"@total", PlanArena::weights, f32({3}), 12, 0}, {"sum", PlanArena::weights, f32({3}), 12, 0, 4}};
  plan.inputs = {{"x", 0}, {"s", 1}};
  plan.outputs = {{"y", 2}};
  plan.steps = {{"divide", LaunchStep{1, 3, {0, 1}, {2}, -1, {}}},
                {"twice", LaunchStep{0, 1, {2, 2}, {3}, -1, {3, 64}}},
                {"add", LaunchStep{0, 1, {4, 3}, {5}, -1, {3, 64}}}};
  plan.activations_bytes = 64;
  plan.io_bytes = 140;
  bundle.plans = {plan};
  return bundle;
}
Bundle host_bundle() { return ahead_bundle({{"add", "code of add", 0, {}}, {"divide", "code of divide", 64, {}}}); }
Bundle gpu_bundle() { return ahead_bundle({gpu_add(), gpu_divide()}); }

std::unique_ptr<Device> open_asynchronous() {
  return make_cuda_device(test::on_card() ? test::card_driver() : emulated_driver()).value();
}

struct Inputs {
  std::vector<float> x;
  float s;
  Executor::Inputs views() const {
    return {{"x", {f32({3}), {reinterpret_cast<const char*>(x.data()), 12}}},
            {"s", {f32({}), {reinterpret_cast<const char*>(&s), 4}}}};
  }
};

std::vector<float> floats(const HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// Several runs, each started when the outputs of the one before are there. The inputs are gone when start() is back.
void check_ahead(Executor& executor, const RunOptions& options) {
  const float start = floats(executor.read_persistent("total").value())[0];
  const auto begin = [&](int turn) {
    const auto k = static_cast<float>(turn + 1);
    const Inputs inputs{{1, 2, 4}, 8 * k};
    return executor.start("step", inputs.views(), options).value();
  };
  RunHandle now = begin(0);
  float sum = start;
  for (int turn = 0; turn < 6; ++turn) {
    const auto k = static_cast<float>(turn + 1);
    const auto outputs = executor.outputs(now).value();
    CHECK(floats(outputs.at("y")) == std::vector<float>{8 * k, 4 * k, 2 * k});
    const RunHandle before = now;
    if (turn < 5) now = begin(turn + 1);
    if (turn != 1) REQUIRE(executor.finish(before).has_value());  // nobody has to ask
    sum += 16 * k;
  }
  REQUIRE(executor.finish(now).has_value());
  REQUIRE(executor.finish(now).has_value());  // nor is it wrong to ask twice
  CHECK(floats(executor.read_persistent("total").value())[0] == sum);
}

TEST_CASE("runs started ahead give what runs one by one do, on every device") {
  for (const bool separate : {false, true}) {
    for (const bool graphs : {false, true}) {
      for (const bool host : {true, false}) {
        if (host && (test::on_card() || graphs)) continue;
        CAPTURE(separate);
        CAPTURE(graphs);
        CAPTURE(host);
        const auto device = host ? make_host_device(load_by_name, 2) : open_asynchronous();
        const auto executor = Executor::create(*device, host ? host_bundle() : gpu_bundle(),
                                               {.graphs = graphs, .separate_buffers = separate, .host_functions = {}});
        REQUIRE_MESSAGE(executor.has_value(), executor.error().text());
        check_ahead(**executor, {});
        check_ahead(**executor, {.poison = true});
        check_ahead(**executor, {.profile = true, .check = true});
        CHECK((*executor)->step_times()[0].runs == 6);
      }
    }
  }
}

constexpr const char* kStart =
    "a0 = allocate 12\na1 = allocate 0\na2 = allocate 0\na3 = allocate 64\na4 = allocate 140\n"
    "load add, 0 shared bytes\nload divide, 64 shared bytes\n";

TEST_CASE("the first run walks the plan, the second makes graphs of it, the third has them") {
  const auto gpu = open_asynchronous();
  std::string log;
  const auto device = make_recording_device(*gpu, log);
  const Inputs inputs{{1, 2, 4}, 8};
  const auto executor = Executor::create(*device, gpu_bundle()).value();
  CHECK(log == kStart);
  const auto logged_run = [&](const RunOptions& options) {
    log.clear();
    REQUIRE(executor->run("step", inputs.views(), options).has_value());
    return log;
  };
  const std::string walked = logged_run({});
  CHECK(walked ==
        "h0 = allocate_host 76\n"
        "copy_in_later a4 <- h0, 76\n"
        "launch divide x 3 (a4+64, a4, a4+128)\n"
        "h1 = allocate_host 12\n"
        "copy_out_later h1 <- a4+128, 12\n"
        "e0 = record_event\n"
        "launch add x 1 (a4+128, a4+128, a3, 3, 64)\n"
        "launch add x 1 (a0, a3, a0, 3, 64)\n"
        "e1 = record_event\n"
        "wait_for e0\n"
        "wait_for e1\n");
  CHECK(logged_run({}) ==
        "h2 = allocate_host 76\n"
        "copy_in_later a4 <- h2, 76\n"
        "begin_graph\n"
        "launch divide x 3 (a4+64, a4, a4+128)\n"
        "g0 = end_graph step\n"
        "run_graph g0\n"
        "h3 = allocate_host 12\n"
        "copy_out_later h3 <- a4+128, 12\n"
        "e1 = record_event\n"
        "begin_graph\n"
        "launch add x 1 (a4+128, a4+128, a3, 3, 64)\n"
        "launch add x 1 (a0, a3, a0, 3, 64)\n"
        "g1 = end_graph step after its outputs\n"
        "run_graph g1\n"
        "e0 = record_event\n"
        "wait_for e1\n"
        "wait_for e0\n");
  CHECK(logged_run({}) ==
        "copy_in_later a4 <- h0, 76\n"
        "run_graph g0\n"
        "copy_out_later h1 <- a4+128, 12\n"
        "e0 = record_event\n"
        "run_graph g1\n"
        "e1 = record_event\n"
        "wait_for e0\n"
        "wait_for e1\n");
  CHECK(logged_run({.check = true}).find("graph") == std::string::npos);
  CHECK(floats(executor->read_persistent("total").value()) == std::vector<float>{64, 32, 16});
}

TEST_CASE("with separate buffers each has memory of its own, the programs' unset, and scalars are copied apart") {
  const auto host = make_host_device(load_by_name, 1);
  std::string log;
  const auto device = make_recording_device(*host, log);
  {
    const auto executor =
        Executor::create(*device, host_bundle(), {.graphs = true, .separate_buffers = true, .host_functions = {}});
    REQUIRE(executor.has_value());
    REQUIRE((*executor)->run("step", Inputs{{1, 2, 4}, 8}.views(), {.poison = true}).has_value());
  }
  CHECK(log ==
        "a0 = allocate 12\n"
        "a1 = allocate_unset 12\n"
        "a2 = allocate_unset 4\n"
        "a3 = allocate_unset 12\n"
        "a4 = allocate_unset 12\n"
        "load add, 0 shared bytes\n"
        "load divide, 64 shared bytes\n"
        "fill a1, 0xff x 12, 1 bytes each\n"
        "fill a2, 0xff x 4, 1 bytes each\n"
        "fill a3, 0xff x 12, 1 bytes each\n"
        "fill a4, 0xff x 12, 1 bytes each\n"
        "h0 = allocate_host 68\n"
        "copy_in_later a1 <- h0, 12\n"
        "copy_in_later a2 <- h0+64, 4\n"
        "launch divide x 3 (a1, a2, a3)\n"
        "h1 = allocate_host 12\n"
        "copy_out_later h1 <- a3, 12\n"
        "e0 = record_event\n"
        "launch add x 1 (a3, a3, a4, 3, 64)\n"
        "launch add x 1 (a0, a4, a0, 3, 64)\n"
        "e1 = record_event\n"
        "wait_for e0\n"
        "wait_for e1\n"
        "synchronize\n"
        "free_host h0\n"
        "free_host h1\n"
        "free a4\n"
        "free a3\n"
        "free a2\n"
        "free a1\n"
        "free a0\n");
}

}  // namespace
}  // namespace stepc
