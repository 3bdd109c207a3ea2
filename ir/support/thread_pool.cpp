#include "ir/support/thread_pool.h"

#include <algorithm>
#include <limits>

#include "ir/support/check.h"

namespace stepc {
namespace {

// About 60 microseconds: a little more than the gap between two kernels of a step.
constexpr int kSpins = 4000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

uint32_t epoch_of(uint64_t ticket) { return static_cast<uint32_t>(ticket >> 32); }
uint32_t task_of(uint64_t ticket) { return static_cast<uint32_t>(ticket); }
uint64_t make_ticket(uint32_t epoch, uint32_t task) { return uint64_t{epoch} << 32 | task; }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  published_.fetch_add(1);
  published_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Call call, void* context) {
  STEPC_CHECK(count >= 0 && count < std::numeric_limits<uint32_t>::max(), "{} tasks", count);
  STEPC_CHECK(!busy_.exchange(true), "a parallel loop inside another, or from two threads");
  if (workers_.empty() || count <= 1) {
    for (int64_t i = 0; i < count; ++i) call(context, i, 0);
    busy_.store(false);
    return;
  }
  const uint32_t epoch = epoch_of(ticket_.load()) + 2;
  ticket_.store(make_ticket(epoch - 1, 0));
  call_.store(call);
  context_.store(context);
  count_.store(static_cast<uint32_t>(count));
  done_.store(0);
  ticket_.store(make_ticket(epoch, 0));
  published_.store(epoch);
  published_.notify_all();
  take_tasks(epoch, 0);
  for (int spin = 0; spin < kSpins && done_.load() != count; ++spin) pause();
  for (uint32_t done = done_.load(); done != count; done = done_.load()) done_.wait(done);
  busy_.store(false);
}

void ThreadPool::take_tasks(uint32_t epoch, int thread) {
  for (;;) {
    uint64_t ticket = ticket_.load();
    if (epoch_of(ticket) != epoch) return;
    const Call call = call_.load();
    void* const context = context_.load();
    const uint32_t count = count_.load();
    if (task_of(ticket) >= count) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1)) continue;
    call(context, task_of(ticket), thread);
    if (done_.fetch_add(1) + 1 == count) done_.notify_one();
  }
}

uint32_t ThreadPool::wait_for_change(uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    const uint32_t now = published_.load();
    if (now != seen) return now;
    pause();
  }
  published_.wait(seen);
  return published_.load();
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(seen);
    if (stop_.load()) return;
    take_tasks(seen, thread);
  }
}

}  // namespace stepc
