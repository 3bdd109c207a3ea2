#include "tests/support/random_graph.h"

#include <algorithm>

#include "ir/graph/builder.h"
#include "ir/support/check.h"

namespace stepc::test {
namespace {

constexpr TensorType kScalarInt = {Dtype::i32, {}};

class GraphMaker {
 public:
  GraphMaker(Module& module, uint64_t seed, GraphKind kind)
      : module_(module), builder_(module, "main"), random_(seed), kind_(kind) {}

  void make(int nodes) {
    while (static_cast<int>(builder_.program().nodes.size()) < nodes) {
      builder_.set_phase(static_cast<Phase>(random_.below(3)));
      add(static_cast<Op>(random_.below(kOpCount)));
    }
    finish();
  }

 private:
  void add(Op op) {
    switch (op_info(op).family) {
      case OpFamily::leaf: return keep(leaf(op, {random_dtype(), random_shape()}));
      case OpFamily::pointwise: return keep(pointwise(op));
      case OpFamily::view: return keep(view(op));
      case OpFamily::reduction: return keep(reduction(op));
      case OpFamily::contraction: return keep(product());
      case OpFamily::rows:
        if (kind_ == GraphKind::all) keep(rows(op));
        return;
      case OpFamily::structured:
        if (kind_ == GraphKind::all) structured(op);
        return;
      case OpFamily::effect: return;  // finish() adds them
    }
  }

  void keep(ValueId id) { pool_.push_back(id); }

  // ---- what operands are made of ----

  Dtype random_dtype() { return static_cast<Dtype>(random_.below(4)); }

  Shape random_shape() {
    constexpr int64_t kExtents[] = {1, 2, 3, 3, 5, 7};
    Shape shape(static_cast<size_t>(random_.below(4)));
    for (int64_t& extent : shape) extent = random_.chance(2) ? 0 : kExtents[random_.below(std::size(kExtents))];
    return shape;
  }

  template <class Wanted>
  std::optional<ValueId> find(Wanted wanted) {
    std::vector<ValueId> found;
    for (ValueId id : pool_)
      if (wanted(builder_.type(id))) found.push_back(id);
    if (found.empty()) return std::nullopt;
    // The later of two draws: graphs grow deep rather than wide.
    const int64_t count = static_cast<int64_t>(found.size());
    return found[static_cast<size_t>(std::max(random_.below(count), random_.below(count)))];
  }

  ValueId value_of(const TensorType& type) {
    const auto found = find([&](const TensorType& other) { return other == type; });
    if (found && random_.chance(75)) return *found;
    const ValueId made = leaf(static_cast<Op>(random_.below(static_cast<int64_t>(Op::iota) + 1)), type);
    keep(made);
    return made;
  }

  ValueId value_of(Dtype dtype) {
    const auto found = find([&](const TensorType& other) { return other.dtype == dtype; });
    return found ? *found : value_of({dtype, random_shape()});
  }

  ValueId value_of_rank(Dtype dtype, size_t rank) {
    const auto has_rank = [&](const TensorType& type) { return type.dtype == dtype && type.shape.size() == rank; };
    const auto found = find(has_rank);
    if (found && random_.chance(75)) return *found;
    Shape shape(rank);
    for (int64_t& extent : shape) extent = 1 + random_.below(6);
    return value_of({dtype, shape});
  }

  ValueId any_value() { return value_of(random_dtype()); }

  ValueId filled(double value, ValueId like) { return builder_.constant(value, builder_.type(like)); }
  ValueId positive(ValueId x) {
    const ValueId magnitude = builder_.unary(Op::abs, x);
    return builder_.add(magnitude, filled(0.5, x));
  }
  ValueId small(ValueId x) { return builder_.unary(Op::tanh, x); }
  ValueId nonnegative(ValueId x) { return builder_.binary(Op::max, x, filled(0, x)); }

  // Row numbers in [-1, rows) made of any integers.
  ValueId row_index(int64_t count, int64_t rows) {
    const ValueId any = nonnegative(value_of({Dtype::i32, {count}}));
    const ValueId row = builder_.binary(Op::rem, any, filled(static_cast<double>(rows + 1), any));
    return builder_.sub(row, filled(1, row));
  }

  // ---- one function a family ----

