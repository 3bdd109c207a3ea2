// Runs hand-written PTX on the emulator with tensor maps and parameters of any size: buffers, one launch, its report.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/emulator/launch.h"
#include "runtime/emulator/units/tensor_map.h"
#include "runtime/emulator/warp.h"

namespace stepc::emulator {

class PtxLaunch {
 public:
  explicit PtxLaunch(uint64_t seed) : memory_(1 << 26), pool_(1), seed_(seed) {}

  template <class T>
  uint64_t upload(const std::vector<T>& values) {
    const uint64_t address = memory_.allocate(values.size() * sizeof(T));
    std::memcpy(memory_.find(address, 1)->host, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> download(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory_.find(address, count * sizeof(T))->host, count * sizeof(T));
    return values;
  }

  // Of the module launched last.
  const std::vector<GlobalVariable>& variables() const { return variables_; }

  // Of bf16; extents innermost first, dense.
  CUtensorMap map(uint64_t address, const std::vector<uint64_t>& extents, const std::vector<uint32_t>& box,
                  CUtensorMapSwizzle swizzle) {
    std::vector<uint64_t> strides;
    uint64_t bytes = 2;
    for (const uint64_t extent : extents) strides.push_back(bytes *= extent);
    const std::vector<uint32_t> ones(extents.size(), 1);
    std::string why;
    const auto map = check_tensor_map({CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<uint32_t>(extents.size()), address,
                                       extents.data(), strides.data(), box.data(), ones.data(),
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
                                      &why);
    REQUIRE_MESSAGE(map.has_value(), why);
    CUtensorMap result;
    encode_tensor_map(*map, &result);
    return result;
  }

  struct Shape {
    uint32_t grid = 1;
    uint32_t threads = 32;
    uint32_t shared_bytes = 0;
    uint32_t cluster = 1;
  };
  // Loads `ptx` and launches its entry with pointers to its parameters; the fault's report, or "".
  std::string launch(const std::string& ptx, const char* entry, const Shape& shape,
                     const std::vector<const void*>& parameters) {
    const auto module = decode_module(ptx);
    if (!module) return "not loaded: " + module.error().text();
    const Kernel& kernel = *(*module)->kernels.at(entry);
    variables_ = (*module)->variables;
    for (const GlobalVariable& v : variables_) REQUIRE(memory_.place(v.address, v.bytes));
    REQUIRE(kernel.parameters.size() == parameters.size());
    Launch launch;
    launch.kernel = &kernel;
    launch.grid.x = shape.grid;
    launch.block.x = shape.threads;
    launch.cluster.x = shape.cluster;
    launch.dynamic_shared_bytes = shape.shared_bytes;
    launch.memory = &memory_;
    launch.seed = seed_;
    launch.parameters.resize(kernel.parameter_bytes);
    for (size_t p = 0; p < parameters.size(); ++p)
      std::memcpy(launch.parameters.data() + kernel.parameters[p].offset, parameters[p], kernel.parameters[p].bytes);
    const auto fault = run_launch(launch, pool_);
    return fault ? describe(*fault) : "";
  }

 private:
  GlobalMemory memory_;
  ThreadPool pool_;
  uint64_t seed_;
  std::vector<GlobalVariable> variables_;
};

}  // namespace stepc::emulator
