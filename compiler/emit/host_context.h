// What the emitters of one host kernel share: the LLVM function under construction and the maps from
// kernel-IR ids to LLVM values. A fragment [r, c] is r LLVM vectors of c lanes, [c] is one, [] a scalar.
// bf16 lanes are i16: LLVM never sees a bf16 value, so it cannot move a rounding point.
#pragma once

#include <functional>
#include <vector>

#include "compiler/emit/emit_context.h"
#include "compiler/schedule/schedule.h"

namespace stepc::emit {

using Rows = std::vector<llvm::Value*>;

struct HostContext : EmitContext {
  const kernel::Kernel& kernel;
  const HostTarget& target;
  std::vector<Rows> frags;                    // by FragId
  std::vector<llvm::Value*> variables;        // by VarId, i64
  llvm::Value* task = nullptr;                // i64
  std::vector<llvm::Value*> buffer_base;      // by BufferId
  std::vector<llvm::MDNode*> alias_scope;     // by BufferId: the buffer's own scope
  std::vector<llvm::MDNode*> noalias_scopes;  // by BufferId: all others

  HostContext(const kernel::Kernel& k, const HostTarget& t, llvm::Module& m)
      : EmitContext(m),
        kernel(k),
        target(t),
        frags(k.frags.size()),
        variables(k.variables.size()),
        buffer_base(k.buffers.size()),
        alias_scope(k.buffers.size()),
        noalias_scopes(k.buffers.size()) {}

  llvm::Value* exp(llvm::Value* x) override;  // emit_exp.cpp
  const Rows& rows(kernel::FragId id) const { return frags[kernel::index_of(id)]; }
};

// ---- one function an op family, each in a file of its name ---------------------------------------------
// emit_index.cpp
llvm::Value* emit_expr(HostContext& context, kernel::ExprId id);
// emit_memory.cpp
llvm::Type* lane_type(HostContext& context, Dtype dtype);    // in registers: i1 for pred, i16 for bf16
llvm::Type* memory_type(HostContext& context, Dtype dtype);  // in memory: i8 for pred
std::vector<int64_t> buffer_strides(const kernel::Buffer& buffer);
llvm::Value* emit_address(HostContext& context, const kernel::Ref& ref);
void tag_access(HostContext& context, llvm::Instruction* access, kernel::BufferId buffer);
llvm::Value* count_mask(HostContext& context, llvm::Value* count, int64_t lanes);  // lanes [0, count)
void emit_load(HostContext& context, const kernel::KOp& op);
void emit_store(HostContext& context, const kernel::KOp& op);
void emit_gather(HostContext& context, const kernel::KOp& op);
void emit_scatter(HostContext& context, const kernel::KOp& op);
void emit_load_index(HostContext& context, const kernel::KOp& op);
// emit_pointwise.cpp
void emit_pointwise(HostContext& context, const kernel::KOp& op);
void emit_shuffle(HostContext& context, const kernel::KOp& op);  // constant, lane, from_index, splat, permute
void emit_reduce(HostContext& context, const kernel::KOp& op);
llvm::Value* round_to_bf16(HostContext& context, llvm::Value* f32);  // -> i16
llvm::Value* widen_bf16(HostContext& context, llvm::Value* i16);     // -> f32
// emit_random.cpp
void emit_random_bits(HostContext& context, const kernel::KOp& op);
// emit_pack.cpp
void emit_pack(HostContext& context, const kernel::KOp& op);
void emit_prefetch(HostContext& context, const kernel::KOp& op);
// emit_mma.cpp
llvm::Value* concat_vectors(HostContext& context, llvm::ArrayRef<llvm::Value*> parts);
void emit_mma(HostContext& context, const kernel::KOp& op);
// emit_control.cpp
void emit_body(HostContext& context, const kernel::Body& body, std::vector<Rows>& yielded);
// A loop inside an op: index = low, low + step, ... < high.
void emit_for(HostContext& context, llvm::Value* low, llvm::Value* high, llvm::Value* step,
              const std::function<void(llvm::Value*)>& body);

}  // namespace stepc::emit
