#include "compiler/graph/fuse_prepare.h"

#include <algorithm>
#include <map>

#include "compiler/graph/fuse_check.h"
#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

bool is_effect(const Node& node) { return op_info(node.op).family == OpFamily::effect; }

bool widens(const Program& program, const Node& node) {
  return node.op == Op::cast && program.type(node.operands[0]).dtype == Dtype::bf16;
}

// What all readers of a value have in common.
struct Readers {
  bool all_memory = true;   // read from memory, if through reshapes and widening casts
  bool all_effects = true;  // read by effects, if through reshapes
};

std::vector<Readers> common_readers(const Program& program) {
  std::vector<Readers> readers(program.values.size());
  for (size_t n = program.nodes.size(); n-- > 0;) {
    const Node& node = program.nodes[n];
    const bool chain = node.op == Op::reshape || widens(program, node);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      Readers& of = readers[index_of(node.operands[i])];
      const Readers* through = chain ? &readers[index_of(node.results[0])] : nullptr;
      of.all_memory &= through ? through->all_memory : reads_memory(node, i);
      of.all_effects &= node.op == Op::reshape ? through->all_effects : is_effect(node);
    }
  }
  return readers;
}

class Preparer {
 public:
  explicit Preparer(const Program& program)
      : program_(program), readers_(common_readers(program)), rewriter_(program) {}

  Program run() {
    for (const Node& old : program_.nodes) {
      Node node = rewriter_.mapped(old);
      if (node.op == Op::gather_rows) node.operands.resize(2);
      if (op_info(node.op).family == OpFamily::reduction) gather_axes(old, node);
      if (node.op == Op::concat) select_pieces(old, node);
      for (size_t i = 0; i < old.operands.size() && i < node.operands.size(); ++i)
        if (reads_memory(old, i)) node.operands[i] = own(old, old.operands[i]);
      rewriter_.keep(node);
    }
    return rewriter_.finish();
  }

 private:
  // The reduced axes of a scattered reduction become its last ones, in their order.
  void gather_axes(const Node& old, Node& node) {
    if (is_small_reduction(program_, old) || reduction_axes(program_, old) != ReductionAxes::scattered) return;
    const Shape& from = program_.type(old.operands[0]).shape;
    const std::vector<int64_t> axes = old.attrs.integers(AttrKey::axes);
    std::vector<int64_t> order;
    for (int64_t d = 0; d < static_cast<int64_t>(from.size()); ++d)
      if (!std::binary_search(axes.begin(), axes.end(), d)) order.push_back(d);
    const auto kept = static_cast<int64_t>(order.size());
    order.insert(order.end(), axes.begin(), axes.end());
    Shape shape;
    std::vector<int64_t> last;
    for (int64_t d : order) shape.push_back(from[static_cast<size_t>(d)]);
    for (int64_t d = kept; d < static_cast<int64_t>(from.size()); ++d) last.push_back(d);
    node.operands[0] = rewriter_.emit(Op::transpose, node.operands, {{AttrKey::permutation, order}},
                                      {Dtype::f32, shape}, old, program_.value(old.results[0]).name + ".rows");
    node.attrs.set(AttrKey::axes, last);
  }

  // A concat of unequal pieces becomes pads and selections by the index along its axis.
  void select_pieces(const Node& old, Node& node) {
    const auto differs = [&](ValueId operand) { return program_.type(operand) != program_.type(old.operands[0]); };
    if (std::none_of(old.operands.begin(), old.operands.end(), differs)) return;
    const TensorType& type = program_.type(old.results[0]);
    const std::string& name = program_.value(old.results[0]).name;
    const int64_t axis = old.attrs.integer(AttrKey::axis);
    const TensorType numbers{Dtype::i32, type.shape};
    const ValueId index = rewriter_.emit(Op::iota, {}, {{AttrKey::axis, axis}}, numbers, old, name + ".index");
    int64_t start = type.shape[static_cast<size_t>(axis)];
    ValueId rest = ValueId::none;
    for (size_t i = old.operands.size(); i-- > 0;) {
      const int64_t limit = start;
      start -= program_.type(old.operands[i]).shape[static_cast<size_t>(axis)];
      const ValueId piece = padded(old, node.operands[i], start);
      if (rest == ValueId::none) {
        rest = piece;
        continue;
      }
      const ValueId end =
          rewriter_.emit(Op::constant, {}, {{AttrKey::value, static_cast<double>(limit)}}, numbers, old, name + ".end");
      const TensorType truth{Dtype::pred, type.shape};
      const ValueId before = rewriter_.emit(Op::less, {index, end}, {}, truth, old, name + ".before");
      if (i == 0)
        node = {Op::select, {before, piece, rest}, old.results, {}, old.phase, old.where};
      else
        rest = rewriter_.emit(Op::select, {before, piece, rest}, {}, type, old, name + ".rest");
    }
  }

