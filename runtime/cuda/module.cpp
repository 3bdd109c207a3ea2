#include "runtime/cuda/module.h"

#include <utility>
#include <vector>

#include "ir/support/cache.h"
#include "runtime/cuda/driver_errors.h"
#include "runtime/cuda/linker.h"

namespace stepc {
namespace {

constexpr size_t kLogBytes = 8192;
constexpr int64_t kSharedWithoutAsking = 48 * 1024;  // more has to be asked for, kernel by kernel

// The buffer that the driver writes its compiler's messages to, cut to what was written.
std::string log_text(const std::vector<char>& log) {
  std::string text(log.data());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string code_target(const KernelCode& kernel) {
  if (is_cubin(kernel.code)) return "another architecture";
  return std::string(ptx_directive(kernel.code, ".target"));
}

// What a failed load means, where the code tells more than its name.
Error load_error(const Driver& driver, const CudaDeviceInfo& device, const KernelCode& kernel,
                 const LinkFailure& failure) {
  const CUresult result = failure.result;
  Error error = driver_error(driver, failure.call, result, fmt::format("kernel {}", kernel.symbol));
  if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
    error.message +=
        fmt::format("; the PTX is of version {}, which the driver of CUDA {} does not read: update the driver",
                    ptx_directive(kernel.code, ".version"), cuda_version_text(device.driver_version));
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_PTX)
    error.message +=
        fmt::format("; it was compiled for {}, the device {} is {}", code_target(kernel), device.name, device.arch);
  if (!failure.log.empty()) error.message += "\n" + failure.log;
  return error;
}

// The cubin of PTX: an earlier one, or one that the driver makes now.
Result<std::string> cached_cubin(const Driver& driver, const CudaDeviceInfo& device, const KernelCode& kernel,
                                 const std::string& cache_folder, CudaLoads& loads) {
  const CacheStore cache(cache_folder);
  const std::string key = driver_cubin_key(device, kernel.code);
  if (auto cubin = cache.find(key)) {
    ++loads.cached;
    return std::move(*cubin);
  }
  auto cubin = link_ptx(driver, kernel.code, kernel.symbol);
  if (!cubin) return tl::unexpected(load_error(driver, device, kernel, cubin.error()));
  ++loads.compiled;
  // A cache that cannot be written costs time, not the result.
  (void)cache.store(key, *cubin);
  return std::move(*cubin);
}

Status check_target(const CudaDeviceInfo& device, const KernelCode& kernel) {
  if (is_cubin(kernel.code)) return {};
  const std::string_view line = ptx_directive(kernel.code, ".target");
  const std::string_view target = line.substr(0, line.find_first_of(", "));
  if (target.empty()) return system_error("kernel {}: its code is neither PTX nor a cubin", kernel.symbol);
  if (device_runs(device, target)) return {};
  return system_error("kernel {} was compiled for {}, the device {} is {}: compile with --arch {}", kernel.symbol,
                      target, device.name, device.arch, device.target);
}

}  // namespace

// A target with an 'a' runs on its own architecture alone, others on theirs and later ones.
bool device_runs(const CudaDeviceInfo& device, std::string_view target) {
  if (target.ends_with('a')) return target == device.arch + "a";
  const auto number = [](std::string_view arch) {
    int value = 0;
    for (char c : arch)
      if (c >= '0' && c <= '9') value = value * 10 + (c - '0');
    return value;
  };
  return number(target) <= number(device.arch);
}

bool is_cubin(std::string_view code) { return code.starts_with("\177ELF"); }

std::string_view ptx_directive(std::string_view ptx, std::string_view directive) {
  size_t at = 0;
  for (; at < ptx.size(); at = ptx.find('\n', at), at += at != std::string_view::npos) {
    const std::string_view line = ptx.substr(at, ptx.find('\n', at) - at);
    if (line.starts_with(directive) && line.size() > directive.size() + 1) return line.substr(directive.size() + 1);
  }
  return {};
}

CudaModule& CudaModule::operator=(CudaModule&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(module_, other.module_);
  std::swap(function_, other.function_);
  return *this;
}

CudaModule::~CudaModule() {
  if (module_) driver_->cuModuleUnload(module_);
}

Result<CudaModule> CudaModule::load(const Driver& driver, const CudaDeviceInfo& device, const KernelCode& kernel,
                                    const std::string& cache_folder, CudaLoads& loads) {
  STEPC_TRY(check_target(device, kernel));
  std::string cubin;
  if (!cache_folder.empty() && !is_cubin(kernel.code)) {
    STEPC_ASSIGN(cubin, cached_cubin(driver, device, kernel, cache_folder, loads));
  } else {
    loads.compiled += is_cubin(kernel.code) ? 0 : 1;
  }
  std::vector<char> log(kLogBytes, 0);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  CudaModule module(driver);
  // The code is a std::string, so that the NUL which ends PTX for the driver is there.
  const std::string& image = cubin.empty() ? kernel.code : cubin;
  const CUresult result = driver.cuModuleLoadDataEx(&module.module_, image.c_str(), 2, options, values);
  if (result != CUDA_SUCCESS) {
    module.module_ = nullptr;
    return tl::unexpected(load_error(driver, device, kernel, {"cuModuleLoadDataEx", result, log_text(log)}));
  }
  STEPC_TRY(module.prepare(device, kernel));
  return module;
}

Status CudaModule::prepare(const CudaDeviceInfo& device, const KernelCode& kernel) {
  const std::string purpose = fmt::format("kernel {}", kernel.symbol);
  STEPC_DRIVER(*driver_, cuModuleGetFunction, purpose, &function_, module_, kernel.symbol.c_str());
  if (kernel.shared_bytes > device.shared_bytes)
    return system_error("kernel {} needs {} bytes of shared memory, the device {} has {}", kernel.symbol,
                        kernel.shared_bytes, device.name, device.shared_bytes);
  if (kernel.shared_bytes > kSharedWithoutAsking)
    STEPC_DRIVER(*driver_, cuFuncSetAttribute, purpose, function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                 static_cast<int>(kernel.shared_bytes));
  return {};
}

}  // namespace stepc
