// Programs of one op each: every op of the table that becomes code, in every combination of dtypes that its shape rule
// takes, on tensors with a dimension of `tokens`.
#pragma once

#include "tests/support/run_group.h"

namespace stepc::test {

struct OpCase {
  Op op = Op::neg;
  GroupCase program;  // its `schedule` is the fuser's to choose
  // Changes a random input, by name.
  std::function<void(const std::string&, Tensor&)> adjust = nullptr;
};

std::vector<OpCase> op_cases(int64_t tokens);

// Of one family; op_cases is all of them.
std::vector<OpCase> leaf_cases(int64_t tokens);
std::vector<OpCase> pointwise_cases(int64_t tokens);
std::vector<OpCase> view_cases(int64_t tokens);
std::vector<OpCase> reduction_cases(int64_t tokens);
std::vector<OpCase> product_cases(int64_t tokens);
std::vector<OpCase> row_cases(int64_t tokens);
std::vector<OpCase> attention_cases(int64_t tokens);
std::vector<OpCase> route_cases(int64_t tokens);

}  // namespace stepc::test
