#include "ir/plan/plan.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "ir/plan/bundle_io.h"
#include "ir/plan/verify.h"
#include "ir/support/file.h"
#include "ir/support/hash.h"

namespace stepc {
namespace {

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }

// x -> k0 -> a -> k1 (with workspace) -> b -> copy -> y; a's bytes are free for the workspace of nothing.
Plan good_plan() {
  Plan plan;
  plan.program = "p";
  plan.buffers = {{"x", PlanArena::io, f32({8}), 32, 64},
                  {"lr", PlanArena::io, f32({}), 4, 0},
                  {"a", PlanArena::activations, f32({8}), 32, 0, -1, 0, 1},
                  {"a.flat", PlanArena::activations, f32({2, 4}), 32, 0, 2, 1, 1},
                  {"b", PlanArena::activations, f32({8}), 32, 64, -1, 1, 2},
                  {"k1.workspace", PlanArena::activations, {Dtype::pred, {5}}, 5, 128, -1, 1, 1},
                  {"y", PlanArena::io, f32({8}), 32, 128},
                  {"@w", PlanArena::weights, f32({3}), 12, 64}};
  plan.inputs = {{"x", 0}, {"lr", 1}};
  plan.outputs = {{"y", 6}};
  plan.steps = {{"k0", LaunchStep{0, 2, {0, 1}, {2}, -1, {5, -7}}, Phase::forward, 16, 8, 64},
                {"k1", LaunchStep{1, 1, {3, 7}, {4}, 5, {}}, Phase::optimizer, 8, 0, 64},
                {"output", CopyStep{4, 6}, Phase::backward, 0, 0, 64}};
  plan.activations_bytes = 133;
  plan.io_bytes = 160;
  plan.lower_bound_bytes = 128;
  plan.packing = "by hand";
  return plan;
}

Bundle good_bundle() {
  Bundle bundle{"host", "m", {}, {}, {good_plan()}, {{"p/k0", "tile 4x4"}}};
  bundle.persistents = {{{"v", PlanArena::weights, f32({1}), 4, 0}, {"w", PlanArena::weights, f32({3}), 12, 64}},
                        {76, 0, 0}};
  bundle.kernels = {{"k_0", content_hash("kernel 0"), "kernel 0",
                     std::string("\x7f"
                                 "ELF\0",
                                 5),
                     "pointwise(8)", "c", 3, 2, 64},
                    {"k_1", content_hash("kernel 1"), "kernel 1", "", "row(8)", "d", 4, 0, 0}};
  return bundle;
}

TEST_CASE("a plan reads back as it was written") {
  Plan plan = good_plan();
  plan.steps.push_back({"zero", FillStep{6, 0.5}});
  plan.steps.push_back({"call", HostCallStep{"f", {1}, {6}}});
  CHECK(verify_plan(plan).has_value());
  CHECK(parse_plan(plan_text(plan), "p.json").value() == plan);
}

TEST_CASE("the plan verifier finds each kind of mistake") {
  const auto error = [](auto&& damage) {
    Plan plan = good_plan();
    damage(plan);
    const Status status = verify_plan(plan);
    return status ? std::string("fine") : status.error().text();
  };
  CHECK(error([](Plan&) {}) == "fine");
  CHECK(error([](Plan& p) { p.buffers[4].offset_bytes = 0; }) ==
        "plan @p: buffers a and b share bytes while both are live");
  CHECK(error([](Plan& p) { p.buffers[5].offset_bytes = 64; }) ==
        "plan @p: buffers b and k1.workspace share bytes while both are live");
  CHECK(error([](Plan& p) { p.buffers[4].offset_bytes = 32; }) ==
        "plan @p: buffer b: offset 32 is not a multiple of 64");
  CHECK(error([](Plan& p) { p.buffers[2].last_step = 0; }) ==
        "plan @p: step 1 (k1): uses a, which is live from step 0 to 0");
  CHECK(error([](Plan& p) { p.steps[0].matrix_flops = 17; }) == "plan @p: step 0 (k0): 17 of 16 FLOPs on matrix units");
  CHECK(error([](Plan& p) { p.buffers[4].bytes = 31; }) == "plan @p: buffer b: expected 32 bytes for f32[8], found 31");
  CHECK(error([](Plan& p) { p.buffers[3].offset_bytes = 64; }) == "plan @p: buffer a.flat: does not lie in its root a");
  CHECK(error([](Plan& p) { p.buffers[4].alias_of = 3; }) == "plan @p: buffer b: its root a.flat is an alias");
  CHECK(error([](Plan& p) { p.activations_bytes = 132; }) ==
        "plan @p: buffer k1.workspace: ends at byte 133 of arena activations, which has 132");
  CHECK(error([](Plan& p) { std::get<LaunchStep>(p.steps[0].action).operands[0] = 4; }) ==
        "plan @p: step 0 (k0): uses b, which is live from step 1 to 2");
  CHECK(error([](Plan& p) { p.buffers[4].first_step = 0, std::get<LaunchStep>(p.steps[0].action).operands[0] = 4; }) ==
        "plan @p: step 0 (k0): reads b before anything wrote it");
  CHECK(error([](Plan& p) { std::get<CopyStep>(p.steps[2].action).to = 1; }) ==
        "plan @p: step 2: copies b of 32 bytes to lr of 4");
  CHECK(error([](Plan& p) { std::get<LaunchStep>(p.steps[0].action).results = {8}; }) ==
        "plan @p: step 0 (k0): no buffer 8");
  CHECK(error([](Plan& p) { p.outputs[0].buffer = 4; }) == "plan @p: output y: expected arena io, found activations");
  CHECK(error([](Plan& p) { p.steps.pop_back(), p.buffers[4].last_step = 1; }) == "plan @p: output y is never written");
  CHECK(error([](Plan& p) { p.inputs.push_back({"x", 1}); }) == "plan @p: input x appears twice");
  CHECK(error([](Plan& p) { p.buffers[0].offset_bytes = 128; }) ==
        "plan @p: buffers x and y share bytes while both are live");
}

TEST_CASE("the bundle verifier compares plans with kernels and layout") {
  const auto error = [](auto&& damage) {
    Bundle bundle = good_bundle();
    damage(bundle);
    const Status status = verify_bundle(bundle);
    return status ? std::string("fine") : status.error().text();
  };
  CHECK(error([](Bundle&) {}) == "fine");
  CHECK(error([](Bundle& b) { b.kernels[0].buffers = 4; }) == "plan @p: step k0: kernel k_0 takes 4 buffers, found 3");
  CHECK(error([](Bundle& b) { b.kernels[0].scalars = 1; }) == "plan @p: step k0: kernel k_0 takes 1 scalars, found 2");
  CHECK(error([](Bundle& b) { b.kernels.pop_back(); }) == "plan @p: step k1: no kernel 1");
  CHECK(error([](Bundle& b) { b.persistents.tensors[1].offset_bytes = 4; }) ==
        "plan @p: @w is not where the module has it");
  CHECK(error([](Bundle& b) { b.persistents.tensors[0].name = "u", b.persistents.tensors[1].name = "x"; }) ==
        "plan @p: no persistent tensor @w");
  CHECK(error([](Bundle& b) { b.persistents.tensors[0].type.shape = {17}, b.persistents.tensors[0].bytes = 68; }) ==
        "@v and @w share bytes");
  CHECK(error([](Bundle& b) { b.persistents.arena_bytes[0] = 75; }) == "@w: lies outside its arena");
  CHECK(error([](Bundle& b) { b.plans.push_back(b.plans[0]); }) == "plan @p appears twice");
}

// The same for a GPU: PTX, a cubin and a tensor map.
Bundle gpu_bundle() {
  Bundle bundle = good_bundle();
  bundle.target = "cuda sm_90a";
  bundle.kernels[0].launch = {128, 2, {}};
  bundle.kernels[1].object = ".version 8.0";
  bundle.kernels[1].launch = {384, 1, {{2, Dtype::bf16, {8, 64, 96}, {6656, 104, 1}, {1, 64, 64}, 128}}};
  return bundle;
}

TEST_CASE("launches that no GPU could make are refused") {
  const auto error = [](auto&& damage) {
    Bundle bundle = gpu_bundle();
    damage(bundle.kernels[1].launch);
    const Status status = verify_bundle(bundle);
    return status ? std::string("fine") : status.error().text();
  };
  using Launch = kernel::GpuLaunch;
  CHECK(error([](Launch&) {}) == "fine");
  CHECK(error([](Launch& l) { l.threads = 100; }) == "kernel k_1: 100 threads, expected a multiple of 32 to 1024");
  CHECK(error([](Launch& l) { l.cluster = 32; }) == "kernel k_1: clusters of 32, expected 1 to 16");
  CHECK(error([](Launch& l) { l.cluster = 16; }) ==
        "plan @p: step k1: a grid of 1 is no multiple of the clusters of 16 of kernel k_1");
  CHECK(error([](Launch& l) { l.maps[0].buffer = 4; }) == "kernel k_1: a tensor map of buffer 4 of 4");
  CHECK(error([](Launch& l) { l.maps[0].strides.pop_back(); }) ==
        "kernel k_1: a tensor map of 3 extents, 2 strides and a box of 3, expected as many of each, 1 to 5");
  CHECK(error([](Launch& l) { l.maps[0].strides[2] = 2; }) ==
        "kernel k_1: a tensor map whose last stride is 2, expected 1");
  CHECK(error([](Launch& l) { l.maps[0].box[1] = 512; }) ==
        "kernel k_1: a tensor map with box [1, 512, 64], expected extents from 1 to 256");
  CHECK(error([](Launch& l) { l.maps[0].swizzle_bytes = 16; }) ==
        "kernel k_1: a tensor map with swizzle 16, expected 0, 32, 64 or 128");
}

TEST_CASE("damaged plans are refused or verify, whatever the damage") {
  std::mt19937 random(3);
  const std::string text = plan_text(good_plan());
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = text;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % damaged.size();
      switch (random() % 3) {
        case 0: damaged[at] = static_cast<char>("0123456789-\",[]{}ex"[random() % 19]); break;
        case 1: damaged.erase(at, random() % 9); break;
        default: damaged.insert(at, std::to_string(random() % 3 ? random() % 9 : (uint64_t{1} << 62))); break;
      }
    }
    const auto plan = parse_plan(damaged, "plan.json");
    if (plan) CHECK(verify_plan(*plan).has_value());
    refused += plan ? 0 : 1;
  }
  CHECK(refused > 2000);
}

