// Recomputation as a rewriting of fused programs, and the choice of what to recompute.
#include "compiler/graph/recompute.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/graph/fuse_check.h"
#include "compiler/graph/order.h"
#include "compiler/plan/fit.h"
#include "compiler/plan/report.h"
#include "ir/graph/evaluate.h"
#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"
#include "tests/support/random_graph.h"

namespace stepc {
namespace {

Module parsed(const std::string& body) {
  auto module = parse_module(
      "module \"m\"\nparam @w: f32[64, 64]\nprogram @p {\n  %x: f32[64, 64] = input {name=\"x\"}\n"
      "  %w: f32[64, 64] = param {name=@w}\n" +
          body + "}\n",
      "r.gir");
  REQUIRE_MESSAGE(module.has_value(), (module ? "" : module.error().text()));
  return *module;
}

// Two values of a product's kernel, one of which can be made of the other, and a third of both and a leaf.
const std::string kBody =
    "  kernel @fwd.a matmul {\n"
    "    %a: f32[64, 64] = matmul(%x, %w) {transpose_a=false, transpose_b=false}\n"
    "    %a.1: f32[64, 64] = exp(%a)\n"
    "    %a.2: f32[64, 64] = mul(%a.1, %a)\n"
    "  }\n"
    "  kernel @fwd.c pointwise {\n"
    "    %c: f32[64, 64] = transpose(%a.2) {permutation=[1, 0]}\n"
    "    %c.1: f32[64, 64] = add(%c, %w)\n"
    "  }\n"
    "  kernel @fwd.d matmul { %d: f32[64, 64] = matmul(%c.1, %w) {transpose_a=false, transpose_b=false} }\n"
    "  kernel @bwd.e matmul { %e: f32[64, 64] = matmul(%d, %c.1) {transpose_a=false, transpose_b=true} !backward }\n"
    "  kernel @bwd.f matmul { %f: f32[64, 64] = matmul(%e, %a.2) {transpose_a=false, transpose_b=true} !backward }\n"
    "  kernel @bwd.g pointwise { %g: f32[64, 64] = mul(%f, %a) !backward }\n"
    "  assign(%g) {name=@w}\n"
    "  output(%e) {name=\"e\"}\n";

std::vector<std::string> names(const Program& program, const std::vector<ValueId>& values) {
  std::vector<std::string> found;
  for (ValueId value : values) found.push_back(program.value(value).name);
  return found;
}
using Names = std::vector<std::string>;

TEST_CASE("recompute: candidates are made by cheap ops from what is in memory anyway") {
  const Module module = parsed(kBody);
  const Program& program = module.programs[0];
  const auto found = recompute_candidates(program);
  REQUIRE(found.size() == 2);
  CHECK(program.value(found[0].value).name == "a.2");
  CHECK(names(program, found[0].sources) == Names{"a"});
  CHECK(found[0].nodes.size() == 2);
  CHECK(found[0].saved_bytes == 64 * 64 * 4);
  CHECK(found[0].moved_bytes == 2 * 64 * 64 * 4);
  CHECK(found[0].flops == 2 * 64 * 64);
  CHECK(program.value(found[1].value).name == "c.1");
  CHECK(names(program, found[1].sources) == Names{"w", "a.2"});
  CHECK(found[1].moved_bytes == 3 * 64 * 64 * 4);
}

TEST_CASE("recompute: what is no candidate") {
  const auto count = [](const std::string& body) { return recompute_candidates(parsed(body).programs[0]).size(); };
  const std::string use =
      "  kernel @late pointwise { %l: f32[64, 64] = mul(%v, %x) !backward }\n  output(%l) {name=\"l\"}\n";
  CHECK(count("  kernel @k pointwise { %v: f32[64, 64] = exp(%x) }\n" + use) == 1);
  // An output stays; so does what only forward reads.
  CHECK(count("  kernel @k pointwise { %v: f32[64, 64] = exp(%x) }\n" + use + "  output(%v) {name=\"v\"}\n") == 0);
  CHECK(count("  kernel @k pointwise { %v: f32[64, 64] = exp(%x) }\n"
              "  kernel @m pointwise { %l: f32[64, 64] = exp(%v) }\n  output(%l) {name=\"l\"}\n") == 0);
  // Products and long sums.
  CHECK(count("  kernel @k matmul { %v: f32[64, 64] = matmul(%x, %w) {transpose_a=false, transpose_b=false} }\n" +
              use) == 0);
  CHECK(count("  kernel @k row { %s: f32[64] = reduce_sum(%x) {axes=[1]}\n %b: f32[64, 64] = broadcast(%s) {axes=[0]}\n"
              " %v: f32[64, 64] = mul(%x, %b) }\n" +
              use) == 0);
  // Sources as large as the value that nothing else needs any more.
  CHECK(count("  kernel @j pointwise { %u: f32[64, 64] = neg(%x) }\n"
              "  kernel @k pointwise { %v: f32[64, 64] = exp(%u) }\n" +
              use) == 0);
}

TEST_CASE("recompute: a short sum and a gather are candidates") {
  const Module module = parsed(
      "  %at: i32[64] = input {name=\"at\"}\n"
      "  kernel @k pointwise {\n    %h: f32[64, 32, 2] = reshape(%x)\n    %s: f32[64, 32] = reduce_sum(%h) {axes=[2]}\n"
      "    %v: f32[64, 32] = gather_rows(%s, %at)\n  }\n"
      "  kernel @late pointwise { %l: f32[64, 32] = exp(%v) !backward }\n  output(%l) {name=\"l\"}\n");
  const auto found = recompute_candidates(module.programs[0]);
  REQUIRE(found.size() == 1);
  CHECK(found[0].nodes.size() == 3);
}

Module repeated(const std::string& body, const std::vector<std::string>& wanted) {
  Module module = parsed(body);
  Program& program = module.programs[0];
  std::vector<RecomputeCandidate> chosen = recompute_candidates(program);
  std::erase_if(chosen, [&](const RecomputeCandidate& c) {
    return std::find(wanted.begin(), wanted.end(), program.value(c.value).name) == wanted.end();
  });
  REQUIRE(chosen.size() == wanted.size());
  recompute(program, chosen);
  const Status verified = verify(module);
  REQUIRE_MESSAGE(verified.has_value(), (verified ? "" : verified.error().text()));
  const Status checked = check_groups(program);
  REQUIRE_MESSAGE(checked.has_value(), (checked ? "" : checked.error().text()));
  const auto again = parse_module(print_module(module), "again.gir");
  REQUIRE_MESSAGE(again.has_value(), (again ? "" : again.error().text()));
  CHECK(print_module(*again) == print_module(module));
  return module;
}

// The kernels with what they read and make.
std::string kernels(const Program& program) {
  std::string text = print_program(program), lines;
  for (size_t at = text.find("kernel @"); at != std::string::npos; at = text.find("kernel @", at + 1))
    lines += text.substr(at + 8, text.find(" {", at) - at - 8) + "\n";
  return lines;
}

TEST_CASE("recompute: later kernels read a copy, forward ones the original") {
  CHECK(kernels(repeated(kBody, {"a.2"}).programs[0]) ==
        "fwd.a matmul(m=64, n=64, k=64, batch=1) (%x, %w) -> (%a, %a.2)\n"
        "fwd.c pointwise(elements=4096) (%a.2, %w) -> (%c.1)\n"
        "fwd.d matmul(m=64, n=64, k=64, batch=1) (%c.1, %w) -> (%d)\n"
        "bwd.e matmul(m=64, n=64, k=64, batch=1) (%d, %c.1) -> (%e)\n"
        "bwd.a.again pointwise(elements=4096) (%a) -> (%a.2.again)\n"
        "bwd.f matmul(m=64, n=64, k=64, batch=1) (%e, %a.2.again) -> (%f)\n"
        "bwd.g pointwise(elements=4096) (%f, %a) -> (%g)\n");
}

TEST_CASE("recompute: a copy is made of copies") {
  const Module module = repeated(kBody, {"a.2", "c.1"});
  CHECK(kernels(module.programs[0])
            .find("bwd.a.again pointwise(elements=4096) (%a) -> (%a.2.again)\n"
                  "bwd.c.again pointwise(elements=4096) (%a.2.again, %w) -> (%c.1.again)\n"
                  "bwd.e matmul(m=64, n=64, k=64, batch=1) (%d, %c.1.again) -> (%e)\n"
                  "bwd.f matmul(m=64, n=64, k=64, batch=1) (%e, %a.2.again) -> (%f)\n") != std::string::npos);
  for (const Node& node : module.programs[0].nodes)
    for (ValueId result : node.results)
      if (module.programs[0].value(result).name.ends_with(".again")) CHECK(node.phase == Phase::backward);
}

TEST_CASE("recompute: the same results") {
  const Module before = parsed(kBody);
  const TensorMap inputs = test::random_inputs(before.programs[0], 3);
  TensorMap expected_tensors = test::random_persistents(before, 4);
  const TensorMap start = expected_tensors;
  const TensorMap expected = evaluate(before.programs[0], expected_tensors, inputs).value();
  for (const Names& chosen : {Names{"a.2"}, Names{"c.1"}, Names{"a.2", "c.1"}}) {
    TensorMap tensors = start;
    const Module after = repeated(kBody, chosen);
    const TensorMap found = evaluate(after.programs[0], tensors, inputs).value();
    CHECK(found.at("e").data == expected.at("e").data);
    CHECK(tensors.at("w").data == expected_tensors.at("w").data);
  }
}

// ---- the choice ----------------------------------------------------------------------------------------------------

struct Fitted {
  Module module;
  FitReport report;
  int64_t planned_bytes = 0;
};

// `layers` values that forward keeps and that can be made again, each of its own size.
std::string layers_body(int layers) {
  std::string body, tail;
  std::string last = "x";
  for (int i = 0; i < layers; ++i) {
    body += fmt::format(
        "  kernel @fwd.a{0} matmul {{ %a{0}: f32[64, 64] = matmul(%{1}, %w) {{transpose_a=false, transpose_b=false}} "
        "}}\n"
        "  kernel @fwd.b{0} pointwise {{ %b{0}: f32[64, 64] = exp(%a{0}) }}\n",
        i, last);
    last = fmt::format("b{}", i);
    tail = fmt::format(
               "  kernel @bwd.c{0} matmul {{ %c{0}: f32[64, 64] = matmul(%{1}, %b{0}) {{transpose_a=false, "
               "transpose_b=true}} !backward }}\n"
               "  kernel @bwd.d{0} pointwise {{ %d{0}: f32[64, 64] = mul(%c{0}, %a{0}) !backward }}\n",
               i, i + 1 < layers ? fmt::format("d{}", i + 1) : fmt::format("b{}", layers - 1)) +
           tail;
  }
  return body + tail + "  output(%d0) {name=\"d\"}\n";
}

Fitted fitted(Recompute mode, int64_t available, int layers = 6) {
  Fitted result{parsed(layers_body(layers)), {}, 0};
  Program& program = result.module.programs[0];
  order(program);
  const ModuleLayout layout = layout_persistents(result.module).value();
  result.report = fit_memory(program, layout, {}, {}, {mode, available}).value();
  REQUIRE(verify(result.module).has_value());
  const Plan plan = plan_program(program, layout, unscheduled_launches(program)).value();
  result.planned_bytes = memory_need(plan, layout).total_bytes;
  return result;
}

TEST_CASE("fit: nothing, as little as will do, everything") {
  const Fitted none = fitted(Recompute::none, 0), all = fitted(Recompute::all, INT64_MAX);
  CHECK(none.report.chosen.empty());
  CHECK(all.report.chosen.size() == 6);
  CHECK(all.planned_bytes == all.report.bytes_after);
  CHECK(all.report.bytes_before == none.planned_bytes);
  REQUIRE(all.planned_bytes < none.planned_bytes);
  size_t before = 0;
  for (int64_t available = none.planned_bytes; available >= all.planned_bytes - 512; available -= 512) {
    CAPTURE(available);
    const Fitted some = fitted(Recompute::automatic, available);
    CHECK(some.planned_bytes == some.report.bytes_after);
    CHECK(some.report.bytes_before == none.planned_bytes);
    CHECK((some.planned_bytes <= available) == (available >= all.planned_bytes));
    CHECK(some.report.chosen.size() >= before);
    before = some.report.chosen.size();
    if (some.report.chosen.size() <= 1) continue;
    // One fewer would not do: with as much memory as it saves more, fewer are chosen.
    const Fitted fewer = fitted(Recompute::automatic, some.report.bytes_after + 16384);
    CHECK(fewer.report.chosen.size() < some.report.chosen.size());
  }
  CHECK(before == 6);
  CHECK(fitted(Recompute::automatic, none.planned_bytes).report.chosen.empty());
  CHECK(!fitted(Recompute::automatic, none.planned_bytes - 1).report.chosen.empty());
}

TEST_CASE("fit: the choice in words") {
  const Fitted none = fitted(Recompute::none, 0), kept = fitted(Recompute::automatic, INT64_MAX);
  CHECK(fit_text(none.report, std::nullopt) == "recompute none\n");
  CHECK(fit_text(kept.report, std::nullopt) ==
        fmt::format("recompute auto: nothing, needs {}\n", bytes_text(none.planned_bytes)));
  const Fitted one = fitted(Recompute::automatic, none.planned_bytes - 1);
  REQUIRE(one.report.chosen.size() == 1);
  CHECK(fit_choice(one.report) ==
        "auto: 1 of 6 values made again in backward: b0; 16.0 KiB less at the peak, 32.0 KiB moved, 0.00 GFLOP");
  CHECK(fit_text(one.report, 1e6) ==
        "recompute auto: 1 of 6 values made again in backward, 16.0 KiB less at the peak, 32.0 KiB moved, 0.00 GFLOP, "
        "32.77 ms\n"
        "    16.0 KiB saved   32.0 KiB moved  b0: f32[64, 64] from a0\n");
  for (std::string_view name : recompute_names()) CHECK(recompute_name(*recompute_from_name(name)) == name);
  CHECK(!recompute_from_name("some").has_value());
}

}  // namespace
}  // namespace stepc
