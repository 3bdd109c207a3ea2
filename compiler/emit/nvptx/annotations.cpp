// Everything that LLVM 19 reads from nvvm.annotations. The NVPTX back end caches them by module address at the first
// query, which some pass may make: they are complete before passes run, and the cache is cleared (nvptx.cpp) when the
// module goes away, for the next one may get its address.
#include <algorithm>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/registers.h"

namespace stepc::emit {
namespace {

bool multiplies(const kernel::Kernel& kernel) {
  return std::any_of(kernel.ops.begin(), kernel.ops.end(), [](const kernel::KOp& op) {
    return op.op == kernel::Op::mma_sync || op.op == kernel::Op::mma_sync_rs;
  });
}

}  // namespace

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
  // A role that is alone gets its registers by how many tasks share a multiprocessor.
  const auto& roles = context.kernel.roles;
  const bool alone = roles.size() == 1 && roles[0].copies == 1;
  const int64_t wanted = alone ? threads * roles[0].registers : 0;
  // ptxas takes setmaxnreg only where it knows what a task has at its entry, and without this would spill a little of a
  // product's accumulators to fit one task more on a multiprocessor.
  const auto sets = [](const kernel::Role& role) { return role.registers > 0; };
  if (wanted > 0)
    add("minctasm", constant(context.i32(std::max<int64_t>(kRegistersOfSm / wanted, 1))));
  else if (multiplies(context.kernel) || std::any_of(roles.begin(), roles.end(), sets))
    add("minctasm", constant(context.i32(1)));
  // Parameters that are read in place, by position from 1: tensor maps.
  std::vector<llvm::Metadata*> in_place;
  for (const llvm::Argument& argument : context.function->args())
    if (argument.hasByValAttr()) in_place.push_back(constant(context.i32(argument.getArgNo() + 1)));
  if (!in_place.empty()) add("grid_constant", llvm::MDNode::get(llvm, in_place));
}

}  // namespace stepc::emit
