#include "compiler/schedule/region/region.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::schedule {
namespace {

LaneIndex constant_index(int64_t value) { return {Index(value), {}, {}, {0, 0}}; }

kernel::Op kernel_op(Op op) {
  const auto same = kernel::op_from_name(op_info(op).name);
  STEPC_CHECK(same, "kernel IR has no {}", op_info(op).name);
  return *same;
}

// The lane of `own` whose indices are those of `lane` of `where`.
std::optional<int64_t> find_lane(const Position& own, const Position& where, int64_t lane) {
  const auto offset = [](const LaneIndex& x, int64_t l) {
    return x.pattern.empty() ? 0 : x.pattern[static_cast<size_t>(l)];
  };
  int64_t lanes = 1;
  std::vector<int64_t> wanted;
  for (size_t d = 0; d < own.size(); ++d) {
    const Index distance = where[d].base - own[d].base;
    if (own[d].dynamic.valid() || where[d].dynamic.valid() || !distance.is_constant()) return std::nullopt;
    wanted.push_back(distance.constant() + offset(where[d], lane));
    lanes = std::max(lanes, static_cast<int64_t>(own[d].pattern.size()));
  }
  for (int64_t candidate = 0; candidate < lanes; ++candidate) {
    bool same = true;
    for (size_t d = 0; d < own.size(); ++d) same = same && offset(own[d], candidate) == wanted[d];
    if (same) return candidate;
  }
  return std::nullopt;
}

}  // namespace

bool is_costly(Op op) {
  constexpr std::array kCostly{Op::exp, Op::log, Op::sin, Op::cos, Op::tanh, Op::logistic, Op::pow};
  return std::find(kCostly.begin(), kCostly.end(), op) != kCostly.end();
}

double reduction_start(Op op) {
  if (op == Op::reduce_sum) return 0;
  const double infinity = std::numeric_limits<double>::infinity();
  return op == Op::reduce_max ? -infinity : infinity;
}

kernel::Op reduction_step(Op op) {
  if (op == Op::reduce_sum) return kernel::Op::add;
  return op == Op::reduce_max ? kernel::Op::max : kernel::Op::min;
}

kernel::Op reduction_across(Op op) {
  if (op == Op::reduce_sum) return kernel::Op::reduce_sum;
  return op == Op::reduce_max ? kernel::Op::reduce_max : kernel::Op::reduce_min;
}

Region::Region(KernelBuilder& builder, const Program& program, const Group& group, Buffers& buffers)
    : builder_(builder), program_(program), math_(builder), access_(builder, math_, program, buffers) {
  inside_.assign(program.nodes.size(), false);
  for (NodeId id : group.nodes) inside_[index_of(id)] = true;
}

void Region::fail(std::string reason) {
  if (!failure_) failure_ = std::move(reason);
}

Fragment Region::unsupported(ValueId value, std::string_view reason) {
  fail(fmt::format("%{} = {}: {}", program_.value(value).name, op_info(program_.producer(value).op).name, reason));
  return zeros(value);
}

Fragment Region::constant(double value, Dtype dtype) {
  const Fragment made = builder_.constant(value, dtype);
  constants_[made.id] = value;
  return made;
}

Region::Key Region::key_of(ValueId value, const Position& where) {
  Key key = position_key(builder_, where);
  key.push_back(static_cast<int64_t>(value));
  return key;
}

void Region::scope(const Lanes& lanes, const std::function<void()>& body) {
  const Lanes outer_lanes = math_.lanes();
  const auto known = known_;
  const auto indices = known_indices_;
  const auto widened = widened_;
  math_.set_lanes(lanes);
  if (lanes.width != outer_lanes.width) widened_.clear();
  const size_t first_store = stores_.size();
  const bool was_in_scope = std::exchange(in_scope_, true);
  body();
  finish_stores(first_store);
  in_scope_ = was_in_scope;
  math_.set_lanes(outer_lanes);
  known_ = known;
  known_indices_ = indices;
  widened_ = widened;
}

Fragment Region::wide(Fragment fragment) {
  if (math_.lanes().width == 1 || !builder_.shape(fragment).empty()) return fragment;
  if (auto found = widened_.find(fragment.id); found != widened_.end()) return found->second;
  const auto number = constants_.find(fragment.id);
  if (number == constants_.end()) return widened_[fragment.id] = math_.splat(fragment);
  return widened_[fragment.id] = builder_.constant(number->second, builder_.dtype(fragment), {math_.lanes().width});
}

