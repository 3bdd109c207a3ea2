// Another program that is asked a line and answers a line. Its input ends with the object, and so should it.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ir/support/result.h"

namespace stepc::bench {

class LineProcess {
 public:
  static Result<LineProcess> start(const std::vector<std::string>& command);
  LineProcess(LineProcess&& other) noexcept;
  LineProcess& operator=(LineProcess&&) = delete;
  ~LineProcess();

  Result<std::string> read_line();
  Result<std::string> ask(const std::string& line);

 private:
  LineProcess() = default;

  std::FILE* to_ = nullptr;
  std::FILE* from_ = nullptr;
  pid_t process_ = -1;
};

}  // namespace stepc::bench
