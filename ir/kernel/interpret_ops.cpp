#include <algorithm>
#include <cmath>

#include "ir/graph/evaluate_rules.h"
#include "ir/kernel/interpret_state.h"
#include "ir/kernel/types.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

// The graph evaluator's rule of the same name.
EvalRule pointwise_rule(Op op) {
  switch (*stepc::op_from_name(op_info(op).name)) {
#define OP(name, ...) \
  case stepc::Op::name: return eval_##name;
#include "ir/graph/graph_ops.def"
#undef OP
  }
  STEPC_UNREACHABLE("{} is no graph op", op_info(op).name);
}

double combined(Op op, double a, double b) {
  if (op == Op::reduce_sum) return a + b;
  if (std::isnan(a) || std::isnan(b)) return NAN;
  return op == Op::reduce_max ? std::max(a, b) : std::min(a, b);
}

}  // namespace

double rounded(double value, Dtype dtype) {
  if (dtype == Dtype::bf16) return double{round_to_bf16(value)};
  if (dtype == Dtype::f32) return double{static_cast<float>(value)};
  return value;
}

// ---- memory --------------------------------------------------------------------------------------------------------

Result<Machine::Place> Machine::place(const KOp& op, size_t ref) {
  const Ref& from = op.refs[ref];
  Place result{&kernel_.buffer(from.buffer), &memories_[index_of(from.buffer)], {}};
  for (ExprId id : from.at) {
    STEPC_ASSIGN(const int64_t value, index(op, id));
    result.at.push_back(value);
  }
  return result;
}

Result<int64_t> Machine::offset(const KOp& op, const Place& place, size_t dimension, int64_t by, int64_t more) const {
  int64_t total = 0;
  for (size_t i = 0; i < place.at.size(); ++i) {
    const bool is_last = i + 1 == place.at.size();
    const int64_t at = place.at[i] + (i == dimension ? by : 0) + (is_last ? more : 0);
    if (at < 0 || at >= place.buffer->shape[i])
      return error(op, "index {} in dimension {} of %{}{}", at, i, place.buffer->name, shape_text(place.buffer->shape));
    total += at * place.memory->strides[i];
  }
  return total;
}

Result<Lane> Machine::read(const KOp& op, const Place& place, int64_t offset) {
  Memory& memory = *place.memory;
  const auto at = static_cast<size_t>(offset);
  if (place.buffer->space == Space::shared) return Lane{(*memory.data)[at], memory.undefined[at] != 0};
  if (memory.writer[at] >= 0 && memory.writer[at] != task_)
    return error(op, "reads element {} of %{}, which task {} writes", offset, place.buffer->name, memory.writer[at]);
  memory.reader[at] = memory.reader[at] == -1 || memory.reader[at] == task_ ? task_ : -2;
  return Lane{(*memory.data)[at], false};
}

Status Machine::write(const KOp& op, const Place& place, int64_t offset, Lane lane) {
  Memory& memory = *place.memory;
  const auto at = static_cast<size_t>(offset);
  (*memory.data)[at] = lane.value;
  if (place.buffer->space == Space::shared) {
    memory.undefined[at] = lane.undefined;
    return {};
  }
  if (lane.undefined) return error(op, "stores an undefined lane to element {} of %{}", offset, place.buffer->name);
  for (const int64_t other : {memory.writer[at], memory.reader[at]})
    if (other != -1 && other != task_)
      return error(op, "writes element {} of %{}, which {} touches", offset, place.buffer->name,
                   other == -2 ? "another task" : fmt::format("task {}", other));
  memory.writer[at] = task_;
  return {};
}

Status Machine::load_or_store(const KOp& op) {
  const bool is_load = op.op == Op::load;
  const FragId id = is_load ? op.results[0] : op.frags[0];
  const Shape& shape = kernel_.frag(id).shape;
  STEPC_ASSIGN(const Place from, place(op, 0));
  const int64_t cols = shape.empty() ? 1 : shape.back();
  int64_t rows = numel(shape) / cols;
  int64_t count = cols;
  if (!op.indices.empty()) {
    STEPC_ASSIGN(count, index(op, op.indices[0]));
  }
  if (op.indices.size() > 1) {
    STEPC_ASSIGN(const int64_t height, index(op, op.indices[1]));
    rows = std::min(rows, height);
  }
  const int64_t rank = static_cast<int64_t>(from.at.size());
  const auto dimension = static_cast<size_t>(shape.size() < 2 ? 0 : integer_attr(op, "rows", rank - 2));
  if (is_load) frag(id) = blank(id);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < std::min(count, cols); ++col) {
      STEPC_ASSIGN(const int64_t at, offset(op, from, dimension, row, col));
      Lane& lane = frag(id)[static_cast<size_t>(row * cols + col)];
      if (is_load) {
        STEPC_ASSIGN(lane, read(op, from, at));
      } else {
        STEPC_TRY(write(op, from, at, lane));
      }
    }
  return {};
}

