// The numbers of tokens that conformance tests run: around the sizes of warps and tiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/gpu.h"

namespace stepc::test {

// STEPC_CONFORM: "all", what a card runs, on the emulator too, which takes its time; "few", for tools that slow a card
// down and see for themselves where an allocation ends.
inline std::string conform_wish() {
  const char* const wanted = std::getenv("STEPC_CONFORM");
  return wanted ? wanted : "";
}

inline bool conform_all() { return conform_wish() == "all" || (on_card() && conform_wish() != "few"); }

inline std::vector<int64_t> token_counts() {
  if (conform_all()) return {1, 2, 31, 33, 127, 129, 1000, 1023};
  return conform_wish() == "few" ? std::vector<int64_t>{33} : std::vector<int64_t>{1, 2, 31, 33};
}

// Of what is costly.
inline std::vector<int64_t> few_token_counts() {
  if (conform_all()) return token_counts();
  return {33};
}

}  // namespace stepc::test
