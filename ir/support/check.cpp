#include "ir/support/check.h"

#include <cstdio>
#include <cstdlib>

namespace stepc {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "stepc: internal error at {}:{}: {}: {}\n", file, line, condition, message);
  std::abort();
}

}  // namespace stepc