  ValueId leaf(Op op, const TensorType& type) {
    const std::string number = fmt::format("{}", names_++);
    if (op == Op::random_bits) {
      const ValueId seed = value_of(kScalarInt);
      const ValueId stream = value_of(kScalarInt);
      return builder_.emit1(op, {seed, stream, value_of(kScalarInt)}, {}, {Dtype::i32, type.shape});
    }
    if (op == Op::iota && type.dtype == Dtype::i32 && !type.shape.empty())
      return builder_.iota(random_.below(static_cast<int64_t>(type.shape.size())), type.shape);
    if (op == Op::constant && type.dtype != Dtype::bf16) return builder_.constant(constant_of(type.dtype), type);
    if (op == Op::param || op == Op::state) {
      const bool is_param = op == Op::param;
      const auto arena = is_param ? Arena::weights : static_cast<Arena>(random_.below(3));
      module_.persistents.push_back({"t." + number, type, is_param, arena});
      return builder_.persistent("t." + number);
    }
    return builder_.input("in." + number, type);
  }

  double constant_of(Dtype dtype) {
    constexpr double kValues[] = {0, 1, -1, 2, 0.5, -0.3, 1.5};
    if (dtype == Dtype::pred) return static_cast<double>(random_.below(2));
    if (dtype == Dtype::i32) return static_cast<double>(random_.below(9) - 4);
    return kValues[random_.below(std::size(kValues))];
  }

  ValueId number() { return value_of(random_.chance(75) ? Dtype::f32 : Dtype::i32); }

  ValueId pointwise(Op op) {
    if (op_info(op).min_operands > 1) return pointwise_of_two(op);
    if (op == Op::cast) return cast();
    if (op == Op::stop_gradient) return builder_.unary(op, any_value());
    if (op == Op::neg || op == Op::abs) return builder_.unary(op, number());
    if (op == Op::logical_not) return builder_.unary(op, value_of(Dtype::pred));
    if (op == Op::unit_from_bits) return builder_.unary(op, value_of(Dtype::i32));
    const ValueId x = value_of(Dtype::f32);
    if (op == Op::exp) return builder_.unary(op, small(x));
    if (op == Op::log || op == Op::sqrt || op == Op::rsqrt) return builder_.unary(op, positive(x));
    return builder_.unary(op, x);
  }

  ValueId cast() {
    const ValueId x = any_value();
    switch (builder_.type(x).dtype) {
      case Dtype::f32: return builder_.cast(x, random_.chance(70) ? Dtype::bf16 : Dtype::i32);
      case Dtype::bf16:
      case Dtype::i32: return builder_.cast(x, Dtype::f32);
      case Dtype::pred: return builder_.cast(x, random_.chance(50) ? Dtype::f32 : Dtype::i32);
    }
    STEPC_UNREACHABLE("dtype");
  }

  ValueId pointwise_of_two(Op op) {
    const bool on_pred = op == Op::logical_and || op == Op::logical_or;
    const bool on_f32 = op == Op::pow || op == Op::fma;
    ValueId a = on_pred ? value_of(Dtype::pred) : (on_f32 ? value_of(Dtype::f32) : number());
    if (op == Op::rem) a = value_of(Dtype::i32);
    if (op == Op::select) a = any_value();
    ValueId b = value_of(builder_.type(a));
    if (op == Op::mul && builder_.type(a).dtype == Dtype::f32) b = small(b);
    if (op == Op::div || op == Op::rem) b = divisor(b);
    if (op == Op::pow) return builder_.binary(op, positive(small(a)), small(b));
    if (op == Op::fma) return builder_.emit1(op, {a, small(b), value_of(builder_.type(a))});
    if (op == Op::select) return builder_.select(value_of({Dtype::pred, builder_.shape(a)}), a, b);
    return builder_.binary(op, a, b);
  }

  ValueId divisor(ValueId x) {
    if (builder_.type(x).dtype == Dtype::f32) return positive(x);
    return builder_.add(builder_.binary(Op::min, nonnegative(x), filled(1000, x)), filled(1, x));
  }

  ValueId view(Op op) {
    const ValueId x = any_value();
    const Shape shape = builder_.shape(x);
    if (op == Op::reshape) return builder_.reshape(x, reshaped(shape));
    if (op == Op::transpose) return builder_.transpose(x, shuffled(shape.size()));
    if (op == Op::broadcast) return broadcast(x);
    if (op == Op::slice) return slice(x);
    if (op == Op::reverse) return builder_.emit1(op, {x}, {{AttrKey::axes, some_axes(shape.size())}});
    if (op == Op::concat) return concat(x);
    const std::vector<int64_t> low = few(shape);
    return builder_.emit1(op, {x}, {{AttrKey::low, low}, {AttrKey::high, few(shape)}});
  }

