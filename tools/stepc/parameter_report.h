// Every parameter with what is kept of it and in which dtype, read from a plan instead of from what was intended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/plan/plan.h"
#include "ir/text/json.h"
#include "model/config.h"

namespace stepc {

struct ParameterRow {
  std::string name;
  TensorType type;
  std::optional<Dtype> gradient;    // nullopt: it is nowhere in memory, and no program was given that has it
  bool gradient_is_stored = false;  // false: it exists in the kernel that uses it alone
  std::vector<Dtype> moments;
};

// In order of the parameter table. `plan` is of a training program; `fused` is the program that it was made from, or
// nullptr where only the plan is left.
std::vector<ParameterRow> parameter_rows(const ModelConfig& model, const ModuleLayout& layout, const Plan& plan,
                                         const Program* fused);

// "dtypes: parameters 50 bf16 + 37 f32; gradients 87 f32, 13 of them stored; moments 174 f32"
std::string dtype_summary(const std::vector<ParameterRow>& rows);
// A line for each parameter, then the summary.
std::string parameter_table_text(const std::vector<ParameterRow>& rows);
// {"parameters": {"bf16": 50, "f32": 37}, "gradients": ..., "gradients_stored": 62, "moments": ...}
JsonValue dtype_json(const std::vector<ParameterRow>& rows);

}  // namespace stepc
