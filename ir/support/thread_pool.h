// A fixed set of threads for loops over independent tasks. Tasks are handed out one by one, so uneven
// ones balance; which thread runs a task must not matter to its result. Made for kernels of about 50
// microseconds: between loops the workers spin a while before they sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace stepc {

class ThreadPool {
 public:
  // `threads` counts the caller too: 1 makes no worker. 0 means one per processor.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs task(i) for 0 <= i < count, or task(i, thread) with 0 <= thread < threads(), and returns when all
  // are done. One loop at a time; a task must not start another. count is below 2^32.
  template <class Task>
  void parallel_for(int64_t count, Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    const auto call = [](void* context, int64_t index, int thread) {
      if constexpr (std::is_invocable_v<Plain&, int64_t, int>)
        (*static_cast<Plain*>(context))(index, thread);
      else
        (*static_cast<Plain*>(context))(index);
    };
    run(count, call, const_cast<std::remove_const_t<Plain>*>(&task));
  }

 private:
  using Call = void (*)(void* context, int64_t index, int thread);

  void run(int64_t count, Call call, void* context);
  void work(int thread);
  void take_tasks(uint32_t epoch, int thread);
  uint32_t wait_for_change(uint32_t seen);

  // High half: the epoch, odd while the fields below are being written; low half: the next task. A thread
  // claims a task by raising the low half, which succeeds only in the epoch whose fields it has read.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  std::atomic<Call> call_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<uint32_t> count_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> published_{0};  // the last complete epoch; workers sleep on it
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};
  std::vector<std::thread> workers_;
};

}  // namespace stepc
