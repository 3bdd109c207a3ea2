#include "compiler/plan/plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "compiler/plan/assign.h"
#include "compiler/plan/order.h"
#include "ir/graph/builder.h"
#include "ir/graph/fused.h"
#include "ir/graph/print.h"
#include "ir/plan/bundle_io.h"
#include "ir/plan/verify.h"

namespace stepc {
namespace {

TensorType f32(Shape shape) { return {Dtype::f32, std::move(shape)}; }

// Puts every op that needs code into a kernel; `joined` makes one kernel of all.
void group_all(Program& program, bool joined) {
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const Op op = program.nodes[n].op;
    if (op == Op::input || op == Op::param || op == Op::state || op_info(op).family == OpFamily::effect) continue;
    if (!joined || program.groups.empty())
      program.groups.push_back({fmt::format("k{}", program.groups.size()), Template::pointwise, {}});
    program.groups.back().nodes.push_back(static_cast<NodeId>(n));
  }
}

Plan plan_of(const Module& module, const Program& program) {
  const ModuleLayout layout = layout_persistents(module).value();
  auto plan = plan_program(program, layout, unscheduled_launches(program));
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  CHECK(parse_plan(plan_text(*plan), "p").value() == *plan);
  return std::move(*plan);
}

// The step's and ports' buffers as "name@arena".
std::string steps_text(const Plan& plan) {
  std::string text;
  const auto name = [&](int b) {
    const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(b)];
    const int root = root_buffer(plan, b);
    return buffer.name + (root == b ? "" : "=" + plan.buffers[static_cast<size_t>(root)].name);
  };
  for (const PlanStep& step : plan.steps) {
    text += step.name + ":";
    for (int b : step_reads(step)) text += " " + name(b);
    text += " ->";
    for (int b : step_writes(step)) text += " " + name(b);
    text += "\n";
  }
  return text;
}

TEST_CASE("an update through pointwise ops is in place, inputs and outputs lie in io") {
  Module module{"m", {}, {}};
  module.persistents.push_back({"w", f32({7}), true, Arena::weights});
  module.persistents.push_back({"m", f32({7}), false, Arena::optimizer});
  GraphBuilder b(module, "step");
  const ValueId g = b.input("g", f32({7}));
  b.input("unused", f32({}));
  b.set_name_hint("new_m");
  const ValueId m = b.add(b.persistent("m"), g);
  b.set_name_hint("new_w");
  const ValueId w = b.sub(b.persistent("w"), m);
  b.assign("m", m);
  b.assign("w", w);
  b.output("w", w);
  b.output("m", m);
  group_all(b.program(), true);
  const Plan plan = plan_of(module, b.program());
  CHECK(steps_text(plan) ==
        "k0: @m g @w -> new_m=@m new_w=@w\n"
        "output w: new_w=@w -> w\n"
        "output m: new_m=@m -> m\n");
  CHECK(plan.activations_bytes == 0);
  CHECK(plan.io_bytes == 64 + 64 + 64 + 28);  // the scalar, then g, w and m
  CHECK(plan.inputs == std::vector<PlanPort>{{"g", 0}, {"unused", 1}});
}

