// The emulated driver's state. Streams keep their work until somebody waits for it: then, and not before, the work
// of that stream runs, and of others only what it waits for through events. So a wait that a program forgot shows,
// and host memory that it changes too early does too.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/support/thread_pool.h"
#include "runtime/emulator/driver.h"
#include "runtime/emulator/global_memory.h"
#include "runtime/emulator/launch.h"

namespace stepc::emulator {

using Task = std::function<void()>;

struct Event;

// What a stream has still to do: a task, or an event to wait for.
struct StreamItem {
  Task task;
  std::shared_ptr<Event> wait;
  std::shared_ptr<Event> record;
  uint64_t generation = 0;  // of the event's recording that is waited for or made
};

struct CaptureState {
  std::vector<Task> tasks;  // in the order of the calls, which respects every dependency
  CUstream origin = nullptr;
};

struct Stream {
  std::deque<StreamItem> items;
  std::shared_ptr<CaptureState> capture;
  bool non_blocking = false;
};

struct Event {
  Stream* stream = nullptr;  // that recorded it last
  uint64_t recorded = 0;     // how many times
  uint64_t completed = 0;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<CaptureState> capture;  // recorded inside a capture
};

struct Function {
  const Kernel* kernel = nullptr;
  int max_dynamic_shared = 48 * 1024;
  bool any_cluster_size = false;
};

struct LoadedModule {
  std::unique_ptr<Module> module;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Link {
  std::string image;
};

class EmulatedDevice {
 public:
  explicit EmulatedDevice(const EmulatorOptions& options);

  std::mutex& mutex() { return mutex_; }
  // A context that has seen a fault answers every call that could touch it so.
  CUresult sticky() const { return sticky_; }
  std::string take_report();

#define DRIVER_CALL(name, symbol, parameters) CUresult name parameters;
#include "runtime/cuda/driver_calls.def"
#undef DRIVER_CALL

 private:
  // ---- streams (streams.cpp)
  Stream* stream_of(CUstream handle);  // nullptr: no such stream
  std::shared_ptr<Event> event_of(CUevent handle);
  // Puts a task at the end of the stream's work, or into its capture.
  CUresult enqueue(CUstream handle, Task task);
  void run_stream(Stream& stream, const Event* until = nullptr, uint64_t generation = 0);
  bool run_one(Stream& stream);
  void run_everything();
  bool capturing() const;
  CUresult capture_wait(Stream& stream, const std::shared_ptr<Event>& event);

  // ---- memory (driver_memory.cpp)
  bool pinned(const void* host, size_t bytes) const;
  bool live(CUdeviceptr address, size_t bytes) const;
  CUresult fill(CUdeviceptr to, size_t bytes, uint32_t value, uint32_t value_bytes, CUstream stream);

  // ---- launches (driver_modules.cpp)
  CUresult check_launch(const CUlaunchConfig& config, const Function& function, Launch* launch) const;
  void run_kernel(Launch launch);
  Function* function_of(CUfunction handle);

  EmulatorOptions options_;
  std::mutex mutex_;
  GlobalMemory memory_;
  ThreadPool pool_;
  CUresult sticky_ = CUDA_SUCCESS;
  std::string report_;
  uint64_t launches_ = 0;

  Stream default_stream_;
  std::map<CUstream, std::unique_ptr<Stream>> streams_;
  std::map<CUevent, std::shared_ptr<Event>> events_;
  std::map<CUmodule, std::unique_ptr<LoadedModule>> modules_;
  std::map<CUgraph, std::unique_ptr<std::vector<Task>>> graphs_;
  std::map<CUgraphExec, std::unique_ptr<std::vector<Task>>> graph_instances_;
  std::map<CUlinkState, std::unique_ptr<Link>> links_;
  std::map<const uint8_t*, std::unique_ptr<uint8_t[]>> host_blocks_;
  std::map<const uint8_t*, size_t> host_sizes_;
};

}  // namespace stepc::emulator