  // `piece` of the concat `node`, at `start` along its axis, among zeros.
  ValueId padded(const Node& node, ValueId piece, int64_t start) {
    const TensorType& type = program_.type(node.results[0]);
    const auto axis = static_cast<size_t>(node.attrs.integer(AttrKey::axis));
    std::vector<int64_t> low(type.shape.size(), 0);
    std::vector<int64_t> high = low;
    low[axis] = start;
    high[axis] = type.shape[axis] - start - rewriter_.program().type(piece).shape[axis];
    return rewriter_.emit(Op::pad, {piece}, {{AttrKey::low, low}, {AttrKey::high, high}}, type, node,
                          program_.value(node.results[0]).name + ".piece");
  }

  // `value` of the new program as `reader` may read it from memory: itself, or a copy of what is also read otherwise.
  ValueId own(const Node& reader, ValueId value) {
    const Node& node = program_.producer(value);
    const Readers& readers = readers_[index_of(value)];
    if (is_free(node.op)) {
      if (readers.all_memory) return rewriter_.mapped(value);
      return copy(value, rewriter_.mapped(node).operands, false);
    }
    const bool chain = node.op == Op::reshape || (reader.op == Op::matmul && widens(program_, node));
    if (!chain) return rewriter_.mapped(value);
    const ValueId from = own(reader, node.operands[0]);
    const bool shared = is_effect(reader) && !readers.all_effects;
    if (!shared && from == rewriter_.mapped(node.operands[0])) return rewriter_.mapped(value);
    return copy(value, {from}, is_effect(reader));
  }

  ValueId copy(ValueId value, std::vector<ValueId> operands, bool for_effect) {
    const auto [known, is_new] = copies_.try_emplace({value, for_effect}, ValueId::none);
    if (!is_new) return known->second;
    const Node& node = program_.producer(value);
    const std::string& name = program_.value(value).name;
    return known->second = rewriter_.emit(node.op, std::move(operands), node.attrs, program_.type(value), node, name);
  }

  const Program& program_;
  std::vector<Readers> readers_;
  Rewriter rewriter_;
  std::map<std::pair<ValueId, bool>, ValueId> copies_;
};

}  // namespace

void prepare_fusion(Program& program) {
  Program prepared = Preparer(program).run();
  program = std::move(prepared);
}

bool reads_memory(const Node& node, size_t operand) {
  switch (op_info(node.op).family) {
    case OpFamily::leaf:
    case OpFamily::pointwise:
    case OpFamily::view:
    case OpFamily::reduction: return false;
    case OpFamily::rows: return node.op == Op::scatter_add_rows;
    case OpFamily::contraction:
    case OpFamily::structured: return true;
    case OpFamily::effect: return operand == 0;
  }
  return false;
}

ValueId memory_base(const Program& program, const Node& node, size_t operand) {
  ValueId value = node.operands[operand];
  for (;;) {
    const Node& made = program.producer(value);
    const bool chain = made.op == Op::reshape || (node.op == Op::matmul && widens(program, made));
    if (!chain) return value;
    value = made.operands[0];
  }
}

bool is_free(Op op) {
  if (op == Op::constant || op == Op::iota) return true;
  return op_info(op).family == OpFamily::view && op != Op::concat && op != Op::reshape;
}

}  // namespace stepc
