// Assembles PTX with ptxas where there is one, and holds it to what every kernel of ours keeps: no spill, no local
// memory, no product serialised (messages C75xx).
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace stepc::test {

inline std::optional<std::string> find_ptxas() {
  if (const char* given = std::getenv("STEPC_PTXAS")) return std::string(given);
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  path += ":/usr/local/cuda/bin";
  for (size_t at = 0; at <= path.size();) {
    const size_t colon = std::min(path.find(':', at), path.size());
    const std::string candidate = path.substr(at, colon - at) + "/ptxas";
    if (std::filesystem::exists(candidate)) return candidate;
    at = colon + 1;
  }
  return std::nullopt;
}

struct Assembled {
  bool ok = false;
  int registers = 0;
  std::string output;  // of ptxas -v
};

inline int number_after(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + words.size());
}

inline Assembled assemble(const std::string& ptx, const std::string& arch) {
  const TempDir dir;
  const std::string source = dir.path() + "/kernel.ptx";
  std::ofstream(source) << ptx;
  const std::string command =
      *find_ptxas() + " -v -arch=" + arch + " " + source + " -o " + dir.path() + "/kernel.cubin 2>&1";
  Assembled result;
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> chunk;
  while (const size_t count = fread(chunk.data(), 1, chunk.size(), pipe)) result.output.append(chunk.data(), count);
  result.ok = pclose(pipe) == 0;
  result.registers = number_after(result.output, "Used ");
  return result;
}

// What is wrong with the kernel, or nothing.
inline std::string ptxas_complaint(const std::string& ptx, const std::string& arch) {
  const Assembled assembled = assemble(ptx, arch);
  const std::string& output = assembled.output;
  const bool spills = output.find(" 0 bytes spill stores, 0 bytes spill loads") == std::string::npos;
  const bool stack = output.find(" 0 bytes stack frame") == std::string::npos;
  if (assembled.ok && !spills && !stack && output.find("C75") == std::string::npos) return "";
  return arch + ": " + output;
}

// Checks it, or says by name that it was not.
inline void check_ptxas(const std::string& ptx, const std::string& arch) {
  if (!find_ptxas()) return skip("ptxas", "no ptxas on this machine");
  const std::string complaint = ptxas_complaint(ptx, arch);
  CHECK_MESSAGE(complaint.empty(), complaint << "\n" << ptx);
}

}  // namespace stepc::test