Fragment Region::at(ValueId value, const Position& where) {
  const Key key = key_of(value, where);
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  const Fragment made = evaluate(value, where);
  return known_[key] = made;
}

Fragment Region::evaluate(ValueId value, const Position& where) {
  if (provider_) {
    if (auto provided = provider_(value, where)) return *provided;
  }
  if (!contains(value)) {
    const Fragment loaded = access_.load(value, where);
    if (access_.failed()) fail(fmt::format("%{} is not read in order", program_.value(value).name));
    return loaded;
  }
  const Node& node = program_.producer(value);
  switch (op_info(node.op).family) {
    case OpFamily::leaf: return leaf(value, node, where);
    case OpFamily::pointwise: return pointwise(value, node, where);
    case OpFamily::view: return view(value, node, where);
    case OpFamily::reduction: return reduction(value, node, where);
    case OpFamily::rows:
      if (node.op == Op::gather_rows) return gather_rows(value, node, where);
      break;
    case OpFamily::contraction: return product(value, node, where);
    case OpFamily::structured:
    case OpFamily::effect: break;
  }
  return unsupported(value, "cannot be evaluated element by element");
}

Fragment Region::leaf(ValueId value, const Node& node, const Position& where) {
  if (node.op == Op::constant) {
    return constant(node.attrs.real(AttrKey::value), program_.type(value).dtype);
  }
  if (node.op == Op::iota) {
    return math_.materialise(where[static_cast<size_t>(node.attrs.integer(AttrKey::axis))]);
  }
  if (node.op == Op::random_bits) return random_bits(value, node, where);
  return unsupported(value, "is in no kernel");
}

Fragment Region::random_bits(ValueId value, const Node& node, const Position& where) {
  std::vector<Fragment> keys;
  for (ValueId operand : node.operands) keys.push_back(at(operand, {}));
  const LaneIndex element = linear_position(math_, where, program_.type(value).shape);
  if (element.dynamic.valid()) return unsupported(value, "is not read in a known order");
  const auto words = [&](Index first, int64_t count) {
    return builder_.random_bits(keys[0], keys[1], keys[2], first, {count});
  };
  if (element.pattern.empty()) return builder_.reduce(kernel::Op::reduce_max, words(element.base, 1));
  const auto [low, high] = std::minmax_element(element.pattern.begin(), element.pattern.end());
  const Index first = element.base + Index(*low);
  std::vector<int64_t> from = element.pattern;
  const bool on_gpu = builder_.kernel().target != kernel::Target::host;
  bool in_order = true;
  for (size_t lane = 0; lane < from.size(); ++lane) {
    from[lane] -= *low;
    const bool idle = on_gpu && static_cast<int64_t>(lane) >= math_.lanes().active;  // whose words nobody sees
    in_order = in_order && (idle || from[lane] == static_cast<int64_t>(lane));
  }
  const Fragment drawn = words(first, std::max(*high - *low + 1, math_.lanes().width));
  if (in_order) return drawn;
  if (!math_.can_permute(from, builder_.shape(drawn)[0])) return unsupported(value, "is not read in order");
  return builder_.permute(drawn, from);
}

// The value at lanes that are all lanes of the vector under way.
std::optional<Fragment> Region::permuted(ValueId value, const Position& where) {
  const Shape& shape = program_.type(value).shape;
  if (!space_ || math_.lanes().width == 1 || numel(shape) != numel(space_->shape)) return std::nullopt;
  const Position own = reshape_position(math_, space_->at, space_->shape, shape);
  if (position_key(builder_, own) == position_key(builder_, where)) return std::nullopt;
  std::vector<int64_t> from;
  for (int64_t lane = 0; lane < math_.lanes().width; ++lane) {
    const auto source = find_lane(own, where, std::min(lane, math_.lanes().active - 1));
    if (!source) return std::nullopt;
    from.push_back(*source);
  }
  if (!math_.can_permute(from, math_.lanes().width)) return std::nullopt;
  return builder_.permute(wide(at(value, own)), from);
}

