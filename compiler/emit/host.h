// Kernel IR -> LLVM -> object code for the host's CPU, and the loader of such objects. No LLVM type appears
// here.
//
// Calling convention of an emitted kernel (docs/kernel_abi.md):
//   void name(void* const* buffers, const int64_t* scalars, int64_t task, void* shared)
// buffers: the global buffers in order; scalars: the launch scalars; 0 <= task < grid; shared: 64-byte
// aligned scratch of shared_layout(kernel).total_bytes, owned by the calling thread for the call.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/schedule/schedule.h"
#include "ir/kernel/kernel.h"

namespace stepc {

// The CPU that this process runs on. `baseline` leaves out AVX-512: for tests of the narrower path.
HostTarget detect_host_target();
HostTarget baseline_host_target();

struct HostCode {
  std::string object;     // an ELF relocatable file that defines the kernel's name
  std::string llvm_text;  // optimised LLVM IR, if asked for
  std::string assembly;   // if asked for
};
struct HostEmitOptions {
  bool want_llvm_text = false;
  bool want_assembly = false;
};
Result<HostCode> emit_host(const kernel::Kernel& kernel, const HostTarget& target, const HostEmitOptions& options = {});

using HostKernelFunction = void (*)(void* const* buffers, const int64_t* scalars, int64_t task, void* shared);

// Holds loaded objects; their functions are valid as long as the loader lives.
class HostLoader {
 public:
  HostLoader();
  ~HostLoader();
  HostLoader(HostLoader&&) noexcept;
  Result<HostKernelFunction> load(const std::string& object, const std::string& symbol);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepc
