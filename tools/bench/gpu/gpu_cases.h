// What is measured on a GPU: the contractions, the attention and the rows of logits of moe-4b's step at 16 sequences of
// 2048 tokens, and a cube. A case is a program of one or few groups, what PyTorch is asked to do instead, and samples
// of the result in double precision.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph/builder.h"

namespace stepc::bench {

// The case's inputs as numbers, and elements of its results by flat index.
class GpuData {
 public:
  virtual ~GpuData() = default;
  virtual double input(std::string_view name, int64_t index) const = 0;
  virtual Result<std::vector<double>> output(std::string_view name, int64_t first, int64_t count) = 0;
};

struct GpuCase {
  std::string name;
  double flops = 0;  // of what PyTorch computes too; attention counts the visible half
  std::function<void(GraphBuilder&)> build;
  std::vector<std::string> requests;  // of PyTorch, the strongest ones that there are; the fastest counts
  double wanted_ratio = 0;            // of PyTorch's speed
  // The largest error of sampled elements, relative to the size of the sums they are.
  std::function<Result<double>(GpuData&)> error;
  double bytes = 0;                  // of memory that must be moved, where that is what takes the time
  bool whole = false;                // all steps are timed, else those of the last phase
  bool updates_apart = false;        // from the products before them
  std::vector<int32_t> filled = {};  // rows of input "a" of each batch that are not zeros, if not all; input "count"
};

std::vector<GpuCase> gpu_cases();

}  // namespace stepc::bench
