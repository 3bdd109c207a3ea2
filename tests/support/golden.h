// Golden files: tests/golden/<name> holds the text that a test expects. With STEPC_UPDATE=1 in the
// environment the tests rewrite their files instead; review the difference like code.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/source_dir.h"

namespace stepc::test {

inline std::string golden_path(const std::string& name) { return source_dir() + "/tests/golden/" + name; }

inline std::string read_golden(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  REQUIRE_MESSAGE(file.good(), "no golden file " << golden_path(name) << "; STEPC_UPDATE=1 writes it");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_golden(const std::string& name, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(golden_path(name)).parent_path());
  std::ofstream file(golden_path(name), std::ios::binary);
  file << text;
  REQUIRE_MESSAGE(file.good(), "cannot write " << golden_path(name));
}

inline bool updates_golden() {
  const char* update = std::getenv("STEPC_UPDATE");
  return update && std::string(update) == "1";
}

// `text` is what tests/golden/<name> says, byte for byte.
inline void check_golden(const std::string& name, const std::string& text) {
  if (updates_golden()) return write_golden(name, text);
  const std::string expected = read_golden(name);
  CHECK_MESSAGE(text == expected, "differs from " << golden_path(name) << "; found:\n" << text);
}

}  // namespace stepc::test