TEST_CASE("an update is copied at the end where the old value is read later or at another index") {
  Module module{"m", {}, {}};
  module.persistents.push_back({"s", f32({3, 3}), false, Arena::optimizer});
  SUBCASE("read by a later kernel") {
    GraphBuilder b(module, "p");
    const ValueId s = b.persistent("s");
    b.set_name_hint("next");
    const ValueId next = b.unary(Op::neg, s);
    b.set_name_hint("late");
    const ValueId late = b.add(next, s);
    b.assign("s", next);
    b.output("late", late);
    group_all(b.program(), false);
    CHECK(steps_text(plan_of(module, b.program())) == "k0: @s -> next\nk1: next @s -> late\nassign @s: next -> @s\n");
  }
  SUBCASE("read transposed inside the kernel") {
    GraphBuilder b(module, "p");
    const ValueId s = b.persistent("s");
    const ValueId turned = b.transpose(s, {1, 0});
    b.set_name_hint("next");
    b.assign("s", b.add(turned, s));
    group_all(b.program(), true);
    CHECK(steps_text(plan_of(module, b.program())) == "k0: @s -> next\nassign @s: next -> @s\n");
  }
  SUBCASE("made by a reduction") {
    GraphBuilder b(module, "p");
    b.set_name_hint("next");
    const ValueId row = b.reduce(Op::reduce_sum, b.persistent("s"), {1});
    b.assign("s", b.broadcast(row, {3, 3}, {0}));
    group_all(b.program(), true);
    CHECK(steps_text(plan_of(module, b.program())) == "k0: @s -> next.1\nassign @s: next.1 -> @s\n");
  }
  SUBCASE("read before, through a reshape outside of kernels") {
    GraphBuilder b(module, "p");
    b.set_name_hint("flat");
    const ValueId flat = b.reshape(b.persistent("s"), {9});
    b.set_name_hint("early");
    const ValueId early = b.unary(Op::exp, flat);
    b.set_name_hint("next");
    const ValueId next = b.add(flat, early);
    b.set_name_hint("square");
    b.assign("s", b.reshape(next, {3, 3}));
    Program& program = b.program();
    for (size_t n = 0; n < program.nodes.size(); ++n)
      if (program.nodes[n].op == Op::exp || program.nodes[n].op == Op::add)
        program.groups.push_back({fmt::format("k{}", n), Template::pointwise, {static_cast<NodeId>(n)}});
    CHECK(steps_text(plan_of(module, program)) == "k2: flat=@s -> early\nk3: flat=@s early -> next=@s\n");
  }
}

TEST_CASE("two states that change places are set aside first") {
  Module module{"m", {}, {}};
  module.persistents.push_back({"a", f32({2}), false, Arena::optimizer});
  module.persistents.push_back({"b", f32({2}), false, Arena::optimizer});
  GraphBuilder b(module, "swap");
  const ValueId old_a = b.persistent("a");
  b.assign("a", b.persistent("b"));
  b.assign("b", old_a);
  b.output("old", old_a);
  CHECK(steps_text(plan_of(module, b.program())) ==
        "set aside @b: @b -> b.old\n"
        "set aside @a: @a -> a.old\n"
        "output old: @a -> old\n"
        "assign @a: b.old -> @a\n"
        "assign @b: a.old -> @b\n");
}

TEST_CASE("the kernels of one group run one after the other on its buffers") {
  Module module{"m", {}, {}};
  GraphBuilder b(module, "p");
  b.set_name_hint("y");
  const ValueId y = b.add(b.input("x", f32({7})), b.input("x2", f32({7})));
  b.set_name_hint("z");
  b.output("z", b.mul(y, y));
  Program& program = module.programs[0];
  group_all(program, false);
  std::vector<GroupLaunch> launches = unscheduled_launches(program);
  launches[0].workspace_bytes = 100;
  launches[0].later = {{-1, 3, {5}}, {-1, 4, {}}};
  const auto plan = plan_program(program, layout_persistents(module).value(), launches);
  REQUIRE_MESSAGE(plan.has_value(), plan.error().text());
  CHECK(steps_text(*plan) ==
        "k0: x x2 -> y k0.workspace\nk0.2: x x2 -> y k0.workspace\nk0.3: x x2 -> y k0.workspace\nk1: y -> z\n");
  const auto& second = std::get<LaunchStep>(plan->steps[1].action);
  CHECK(second.grid == 3);
  CHECK(second.scalars == std::vector<int64_t>{5});
  CHECK(plan->steps[0].flops == 7);
  CHECK(plan->steps[1].flops == 0);
  const auto workspace = std::find_if(plan->buffers.begin(), plan->buffers.end(),
                                      [](const PlanBuffer& buffer) { return buffer.name == "k0.workspace"; });
  REQUIRE(workspace != plan->buffers.end());
  CHECK(workspace->first_step == 0);
  CHECK(workspace->last_step == 2);
}

TEST_CASE("an op outside every kernel is an error with its place") {
  Module module{"m", {}, {}};
  GraphBuilder b(module, "p");
  b.output("y", b.unary(Op::neg, b.input("x", f32({2}))));
  b.program().nodes[1].where = {"a.gir", 3, 5};
  const ModuleLayout layout = layout_persistents(module).value();
  CHECK(plan_program(b.program(), layout, {}).error().text() ==
        "a.gir:3:5: program @p: expected every op in a kernel, found %neg: f32[2] = neg(%x) outside");
}

// ---- random programs -----------------------------------------------------------------------------------

