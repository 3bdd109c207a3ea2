// PyTorch's side of a measurement: one Python process that lives through the whole run and is asked, case by
// case and in turn with ours, to time products (torch_side.py).
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ir/support/result.h"
#include "tools/bench/cases.h"

namespace stepc::bench {

class TorchSide {
 public:
  static Result<TorchSide> start(const std::string& python, const std::string& script, int threads, bool cpu_time);
  TorchSide(TorchSide&& other) noexcept;
  TorchSide& operator=(TorchSide&&) = delete;
  ~TorchSide();

  const std::string& version() const { return version_; }
  Status prepare(const Case& test);
  Result<std::vector<double>> run(int count);

 private:
  TorchSide() = default;
  Result<std::string> ask(const std::string& line);

  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  pid_t process_ = -1;
  std::string version_;
};

}  // namespace stepc::bench
