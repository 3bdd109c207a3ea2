// Loads object files into this process through LLVM's JIT linker.
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include "compiler/emit/host.h"

namespace stepc {

struct HostLoader::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::string error;
};

HostLoader::HostLoader() : impl_(std::make_unique<Impl>()) {
  (void)detect_host_target();  // registers LLVM's target once
  auto jit = llvm::orc::LLJITBuilder().create();
  if (jit)
    impl_->jit = std::move(*jit);
  else
    impl_->error = llvm::toString(jit.takeError());
}

HostLoader::~HostLoader() = default;
HostLoader::HostLoader(HostLoader&&) noexcept = default;

Result<HostKernelFunction> HostLoader::load(const std::string& object, const std::string& symbol) {
  if (!impl_->jit) return system_error("cannot start the object loader: {}", impl_->error);
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(object, symbol);
  if (auto error = impl_->jit->addObjectFile(std::move(buffer)))
    return system_error("cannot load kernel @{}: {}", symbol, llvm::toString(std::move(error)));
  auto address = impl_->jit->lookup(symbol);
  if (!address) return system_error("cannot load kernel @{}: {}", symbol, llvm::toString(address.takeError()));
  return address->toPtr<HostKernelFunction>();
}

}  // namespace stepc
