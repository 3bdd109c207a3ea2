// Phis for the values that loops carry and branches give, the same for every target.
#include "compiler/emit/emit_context.h"

namespace stepc::emit {

ValueLists make_phis(EmitContext& context, const ValueLists& initial, llvm::BasicBlock* from) {
  ValueLists phis;
  for (const auto& values : initial) {
    auto& made = phis.emplace_back();
    for (llvm::Value* value : values) {
      auto* phi = context.builder.CreatePHI(value->getType(), 2);
      phi->addIncoming(value, from);
      made.push_back(phi);
    }
  }
  return phis;
}

void add_incoming(const ValueLists& phis, const ValueLists& values, llvm::BasicBlock* from) {
  for (size_t i = 0; i < phis.size(); ++i)
    for (size_t k = 0; k < phis[i].size(); ++k) llvm::cast<llvm::PHINode>(phis[i][k])->addIncoming(values[i][k], from);
}

}  // namespace stepc::emit
