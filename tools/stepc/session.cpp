#include "tools/stepc/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

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

std::vector<TensorStream> persistent_streams(const Executor& executor) {
  std::vector<TensorStream> streams;
  for (const PersistentPlacement& tensor : executor.bundle().persistents.tensors)
    streams.push_back({tensor.name, tensor.type, [&executor, name = tensor.name](const ByteSink& sink) {
                         return executor.read_persistent(name, sink);
                       }});
  return streams;
}

double scalar_of(const Executor::Outputs& outputs, const std::string& name) {
  return elements<float>(outputs.at(name)).at(0);
}

HostTensorView ids_view(const std::vector<int32_t>& ids, Shape shape) {
  return {{Dtype::i32, std::move(shape)}, {reinterpret_cast<const char*>(ids.data()), ids.size() * 4}};
}

void DeviceOptions::add_to(CLI::App& command) {
  command
      .add_option("--threads", threads, "Threads that kernels run on (0: one per core); results do not depend on it")
      ->check(CLI::Range(0, 1024));
  command.add_option("--cache", cache_folder, "Folder of compiled kernels (default: the user's cache folder)");
  command.add_flag("--baseline-cpu", choice.baseline, "Generate host code without AVX-512");
}

void DeviceOptions::add_device_to(CLI::App& command) {
  command.add_option("--device", choice.name, "host, emulator (runs GPU code on the CPU), cuda or cuda:N");
  command.add_option("--arch", choice.arch, "Architecture to compile for (default: the device's own)");
  command.add_flag("--sync", choice.synchronous, "Wait after each launch of a GPU, so that an error names its kernel");
  command.add_flag("!--no-graph", graphs, "Launch a GPU's kernels one by one instead of as graphs");
  command.add_flag("--separate-buffers", separate_buffers,
                   "Memory of its own for each buffer: for tools that look for stray accesses");
  command.add_option("--emulator-seed", choice.seed, "Of the order in which the emulator lets things happen");
}

Result<GpuLowered> compile_module(Module module, const CodeTarget& target, const DeviceOptions& options,
                                  const CompileWishes& wishes) {
  const bool shows = isatty(STDERR_FILENO) != 0;
  LowerOptions lower;
  lower.cache_folder = options.cache_folder.empty() ? default_cache_folder() : options.cache_folder;
  lower.threads = options.thread_count();
  lower.progress = [shows](int done, int all, const std::string&) {
    if (shows) fmt::print(stderr, "\rcompiling kernel {} of {} ", done, all);
    if (shows && done == all) fmt::print(stderr, "\r{:40}\r", "");
  };
  if (!target.gpu) {
    STEPC_ASSIGN(Bundle bundle, lower_host(std::move(module), target.host, lower));
    return GpuLowered{std::move(bundle), {}};
  }
  GpuLowerOptions gpu;
  gpu.common = std::move(lower);
  if (wishes.prefer_cubins || wishes.need_cubins || wishes.want_reports) {
    STEPC_ASSIGN(gpu.ptxas, find_ptxas());
  }
  gpu.cubin = wishes.need_cubins || (wishes.prefer_cubins && gpu.ptxas);
  return lower_gpu(std::move(module), *target.gpu, gpu);
}

Result<Session> Session::create(Module module, const DeviceOptions& options) {
  const double start = seconds_now();
  DeviceChoice choice = options.choice;
  choice.threads = options.thread_count();
  STEPC_ASSIGN(OpenDevice open, open_device(choice));
  STEPC_ASSIGN(GpuLowered lowered,
               compile_module(std::move(module), open.target, options, {.prefer_cubins = open.takes_cubins}));
  Session session;
  session.device_ = std::move(open.device);
  STEPC_ASSIGN(
      session.executor_,
      Executor::create(*session.device_, std::move(lowered.bundle),
                       {.graphs = options.graphs, .separate_buffers = options.separate_buffers, .host_functions = {}}));
  session.compile_seconds_ = seconds_now() - start;
  return session;
}

}  // namespace stepc
