// A test that lacks what it needs says so by name; ./dev test lists all that was skipped.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <string>

#include "test_paths.h"

namespace stepc::test {

inline void skip(const std::string& what, const std::string& why) {
  MESSAGE("skipped: " << what << " (" << why << ")");
  std::ofstream(std::string(STEPC_BINARY_DIR) + "/tests/skipped-" + what + ".txt")
      << "  " << what << ": " << why << "\n";
}

}  // namespace stepc::test
