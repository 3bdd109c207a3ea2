// The simplifier of index expressions: exact forms for what templates write, and random expressions against
// their naive value under every assignment of a few small variables.
#include <doctest/doctest.h>

#include <map>
#include <random>

#include "ir/kernel/builder.h"
#include "ir/kernel/index_simplify.h"

namespace stepc::kernel {
namespace {

struct Assignment {
  std::vector<int64_t> variables;
  int64_t task = 0;
};

int64_t value_under(const Kernel& kernel, ExprId id, const Assignment& with) {
  const Expr& expr = kernel.expr(id);
  if (expr.kind == ExprKind::constant) return expr.value;
  if (expr.kind == ExprKind::variable) return with.variables[index_of(expr.variable)];
  if (expr.kind == ExprKind::task) return with.task;
  const int64_t a = value_under(kernel, expr.a, with);
  const int64_t b = value_under(kernel, expr.b, with);
  switch (expr.kind) {
    case ExprKind::add: return a + b;
    case ExprKind::sub: return a - b;
    case ExprKind::mul: return a * b;
    case ExprKind::div: return floor_div(a, b);
    case ExprKind::rem: return floor_rem(a, b);
    case ExprKind::min: return std::min(a, b);
    case ExprKind::max: return std::max(a, b);
    case ExprKind::less: return a < b;
    case ExprKind::equal: return a == b;
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  return 0;
}

Kernel kernel_with_variables() {
  Kernel kernel;
  kernel.variables = {{"a", {0, 7}, 1}, {"b", {-8, 12}, 4}, {"c", {-3, 2}, 1}, {"d", {1, 3}, 1}};
  ExprPool pool(kernel.exprs);
  kernel.grid = pool.intern({.kind = ExprKind::constant, .value = 5});
  return kernel;
}

std::vector<Assignment> all_assignments() {
  std::vector<Assignment> all;
  for (int64_t a = 0; a <= 7; ++a)
    for (int64_t b = -8; b <= 12; b += 4)
      for (int64_t c = -3; c <= 2; ++c)
        for (int64_t d = 1; d <= 3; ++d)
          for (int64_t task = 0; task < 5; task += 2) all.push_back({{a, b, c, d}, task});
  return all;
}

// The same random expression twice: as it is written, and through the simplifier.
class RandomExpr {
 public:
  explicit RandomExpr(uint32_t seed) : random_(seed) {}
  std::pair<ExprId, ExprId> make(int depth) {
    if (depth == 0 || pick(8) == 0) return leaf();
    constexpr ExprKind kinds[] = {ExprKind::add, ExprKind::sub, ExprKind::mul,  ExprKind::div,  ExprKind::rem,
                                  ExprKind::add, ExprKind::rem, ExprKind::div,  ExprKind::min,  ExprKind::max,
                                  ExprKind::mul, ExprKind::add, ExprKind::less, ExprKind::equal};
    const ExprKind kind = kinds[pick(std::size(kinds))];
    const auto a = make(depth - 1);
    const bool divides = kind == ExprKind::div || kind == ExprKind::rem;
    const bool by_constant = divides || (kind == ExprKind::mul && pick(4) != 0);
    const auto b = divides && pick(10) == 0 ? variable(3) : by_constant ? factor(divides) : make(depth - 1);
    return {raw_pool_.intern({.kind = kind, .a = a.first, .b = b.first}), simplifier_.make(kind, a.second, b.second)};
  }
  Kernel raw = kernel_with_variables();
  Kernel simple = kernel_with_variables();

 private:
  size_t pick(size_t n) { return random_() % n; }
  std::pair<ExprId, ExprId> constant(int64_t value) {
    return {raw_pool_.intern({.kind = ExprKind::constant, .value = value}), simplifier_.constant(value)};
  }
  std::pair<ExprId, ExprId> variable(int32_t i) {
    const auto id = static_cast<VarId>(i);
    return {raw_pool_.intern({.kind = ExprKind::variable, .variable = id}), simplifier_.variable(id)};
  }
  std::pair<ExprId, ExprId> factor(bool positive) {
    constexpr int64_t factors[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 5, -1, -2, -4, 0, -7, 7};
    return constant(factors[pick(positive ? 10 : std::size(factors))]);
  }
  std::pair<ExprId, ExprId> leaf() {
    if (pick(4) == 0) return constant(static_cast<int64_t>(pick(40)) - 15);
    if (pick(5) == 0) return {raw_pool_.intern({.kind = ExprKind::task}), simplifier_.task()};
    return variable(static_cast<int32_t>(pick(4)));
  }

  std::mt19937 random_;
  ExprPool raw_pool_{raw.exprs};
  IndexSimplifier simplifier_{simple};
};

TEST_CASE("a simplified index has the value of what was written, within its range, a multiple of its multiple") {
  const std::vector<Assignment> assignments = all_assignments();
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    RandomExpr random(seed);
    const auto [raw, simple] = random.make(2 + seed % 4);
    const Range range = range_of(random.simple, simple);
    const Range raw_range = range_of(random.raw, raw);
    const int64_t multiple = multiple_of(random.simple, simple);
    int failures = 0;
    for (const Assignment& assignment : assignments) {
      const int64_t expected = value_under(random.raw, raw, assignment);
      failures += value_under(random.simple, simple, assignment) != expected;
      failures += expected < range.low || expected > range.high;
      failures += expected < raw_range.low || expected > raw_range.high;
      failures += multiple == 0 ? expected != 0 : expected % multiple != 0;
    }
    CAPTURE(seed);
    REQUIRE(failures == 0);
  }
}

TEST_CASE("simplifying again changes nothing") {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomExpr random(seed);
    const ExprId id = random.make(4).second;
    IndexSimplifier again(random.simple);
    const Expr expr = random.simple.expr(id);
    if (expr.a == ExprId::none) continue;
    const ExprId twice = again.make(expr.kind, expr.a, expr.b);
    const Assignment some{{3, 4, -2, 2}, 1};
    CHECK(value_under(random.simple, twice, some) == value_under(random.simple, id, some));
  }
}

struct Fixture {
  Fixture() {
    builder.set_grid(32);
    builder.begin_role("main");
    task = builder.task();
  }
  // A variable with 0 <= v < end.
  Index variable(const std::string& name, int64_t end) { return builder.scalar(name, {0, end - 1}); }
  bool same(Index a, Index b) { return a.id(builder) == b.id(builder); }
  KernelBuilder builder{"k", Target::host};
  Index task;
};

TEST_CASE_FIXTURE(Fixture, "sums are sorted and like terms merge") {
  const Index i = variable("i", 64), j = variable("j", 100);
  CHECK(same(i + j, j + i));
  CHECK(same(i + i + j - i, j + i));
  CHECK((i - i).constant() == 0);
  CHECK(same((i + 3) * 4 - 12, i * 4));
  CHECK(same((i + j) * 2 - j * 2, i * 2));
  CHECK(same(i * j - j * i + 7, 7));
  CHECK(same((i * 2) * (j * 3), (i * j) * 6));
}

TEST_CASE_FIXTURE(Fixture, "division and remainder take tiles apart") {
  const Index i = variable("i", 64), j = variable("j", 1000);
  CHECK(same((task * 64 + i) / 64, task));
  CHECK(same((task * 64 + i) % 64, i));
  CHECK(same((j * 64 + i) / 128, j / 2));
  CHECK(same((j * 64 + i) % 128, j % 2 * 64 + i));
  CHECK(same(j / 3 / 5, j / 15));
  CHECK(same(j % 12 % 4, j % 4));
  CHECK(same(j % 12 / 4, j / 4 % 3));
  CHECK(same((j * 12 + 7) / 4, j * 3 + 1));
  CHECK(same((j * 12 + 7) % 4, 3));
  CHECK(same(j / 8 * 8 + j % 8, j));
  CHECK(same((j / 8 % 4) * 8 + j % 8, j % 32));
  CHECK((i / 64).constant() == 0);
  CHECK(same((i + 64) / 64, 1));
  CHECK(same((Index(0) - i - 1) / 64, -1));
}

TEST_CASE_FIXTURE(Fixture, "multiples that only their variables know of divide too") {
  const Index rows = builder.scalar("rows", {0, 4096}, 64);
  const Index i = variable("i", 64);
  CHECK(same((rows + i) % 64, i));
  CHECK(same((rows + i) / 64, rows / 64));
  CHECK(same((rows + i) / 128, rows / 128));
  CHECK(same(equal(rows, 65), 0));
  CHECK(same(rows % 32, 0));
  CHECK(same(rows / 64 * 64, rows));
  CHECK(same((rows / 32 + task * 64 / 32 + 1) / 2, rows / 64 + task));
  const Index one = builder.scalar("one", {0, 4096}, 2), other = builder.scalar("other", {0, 4096}, 2);
  CHECK(same((one + other) / 64 * 64 + (one / 2 + other / 2) % 32 * 2, one + other));
}

TEST_CASE_FIXTURE(Fixture, "ranges decide extremes and comparisons") {
  const Index i = variable("i", 64), j = variable("j", 1000);
  CHECK(same(min(i, 63), i));
  CHECK(same(min(i, 100), i));
  CHECK(same(max(i, 0), i));
  CHECK(same(min(j, j + 3), j));
  CHECK(same(min(min(j, 70), 50), min(j, 50)));
  CHECK(same(less(i, 64), 1));
  CHECK(same(less(i + j, j), 0));
  CHECK(same(equal(j + 2, j + 2), 1));
  CHECK(same(equal(j, 2000), 0));
  CHECK(same(equal(j * 2, i * 4 + 1), 0));
  CHECK(builder.range((j + min(Index(64), 1000 - j)).id(builder)).high == 1000);
}

TEST_CASE_FIXTURE(Fixture, "a loop gives its variable a range and a multiple") {
  builder.loop("r", task * 64, min(task * 64 + 64, 2000), 1, [&](Index r) {
    CHECK(builder.range(r.id(builder)).low == 0);
    CHECK(builder.range(r.id(builder)).high == 1999);
    builder.loop("c", 0, 256, 64, [&](Index c) {
      CHECK(builder.range(c.id(builder)).high == 192);
      CHECK(builder.multiple_of(c.id(builder)) == 64);
      CHECK(same(c % 64, 0));
    });
    builder.loop("c", 0, 250, 64, [&](Index c) { CHECK(builder.range(c.id(builder)).high == 192); });
    builder.loop("c", task * 64, task * 64 + 64, 16, [&](Index c) {
      CHECK(builder.range(c.id(builder)).high == 31 * 64 + 48);
      CHECK(builder.multiple_of(c.id(builder)) == 16);
    });
    builder.loop("once", 3, 4, 7, [&](Index c) { CHECK(c.constant() == 3); });
    builder.loop("never", 3, 3, 1, [&](Index) { FAIL("the body of an empty loop"); });
  });
  const Kernel kernel = builder.finish();
  CHECK(kernel.ops.size() == 4);
}

}  // namespace
}  // namespace stepc::kernel
