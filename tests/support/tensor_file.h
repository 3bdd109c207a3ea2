// Safetensors files for the exchange with the PyTorch oracle, apart from the runtime's own reader: tensors
// go out as F32 or I32 and come back, of these or BF16, as doubles.
#pragma once

#include <string>

#include "ir/graph/evaluate.h"

namespace stepc::test {

void write_tensor_file(const std::string& path, const TensorMap& tensors);
TensorMap read_tensor_file(const std::string& path);

}  // namespace stepc::test