// Runs a plan with a name for the content of every byte range instead of data, and checks that each step
// finds what the graph says it reads.
class Tracker {
 public:
  Tracker(const Program& program, const Plan& plan) : program_(program), plan_(plan), roots_(root_values(program)) {}

  void put(int buffer, const std::string& content) {
    const PlanBuffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    std::erase_if(contents_, [&](const Content& c) {
      return c.arena == b.arena && c.offset < b.offset_bytes + b.bytes && b.offset_bytes < c.offset + c.bytes;
    });
    contents_.push_back({b.arena, b.offset_bytes, b.bytes, content});
  }
  std::string get(int buffer) const {
    const PlanBuffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    for (const Content& c : contents_)
      if (c.arena == b.arena && c.offset == b.offset_bytes && c.bytes == b.bytes) return c.content;
    return "?";
  }
  // What the graph says `value` is: its root's name, "@x" and "input" for leaves.
  std::string expected(ValueId value) const {
    const ValueId root = roots_[index_of(value)];
    const Node& node = program_.producer(root);
    if (node.op == Op::state || node.op == Op::param) return "@" + node.attrs.text(AttrKey::name);
    return program_.value(root).name;
  }

  void run() {
    for (const PlanBuffer& b : plan_.buffers)
      if (b.name.starts_with('@')) put(static_cast<int>(&b - plan_.buffers.data()), b.name);
    for (const PlanPort& port : plan_.inputs) put(port.buffer, plan_.buffers[static_cast<size_t>(port.buffer)].name);
    for (const PlanStep& step : plan_.steps) {
      if (const auto* copy = std::get_if<CopyStep>(&step.action)) {
        put(copy->to, get(copy->from));
        continue;
      }
      const auto& launch = std::get<LaunchStep>(step.action);
      const Group& group = program_.groups[group_named(step.name)];
      const auto operands = group_operands(program_, group), results = group_results(program_, group);
      for (size_t i = 0; i < operands.size(); ++i) REQUIRE(get(launch.operands[i]) == expected(operands[i]));
      for (size_t i = 0; i < results.size(); ++i) put(launch.results[i], program_.value(results[i]).name);
    }
    for (const Node& node : program_.nodes) {
      if (node.op == Op::assign) REQUIRE(get(persistent(node.attrs.text(AttrKey::name))) == expected(node.operands[0]));
      if (node.op == Op::output) REQUIRE(get(output(node.attrs.text(AttrKey::name))) == expected(node.operands[0]));
    }
  }

 private:
  struct Content {
    PlanArena arena;
    int64_t offset;
    int64_t bytes;
    std::string content;
  };
  size_t group_named(const std::string& name) const {
    for (size_t g = 0; g < program_.groups.size(); ++g)
      if (program_.groups[g].name == name) return g;
    FAIL("no group " << name);
    return 0;
  }
  int persistent(const std::string& name) const {
    for (size_t b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].name == "@" + name) return static_cast<int>(b);
    FAIL("no buffer @" << name);
    return -1;
  }
  int output(const std::string& name) const {
    for (const PlanPort& port : plan_.outputs)
      if (port.name == name) return port.buffer;
    FAIL("no output " << name);
    return -1;
  }

  const Program& program_;
  const Plan& plan_;
  std::vector<ValueId> roots_;
  std::vector<Content> contents_;
};

// Values of 4 elements in shapes [4] and [2, 2], states read and assigned at random, some ops joined.
void random_program(std::mt19937& random, Module& module) {
  const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
  for (const char* name : {"a", "b", "c"}) module.persistents.push_back({name, f32({2, 2}), false, Arena::optimizer});
  GraphBuilder b(module, "p");
  std::vector<ValueId> values = {b.input("x", f32({2, 2})), b.persistent("a"), b.persistent("b"), b.persistent("c")};
  const size_t ops = 1 + pick(12);
  for (size_t i = 0; i < ops; ++i) {
    const ValueId v = values[pick(values.size())], w = values[pick(values.size())];
    switch (pick(4)) {
      case 0: values.push_back(b.unary(Op::neg, v)); break;
      case 1: values.push_back(b.transpose(v, {1, 0})); break;
      case 2: values.push_back(b.reshape(b.reshape(v, {4}), {2, 2})); break;
      default: values.push_back(b.add(v, w)); break;
    }
  }
  for (const char* name : {"a", "b", "c"})
    if (pick(3) > 0) b.assign(name, values[pick(values.size())]);
  b.output("y", values.back());
  b.output("z", values[pick(values.size())]);
  Program& program = b.program();
  for (size_t n = 0; n < program.nodes.size(); ++n) {
    const OpFamily family = op_info(program.nodes[n].op).family;
    if (family != OpFamily::pointwise && program.nodes[n].op != Op::transpose) continue;
    if (program.groups.empty() || pick(2) == 0)
      program.groups.push_back({fmt::format("k{}", program.groups.size()), Template::pointwise, {}});
    program.groups.back().nodes.push_back(static_cast<NodeId>(n));
  }
}

