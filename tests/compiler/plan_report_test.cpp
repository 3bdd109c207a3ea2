#include <doctest/doctest.h>

#include <algorithm>

#include "compiler/plan/plan.h"
#include "compiler/plan/report.h"
#include "ir/graph/builder.h"
#include "ir/text/json.h"

namespace stepc {
namespace {

struct Planned {
  ModuleLayout layout;
  Plan plan;
};

// A chain of `kernels` kernels over [batch, 1000], of which none can write over what it reads.
Planned chain(int64_t batch, int kernels = 3) {
  Module module{"m", {}, {}};
  module.persistents.push_back({"w", {Dtype::f32, {1000}}, true, Arena::weights});
  GraphBuilder b(module, "step");
  ValueId x = b.input("x", {Dtype::f32, {batch, 1000}});
  for (int k = 0; k < kernels; ++k) {
    b.set_name_hint(fmt::format("v{}", k));
    x = b.emit1(Op::reverse, {x}, {{AttrKey::axes, std::vector<int64_t>{1}}});
    b.program().groups.push_back({fmt::format("k{}", k), Template::pointwise, {b.program().value(x).producer}});
  }
  b.output("y", x);
  Planned planned{layout_persistents(module).value(), {}};
  planned.plan = plan_program(b.program(), planned.layout, unscheduled_launches(b.program())).value();
  return planned;
}

TEST_CASE("the report states peak by arena, the bound and the largest buffers") {
  const Planned p = chain(7);
  CHECK(memory_report(p.plan, p.layout) ==
        "memory of program @step\n"
        "  weights        3.91 KiB              4000 bytes\n"
        "  optimizer           0 B                 0 bytes\n"
        "  gradients           0 B                 0 bytes\n"
        "  activations    54.8 KiB             56064 bytes\n"
        "  io             54.7 KiB             56032 bytes\n"
        "  peak            113 KiB            116096 bytes\n"
        "  activations: 54.8 KiB packed largest first, the program's order, 1.000 x the lower bound of 56064 bytes\n"
        "largest buffers\n"
        "    27.3 KiB  x: f32[7, 1000]  (io)\n"
        "    27.3 KiB  v2: f32[7, 1000]  (io)\n"
        "    27.3 KiB  v0: f32[7, 1000]  (activations, steps 0-1 (k0 to k1))\n"
        "    27.3 KiB  v1: f32[7, 1000]  (activations, steps 1-2 (k1 to k2))\n"
        "    3.91 KiB  @w: f32[1000]  (weights)\n");
  CHECK(check_fits(p.plan, p.layout, 116096).has_value());
  CHECK(check_fits(p.plan, p.layout, 116095)
            .error()
            .text()
            .starts_with("program @step needs 113 KiB (116096 bytes), has 113 KiB (116095 bytes); the largest buffers "
                         "are\n    27.3 KiB  x:"));
}

TEST_CASE("charts show every step and buffer") {
  const Planned p = chain(1, 4);
  CHECK(live_chart_text(p.plan) ==
        "    0 #########################                            3.91 KiB  k0\n"
        "    1 ##################################################   7.81 KiB  k1  <- fullest\n"
        "    2 ##################################################   7.81 KiB  k2  <- fullest\n"
        "    3 #########################                            3.91 KiB  k3\n");
  CHECK(live_chart_text(p.plan, 2).find("    1 ") == 0);
  const JsonValue json = parse_json(live_chart_json(p.plan), "live").value();
  CHECK(JsonCursor(json, "live").member("buffers").value().items().value().size() == 3);
  const std::string svg = live_chart_svg(p.plan);
  CHECK(svg.find("<title>v1 f32[1, 1000], 3.91 KiB, steps 1-2 (k1 to k2)</title>") != std::string::npos);
  CHECK(svg.ends_with("</svg>\n"));
}

TEST_CASE("the largest batch that fits is found with few plans") {
  for (int64_t available : {0, 115, 12000, 20000, 100000, 1000003}) {
    int plans = 0;
    const auto need = [&](int64_t batch) -> Result<int64_t> {
      ++plans;
      const Planned p = chain(batch);
      return memory_need(p.plan, p.layout).total_bytes;
    };
    const int64_t batch = largest_batch(available, 50, need).value();
    CHECK(plans <= 6);
    if (batch > 0) CHECK(need(batch).value() <= available);
    if (batch < 50) CHECK(need(batch + 1).value() > available);
  }
  // Whatever the need does, the answer is the last batch that fits.
  for (int64_t step_at : {1, 2, 9, 31, 64, 1000}) {
    const auto jump = [&](int64_t batch) -> Result<int64_t> { return batch < step_at ? batch : 1000000 + batch; };
    CHECK(largest_batch(5000, 900, jump).value() == std::min<int64_t>(900, step_at - 1));
  }
  CHECK(largest_batch(5000, 0, [](int64_t) -> Result<int64_t> { return 1; }).value() == 0);
  const std::function<int64_t(int64_t)> needs[] = {[](int64_t b) { return 1000 + 7 * b; },
                                                   [](int64_t b) { return b * b; },
                                                   [](int64_t b) { return b < 20 ? 1 : int64_t{1} << 62; },
                                                   [](int64_t b) { return 64 - 64 / b; }, [](int64_t) { return 5; }};
  for (const auto& need : needs) {
    for (int64_t first : {1, 2, 16, 97}) {
      for (int64_t available = 0; available < 1700; available += available < 70 ? 1 : 131) {
        int plans = 0;
        const auto count = [&](int64_t b) -> Result<int64_t> { return ++plans, need(b); };
        const int64_t batch = largest_batch(available, 97, count, first).value();
        CHECK(plans <= 16);
        if (batch > 0) CHECK(need(batch) <= available);
        if (batch < 97) CHECK(need(batch + 1) > available);
      }
    }
  }
  CHECK(largest_batch(5, 100, [](int64_t) -> Result<int64_t> { return user_error("no"); }).error().text() == "no");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(int64_t{139} << 30) == "139 GiB");
}

}  // namespace
}  // namespace stepc