// iota < number, where all lanes agree: in whole vectors of a row whose last columns alone are masked.
std::optional<Fragment> Region::compared_place(const Node& node, const Position& where) {
  if (!contains(node.operands[0]) || !contains(node.operands[1])) return std::nullopt;
  const Node& place = program_.producer(node.operands[0]);
  const Node& number = program_.producer(node.operands[1]);
  if (place.op != Op::iota || number.op != Op::constant) return std::nullopt;
  const LaneIndex& index = where[static_cast<size_t>(place.attrs.integer(AttrKey::axis))];
  const Range range = math_.range(index);
  const auto limit = static_cast<int64_t>(number.attrs.real(AttrKey::value));
  if (range.low < limit && range.high >= limit) return std::nullopt;
  return constant(range.high < limit ? 1 : 0, Dtype::pred);
}

Fragment Region::pointwise(ValueId value, const Node& node, const Position& where) {
  if (is_costly(node.op)) {
    if (auto known = permuted(value, where)) return *known;
  }
  if (node.op == Op::less) {
    if (auto decided = compared_place(node, where)) return *decided;
  }
  std::vector<Fragment> operands;
  bool any_wide = false;
  for (ValueId operand : node.operands) {
    operands.push_back(at(operand, where));
    if (node.op == Op::select && operands.size() == 1) {
      const auto known = constants_.find(operands[0].id);
      if (known != constants_.end()) return at(node.operands[known->second != 0 ? 1 : 2], where);
    }
    any_wide = any_wide || !builder_.shape(operands.back()).empty();
  }
  if (node.op == Op::stop_gradient) return operands[0];
  if (node.op == Op::cast) return builder_.cast(operands[0], program_.type(value).dtype);
  if (any_wide) {
    for (Fragment& operand : operands) operand = wide(operand);
  }
  return builder_.pointwise(kernel_op(node.op), operands);
}

Fragment Region::view(ValueId value, const Node& node, const Position& where) {
  if (node.op == Op::pad) return pad(value, node, where);
  if (node.op == Op::concat) return concat(value, node, where);
  const ValueId operand = node.operands[0];
  return at(operand, view_position(math_, node, where, program_.type(value).shape, program_.type(operand).shape));
}

// Lanes outside the operand read an element of its edge, and zero is selected.
Fragment Region::pad(ValueId value, const Node& node, const Position& where) {
  const ValueId operand = node.operands[0];
  const Shape& shape = program_.type(operand).shape;
  if (numel(shape) == 0) return zeros(value);
  Position inner = where;
  Fragment inside;
  for (size_t d = 0; d < shape.size(); ++d) {
    inner[d].base = where[d].base - Index(node.attrs.integers(AttrKey::low)[d]);
    const LaneMath::Test test = math_.inside(inner[d], 0, shape[d]);
    if (test.known && !test.always) return zeros(value);
    if (test.known) continue;
    inner[d] = math_.clamp(inner[d], 0, shape[d] - 1);
    inside = inside.valid() ? builder_.pointwise(kernel::Op::logical_and, {inside, test.inside}) : test.inside;
  }
  const Fragment element = at(operand, inner);
  if (!inside.valid()) return element;
  return builder_.pointwise(kernel::Op::select, {inside, element, zeros(value)});
}

Fragment Region::concat(ValueId value, const Node& node, const Position& where) {
  const auto axis = static_cast<size_t>(node.attrs.integer(AttrKey::axis));
  Fragment result;
  int64_t start = 0;
  for (ValueId operand : node.operands) {
    const int64_t extent = program_.type(operand).shape[axis];
    Position inner = where;
    inner[axis].base = where[axis].base - Index(start);
    start += extent;
    const LaneMath::Test test = math_.inside(inner[axis], 0, extent);
    if (extent == 0 || (test.known && !test.always)) continue;
    inner[axis] = math_.clamp(inner[axis], 0, extent - 1);
    const Fragment element = at(operand, inner);
    if (test.known) return element;
    // Operands are tried in order, so a position that is in none of those before and is below the end is in this one.
    result = result.valid() ? builder_.pointwise(kernel::Op::select, {test.inside, element, result}) : element;
  }
  if (!result.valid()) return unsupported(value, "is read outside its operands");
  return result;
}

