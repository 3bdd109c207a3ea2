#include "tools/stepc/devices.h"

#include <charconv>

#include "compiler/emit/host.h"
#include "compiler/lower_gpu.h"
#include "ir/text/names.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/emulator/driver.h"
#include "runtime/host/host_device.h"

namespace stepc {
namespace {

constexpr const char* kEmulatorTarget = "sm_90a";

Result<OpenDevice> open_host(const DeviceChoice& choice) {
  if (!choice.arch.empty() && choice.arch != "host")
    return user_error("--arch {}: device host runs host code only; --device emulator and --device cuda run others",
                      choice.arch);
  OpenDevice open;
  STEPC_ASSIGN(open.target, code_target("host", choice.baseline));
  auto loader = std::make_shared<HostLoader>();
  open.device = make_host_device(
      [loader](const std::string& object, const std::string& symbol) -> Result<void*> {
        STEPC_ASSIGN(const HostKernelFunction function, loader->load(object, symbol));
        return reinterpret_cast<void*>(function);
      },
      choice.threads);
  return open;
}

Result<CodeTarget> gpu_code_target(const DeviceChoice& choice, const CudaDeviceInfo& info, const std::string& own) {
  const std::string arch = choice.arch.empty() ? own : choice.arch;
  if (arch == "host") return user_error("--arch host: device {} runs code for GPUs only", choice.name);
  STEPC_ASSIGN(const CodeTarget target, code_target(arch, false));
  if (device_runs(info, arch)) return target;
  return user_error("--arch {}: the device {} is {}; it runs {}", arch, info.name, info.arch, info.target);
}

Result<OpenDevice> open_gpu(Driver driver, const DeviceChoice& choice, int ordinal, const std::string& own = "") {
  STEPC_ASSIGN(
      std::unique_ptr<CudaDevice> device,
      make_cuda_device(std::move(driver),
                       {.ordinal = ordinal, .synchronous = choice.synchronous, .cache_folder = choice.cache_folder}));
  OpenDevice open;
  STEPC_ASSIGN(open.target, gpu_code_target(choice, device->info(), own.empty() ? device->info().target : own));
  open.device = std::move(device);
  return open;
}

Result<OpenDevice> open_emulator(DeviceChoice choice) {
  choice.cache_folder.clear();  // it compiles nothing
  EmulatorOptions options;
  options.seed = static_cast<uint64_t>(choice.seed);
  options.threads = choice.threads;
  return open_gpu(emulated_driver(options), choice, 0, kEmulatorTarget);
}

// "cuda" is the first device, "cuda:N" the one of that number.
std::optional<int> cuda_ordinal(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = name.substr(5);
  int ordinal = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  if (error != std::errc() || end != digits.data() + digits.size() || ordinal < 0) return std::nullopt;
  return ordinal;
}

}  // namespace

Result<OpenDevice> open_device(const DeviceChoice& choice) {
  if (choice.name == "host") return open_host(choice);
  if (choice.name == "emulator") return open_emulator(choice);
  if (const auto ordinal = cuda_ordinal(choice.name)) {
    STEPC_ASSIGN(Driver driver, open_driver());
    STEPC_ASSIGN(OpenDevice open, open_gpu(std::move(driver), choice, *ordinal));
    open.takes_cubins = true;
    open.gpu = static_cast<const CudaDevice*>(open.device.get());
    return open;
  }
  return user_error("--device {}: unknown{}; known are host, emulator, cuda and cuda:N", choice.name,
                    did_you_mean(choice.name, {"host", "emulator", "cuda"}));
}

}  // namespace stepc
