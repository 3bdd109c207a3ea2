// The reference meaning of graph IR: slow, plain loops, in f32 (every op rounded to f32, reductions and
// contractions summed in double then rounded) or in double (nothing rounded but bf16-typed values).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

// A tensor on the host. Elements are held as doubles whatever the dtype: every dtype's values are exact
// in a double. i32 and pred are integers.
struct Tensor {
  TensorType type;
  std::vector<double> data;
};

enum class Precision { f32, f64 };

using TensorMap = std::map<std::string, Tensor>;

// Runs `program`. `persistents` holds every parameter and state that it reads and gets the assigned ones;
// `inputs` by name. Returns the outputs by name. `trace`, if given, receives every value by name.
Result<TensorMap> evaluate(const Program& program, TensorMap& persistents, const TensorMap& inputs,
                           Precision precision = Precision::f32, TensorMap* trace = nullptr);

// Philox 4x32-10 as random_bits uses it: word (index % 4) for counter (index / 4, step) and key (seed, stream).
uint32_t philox_word(uint32_t seed, uint32_t stream, uint32_t step, uint64_t index);

}  // namespace stepc
