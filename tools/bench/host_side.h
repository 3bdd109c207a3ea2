// Our side of a measurement: a case compiled through graph, kernel IR and LLVM, with operands of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compiler/emit/host.h"
#include "ir/support/result.h"
#include "ir/support/thread_pool.h"
#include "tools/bench/cases.h"

namespace stepc::bench {

class HostSide {
 public:
  // cpu_time: the clock is the calling thread's processor time, for machines that do other work besides.
  static Result<HostSide> make(const Case& test, ThreadPool& pool, bool cpu_time);
  // Seconds of each of `count` runs.
  std::vector<double> run(int count);
  const std::string& config() const { return config_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  using Memory = std::unique_ptr<void, Free>;
  static Memory allocate(int64_t bytes);

  ThreadPool* pool_ = nullptr;
  HostLoader loader_;
  HostKernelFunction function_ = nullptr;
  int64_t grid_ = 0;
  bool cpu_time_ = false;
  std::vector<Memory> buffers_;
  std::vector<Memory> scratch_;  // one a thread
  std::string config_;
};

}  // namespace stepc::bench