// Every unit once, after all that it reads, and no fewer assignments in place.
void check_order(const Program& program, const std::vector<Unit>& order) {
  std::vector<bool> done(program.nodes.size(), false);
  for (const Unit& unit : order) {
    const std::vector<NodeId> nodes =
        unit.group >= 0 ? program.groups[static_cast<size_t>(unit.group)].nodes : std::vector<NodeId>{unit.node};
    for (NodeId id : nodes) {
      REQUIRE(!done[index_of(id)]);
      for (ValueId operand : program.node(id).operands) REQUIRE(done[index_of(program.value(operand).producer)]);
      done[index_of(id)] = true;
    }
  }
  REQUIRE(std::count(done.begin(), done.end(), false) == 0);
  const std::vector<bool> before = in_place_assigns(program, *unit_order(program));
  const std::vector<bool> after = in_place_assigns(program, order);
  REQUIRE(std::count(after.begin(), after.end(), true) >= std::count(before.begin(), before.end(), true));
}

TEST_CASE("an update runs as soon as its gradient is there, if that needs less memory") {
  Module module{"m", {}, {}};
  for (const char* name : {"w0", "w1", "w2"}) module.persistents.push_back({name, f32({64}), true, Arena::weights});
  GraphBuilder b(module, "step");
  ValueId d = b.input("d", f32({64}));
  std::vector<ValueId> gradients;
  for (int layer = 0; layer < 3; ++layer) {
    b.set_name_hint(fmt::format("dw{}", layer));
    gradients.push_back(b.unary(Op::neg, d));
    b.set_name_hint(fmt::format("dx{}", layer));
    d = b.add(d, b.persistent(fmt::format("w{}", layer)));
  }
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = fmt::format("w{}", layer);
    b.set_name_hint("new_" + name);
    b.assign(name, b.add(b.persistent(name), gradients[static_cast<size_t>(layer)]));
  }
  b.output("dx", d);
  group_all(b.program(), false);
  const Plan plan = plan_of(module, b.program());
  CHECK(plan.packing.ends_with("order for memory"));
  CHECK(plan.activations_bytes == 2 * 256);
  CHECK(steps_text(plan) ==
        "k0: d -> dw0\n"
        "k1: d @w0 -> dx0\n"
        "k6: @w0 dw0 -> new_w0=@w0\n"
        "k2: dx0 -> dw1\n"
        "k3: dx0 @w1 -> dx1=dx0\n"
        "k7: @w1 dw1 -> new_w1=@w1\n"
        "k4: dx1=dx0 -> dw2\n"
        "k5: dx1=dx0 @w2 -> dx2\n"
        "k8: @w2 dw2 -> new_w2=@w2\n");
}

TEST_CASE("plans of random programs read and commit what the graph says") {
  std::mt19937 random(11);
  int in_place = 0, copied = 0;
  for (int round = 0; round < 500; ++round) {
    Module module{"m", {}, {}};
    random_program(random, module);
    const Program& program = module.programs[0];
    if (!unit_order(program)) continue;  // groups in a circle: no fused program
    const Plan plan = plan_of(module, program);
    Tracker(program, plan).run();
    const ModuleLayout layout = layout_persistents(module).value();
    const Plan own = plan_program(program, layout, unscheduled_launches(program), {.reorder = false}).value();
    Tracker(program, own).run();
    CHECK(plan.activations_bytes <= own.activations_bytes);
    check_order(program, memory_order(program));
    CHECK(plan.activations_bytes >= plan.lower_bound_bytes);
    for (const PlanBuffer& b : plan.buffers) in_place += b.alias_of >= 0 && b.arena == PlanArena::optimizer;
    for (const PlanStep& step : plan.steps) copied += step.name.starts_with("assign");
  }
  CHECK(in_place > 100);
  CHECK(copied > 100);
}

}  // namespace
}  // namespace stepc
