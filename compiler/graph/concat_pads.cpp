#include "compiler/graph/concat_pads.h"

#include <algorithm>
#include <optional>

#include "compiler/graph/rewrite.h"

namespace stepc {
namespace {

constexpr size_t kMaxPieces = 64;  // operands of a concat

// A pad along one axis.
struct Piece {
  ValueId value;
  int64_t axis = 0;
  int64_t low = 0;
};

// The addends of a tree of adds.
void collect(const Program& program, ValueId value, std::vector<ValueId>& addends) {
  const Node& node = program.producer(value);
  if (node.op != Op::add || addends.size() > kMaxPieces) {
    addends.push_back(value);
    return;
  }
  for (ValueId operand : node.operands) collect(program, operand, addends);
}

std::optional<Piece> as_piece(const Program& program, ValueId value) {
  const Node& node = program.producer(value);
  if (node.op != Op::pad) return std::nullopt;
  const std::vector<int64_t>& low = node.attrs.integers(AttrKey::low);
  const std::vector<int64_t>& high = node.attrs.integers(AttrKey::high);
  std::optional<Piece> piece;
  for (size_t d = 0; d < low.size(); ++d) {
    if (low[d] == 0 && high[d] == 0) continue;
    if (piece) return std::nullopt;
    piece = Piece{node.operands[0], static_cast<int64_t>(d), low[d]};
  }
  return piece;
}

// The pieces of a sum in the order of a concat that equals it.
std::optional<std::vector<Piece>> tiling(const Program& program, ValueId sum) {
  std::vector<ValueId> addends;
  collect(program, sum, addends);
  if (addends.size() < 2 || addends.size() > kMaxPieces) return std::nullopt;
  std::vector<Piece> pieces;
  for (ValueId addend : addends) {
    const auto piece = as_piece(program, addend);
    if (!piece || (!pieces.empty() && piece->axis != pieces[0].axis)) return std::nullopt;
    pieces.push_back(*piece);
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.low < b.low; });
  const auto axis = static_cast<size_t>(pieces[0].axis);
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.low != end) return std::nullopt;
    end += program.type(piece.value).shape[axis];
  }
  if (end != program.type(sum).shape[axis]) return std::nullopt;
  return pieces;
}

std::vector<int> count_readers(const Program& program) {
  std::vector<int> readers(program.values.size(), 0);
  for (const Node& node : program.nodes)
    for (ValueId operand : node.operands) ++readers[index_of(operand)];
  return readers;
}

}  // namespace

void concat_pads(Program& program) {
  Rewriter rewriter(program);
  const std::vector<int> readers = count_readers(program);
  const auto emit_concat = [&](const Node& node, std::vector<ValueId> operands, int64_t axis) {
    const Value& result = program.value(node.results[0]);
    rewriter.replace(node.results[0], rewriter.emit(Op::concat, std::move(operands), {{AttrKey::axis, axis}},
                                                    result.type, node, result.name));
  };
  for (const Node& node : program.nodes) {
    const auto pieces = node.op == Op::add ? tiling(program, node.results[0]) : std::nullopt;
    if (pieces) {
      std::vector<ValueId> operands;
      for (const Piece& piece : *pieces) operands.push_back(rewriter.mapped(piece.value));
      emit_concat(node, std::move(operands), (*pieces)[0].axis);
      continue;
    }
    if (node.op == Op::cast && readers[index_of(node.operands[0])] == 1) {
      const Node concat = rewriter.program().producer(rewriter.mapped(node.operands[0]));
      if (concat.op == Op::concat) {
        const Value& result = program.value(node.results[0]);
        std::vector<ValueId> operands;
        for (ValueId operand : concat.operands) {
          const TensorType type{result.type.dtype, rewriter.program().type(operand).shape};
          operands.push_back(rewriter.emit(Op::cast, {operand}, {}, type, node, result.name));
        }
        emit_concat(node, std::move(operands), concat.attrs.integer(AttrKey::axis));
        continue;
      }
    }
    rewriter.keep(rewriter.mapped(node));
  }
  program = rewriter.finish();
}

}  // namespace stepc