struct Folder {
  std::string path = (std::filesystem::temp_directory_path() / fmt::format("stepc-bundle-{}", ::getpid())).string();
  ~Folder() { std::filesystem::remove_all(path); }
};

TEST_CASE("a bundle is a folder that reads back, and damage to any file is named") {
  const Folder folder;
  const Bundle bundle = good_bundle();
  REQUIRE(save_bundle(bundle, folder.path).has_value());
  CHECK(load_bundle(folder.path).value() == bundle);
  const std::string json = read_file(folder.path + "/plan.json").value();
  const auto error_with = [&](const std::string& file, const std::string& content) {
    const std::string path = folder.path + "/" + file, before = read_file(path).value();
    REQUIRE(write_file_atomic(path, content, Durability::unsynced).has_value());
    const auto loaded = load_bundle(folder.path);
    REQUIRE(write_file_atomic(path, before, Durability::unsynced).has_value());
    return loaded ? std::string("fine") : loaded.error().text().substr(folder.path.size() + 1);
  };
  const auto json_with = [&](const std::string& from, const std::string& to) {
    const size_t at = json.find(from);
    REQUIRE(at != std::string::npos);
    return error_with("plan.json", std::string(json).replace(at, from.size(), to));
  };
  CHECK(error_with("kernels/k_0.o", "x") == "kernels/k_0.o: its content does not match the hash in plan.json");
  CHECK(error_with("kernels/k_1.kir", "x") == "kernels/k_1.kir: its content does not match the key in plan.json");
  CHECK(json_with("\"stepc_bundle\": 4", "\"stepc_bundle\": 5") ==
        "plan.json: bundle version 5 is unknown; this stepc reads version 4: compile again");
  CHECK(json_with("\"grid\": 2", "\"grid\": -2") ==
        "plan.json: plans[0].steps[0].launch.grid: expected an integer of at least 0, found -2");
  CHECK(json_with("\"dtype\": \"f32\"", "\"dtype\": \"f64\"") ==
        "plan.json: persistents.tensors[0].dtype: expected f32, bf16, i32 or pred, found \"f64\"");
  CHECK(json_with("\"target\"", "\"tarpet\"") == "plan.json: unknown key \"tarpet\"");
  CHECK(json_with("\"k_0\"", "\"../k_0\"") == "plan.json: kernels[0]: \"../k_0\" is no name of a kernel");
  CHECK(json_with("\"io_bytes\": 160", "\"io_bytes\": 1") ==
        "plan.json: plan @p: buffer x: ends at byte 96 of arena io, which has 1");
  CHECK(error_with("plan.json", json.substr(0, 40)).starts_with("plan.json:"));
  CHECK(json_with("\"form\": \"o\"", "\"form\": \"exe\"") ==
        "plan.json: kernels[0]: code of form \"exe\", expected o, ptx or cubin");
  std::filesystem::remove(folder.path + "/kernels/k_0.o");
  CHECK(load_bundle(folder.path).error().text() ==
        fmt::format("cannot read '{}/kernels/k_0.o': No such file or directory", folder.path));
}

TEST_CASE("a bundle for a GPU keeps how its kernels are launched") {
  const Folder folder;
  REQUIRE(save_bundle(gpu_bundle(), folder.path).has_value());
  CHECK(load_bundle(folder.path).value() == gpu_bundle());
  CHECK(read_file(folder.path + "/kernels/k_1.ptx").value() == ".version 8.0");
  CHECK(read_file(folder.path + "/kernels/k_0.cubin").has_value());
}

}  // namespace
}  // namespace stepc
