// What the emitters of every target share: the LLVM function under construction, and arithmetic on values of
// which each is a lane or a vector of lanes. bf16 is an integer everywhere: LLVM never sees a bf16 value, so it
// cannot move a rounding point.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <array>
#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::emit {

struct EmitContext {
  llvm::Module& module;
  llvm::Function* function = nullptr;
  llvm::IRBuilder<> builder;

  explicit EmitContext(llvm::Module& m) : module(m), builder(m.getContext()) {}
  EmitContext(const EmitContext&) = delete;
  EmitContext& operator=(const EmitContext&) = delete;
  virtual ~EmitContext() = default;

  // e to the x of f32 lanes: every target has a way of its own.
  virtual llvm::Value* exp(llvm::Value* x) = 0;

  llvm::Value* i32(int64_t value) { return builder.getInt32(static_cast<uint32_t>(value)); }
  llvm::Value* i64(int64_t value) { return builder.getInt64(static_cast<uint64_t>(value)); }
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(module.getContext(), name, function); }
};

// One lane type (scalar or vector, float or double) with little notation.
struct Arithmetic {
  EmitContext& context;
  llvm::Type* type;

  llvm::IRBuilder<>& b() const { return context.builder; }
  llvm::Value* c(double value) const { return llvm::ConstantFP::get(type, value); }
  llvm::Value* fma(llvm::Value* x, llvm::Value* y, llvm::Value* z) const {
    return b().CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z});
  }
  llvm::Value* nearest(llvm::Value* x) const { return b().CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x); }
  // Horner's rule, highest coefficient first.
  llvm::Value* polynomial(llvm::Value* x, std::initializer_list<double> coefficients) const {
    llvm::Value* sum = nullptr;
    for (double coefficient : coefficients) sum = sum ? fma(sum, x, c(coefficient)) : c(coefficient);
    return sum;
  }
};

// ---- emit_phis.cpp: values that loops carry and branches give, each fragment a list of LLVM values ----------------
using ValueLists = std::vector<std::vector<llvm::Value*>>;
// Phis at the top of the current block, with what comes from `from`.
ValueLists make_phis(EmitContext& context, const ValueLists& initial, llvm::BasicBlock* from);
void add_incoming(const ValueLists& phis, const ValueLists& values, llvm::BasicBlock* from);

// ---- emit_math.cpp: expansions with the errors that the graph op table states -----------------------------
llvm::Value* emit_log(EmitContext& context, llvm::Value* x);
llvm::Value* emit_sin(EmitContext& context, llvm::Value* x);
llvm::Value* emit_cos(EmitContext& context, llvm::Value* x);
llvm::Value* emit_tanh(EmitContext& context, llvm::Value* x);
llvm::Value* emit_pow(EmitContext& context, llvm::Value* a, llvm::Value* b);
// value * 2^n for integral n: in two factors, so that the largest results do not overflow early.
llvm::Value* scale_twice(EmitContext& context, llvm::Value* value, llvm::Value* n);

// ---- lane_ops.cpp -------------------------------------------------------------------------------------------
using Lanes = llvm::ArrayRef<llvm::Value*>;
// A pointwise op other than cast on its operands' lanes. No fast-math flags: what the graph says is what runs.
llvm::Value* emit_lane_op(EmitContext& context, kernel::Op op, Lanes operands);
llvm::Value* emit_i32_from_f32(EmitContext& context, llvm::Value* x);
// Larger (or smaller) of a and b; NaN if either is.
llvm::Value* emit_extreme(EmitContext& context, bool larger, llvm::Value* a, llvm::Value* b);
// `element`, or a vector of it as wide as `like`.
llvm::Type* with_lanes_of(const llvm::Value* like, llvm::Type* element);
// One step of a reduction.
llvm::Value* emit_combine(EmitContext& context, kernel::Op op, llvm::Value* a, llvm::Value* b);

// ---- emit_random.cpp ------------------------------------------------------------------------------------------
// The four words of Philox 4x32-10 with this counter and key; i32 lanes.
std::array<llvm::Value*, 4> emit_philox(EmitContext& context, std::array<llvm::Value*, 4> counter,
                                        std::array<llvm::Value*, 2> key);

}  // namespace stepc::emit
