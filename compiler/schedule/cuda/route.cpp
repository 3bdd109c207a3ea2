// Routing as a count. Assignments in flattened (token, rank) order are cut into as many equal parts as there are lanes;
// a lane goes through its part twice. First it counts each expert's assignments, then, from the sum of the parts before
// it, it hands out places. Everything is whole numbers, so the order of the threads does not show.
#include "compiler/schedule/cuda/route.h"

#include <algorithm>
#include <limits>

#include "ir/support/check.h"

namespace stepc::cuda {
namespace {

using host::Built;
using host::Draft;
using host::Problem;
using schedule::Fragment;
using schedule::Index;
using schedule::KernelBuilder;
using schedule::LaneIndex;
using schedule::Position;
using schedule::Region;

constexpr int64_t kMaxExperts = 64;
constexpr int64_t kMostLanes = 1024;
constexpr int64_t kCountBytes = 96 * 1024;

struct RouteProblem {
  const Node* node = nullptr;
  int64_t tokens = 0;
  int64_t experts = 0;
  int64_t top = 0;
  int64_t capacity = 0;
  int64_t lanes = 1;  // divides the assignments
  int64_t assignments() const { return tokens * top; }
  int64_t slots() const { return experts * capacity; }
};

Result<RouteProblem> analyse(const Problem& problem) {
  RouteProblem route;
  for (NodeId id : problem.group.nodes)
    if (problem.program.node(id).op == Op::route) route.node = &problem.program.node(id);
  STEPC_CHECK(route.node, "a route group without route");
  for (ValueId result : problem.results)
    if (problem.program.producer(result).op != Op::route)
      return user_error("kernel @{}: the route template cannot make %{}, which follows the routing", problem.group.name,
                        problem.program.value(result).name);
  const Shape& probs = problem.program.type(route.node->operands[0]).shape;
  route.tokens = probs[0];
  route.experts = probs[1];
  route.top = route.node->attrs.integer(AttrKey::top);
  route.capacity = route.node->attrs.integer(AttrKey::capacity);
  if (route.experts > kMaxExperts)
    return user_error("kernel @{}: the route template takes at most {} experts, found {}", problem.group.name,
                      kMaxExperts, route.experts);
  const int64_t most = std::min(kMostLanes, kCountBytes / 4 / std::max<int64_t>(route.experts, 1));
  for (int64_t lanes = 1; lanes <= most; ++lanes)
    if (route.assignments() % lanes == 0) route.lanes = lanes;
  return route;
}

class RouteBuilder {
 public:
  RouteBuilder(const Problem& problem, const RouteProblem& route, KernelBuilder& builder, Region& region)
      : problem_(problem), route_(route), b_(builder), region_(region) {}

  int64_t workspace_elements() const { return route_.assignments() + route_.slots() + route_.lanes; }

  void build() {
    work_ = b_.global("workspace", Dtype::i32, {workspace_elements()});
    counts_ = b_.shared("counts", Dtype::i32, {route_.experts, route_.lanes});
    region_.provide([this](ValueId value, const Position&) -> std::optional<Fragment> {
      if (auto found = made_.find(value); found != made_.end()) return found->second;
      return std::nullopt;
    });
    each_vector(route_.tokens, [this](const LaneIndex& n) { choose(n); });
    each_vector(route_.slots(), [this](const LaneIndex& s) {
      region_.store_lanes(i32(-1), work_, {Index(route_.assignments()) + s.base});
    });
    if (route_.assignments() > 0) hand_out();
    each_vector(route_.slots(), [this](const LaneIndex& s) {
      const Fragment item = region_.load_lanes(work_, {Index(route_.assignments()) + s.base});
      store(2, item, {s});
    });
  }

 private:
  Fragment i32(int64_t value) { return b_.constant(static_cast<double>(value), Dtype::i32); }
  Fragment wide(int64_t value) { return b_.constant(static_cast<double>(value), Dtype::i32, {route_.lanes}); }
  Fragment op(kernel::Op op, std::vector<Fragment> operands) { return b_.pointwise(op, std::move(operands)); }
  bool is_wanted(size_t r) const {
    return std::find(problem_.results.begin(), problem_.results.end(), route_.node->results[r]) !=
           problem_.results.end();
  }