// Written out, in ascending order of the reduced indices.
Fragment Region::reduction(ValueId value, const Node& node, const Position& where) {
  const ValueId operand = node.operands[0];
  const Shape& shape = program_.type(operand).shape;
  const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
  int64_t count = 1;
  for (int64_t axis : axes) count *= shape[static_cast<size_t>(axis)];
  if (count == 0) return builder_.constant(reduction_start(node.op), Dtype::f32);
  if (count > kUnrolledReduction) return unsupported(value, "a reduction that the template does not make");
  Fragment sum;
  for (int64_t i = 0; i < count; ++i) {
    Position inner;
    for (size_t d = 0, kept = 0; d < shape.size(); ++d) {
      const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
      inner.push_back(reduced ? constant_index(0) : where[kept++]);
    }
    int64_t rest = i;
    for (size_t a = axes.size(); a-- > 0;) {
      const int64_t extent = shape[static_cast<size_t>(axes[a])];
      inner[static_cast<size_t>(axes[a])] = constant_index(rest % extent);
      rest /= extent;
    }
    const Fragment element = at(operand, inner);
    sum = sum.valid() ? builder_.pointwise(reduction_step(node.op), {sum, element}) : element;
  }
  return sum;
}

// Row -1 is a row of zeros: row 0 is read for it, and zero selected.
Fragment Region::gather_rows(ValueId value, const Node& node, const Position& where) {
  const ValueId table = node.operands[0];
  const int64_t rows = program_.type(table).shape[0];
  if (rows == 0) return zeros(value);
  Position inner = where;
  Fragment missing;
  const Position row_at{where[0]};
  if (where[0].uniform()) {
    const Index row = index_at(node.operands[1], row_at, {-1, rows - 1});
    inner[0] = math_.clamp({row, {}, {}, {0, 0}}, 0, rows - 1);
    const Fragment zero = builder_.constant(0, Dtype::i32);
    missing = builder_.pointwise(kernel::Op::less, {builder_.from_index(row), zero});
  } else {
    const Fragment row = at(node.operands[1], row_at);
    const Fragment zero = wide(builder_.constant(0, Dtype::i32));
    missing = builder_.pointwise(kernel::Op::less, {row, zero});
    inner[0] = {Index(0), {}, builder_.pointwise(kernel::Op::max, {row, zero}), {0, rows - 1}};
  }
  const Fragment element = at(table, inner);
  return builder_.pointwise(kernel::Op::select, {missing, zeros(value), element});
}

Index Region::index_at(ValueId value, const Position& where, Range range) {
  const Key key = key_of(value, where);
  if (auto found = known_indices_.find(key); found != known_indices_.end()) return found->second;
  Index index;
  if (!contains(value)) {
    index = access_.load_index(value, where, range);
  } else if (const Node& node = program_.producer(value); node.op == Op::reshape) {
    const ValueId operand = node.operands[0];
    index = index_at(
        operand, view_position(math_, node, where, program_.type(value).shape, program_.type(operand).shape), range);
  } else {
    // Only memory can be read as an index.
    const BufferId slot = builder_.shared("index", Dtype::i32, {1});
    builder_.store(at(value, where), slot, {Index(0)});
    index = builder_.load_index(slot, {Index(0)}, range);
  }
  return known_indices_[key] = index;
}

Fragment Region::load_lanes(BufferId buffer, std::vector<Index> at) {
  const Lanes& lanes = math_.lanes();
  if (lanes.width == 1) return builder_.load(buffer, std::move(at), {});
  return builder_.load_first(buffer, std::move(at), {lanes.width}, Index(lanes.active));
}

void Region::store_lanes(Fragment fragment, BufferId buffer, std::vector<Index> at) {
  const Lanes& lanes = math_.lanes();
  if (lanes.width == 1) return builder_.store(fragment, buffer, std::move(at));
  builder_.store_first(wide(fragment), buffer, std::move(at), Index(lanes.active));
}

void Region::store(Fragment fragment, ValueId result, const Position& where) {
  stores_.push_back({fragment, result, where});
  if (!in_scope_) finish_stores(0);
}

void Region::finish_stores(size_t first) {
  for (size_t i = first; i < stores_.size(); ++i) {
    const Store& store = stores_[i];
    if (!access_.store(store.fragment, store.result, store.where))
      fail(fmt::format("%{} would be stored at places that depend on data", program_.value(store.result).name));
  }
  stores_.resize(first);
}

}  // namespace stepc::schedule
