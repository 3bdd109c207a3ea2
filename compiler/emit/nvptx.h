// Kernel IR -> LLVM -> PTX for NVIDIA GPUs. No LLVM type appears here. The entry follows docs/kernel_abi.md.
#pragma once

#include <string>

#include "compiler/schedule/schedule.h"
#include "ir/kernel/kernel.h"

namespace stepc {

struct PtxCode {
  std::string ptx;
  std::string llvm_text;  // optimised LLVM IR, if asked for
};
struct PtxOptions {
  bool want_llvm_text = false;
};

// An error where the architecture lacks what the kernel uses, or an op needs threads to hold data otherwise than they
// do.
Result<PtxCode> emit_ptx(const kernel::Kernel& kernel, const GpuTarget& target, const PtxOptions& options = {});

}  // namespace stepc
