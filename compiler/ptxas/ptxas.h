// NVIDIA's assembler, where it is installed: PTX to a cubin, and what it says of registers, spills and stack. It is
// never needed to run kernels, since the driver has one too, but a cubin loads a thousand times faster than PTX.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/support/result.h"

namespace stepc {

struct Ptxas {
  std::string path;
  std::string version;  // "release 13.0, V13.0.88"
};

// $STEPC_PTXAS, or the first of PATH and the usual place; nullopt where there is none. It is an error if the
// variable is set to what is no assembler.
Result<std::optional<Ptxas>> find_ptxas();

// What `ptxas -v` tells of one kernel.
struct PtxasReport {
  int registers = 0;  // a thread, at entry
  int64_t stack_bytes = 0;
  int64_t spill_store_bytes = 0;
  int64_t spill_load_bytes = 0;
  int64_t shared_bytes = 0;          // static ones
  std::vector<std::string> remarks;  // warnings, and notes such as (C7510) "wgmma instructions are serialized"

  // Local memory, in which spills lie too.
  bool uses_local_memory() const { return stack_bytes > 0 || spill_store_bytes > 0 || spill_load_bytes > 0; }
};

struct Cubin {
  std::string code;
  PtxasReport report;
  bool cached = false;
};

// PTX that is made when it is needed, and what it is made from: equal sources make equal PTX.
struct PtxSource {
  std::string key;
  std::function<Result<std::string>()> make;
};

// Assembles PTX with one kernel. With a cache folder an earlier result for the same source, architecture and assembler
// is taken from there, and no PTX made. `name` is for errors, which repeat the assembler's first messages.
Result<Cubin> assemble(const Ptxas& ptxas, const PtxSource& source, const std::string& arch, const std::string& name,
                       const std::string& cache_folder);
Result<Cubin> assemble(const Ptxas& ptxas, const std::string& ptx, const std::string& arch, const std::string& name,
                       const std::string& cache_folder = "");

PtxasReport parse_ptxas_report(const std::string& output);

}  // namespace stepc
