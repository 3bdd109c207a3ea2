// PyTorch's side of a measurement: one Python process that lives through the whole run and is asked, case by
// case and in turn with ours, to time products (torch_side.py).
#pragma once

#include <string>
#include <vector>

#include "tools/bench/cases.h"
#include "tools/bench/line_process.h"

namespace stepc::bench {

class TorchSide {
 public:
  static Result<TorchSide> start(const std::string& python, const std::string& script, int threads, bool cpu_time);

  const std::string& version() const { return version_; }
  Status prepare(const Case& test);
  Result<std::vector<double>> run(int count);

 private:
  explicit TorchSide(LineProcess process) : process_(std::move(process)) {}

  LineProcess process_;
  std::string version_;
};

}  // namespace stepc::bench
