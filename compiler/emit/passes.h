// What both emitters do with a finished module.
#pragma once

#include <llvm/Support/CodeGen.h>

#include <string>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace stepc::emit {

// LLVM's passes without vectorisation and unrolling: the kernel IR says what is a vector and what is unrolled.
void optimise(llvm::Module& module, llvm::TargetMachine& machine);
std::string emit_file(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType kind);

}  // namespace stepc::emit