  void each_vector(int64_t extent, const std::function<void(const LaneIndex&)>& body) {
    host::for_columns(region_, extent, host::pick_width(extent, problem_.widths.native, 1), body);
  }

  // The node's result `r` at the lanes under way, if the group gives it away.
  void store(size_t r, Fragment value, const Position& at) {
    if (!is_wanted(r)) return;
    made_[route_.node->results[r]] = value;
    region_.scope(region_.lanes(), [&] { region_.store(route_.node->results[r], at); });
  }

  // The largest of what the ranks before left; ties stay with the lower index, because only a larger one replaces it.
  // Choices are kept rank by rank in the workspace.
  void choose(const LaneIndex& n) {
    std::vector<Fragment> probs;
    for (int64_t e = 0; e < route_.experts; ++e)
      probs.push_back(region_.wide_at(route_.node->operands[0], {n, host::uniform_index(Index(e))}));
    const Fragment none = region_.wide(b_.constant(-std::numeric_limits<double>::infinity(), Dtype::f32));
    for (int64_t k = 0; k < route_.top; ++k) {
      Fragment best = none;
      Fragment chosen = region_.wide(i32(k));
      for (int64_t e = 0; e < route_.experts; ++e) {
        const Fragment better = op(kernel::Op::less, {best, probs[static_cast<size_t>(e)]});
        best = op(kernel::Op::select, {better, probs[static_cast<size_t>(e)], best});
        chosen = op(kernel::Op::select, {better, region_.wide(i32(e)), chosen});
      }
      region_.store_lanes(chosen, work_, {Index(k * route_.tokens) + n.base});
      store(0, chosen, {n, host::uniform_index(Index(k))});
      for (int64_t e = 0; k + 1 < route_.top && e < route_.experts; ++e) {
        Fragment& prob = probs[static_cast<size_t>(e)];
        prob = op(kernel::Op::select, {op(kernel::Op::equal, {chosen, region_.wide(i32(e))}), none, prob});
      }
    }
  }

  // The number of each lane's assignment under way, and the expert that it chose.
  struct Assignment {
    Fragment number;
    Fragment expert;
  };
  Assignment assignment(Index turn) {
    const int64_t part = route_.assignments() / route_.lanes;
    Fragment number = op(kernel::Op::mul, {b_.lane({route_.lanes}), wide(part)});
    number = op(kernel::Op::add, {number, b_.splat(b_.from_index(turn), {route_.lanes})});
    const Fragment rank = op(kernel::Op::rem, {number, wide(route_.top)});
    const Fragment token = op(kernel::Op::div, {number, wide(route_.top)});
    const Fragment place = op(kernel::Op::add, {op(kernel::Op::mul, {rank, wide(route_.tokens)}), token});
    return {number, b_.gather(work_, {Index(0)}, place)};
  }

  // `numbers`, each raised by one where its expert is chosen.
  std::vector<Fragment> counted(const std::vector<Fragment>& numbers, Fragment expert) {
    std::vector<Fragment> next;
    for (int64_t e = 0; e < route_.experts; ++e) {
      const Fragment hit = b_.cast(op(kernel::Op::equal, {expert, wide(e)}), Dtype::i32);
      next.push_back(op(kernel::Op::add, {numbers[static_cast<size_t>(e)], hit}));
    }
    return next;
  }

  void hand_out() {
    const Index turns(route_.assignments() / route_.lanes);
    const std::vector<Fragment> zeros(static_cast<size_t>(route_.experts), wide(0));
    const std::vector<Fragment> counts = b_.loop(
        "turn", Index(0), turns, Index(1), zeros,
        [this](Index turn, const std::vector<Fragment>& carried) { return counted(carried, assignment(turn).expert); });
    const std::vector<Fragment> upto = sum_before(counts);
    std::vector<Fragment> first;
    for (size_t e = 0; e < counts.size(); ++e) first.push_back(op(kernel::Op::sub, {upto[e], counts[e]}));
    b_.loop("turn", Index(0), turns, Index(1), first, [this](Index turn, const std::vector<Fragment>& carried) {
      const Assignment mine = assignment(turn);
      give_place(mine, carried);
      return counted(carried, mine.expert);
    });
  }

