// Conformance of single ops: every op x dtype of the table, on the emulator or, with STEPC_DEVICE=cuda, on the card.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "compiler/graph/fuse.h"
#include "compiler/graph/order.h"
#include "tests/conform/groups.h"
#include "tests/conform/op_cases.h"
#include "tests/conform/tokens.h"
#include "tests/support/gpu.h"
#include "tests/support/skip.h"

namespace stepc {
namespace {

using test::few_token_counts;
using test::GroupJob;
using test::OpCase;
using test::token_counts;

// What has no code: given from outside, handed outside, or the same memory.
bool has_code(Op op) {
  const OpFamily family = op_info(op).family;
  return family != OpFamily::effect && op != Op::input && op != Op::param && op != Op::state;
}

std::shared_ptr<const test::Traced> trace(const OpCase& each, int64_t tokens) {
  auto traced = std::make_shared<test::Traced>();
  traced->label = fmt::format("{}, {} tokens", each.program.name, tokens);
  Module& module = traced->module;
  module.name = "op";
  {
    GraphBuilder builder(module, "p");
    each.program.declare(builder);
  }
  Program& program = module.programs[0];
  fuse(program, {.updates = Updates::apart});
  order(program);
  TensorMap inputs = test::random_inputs(each.program, program), persistents, values;
  if (each.adjust)
    for (auto& [name, tensor] : inputs) each.adjust(name, tensor);
  const auto outputs = evaluate(program, persistents, inputs, Precision::f32, &values);
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  REQUIRE_MESSAGE(!program.groups.empty(), traced->label);
  traced->traces.push_back(test::between_groups(program, std::move(values)));
  return traced;
}

using Family = std::vector<OpCase> (*)(int64_t tokens);

void check_cases(Family family, const std::string& arch, const std::vector<int64_t>& token_counts) {
  if (!test::gpu_runs(arch)) return test::skip("conform-" + arch, "the card runs no code for it");
  std::vector<std::pair<OpCase, int64_t>> cases;
  for (int64_t tokens : token_counts)
    for (OpCase& each : family(tokens)) cases.emplace_back(std::move(each), tokens);
  std::vector<std::vector<GroupJob>> jobs(cases.size());
  test::in_parallel(cases.size(),
                    [&](size_t i) { jobs[i] = test::jobs_of(trace(cases[i].first, cases[i].second), {arch}); });
  std::vector<GroupJob> all;
  for (const std::vector<GroupJob>& some : jobs) all.insert(all.end(), some.begin(), some.end());
  test::check_jobs(all, {arch});
}

TEST_CASE("conform: there is a case for every op that becomes code") {
  std::set<Op> covered;
  for (const OpCase& each : test::op_cases(33)) covered.insert(each.op);
  for (int number = 0; number < kOpCount; ++number) {
    const Op op = static_cast<Op>(number);
    CHECK_MESSAGE(covered.contains(op) == has_code(op), op_info(op).name);
  }
}

TEST_CASE("conform: leaves") { check_cases(test::leaf_cases, "sm_90a", token_counts()); }
TEST_CASE("conform: pointwise ops") { check_cases(test::pointwise_cases, "sm_90a", token_counts()); }
TEST_CASE("conform: views") { check_cases(test::view_cases, "sm_90a", few_token_counts()); }
TEST_CASE("conform: reductions") { check_cases(test::reduction_cases, "sm_90a", token_counts()); }
TEST_CASE("conform: products") { check_cases(test::product_cases, "sm_90a", few_token_counts()); }
TEST_CASE("conform: products without wgmma") { check_cases(test::product_cases, "sm_80", few_token_counts()); }
TEST_CASE("conform: rows") { check_cases(test::row_cases, "sm_90a", token_counts()); }
TEST_CASE("conform: attention") { check_cases(test::attention_cases, "sm_90a", token_counts()); }
TEST_CASE("conform: attention without wgmma") { check_cases(test::attention_cases, "sm_80", few_token_counts()); }
TEST_CASE("conform: routing") { check_cases(test::route_cases, "sm_90a", token_counts()); }

// A kernel that does not do its last task, and one whose result is not what is wanted, by one bit.
TEST_CASE("conform: what is wrong is reported") {
  const OpCase each = test::pointwise_cases(1000)[0];
  std::vector<GroupJob> jobs = test::jobs_of(trace(each, 1000), {"sm_90a"});
  REQUIRE(jobs.size() == 1);
  CHECK(test::run_jobs(jobs, {"sm_90a"}).faults.empty());
  jobs[0].scheduled.grid -= 1;
  const auto unwritten = test::run_jobs(jobs, {"sm_90a"}).faults;
  REQUIRE(unwritten.size() == 1);
  CHECK_MESSAGE(unwritten[0].find("nan where the evaluator has") != std::string::npos, unwritten[0]);
  jobs[0].scheduled.grid += 1;
  test::Traced other = *jobs[0].from;
  const Program& program = other.module.programs[0];
  double& last = other.traces[0][program.value(jobs[0].scheduled.results[0]).name].data.back();
  last = static_cast<double>(std::nextafter(static_cast<float>(last), 100.0F));
  jobs[0].from = std::make_shared<test::Traced>(other);
  const auto wrong = test::run_jobs(jobs, {"sm_90a"}).faults;
  REQUIRE(wrong.size() == 1);
  CHECK_MESSAGE(wrong[0].find("element 39999 of 40000") != std::string::npos, wrong[0]);
}

}  // namespace
}  // namespace stepc
