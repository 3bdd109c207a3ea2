// A file of kernel IR compiled by itself: its code as text or a cubin.
#pragma once

#include <string>

#include "ir/support/result.h"

namespace stepc {

struct KernelFileOptions {
  std::string file;
  std::string arch;  // empty: what the kernel's own target asks for
  std::string emit;  // llvm, asm, ptx or cubin; empty: the lowest text
  std::string out;   // empty: standard output
  bool baseline = false;
};

bool is_kernel_file(const std::string& path);
// Prints what ptxas says of a GPU's kernel on standard error, where it is there.
Status compile_kernel_file(const KernelFileOptions& options);

}  // namespace stepc