  Shape reshaped(Shape shape) {
    if (random_.chance(30)) return {numel(shape)};
    if (random_.chance(50))
      shape.insert(shape.begin() + random_.below(static_cast<int64_t>(shape.size()) + 1), 1);
    else if (shape.size() > 1) {
      shape[1] *= shape[0];
      shape.erase(shape.begin());
    }
    return shape;
  }

  std::vector<int64_t> shuffled(size_t rank) {
    std::vector<int64_t> order(rank);
    for (size_t i = 0; i < rank; ++i) {
      order[i] = static_cast<int64_t>(i);
      std::swap(order[i], order[static_cast<size_t>(random_.below(static_cast<int64_t>(i) + 1))]);
    }
    return order;
  }

  std::vector<int64_t> few(const Shape& shape) {
    std::vector<int64_t> counts(shape.size());
    for (int64_t& count : counts) count = random_.below(3);
    return counts;
  }

  std::vector<int64_t> some_axes(size_t rank) {
    std::vector<int64_t> axes;
    for (size_t i = 0; i < rank; ++i)
      if (random_.chance(50)) axes.push_back(static_cast<int64_t>(i));
    return axes;
  }

  // Adds up to two dimensions, while the result stays small.
  ValueId broadcast(ValueId x) {
    Shape shape = builder_.shape(x);
    std::vector<bool> is_new(shape.size(), false);
    for (int64_t added = random_.below(3); added > 0 && numel(shape) < 500; --added) {
      const int64_t at = random_.below(static_cast<int64_t>(shape.size()) + 1);
      shape.insert(shape.begin() + at, 1 + random_.below(4));
      is_new.insert(is_new.begin() + at, true);
    }
    std::vector<int64_t> axes;
    for (size_t i = 0; i < shape.size(); ++i)
      if (!is_new[i]) axes.push_back(static_cast<int64_t>(i));
    return builder_.broadcast(x, shape, axes);
  }

  ValueId slice(ValueId x) {
    std::vector<int64_t> starts;
    std::vector<int64_t> limits;
    for (int64_t extent : builder_.shape(x)) {
      starts.push_back(extent > 1 && random_.chance(50) ? random_.below(extent) : 0);
      limits.push_back(extent - (extent - starts.back() > 1 && random_.chance(50) ? 1 : 0));
    }
    return builder_.emit1(Op::slice, {x}, {{AttrKey::start, starts}, {AttrKey::limit, limits}});
  }

  ValueId concat(ValueId x) {
    const TensorType type = builder_.type(x);
    if (type.shape.empty()) return x;
    std::vector<ValueId> parts = {x};
    const int64_t axis = random_.below(static_cast<int64_t>(type.shape.size()));
    for (int64_t more = random_.below(3); more > 0; --more) {
      TensorType other = type;
      other.shape[static_cast<size_t>(axis)] = random_.below(4);
      parts.push_back(random_.chance(50) ? x : value_of(other));
    }
    return builder_.emit1(Op::concat, parts, {{AttrKey::axis, axis}});
  }

  // Over an empty set the largest is infinite, which would spread: there only sums.
  ValueId reduction(Op op) {
    const ValueId x = value_of(Dtype::f32);
    const bool empty = numel(builder_.shape(x)) == 0;
    return builder_.reduce(empty ? Op::reduce_sum : op, x, some_axes(builder_.shape(x).size()));
  }

  ValueId product() {
    const Dtype dtype = random_.chance(50) ? Dtype::f32 : Dtype::bf16;
    const ValueId a = value_of_rank(dtype, random_.chance(70) ? 2 : 3);
    const bool transpose_a = random_.chance(30);
    const bool transpose_b = random_.chance(30);
    Shape shape = builder_.shape(a);
    const size_t rank = shape.size();
    const int64_t k = shape[transpose_a ? rank - 2 : rank - 1];
    const int64_t n = 1 + random_.below(6);
    shape[rank - 2] = transpose_b ? n : k;
    shape[rank - 1] = transpose_b ? k : n;
    const ValueId b = value_of({dtype, shape});
    return builder_.matmul(a, b, random_.chance(60) ? Dtype::f32 : Dtype::bf16, transpose_a, transpose_b);
  }