Status Machine::gather(const KOp& op) {
  STEPC_ASSIGN(const Place from, place(op, 0));
  STEPC_ASSIGN(const int64_t start, offset(op, from, 0, 0, 0));
  Lanes result;
  for (const Lane& by : frag(op.frags[0])) {
    if (by.undefined) return error(op, "an undefined offset");
    const int64_t at = start + static_cast<int64_t>(by.value);
    if (at < 0 || at >= static_cast<int64_t>(from.memory->data->size()))
      return error(op, "offset {} from element {} of %{}{}", by.value, start, from.buffer->name,
                   shape_text(from.buffer->shape));
    STEPC_ASSIGN(const Lane lane, read(op, from, at));
    result.push_back(lane);
  }
  frag(op.results[0]) = std::move(result);
  return {};
}

Status Machine::scatter(const KOp& op) {
  STEPC_ASSIGN(const Place to, place(op, 0));
  STEPC_ASSIGN(const int64_t start, offset(op, to, 0, 0, 0));
  const Shape& shape = kernel_.frag(op.frags[0]).shape;
  const int64_t cols = shape.empty() ? 1 : shape.back();
  std::vector<int64_t> limits{cols, numel(shape) / cols};
  for (size_t i = 0; i < op.indices.size(); ++i) {
    STEPC_ASSIGN(const int64_t valid, index(op, op.indices[i]));
    limits[i] = std::min(limits[i], valid);
  }
  for (int64_t row = 0; row < limits[1]; ++row)
    for (int64_t col = 0; col < limits[0]; ++col) {
      const auto i = static_cast<size_t>(row * cols + col);
      const Lane& by = frag(op.frags[1])[i];
      if (by.undefined) return error(op, "an undefined offset");
      const int64_t at = start + static_cast<int64_t>(by.value);
      if (at < 0 || at >= static_cast<int64_t>(to.memory->data->size()))
        return error(op, "offset {} from element {} of %{}{}", by.value, start, to.buffer->name,
                     shape_text(to.buffer->shape));
      STEPC_TRY(write(op, to, at, frag(op.frags[0])[i]));
    }
  return {};
}

Status Machine::load_index(const KOp& op) {
  STEPC_ASSIGN(const Place from, place(op, 0));
  STEPC_ASSIGN(const int64_t at, offset(op, from, 0, 0, 0));
  STEPC_ASSIGN(const Lane lane, read(op, from, at));
  if (lane.undefined) return error(op, "an undefined index");
  return set_variable(op, op.variable, static_cast<int64_t>(lane.value));
}

Status Machine::to_index(const KOp& op) {
  const Lane lane = frag(op.frags[0])[0];
  if (lane.undefined) return error(op, "an undefined index");
  return set_variable(op, op.variable, static_cast<int64_t>(lane.value));
}

// ---- fragments
// -------------------------------------------------------------------------------------------------------

Status Machine::pointwise(const KOp& op) {
  static const Program kNoProgram;
  static const Node kNoNode;
  std::vector<Tensor> operands;
  for (FragId id : op.frags) {
    Tensor& tensor = operands.emplace_back(Tensor{{kernel_.frag(id).dtype, kernel_.frag(id).shape}, {}});
    for (const Lane& lane : frag(id)) tensor.data.push_back(lane.value);
  }
  TensorMap none;
  Evaluation evaluation{kNoProgram, kNoNode, Precision::f32, {}, {}, none, none, none, none};
  for (const Tensor& tensor : operands) evaluation.operands.push_back(&tensor);
  const Frag& type = kernel_.frag(op.results[0]);
  Lanes result = blank(op.results[0]);
  evaluation.results = {Tensor{{type.dtype, type.shape}, std::vector<double>(result.size())}};
  if (const Status done = pointwise_rule(op.op)(evaluation); !done) return error(op, "{}", done.error().message);
  for (size_t i = 0; i < result.size(); ++i) {
    result[i].value = rounded(evaluation.results[0].data[i], type.dtype);
    const bool picks = op.op == Op::select && !frag(op.frags[0])[i].undefined;
    const size_t picked = picks && operands[0].data[i] != 0 ? 1 : 2;
    for (size_t j = 0; j < op.frags.size(); ++j)
      if (!picks || j == picked) result[i].undefined |= frag(op.frags[j])[i].undefined;
  }
  frag(op.results[0]) = std::move(result);
  return {};
}

