#include "runtime/emulator/launch.h"

#include <atomic>
#include <mutex>
#include <numeric>

#include "runtime/emulator/cluster.h"

namespace stepc::emulator {
namespace {

// The order in which clusters start.
std::vector<uint64_t> cluster_order(const Launch& launch) {
  std::vector<uint64_t> order(launch.grid.count() / launch.cluster.count());
  std::iota(order.begin(), order.end(), 0);
  if (!launch.stress) return order;
  Random random(launch.seed);
  for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.next() % k]);
  return order;
}

}  // namespace

std::optional<Fault> run_launch(const Launch& launch, ThreadPool& pool) {
  const std::vector<uint64_t> order = cluster_order(launch);
  const std::vector<uint32_t> registers = initial_registers(*launch.kernel);
  if (launch.kernel->noncoherent_loads) launch.memory->forget_writes();
  std::optional<Fault> fault;
  std::atomic<size_t> faulty = order.size();  // the first place in the order with a fault
  std::mutex mutex;
  const auto run_one = [&](size_t k) {
    if (k > faulty.load()) return;
    Cluster cluster(launch, registers, order[k]);
    cluster.run();
    if (!cluster.fault()) return;
    const std::lock_guard lock(mutex);
    if (k >= faulty.load()) return;
    faulty = k;
    fault = cluster.fault();
  };
  if (launch.kernel->global_atomics) {
    for (size_t k = 0; k < order.size(); ++k) run_one(k);
  } else {
    pool.parallel_for(static_cast<int64_t>(order.size()), [&](int64_t k) { run_one(static_cast<size_t>(k)); });
  }
  return fault;
}

}  // namespace stepc::emulator
