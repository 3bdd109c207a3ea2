// Everything that LLVM 19 reads from nvvm.annotations. The NVPTX back end caches them by module address at the first
// query, which some pass may make: they are complete before passes run, and the cache is cleared (nvptx.cpp) when the
// module goes away, for the next one may get its address.
#include "compiler/emit/nvptx/context.h"

namespace stepc::emit {

void annotate_entry(GpuContext& context, int64_t threads) {
  auto& llvm = context.module.getContext();
  llvm::NamedMDNode* list = context.module.getOrInsertNamedMetadata("nvvm.annotations");
  const auto constant = [&](llvm::Value* value) {
    return llvm::ConstantAsMetadata::get(llvm::cast<llvm::Constant>(value));
  };
  llvm::Metadata* function = llvm::ValueAsMetadata::get(context.function);
  const auto add = [&](const char* name, llvm::Metadata* value) {
    list->addOperand(llvm::MDNode::get(llvm, {function, llvm::MDString::get(llvm, name), value}));
  };
  add("kernel", constant(context.i32(1)));
  add("reqntidx", constant(context.i32(threads)));
  add("reqntidy", constant(context.i32(1)));
  add("reqntidz", constant(context.i32(1)));
  // ptxas takes setmaxnreg only where it knows what a task has at its entry.
  for (const kernel::Role& role : context.kernel.roles)
    if (role.registers > 0) {
      add("minctasm", constant(context.i32(1)));
      break;
    }
  // Parameters that are read in place, by position from 1: tensor maps.
  std::vector<llvm::Metadata*> in_place;
  for (const llvm::Argument& argument : context.function->args())
    if (argument.hasByValAttr()) in_place.push_back(constant(context.i32(argument.getArgNo() + 1)));
  if (!in_place.empty()) add("grid_constant", llvm::MDNode::get(llvm, in_place));
}

}  // namespace stepc::emit
