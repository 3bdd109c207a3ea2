#include "compiler/emit/nvptx/leaf.h"

#include <llvm/IR/InlineAsm.h>

#include <array>
#include <cstdlib>

#include "ir/support/check.h"

namespace stepc::emit {
namespace {

constexpr std::array kLeaves = {
#define LEAF(name, text, constraints, sm, ptx, op) LeafInfo{#name, text, constraints, sm, ptx, #op},
#include "compiler/emit/nvptx/leaf_ops.def"
#undef LEAF
};

llvm::Type* type_of(GpuContext& context, char constraint) {
  auto& builder = context.builder;
  switch (constraint) {
    case 'r': return builder.getInt32Ty();
    case 'l': return builder.getInt64Ty();
    case 'f': return builder.getFloatTy();
    case 'h': return builder.getInt16Ty();
  }
  STEPC_UNREACHABLE("constraint {}", constraint);
}

// The types of the results: of the constraints that begin with '='.
std::vector<llvm::Type*> result_types(GpuContext& context, const std::string& constraints) {
  std::vector<llvm::Type*> types;
  for (size_t at = 0; at < constraints.size();) {
    const size_t comma = std::min(constraints.find(',', at), constraints.size());
    if (constraints[at] == '=') types.push_back(type_of(context, constraints[comma - 1]));
    at = comma + 1;
  }
  return types;
}

}  // namespace

const LeafInfo& leaf_info(Leaf leaf) { return kLeaves[static_cast<size_t>(leaf)]; }

int sm_version(const GpuTarget& target) { return std::atoi(target.arch.c_str() + 3); }

Words emit_leaf(GpuContext& context, Leaf leaf, llvm::ArrayRef<llvm::Value*> operands) {
  const LeafInfo& info = leaf_info(leaf);
  return emit_leaf_text(context, leaf, std::string(info.text), std::string(info.constraints), operands);
}

Words emit_leaf_text(GpuContext& context, Leaf leaf, const std::string& text, const std::string& constraints,
                     llvm::ArrayRef<llvm::Value*> operands) {
  const LeafInfo& info = leaf_info(leaf);
  STEPC_CHECK(sm_version(context.target) >= info.minimum_sm, "{} needs sm_{}, found {}", info.name, info.minimum_sm,
              context.target.arch);
  auto& builder = context.builder;
  const auto results = result_types(context, constraints);
  llvm::Type* type = results.empty()       ? builder.getVoidTy()
                     : results.size() == 1 ? results[0]
                                           : llvm::StructType::get(context.module.getContext(), results);
  std::vector<llvm::Type*> types;
  for (llvm::Value* operand : operands) types.push_back(operand->getType());
  auto* callee = llvm::InlineAsm::get(llvm::FunctionType::get(type, types, false), text, constraints, true);
  llvm::CallInst* call = builder.CreateCall(callee, operands);
  call->addFnAttr(llvm::Attribute::Convergent);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  if (results.size() == 1) return {call};
  Words made;
  for (unsigned i = 0; i < results.size(); ++i) made.push_back(builder.CreateExtractValue(call, i));
  return made;
}

}  // namespace stepc::emit
