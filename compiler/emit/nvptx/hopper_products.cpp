// wgmma: one inline assembly a product, with its fence, all its steps of 16 columns and its commit, so that nothing
// gets between. Accumulators are results tied to operands. An accumulator that is the constant 0 is not passed:
// the first step then overwrites instead of adding, and no register is cleared.
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::KOp;
using kernel::Op;
using kernel::Ref;

constexpr int64_t kRowBytes = 128;    // of a panel
constexpr int64_t kStepColumns = 16;  // k of one instruction
constexpr int64_t kUnit = 16;         // bytes, of addresses in descriptors

// An operand in shared memory: its descriptor (PTX ISA, "Matrix Descriptor Format") and how far each step is.
struct SharedOperand {
  llvm::Value* descriptor = nullptr;
  bool k_major = true;
  int64_t panel_bytes = 0;

  // In units of a descriptor's address.
  int64_t step(int64_t number) const {
    const int64_t steps_per_panel = kRowBytes / (2 * kStepColumns);
    if (!k_major) return number * kStepColumns * kRowBytes / kUnit;
    return (number / steps_per_panel * panel_bytes + number % steps_per_panel * 2 * kStepColumns) / kUnit;
  }
};

SharedOperand shared_operand(GpuContext& context, const Ref& ref, std::string_view major) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kGroupBytes = 8 * kRowBytes;  // between groups of 8 rows
  const Shape& shape = context.kernel.buffer(ref.buffer).shape;
  SharedOperand operand;
  operand.k_major = major == "k";
  operand.panel_bytes = shape[shape.size() - 2] * kRowBytes;
  // Between panels along m (or n); where rows are k it is not read.
  const auto panel = static_cast<uint64_t>(operand.k_major ? kUnit : operand.panel_bytes);
  const uint64_t layout = kSwizzle128 | (kGroupBytes / kUnit) << 32 | (panel / kUnit) << 16;
  auto& builder = context.builder;
  llvm::Value* address = builder.CreateLShr(emit_shared_address(context, ref), 4);
  llvm::Value* low = builder.CreateZExt(builder.CreateAnd(address, 0x3fff), builder.getInt64Ty());
  operand.descriptor = builder.CreateOr(low, builder.getInt64(layout));
  return operand;
}

// The text and operands of one product under construction.
class Product {
 public:
  Product(GpuContext& context, const KOp& op, Leaf leaf)
      : context_(context), op_(op), leaf_(leaf), columns_(context.kernel.frag(op.results[0]).shape[1]) {
    registers_ = context.slots(op.results[0]);
    starts_ = !adds_to_zero();
    for (int64_t i = 0; i < registers_; ++i) constraints_ += "=f,";
    next_ = registers_;
    if (!starts_) return;
    for (int64_t i = 0; i < registers_; ++i) constraints_ += std::to_string(i) + ",";
    operands_ = context.words(op.frags[0]);
    next_ += registers_;
  }

  int64_t add_operand(llvm::Value* value, char constraint) {
    operands_.push_back(value);
    constraints_ += std::string(1, constraint) + ",";
    return next_++;
  }

  // `a`: what stands for A in each step's instruction; `moves`: what precedes it.
  Words emit(const std::function<std::string(int64_t)>& a, const std::function<std::string(int64_t)>& moves,
             const std::string& majors) {
    std::string text =
        fmt::format("{{\n\t.reg .pred p;\n\t.reg .b64 da, db;\n\tsetp.ne.b32 p, {}, 0;\n\t", starts_ ? 1 : 0);
    text += "wgmma.fence.sync.aligned;\n\t";
    const int64_t steps = integer_attr(op_, "k", 0) / kStepColumns;
    for (int64_t step = 0; step < steps; ++step) {
      text += moves(step) + instruction(a(step), majors);
      if (!starts_ && step == 0 && steps > 1) text += "setp.ne.b32 p, 1, 0;\n\t";
    }
    text += "wgmma.commit_group.sync.aligned;\n\t}";
    return emit_leaf_text(context_, leaf_, text, constraints_ + "~{memory}", operands_);
  }

 private:
  bool adds_to_zero() const {
    for (const KOp& op : context_.kernel.ops)
      if (op.op == Op::constant && op.results[0] == op_.frags[0])
        return std::get<double>(find_attr(op, "value")->value) == 0;
    return false;
  }

