#include "tools/stepc/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/host/host_device.h"

namespace stepc {
namespace {

std::string default_cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder) return std::string(folder) + "/stepc";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/stepc";
  return ".cache/stepc";
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void DeviceOptions::add_to(CLI::App& command) {
  command
      .add_option("--threads", threads, "Threads that kernels run on (0: one per core); results do not depend on it")
      ->check(CLI::Range(0, 1024));
  command.add_option("--cache", cache_folder, "Folder of compiled kernels (default: the user's cache folder)");
  command.add_flag("--baseline-cpu", baseline, "Generate code without AVX-512");
}

Result<Bundle> compile_module(Module module, const DeviceOptions& options) {
  const bool shows = isatty(STDERR_FILENO) != 0;
  LowerOptions lower;
  lower.cache_folder = options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  lower.threads = options.thread_count();
  lower.progress = [shows](int done, int all, const std::string&) {
    if (shows) fmt::print(stderr, "\rcompiling kernel {} of {} ", done, all);
    if (shows && done == all) fmt::print(stderr, "\r{:40}\r", "");
  };
  return lower_host(std::move(module), options.target(), lower);
}

Result<Session> Session::create(Module module, const DeviceOptions& options) {
  const double start = seconds_now();
  STEPC_ASSIGN(Bundle bundle, compile_module(std::move(module), options));
  Session session;
  auto loader = std::make_shared<HostLoader>();
  session.device_ = make_host_device(
      [loader](const std::string& object, const std::string& symbol) -> Result<void*> {
        STEPC_ASSIGN(const HostKernelFunction function, loader->load(object, symbol));
        return reinterpret_cast<void*>(function);
      },
      options.thread_count());
  STEPC_ASSIGN(session.executor_, Executor::create(*session.device_, std::move(bundle)));
  session.compile_seconds_ = seconds_now() - start;
  return session;
}

}  // namespace stepc