Status Machine::splat(const KOp& op) {
  const Lanes& source = frag(op.frags[0]);
  Lanes result = blank(op.results[0]);
  const Shape& shape = kernel_.frag(op.results[0]).shape;
  const auto repeat = static_cast<size_t>(integer_attr(op, "axis", 1) == 0 ? shape.back() : 1);
  for (size_t i = 0; i < result.size(); ++i) result[i] = source[i / repeat % source.size()];
  frag(op.results[0]) = std::move(result);
  return {};
}

Status Machine::permute(const KOp& op) {
  const Lanes& source = frag(op.frags[0]);
  const auto& lanes = std::get<std::vector<int64_t>>(find_attr(op, "lanes")->value);
  const auto width = static_cast<size_t>(kernel_.frag(op.frags[0]).shape.back());
  Lanes result;
  for (size_t row = 0; row < source.size() / width; ++row)
    for (int64_t lane : lanes) result.push_back(source[row * width + static_cast<size_t>(lane)]);
  frag(op.results[0]) = std::move(result);
  return {};
}

Status Machine::random_bits(const KOp& op) {
  STEPC_ASSIGN(const int64_t first, index(op, op.indices[0]));
  uint32_t key[3];
  for (size_t i = 0; i < 3; ++i) {
    const Lane& lane = frag(op.frags[i])[0];
    if (lane.undefined) return error(op, "an undefined key");
    key[i] = static_cast<uint32_t>(static_cast<int64_t>(lane.value));
  }
  Lanes result = blank(op.results[0]);
  for (size_t i = 0; i < result.size(); ++i) {
    const uint64_t element = static_cast<uint64_t>(first) + i;
    result[i].value = static_cast<int32_t>(philox_word(key[0], key[1], key[2], element));
  }
  frag(op.results[0]) = std::move(result);
  return {};
}

Status Machine::make_lanes(const KOp& op) {
  if (op.op == Op::splat) return splat(op);
  if (op.op == Op::permute) return permute(op);
  if (op.op == Op::random_bits) return random_bits(op);
  const Frag& type = kernel_.frag(op.results[0]);
  Lanes result = blank(op.results[0]);
  if (op.op == Op::constant) {
    for (Lane& lane : result) lane.value = rounded(std::get<double>(find_attr(op, "value")->value), type.dtype);
  } else if (op.op == Op::from_index) {
    STEPC_ASSIGN(const int64_t value, index(op, op.indices[0]));
    if (value < INT32_MIN || value > INT32_MAX) return error(op, "{} is no i32", value);
    result[0].value = static_cast<double>(value);
  } else {
    STEPC_CHECK(op.op == Op::lane, "the interpreter does not know {}", op_info(op.op).name);
    const auto cols = static_cast<size_t>(type.shape.back());
    const bool by_row = type.shape.size() == 2 && integer_attr(op, "axis", 1) == 0;
    for (size_t i = 0; i < result.size(); ++i) result[i].value = static_cast<double>(by_row ? i / cols : i % cols);
  }
  frag(op.results[0]) = std::move(result);
  return {};
}

// The tree of emitted code: halves are combined until one lane is left, an odd lane waits for the next round.
void Machine::reduce(const KOp& op) {
  const Frag& type = kernel_.frag(op.frags[0]);
  const auto width = static_cast<size_t>(type.shape.back());
  Lanes result = blank(op.results[0]);
  for (size_t row = 0; row < result.size(); ++row) {
    const auto first = frag(op.frags[0]).begin() + static_cast<std::ptrdiff_t>(row * width);
    Lanes lanes(first, first + static_cast<std::ptrdiff_t>(width));
    while (lanes.size() > 1) {
      const size_t half = lanes.size() / 2;
      const size_t kept = lanes.size() - half;
      for (size_t i = 0; i < half; ++i) {
        lanes[i].value = rounded(combined(op.op, lanes[i].value, lanes[kept + i].value), type.dtype);
        lanes[i].undefined |= lanes[kept + i].undefined;
      }
      lanes.resize(kept);
    }
    result[row] = lanes[0];
  }
  frag(op.results[0]) = std::move(result);
}

}  // namespace stepc::kernel
