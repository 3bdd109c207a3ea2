#include "tools/stepc/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace stepc {
namespace {

// What a driver takes for the code of kernels and for itself between the question how much there is and the arenas.
constexpr int64_t kDriverBytes = int64_t{512} << 20;

std::string default_cache_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder) return std::string(folder) + "/stepc";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/stepc";
  return ".cache/stepc";
}

const double g_started = seconds_now();  // before main

}  // namespace

double seconds_of_process() { return seconds_now() - g_started; }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string DeviceOptions::cache() const { return cache_folder.empty() ? default_cache_folder() : cache_folder; }

double StartTimes::seconds() const {
  return device_seconds + lower.pass_seconds + lower.schedule_seconds + lower.compile_seconds + lower.plan_seconds +
         load_seconds;
}

std::string StartTimes::text() const {
  return fmt::format(
      "{} kernels ready in {:.1f} s: {} compiled, {} cached; device {:.2f}, passes {:.2f}, schedules {:.2f}, code "
      "{:.2f}, plan {:.2f}, loading {:.2f} s",
      lower.kernels, seconds(), compiled(), lower.kernels - compiled(), device_seconds, lower.pass_seconds,
      lower.schedule_seconds, lower.compile_seconds, lower.plan_seconds, load_seconds);
}

JsonValue StartTimes::json() const {
  JsonValue value;
  value.add("kernels", lower.kernels);
  value.add("compiled", compiled());
  value.add("device_seconds", device_seconds);
  value.add("pass_seconds", lower.pass_seconds);
  value.add("schedule_seconds", lower.schedule_seconds);
  value.add("code_seconds", lower.compile_seconds);
  value.add("plan_seconds", lower.plan_seconds);
  value.add("load_seconds", load_seconds);
  return value;
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
  add_updates_apart(command, updates_apart);
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
                                  const CompileWishes& wishes, LowerReport* report) {
  const bool shows = isatty(STDERR_FILENO) != 0;
  LowerOptions lower;
  lower.cache_folder = options.cache();
  lower.threads = options.thread_count();
  lower.report = report;
  lower.passes.updates_apart = options.updates_apart;
  STEPC_ASSIGN(const Recompute recompute, options.recompute.mode());
  if (wishes.memory_bytes) lower.fit = {recompute, *wishes.memory_bytes};
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
  Session session;
  StartTimes& times = session.times_;
  DeviceChoice choice = options.choice;
  choice.threads = options.thread_count();
  choice.cache_folder = options.cache();
  const double start = seconds_now();
  STEPC_ASSIGN(OpenDevice open, open_device(choice));
  times.device_seconds = seconds_now() - start;
  STEPC_ASSIGN(const int64_t available, open.device->available_bytes());
  CompileWishes wishes{.prefer_cubins = open.takes_cubins, .memory_bytes = available};
  if (open.target.gpu) *wishes.memory_bytes -= kDriverBytes;
  STEPC_ASSIGN(GpuLowered lowered, compile_module(std::move(module), open.target, options, wishes, &times.lower));
  session.device_ = std::move(open.device);
  const double compiled = seconds_now();
  STEPC_ASSIGN(
      session.executor_,
      Executor::create(*session.device_, std::move(lowered.bundle),
                       {.graphs = options.graphs, .separate_buffers = options.separate_buffers, .host_functions = {}}));
  times.load_seconds = seconds_now() - compiled;
  if (open.gpu) times.driver = open.gpu->loads();
  if (open.target.gpu) session.arch_ = open.target.gpu->arch;
  return session;
}

}  // namespace stepc