  ValueId rows(Op op) {
    const ValueId x = value_of_rank(random_.chance(50) ? Dtype::f32 : Dtype::bf16, 2);
    const Shape shape = builder_.shape(x);
    const int64_t other_rows = 1 + random_.below(6);
    if (op == Op::gather_rows) return builder_.emit1(op, {x, row_index(other_rows, shape[0])});
    return builder_.emit1(op, {x, row_index(shape[0], other_rows)}, {}, {Dtype::f32, {other_rows, shape[1]}});
  }

  void structured(Op op) {
    if (op == Op::route) return route();
    const Shape qkv_shape = {1 + random_.below(2), 1 + random_.below(5), 3, 1 + random_.below(2), 4};
    const ValueId qkv = value_of({Dtype::bf16, qkv_shape});
    const Attrs attrs = {{AttrKey::causal, random_.chance(50)}, {AttrKey::scale, 0.5}};
    const std::vector<ValueId> out = builder_.emit(Op::attention, {qkv}, attrs);
    keep(out[0]);
    keep(out[1]);
    if (op == Op::attention) return;
    const ValueId dout = value_of(builder_.type(out[0]));
    keep(builder_.emit1(op, {qkv, out[0], out[1], dout}, attrs));
  }

  // Routing, and a dispatch through its one-to-one maps.
  void route() {
    const int64_t tokens = 1 + random_.below(7);
    const int64_t experts = 1 + random_.below(4);
    const int64_t top = 1 + random_.below(experts);
    const ValueId probs = value_of({Dtype::f32, {tokens, experts}});
    const std::vector<ValueId> plan =
        builder_.emit(Op::route, {probs}, {{AttrKey::top, top}, {AttrKey::capacity, 1 + random_.below(4)}});
    for (ValueId id : plan) keep(id);
    const ValueId x = value_of({random_.chance(50) ? Dtype::f32 : Dtype::bf16, {tokens * top, 3}});
    keep(builder_.emit1(Op::gather_rows, {x, plan[2], plan[1]}));
  }

  void finish() {
    const Program& program = builder_.program();
    std::vector<bool> read(program.values.size(), false);
    for (const Node& node : program.nodes)
      for (ValueId operand : node.operands) read[index_of(operand)] = true;
    for (size_t v = 0; v < read.size(); ++v)
      if (!read[v]) builder_.output(fmt::format("out.{}", v), static_cast<ValueId>(v));
    for (const Persistent& persistent : module_.persistents) {
      const auto same_type = [&](const TensorType& type) { return type == persistent.type; };
      const auto found = find(same_type);
      if (found && random_.chance(60)) builder_.assign(persistent.name, *found);
    }
  }

  Module& module_;
  GraphBuilder builder_;
  Random random_;
  GraphKind kind_;
  std::vector<ValueId> pool_;
  int names_ = 0;
};

}  // namespace

// SplitMix64.
uint64_t Random::bits() {
  uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

Module random_graph(uint64_t seed, int nodes, GraphKind kind) {
  Module module{fmt::format("random.{}", seed), {}, {}};
  GraphMaker(module, seed, kind).make(nodes);
  return module;
}

Tensor random_tensor(const TensorType& type, Random& random) {
  Tensor tensor{type, std::vector<double>(static_cast<size_t>(numel(type.shape)))};
  for (double& x : tensor.data) {
    const double uniform = random.chance(5) ? 0 : 4 * random.unit() - 2;
    switch (type.dtype) {
      case Dtype::f32: x = static_cast<double>(static_cast<float>(uniform)); break;
      case Dtype::bf16: x = static_cast<double>(round_to_bf16(uniform)); break;
      case Dtype::i32: x = static_cast<double>(random.below(17) - 8); break;
      case Dtype::pred: x = static_cast<double>(random.below(2)); break;
    }
  }
  return tensor;
}

TensorMap random_inputs(const Program& program, uint64_t seed) {
  Random random(seed);
  TensorMap inputs;
  for (const Node& node : program.nodes)
    if (node.op == Op::input)
      inputs[node.attrs.text(AttrKey::name)] = random_tensor(program.type(node.results[0]), random);
  return inputs;
}

TensorMap random_persistents(const Module& module, uint64_t seed) {
  Random random(~seed);
  TensorMap persistents;
  for (const Persistent& persistent : module.persistents)
    persistents[persistent.name] = random_tensor(persistent.type, random);
  return persistents;
}

}  // namespace stepc::test
