// The route template, one task: the choice of experts for many tokens at a time, lanes along the tokens, then
// the handing out of places, token by token, which is a chain by nature.
#include <algorithm>
#include <limits>

#include "compiler/schedule/host/templates.h"
#include "ir/support/check.h"

namespace stepc::host {
namespace {

// Experts up to which their comparison is written out.
constexpr int64_t kMaxExperts = 64;

struct RouteProblem {
  const Node* node = nullptr;
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t top = 0;
  int64_t capacity = 0;
};

class RouteBuilder {
 public:
  RouteBuilder(const Problem& problem, const RouteProblem& route, KernelBuilder& builder, Region& region)
      : problem_(problem), route_(route), builder_(builder), region_(region) {}

  void build() {
    region_.provide([this](ValueId value, const Position&) -> std::optional<Fragment> {
      if (auto found = made_.find(value); found != made_.end()) return found->second;
      return std::nullopt;
    });
    const int64_t slots = route_.experts * route_.capacity;
    const int64_t lanes = problem_.widths.native;
    choice_ = builder_.shared("choice", Dtype::i32, {route_.top, route_.tokens});
    count_ = builder_.shared("given", Dtype::i32, {route_.experts});
    for_columns(region_, route_.tokens, pick_width(route_.tokens, lanes, 1), [this](const LaneIndex& n) { choose(n); });
    builder_.loop("e", Index(0), Index(route_.experts), Index(1),
                  [this](Index e) { builder_.store(i32(0), count_, {e}); });
    for_columns(region_, slots, pick_width(slots, lanes, 4), [this](const LaneIndex& s) { store(2, i32(-1), s); });
    builder_.loop("n", Index(0), Index(route_.tokens), Index(1), [this](Index n) {
      for (int64_t k = 0; k < route_.top; ++k) give_place(n, k);
    });
    builder_.loop("e", Index(0), Index(route_.experts), Index(1),
                  [this](Index e) { store(3, builder_.load(count_, {e}, {}), uniform_index(e)); });
  }

 private:
  Fragment i32(int64_t value) { return builder_.constant(static_cast<double>(value), Dtype::i32); }
  Fragment f32(double value) { return builder_.constant(value, Dtype::f32); }
  Fragment op(kernel::Op op, std::vector<Fragment> operands) { return builder_.pointwise(op, std::move(operands)); }

  // The node's result `r` at one place, if the group gives it away.
  void store(size_t r, Fragment value, const LaneIndex& at, std::optional<LaneIndex> second = std::nullopt) {
    const ValueId result = route_.node->results[r];
    if (std::find(problem_.results.begin(), problem_.results.end(), result) == problem_.results.end()) return;
    made_[result] = value;
    region_.scope(region_.lanes(), [&] { region_.store(result, second ? Position{at, *second} : Position{at}); });
  }

  // The largest of what the ranks before left; ties stay with the lower index, because only a larger one replaces it.
  void choose(const LaneIndex& n) {
    std::vector<Fragment> probs;
    for (int64_t e = 0; e < route_.experts; ++e)
      probs.push_back(region_.wide_at(route_.node->operands[0], {n, uniform_index(Index(e))}));
    const Fragment none = region_.wide(f32(-std::numeric_limits<double>::infinity()));
    for (int64_t k = 0; k < route_.top; ++k) {
      Fragment best = none;
      Fragment chosen = region_.wide(i32(k));
      for (int64_t e = 0; e < route_.experts; ++e) {
        const Fragment better = op(kernel::Op::less, {best, probs[static_cast<size_t>(e)]});
        best = op(kernel::Op::select, {better, probs[static_cast<size_t>(e)], best});
        chosen = op(kernel::Op::select, {better, region_.wide(i32(e)), chosen});
      }
      region_.store_lanes(chosen, choice_, {Index(k), n.base});
      for (int64_t e = 0; k + 1 < route_.top && e < route_.experts; ++e) {
        Fragment& prob = probs[static_cast<size_t>(e)];
        prob = op(kernel::Op::select, {op(kernel::Op::equal, {chosen, region_.wide(i32(e))}), none, prob});
      }
    }
  }

  void give_place(Index n, int64_t k) {
    const Index expert = builder_.load_index(choice_, {Index(k), n}, {0, route_.experts - 1});
    const Index place = builder_.load_index(count_, {expert}, {0, route_.tokens * route_.top});
    builder_.store(builder_.from_index(place + Index(1)), count_, {expert});
    store(0, builder_.from_index(expert), uniform_index(n), uniform_index(Index(k)));
    const Index number = n * Index(route_.top) + Index(k);
    const Index has_place = less(place, Index(route_.capacity));
    const Index slot = expert * Index(route_.capacity) + place;
    store(1, builder_.from_index(has_place * (slot + Index(1)) - Index(1)), uniform_index(number));
    builder_.when(has_place, [&] {
      const Index bounded = min(slot, Index(route_.experts * route_.capacity - 1));
      store(2, builder_.from_index(number), uniform_index(bounded));
    });
  }

  const Problem& problem_;
  const RouteProblem& route_;
  KernelBuilder& builder_;
  Region& region_;
  BufferId choice_ = BufferId::none;
  BufferId count_ = BufferId::none;
  std::map<ValueId, Fragment> made_;  // what is stored next
};

Result<RouteProblem> analyse(const Problem& problem) {
  RouteProblem route;
  for (NodeId id : problem.group.nodes)
    if (problem.program.node(id).op == Op::route) route.node = &problem.program.node(id);
  STEPC_CHECK(route.node, "a route group without route");
  for (ValueId result : problem.results) {
    if (problem.program.producer(result).op != Op::route)
      return user_error("kernel @{}: the route template cannot make %{}, which follows the routing", problem.group.name,
                        problem.program.value(result).name);
  }
  const Shape& probs = problem.program.type(route.node->operands[0]).shape;
  route.tokens = probs[0];
  route.experts = probs[1];
  route.top = route.node->attrs.integer(AttrKey::top);
  route.capacity = route.node->attrs.integer(AttrKey::capacity);
  if (route.experts > kMaxExperts) {
    return user_error("kernel @{}: the route template takes at most {} experts, found {}", problem.group.name,
                      kMaxExperts, route.experts);
  }
  return route;
}

}  // namespace

Result<Draft> build_route(const Problem& problem) {
  STEPC_ASSIGN(const RouteProblem route, analyse(problem));
  return build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(1));
    builder.begin_role("main", problem.widths.warps);
    RouteBuilder(problem, route, builder, region).build();
    return Built{1, "one task"};
  });
}

}  // namespace stepc::host
