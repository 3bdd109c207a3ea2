// Where the sources are: those that the tests were built from, or with STEPC_SOURCE in the environment a copy, for
// tests that run on another machine than the one that built them.
#pragma once

#include <cstdlib>
#include <string>

#include "test_paths.h"

namespace stepc::test {

inline std::string source_dir() {
  const char* const copy = std::getenv("STEPC_SOURCE");
  return copy && *copy ? copy : STEPC_SOURCE_DIR;
}

}  // namespace stepc::test
