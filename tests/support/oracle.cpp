#include "tests/support/oracle.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "ir/support/file.h"
#include "test_paths.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tensor_file.h"

namespace stepc::test {

std::string python_with_torch() {
  for (const char* python : {"/usr/bin/python3", "python3"})
    if (std::system(fmt::format("{} -c 'import torch' > /dev/null 2>&1", python).c_str()) == 0) return python;
  return "";
}

TensorMap ask_oracle(const std::string& python, const std::string& config_json, const TensorMap& given) {
  const TempDir folder;
  REQUIRE(write_file_atomic(folder.file("config.json"), config_json, Durability::unsynced).has_value());
  write_tensor_file(folder.file("in.safetensors"), given);
  const std::string command = fmt::format(
      "{} {}/tools/oracle/tiny_torch.py oracle --threads 1 --config {} --input {} --output {}", python,
      STEPC_SOURCE_DIR, folder.file("config.json"), folder.file("in.safetensors"), folder.file("out.safetensors"));
  REQUIRE(std::system(command.c_str()) == 0);
  return read_tensor_file(folder.file("out.safetensors"));
}

double relative_error(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - wanted[i]) * (found[i] - wanted[i]);
    size += wanted[i] * wanted[i];
  }
  return std::sqrt(difference) / (std::sqrt(size) + 1e-30);
}

void check_close(const std::string& what, const Tensor& found, const Tensor& wanted, double tolerance) {
  const double error = relative_error(found.data, wanted.data);
  CHECK_MESSAGE(error <= tolerance, what << ": relative error " << error << " above " << tolerance);
}

}  // namespace stepc::test
