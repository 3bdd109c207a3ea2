#include "runtime/executor.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ir/plan/verify.h"
#include "tests/runtime/host_kernels.h"

namespace stepc {
namespace {

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }

// program @step: t = s / x; @total = @total + t; output y = t; output old = s
Bundle small_bundle() {
  Bundle bundle{"host", "m", {}, {}, {}, {}};
  bundle.persistents.tensors = {{"total", PlanArena::weights, f32({3}), 12, 0}};
  bundle.persistents.arena_bytes = {12, 0, 0};
  bundle.kernels = {{"add", "", "", "code of add", "", "", 3, 2, 0},
                    {"divide", "", "", "code of divide", "", "", 3, 0, 64}};
  Plan plan;
  plan.program = "step";
  plan.buffers = {{"x", PlanArena::io, f32({3}), 12, 64},
                  {"s", PlanArena::io, f32({}), 4, 0},
                  {"t", PlanArena::activations, f32({3}), 12, 0, -1, 0, 2},
                  {"@total", PlanArena::weights, f32({3}), 12, 0},
                  {"sum", PlanArena::weights, f32({3}), 12, 0, 3},
                  {"y", PlanArena::io, f32({3}), 12, 128},
                  {"old", PlanArena::io, f32({}), 4, 4}};
  plan.inputs = {{"x", 0}, {"s", 1}};
  plan.outputs = {{"y", 5}, {"old", 6}};
  plan.steps = {{"divide", LaunchStep{1, 3, {0, 1}, {2}, -1, {}}, Phase::forward, 3, 0, 28},
                {"add", LaunchStep{0, 1, {3, 2}, {4}, -1, {3, 64}}},
                {"output y", CopyStep{2, 5}},
                {"output old", CopyStep{1, 6}}};
  plan.activations_bytes = 64;
  plan.io_bytes = 140;
  bundle.plans = {plan};
  return bundle;
}

struct Inputs {
  std::vector<float> x = {1, 2, 4};
  float s = 8;
  std::map<std::string, HostTensorView> views() const {
    return {{"x", {f32({3}), {reinterpret_cast<const char*>(x.data()), 12}}},
            {"s", {f32({}), {reinterpret_cast<const char*>(&s), 4}}}};
  }
};

std::vector<float> floats(const HostTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST_CASE("a program runs by name, keeps its state and gives its outputs") {
  const auto device = make_host_device(load_by_name, 2);
  const auto executor = Executor::create(*device, small_bundle()).value();
  const Inputs inputs;
  for (const bool poison : {false, true}) {
    const auto outputs = executor->run("step", inputs.views(), {.poison = poison}).value();
    CHECK(floats(outputs.at("y")) == std::vector<float>{8, 4, 2});
    CHECK(floats(outputs.at("old")) == std::vector<float>{8});
    CHECK(outputs.at("old").type == f32({}));
  }
  CHECK(floats(executor->read_persistent("total").value()) == std::vector<float>{16, 8, 4});
  const std::vector<float> ones = {1, 1, 1};
  REQUIRE(
      executor->write_persistent("total", {f32({3}), {reinterpret_cast<const char*>(ones.data()), 12}}).has_value());
  REQUIRE(executor->run("step", inputs.views()).has_value());
  CHECK(floats(executor->read_persistent("total").value()) == std::vector<float>{9, 5, 3});
}

TEST_CASE("inputs are checked by name and type") {
  const auto device = make_host_device(load_by_name, 1);
  const auto executor = Executor::create(*device, small_bundle()).value();
  const Inputs inputs;
  const auto error = [&](const std::map<std::string, HostTensorView>& views) {
    return executor->run("step", views).error().text();
  };
  auto views = inputs.views();
  views.erase("x");
  CHECK(error(views) == "program @step: input x: expected f32[3], found none");
  views = inputs.views();
  views["x"].type = f32({3, 1});
  CHECK(error(views) == "program @step: input x: expected f32[3], found f32[3, 1]");
  views = inputs.views();
  views["x"].bytes = views["x"].bytes.first(8);
  CHECK(error(views) == "program @step: input x: expected f32[3], found 8 bytes");
  views = inputs.views();
  views["z"] = views["s"];
  CHECK(error(views) == "program @step has no input z");
  CHECK(executor->run("eval", {}).error().text() == "module \"m\" has no program @eval");
  CHECK(executor->read_persistent("w").error().text() == "module \"m\" has no tensor @w");
}

TEST_CASE("the check after every step names the first bad tensor") {
  const auto device = make_host_device(load_by_name, 1);
  const auto executor = Executor::create(*device, small_bundle()).value();
  Inputs inputs;
  CHECK(executor->run("step", inputs.views(), {.check = true, .poison = true}).has_value());
  inputs.x = {1, 0, 0};
  inputs.s = 0;
  CHECK(executor->run("step", inputs.views(), {.check = true}).error().text() ==
        "program @step: step 0 (divide) made NaN in %t f32[3], first at element 1");
  CHECK(executor->run("step", inputs.views()).has_value());
}

TEST_CASE("profiled runs time every step") {
  const auto device = make_host_device(load_by_name, 1);
  const auto executor = Executor::create(*device, small_bundle()).value();
  const Inputs inputs;
  REQUIRE(executor->run("step", inputs.views()).has_value());
  CHECK(executor->step_times().empty());
  for (int i = 0; i < 3; ++i) REQUIRE(executor->run("step", inputs.views(), {.profile = true}).has_value());
  const std::vector<StepTime> times = executor->step_times();
  REQUIRE(times.size() == 4);
  CHECK(times[0].kernel == "divide");
  CHECK(times[0].runs == 3);
  CHECK(times[0].flops == 3);
  CHECK(times[0].milliseconds > 0);
  CHECK(times[2].kernel == "");
}

TEST_CASE("a profiled run that fails leaves neither times nor events behind") {
  const auto host = make_host_device(load_by_name, 1);
  std::string log;
  const auto device = make_recording_device(*host, log);
  const auto executor = Executor::create(*device, small_bundle()).value();
  Inputs zeros;
  zeros.x = {1, 0, 0};
  zeros.s = 0;
  for (int i = 0; i < 3; ++i)
    REQUIRE_FALSE(executor->run("step", zeros.views(), {.profile = true, .check = true}).has_value());
  CHECK(executor->step_times().empty());
  REQUIRE(executor->run("step", Inputs().views(), {.profile = true}).has_value());
  CHECK(executor->step_times().at(3).runs == 1);
  // One before each of four steps, one after the last, one for the outputs and one for the end.
  CHECK(log.find("e6 = record_event\n") != std::string::npos);
  CHECK(log.find("e7 = record_event\n") == std::string::npos);
}

TEST_CASE("what an executor does to its device, call by call") {
  const auto host = make_host_device(load_by_name, 1);
  std::string log;
  const auto device = make_recording_device(*host, log);
  {
    const auto executor = Executor::create(*device, small_bundle()).value();
    REQUIRE(executor->run("step", Inputs().views()).has_value());
  }
  CHECK(log ==
        "a0 = allocate 12\n"
        "a1 = allocate 0\n"
        "a2 = allocate 0\n"
        "a3 = allocate 64\n"
        "a4 = allocate 140\n"
        "load add, 0 shared bytes\n"
        "load divide, 64 shared bytes\n"
        "h0 = allocate_host 76\n"
        "copy_in_later a4 <- h0, 76\n"
        "launch divide x 3 (a4+64, a4, a3)\n"
        "launch add x 1 (a0, a3, a0, 3, 64)\n"
        "copy a4+128 <- a3, 12\n"
        "copy a4+4 <- a4, 4\n"
        "h1 = allocate_host 136\n"
        "copy_out_later h1 <- a4+4, 136\n"
        "e0 = record_event\n"
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

TEST_CASE("a bundle that cannot be trusted or loaded is refused") {
  const auto device = make_host_device(load_by_name, 1);
  Bundle bundle = small_bundle();
  bundle.plans[0].buffers[2].offset_bytes = 64;
  CHECK(Executor::create(*device, bundle).error().text() ==
        "plan @step: buffer t: ends at byte 76 of arena activations, which has 64");
  bundle = small_bundle();
  bundle.kernels[0].object = "junk";
  CHECK(Executor::create(*device, bundle).error().text() == "kernel add: not the object of add");
  bundle = small_bundle();
  bundle.persistents.arena_bytes[1] = int64_t{1} << 60;
  const std::string error = Executor::create(*device, bundle).error().text();
  CHECK(error.starts_with("module \"m\" needs 1152921504606847192 bytes of device memory, has "));
  CHECK(error.ends_with(" (weights 12, optimizer 1152921504606846976, gradients 0, activations 64, io 140)"));
}

}  // namespace
}  // namespace stepc
