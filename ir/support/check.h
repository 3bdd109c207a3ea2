// STEPC_CHECK states what only a bug of ours can break. It stays on in release builds.
#pragma once

#include <fmt/format.h>

#include <string>

namespace stepc {

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace stepc

#define STEPC_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::stepc::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)

// After a switch that names every enumerator.
#define STEPC_UNREACHABLE(...) ::stepc::check_failed("unreachable", __FILE__, __LINE__, ::fmt::format(__VA_ARGS__))