  // For each expert the sum over all lanes up to the own one; the last lane's are the totals.
  std::vector<Fragment> sum_before(std::vector<Fragment> sums) {
    const auto put = [&] {
      for (size_t e = 0; e < sums.size(); ++e) b_.store(sums[e], counts_, {Index(static_cast<int64_t>(e)), Index(0)});
    };
    put();
    for (int64_t step = 1; step < route_.lanes; step *= 2) {
      const Fragment other = op(kernel::Op::sub, {b_.lane({route_.lanes}), wide(step)});
      const Fragment exists = op(kernel::Op::less_equal, {wide(0), other});
      const Fragment from = op(kernel::Op::max, {other, wide(0)});
      for (size_t e = 0; e < sums.size(); ++e) {
        const Fragment before = b_.gather(counts_, {Index(static_cast<int64_t>(e)), Index(0)}, from);
        sums[e] = op(kernel::Op::add, {sums[e], op(kernel::Op::select, {exists, before, wide(0)})});
      }
      put();
    }
    for (size_t e = 0; e < sums.size(); ++e) {
      const Index expert(static_cast<int64_t>(e));
      if (is_wanted(3))
        store(3, b_.load(counts_, {expert, Index(route_.lanes - 1)}, {}), {host::uniform_index(expert)});
    }
    return sums;
  }

  // What finds no place writes its number behind the slots, where each lane has a place of its own.
  void give_place(const Assignment& mine, const std::vector<Fragment>& next_place) {
    Fragment place = wide(0);
    for (int64_t e = 0; e < route_.experts; ++e) {
      const Fragment chosen = op(kernel::Op::equal, {mine.expert, wide(e)});
      place = op(kernel::Op::select, {chosen, next_place[static_cast<size_t>(e)], place});
    }
    const Fragment has_place = op(kernel::Op::less, {place, wide(route_.capacity)});
    const Fragment slot = op(kernel::Op::add, {op(kernel::Op::mul, {mine.expert, wide(route_.capacity)}), place});
    const Fragment behind = op(kernel::Op::add, {b_.lane({route_.lanes}), wide(route_.slots())});
    scatter(mine.number, work_, Index(route_.assignments()), op(kernel::Op::select, {has_place, slot, behind}));
    if (!is_wanted(1)) return;
    const Fragment given = op(kernel::Op::select, {has_place, slot, wide(-1)});
    scatter(given, slot_buffer(), Index(0), mine.number);
  }

  void scatter(Fragment value, kernel::BufferId buffer, Index first, Fragment offsets) {
    b_.emit({.op = kernel::Op::scatter, .frags = {value.id, offsets.id}, .refs = {b_.ref(buffer, {first})}});
  }

  // Results are declared in their order, after the operands.
  kernel::BufferId slot_buffer() const {
    const auto found = std::find(problem_.results.begin(), problem_.results.end(), route_.node->results[1]);
    return static_cast<kernel::BufferId>(problem_.operands.size() +
                                         static_cast<size_t>(found - problem_.results.begin()));
  }

  const Problem& problem_;
  const RouteProblem& route_;
  KernelBuilder& b_;
  Region& region_;
  kernel::BufferId work_ = kernel::BufferId::none;    // choices by rank, then the slots' assignments, then one a lane
  kernel::BufferId counts_ = kernel::BufferId::none;  // by expert and lane
  std::map<ValueId, Fragment> made_;                  // what is stored next
};

}  // namespace

Result<Draft> build_route(const Problem& problem) {
  STEPC_ASSIGN(const RouteProblem route, analyse(problem));
  return host::build_kernel(problem, [&](KernelBuilder& builder, Region& region) {
    builder.set_grid(Index(1));
    builder.begin_role("main", problem.widths.warps);
    RouteBuilder made(problem, route, builder, region);
    made.build();
    return Built{1, fmt::format("{} parts", route.lanes), made.workspace_elements() * 4};
  });
}

}  // namespace stepc::cuda
