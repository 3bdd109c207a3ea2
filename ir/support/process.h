// Running another program to its end.
#pragma once

#include <string>
#include <vector>

#include "ir/support/result.h"

namespace stepc {

struct ProcessResult {
  int exit_code = 0;   // 128 + signal where one ended it
  std::string output;  // standard output and error, as they came
};

// `command[0]` is the program's path, or its name to be found in PATH; nothing is given on standard input. An error
// is that it cannot be started; how it ends is the caller's to judge. Threads may call it at the same time.
Result<ProcessResult> run_process(const std::vector<std::string>& command);

}  // namespace stepc