  std::string instruction(const std::string& a, const std::string& majors) const {
    std::string accumulators;
    for (int64_t i = 0; i < registers_; ++i) accumulators += fmt::format("{}${}", i ? ", " : "", i);
    return fmt::format(fmt::runtime(leaf_info(leaf_).text), fmt::arg("n", columns_),
                       fmt::arg("d", "{" + accumulators + "}"), fmt::arg("a", a), fmt::arg("majors", majors)) +
           "\n\t";
  }

  GpuContext& context_;
  const KOp& op_;
  Leaf leaf_;
  int64_t columns_;
  int64_t registers_ = 0;
  int64_t next_ = 0;    // number of the next operand
  bool starts_ = true;  // with the accumulator as it is
  std::string constraints_;
  Words operands_;
};

std::string move_text(const char* to, int64_t operand, int64_t offset) {
  return fmt::format("add.s64 {}, ${}, {};\n\t", to, operand, offset);
}

const std::string& major_of(const KOp& op, std::string_view name) {
  return std::get<std::string>(find_attr(op, name)->value);
}

void emit_wgmma(GpuContext& context, const KOp& op) {
  const SharedOperand a = shared_operand(context, op.refs[0], major_of(op, "a"));
  const SharedOperand b = shared_operand(context, op.refs[1], major_of(op, "b"));
  Product product(context, op, Leaf::wgmma);
  const int64_t at_a = product.add_operand(a.descriptor, 'l');
  const int64_t at_b = product.add_operand(b.descriptor, 'l');
  const auto moves = [&](int64_t step) {
    return move_text("da", at_a, a.step(step)) + move_text("db", at_b, b.step(step));
  };
  context.set_words(op.results[0], product.emit([](int64_t) { return "da"; }, moves,
                                                fmt::format("{}, {}", a.k_major ? 0 : 1, b.k_major ? 0 : 1)));
}

// A fragment's words are in the order of the instruction's registers, four a step.
void emit_wgmma_rs(GpuContext& context, const KOp& op) {
  const SharedOperand b = shared_operand(context, op.refs[0], major_of(op, "b"));
  Product product(context, op, Leaf::wgmma_rs);
  const int64_t at_b = product.add_operand(b.descriptor, 'l');
  std::vector<int64_t> at_a;
  for (llvm::Value* word : context.words(op.frags[1])) at_a.push_back(product.add_operand(word, 'r'));
  const auto a = [&](int64_t step) {
    const int64_t* word = &at_a[static_cast<size_t>(4 * step)];
    return fmt::format("{{${}, ${}, ${}, ${}}}", word[0], word[1], word[2], word[3]);
  };
  const auto moves = [&](int64_t step) { return move_text("db", at_b, b.step(step)); };
  context.set_words(op.results[0], product.emit(a, moves, b.k_major ? "0" : "1"));
}

// The accumulators that come back are tied, so that what reads them cannot move above the wait.
void emit_wgmma_wait(GpuContext& context, const KOp& op) {
  Words operands;
  std::string constraints;
  for (kernel::FragId id : op.frags)
    operands.insert(operands.end(), context.words(id).begin(), context.words(id).end());
  for (size_t i = 0; i < operands.size(); ++i) constraints += "=f,";
  for (size_t i = 0; i < operands.size(); ++i) constraints += std::to_string(i) + ",";
  const std::string text =
      fmt::format(fmt::runtime(leaf_info(Leaf::wgmma_wait).text), fmt::arg("pending", integer_attr(op, "pending", 0)));
  const Words all = emit_leaf_text(context, Leaf::wgmma_wait, text, constraints + "~{memory}", operands);
  auto next = all.begin();
  for (size_t i = 0; i < op.frags.size(); ++i) {
    const auto end = next + static_cast<ptrdiff_t>(context.words(op.frags[i]).size());
    context.set_words(op.results[i], Words(next, end));
    next = end;
  }
}

}  // namespace

void emit_warpgroup_op(GpuContext& context, const KOp& op) {
  if (context.role.warps != 4 && op.op != Op::wgmma_wait)
    return context.fail(op, fmt::format("a role of {} warps, expected 4", context.role.warps));
  if (op.op == Op::wgmma) return emit_wgmma(context, op);
  if (op.op == Op::wgmma_rs) return emit_wgmma_rs(context, op);
  STEPC_CHECK(op.op == Op::wgmma_wait, "{} is no product of warp groups", kernel::op_info(op.op).name);
  emit_wgmma_wait(context, op);
}

}  // namespace stepc::emit
