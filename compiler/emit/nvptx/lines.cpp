// `.loc` lines: of the kernel's own text, as print_kernel writes it. A fault report or a profile then names the op.
#include <llvm/IR/DIBuilder.h>

#include "compiler/emit/nvptx/context.h"

namespace stepc::emit {

namespace {

int number_ops(const kernel::Kernel& kernel, const kernel::Body& body, int next, std::vector<int>& lines) {
  for (kernel::OpId id : body.ops) {
    lines[kernel::index_of(id)] = next++;
    // Every body is followed by a line that closes it or opens the next.
    for (const kernel::Body& inner : kernel.op(id).bodies) next = number_ops(kernel, inner, next, lines) + 1;
  }
  return next;
}

}  // namespace

// As print_kernel writes it: a line of head, one a declaration, the grid; before each role an empty line and its head.
std::vector<int> op_lines(const kernel::Kernel& kernel) {
  std::vector<int> lines(kernel.ops.size());
  int next = 3 + static_cast<int>(kernel.buffers.size() + kernel.scalars.size());
  for (const kernel::Role& role : kernel.roles) next = number_ops(kernel, role.body, next + 2, lines) + 1;
  return lines;
}

void begin_lines(GpuContext& context) {
  llvm::DIBuilder debug(context.module);
  llvm::DIFile* file = debug.createFile(context.kernel.name + ".kir", "");
  debug.createCompileUnit(llvm::dwarf::DW_LANG_C, file, "stepc", true, "", 0, "",
                          llvm::DICompileUnit::DebugDirectivesOnly);
  auto* type = debug.createSubroutineType(debug.getOrCreateTypeArray({}));
  auto* program = debug.createFunction(file, context.kernel.name, "", file, 1, type, 1, llvm::DINode::FlagZero,
                                       llvm::DISubprogram::SPFlagDefinition | llvm::DISubprogram::SPFlagOptimized);
  context.function->setSubprogram(program);
  context.module.addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
  debug.finalize();
  context.lines = op_lines(context.kernel);
  set_line(context, 1);
}

void set_line(GpuContext& context, int line) {
  context.builder.SetCurrentDebugLocation(llvm::DILocation::get(
      context.module.getContext(), static_cast<unsigned>(line), 1, context.function->getSubprogram()));
}

}  // namespace stepc::emit
