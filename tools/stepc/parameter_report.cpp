#include "tools/stepc/parameter_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/graph/print.h"
#include "model/parameters.h"

namespace stepc {
namespace {

// Automatic differentiation calls the gradient of %x d_x, parameters' values have the parameters' names, and passes
// keep the names of values that they keep.
std::string gradient_value(const std::string& parameter) { return "d_" + parameter; }

std::unordered_map<std::string, TensorType> buffers_by_name(const Plan& plan) {
  std::unordered_map<std::string, TensorType> types;
  for (const PlanBuffer& buffer : plan.buffers) types.emplace(buffer.name, buffer.type);
  return types;
}

std::unordered_map<std::string, TensorType> values_by_name(const Program* program) {
  std::unordered_map<std::string, TensorType> types;
  if (!program) return types;
  for (const Value& value : program->values) types.emplace(value.name, value.type);
  return types;
}

// How many there are of each dtype, as text and for JSON.
using Counts = std::map<std::string, int64_t>;

std::string counts_text(const Counts& counts) {
  std::vector<std::string> parts;
  for (const auto& [dtype, count] : counts) parts.push_back(fmt::format("{} {}", count, dtype));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, " + "));
}

struct DtypeCounts {
  Counts parameters, gradients, moments;
  int64_t stored = 0;   // gradients
  int64_t unknown = 0;  // gradients whose dtype the plan does not tell
};

DtypeCounts count_dtypes(const std::vector<ParameterRow>& rows) {
  DtypeCounts counts;
  for (const ParameterRow& row : rows) {
    ++counts.parameters[std::string(dtype_name(row.type.dtype))];
    if (row.gradient) ++counts.gradients[std::string(dtype_name(*row.gradient))];
    counts.unknown += !row.gradient;
    counts.stored += row.gradient_is_stored;
    for (Dtype moment : row.moments) ++counts.moments[std::string(dtype_name(moment))];
  }
  return counts;
}

std::string gradient_text(const ParameterRow& row) {
  if (!row.gradient) return "in kernels";
  return std::string(dtype_name(*row.gradient)) + (row.gradient_is_stored ? "" : " in a kernel");
}

}  // namespace

std::vector<ParameterRow> parameter_rows(const ModelConfig& model, const ModuleLayout& layout, const Plan& plan,
                                         const Program* fused) {
  const auto buffers = buffers_by_name(plan);
  const auto values = values_by_name(fused);
  std::vector<ParameterRow> rows;
  for (const ParameterInfo& parameter : parameter_table(model)) {
    ParameterRow row{parameter.name, parameter.type, {}, false, {}};
    if (const auto* placed = layout.find(parameter.name)) row.type = placed->type;
    for (const std::string& moment : {first_moment_name(parameter.name), second_moment_name(parameter.name)})
      if (const auto* placed = layout.find(moment)) row.moments.push_back(placed->type.dtype);
    const std::string value = gradient_value(parameter.name);
    const auto take = [&](const auto& types, bool is_stored) {
      const auto found = types.find(value);
      if (row.gradient || found == types.end() || found->second.shape != parameter.type.shape) return;
      row.gradient = found->second.dtype;
      row.gradient_is_stored = is_stored;
    };
    if (const auto* placed = layout.find(gradient_name(parameter.name))) {  // accumulated
      row.gradient = placed->type.dtype;
      row.gradient_is_stored = true;
    }
    take(buffers, true);
    take(values, false);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string dtype_summary(const std::vector<ParameterRow>& rows) {
  const DtypeCounts counts = count_dtypes(rows);
  std::string gradients = counts_text(counts.gradients);
  if (counts.unknown > 0)
    gradients += fmt::format(" stored, {} in kernels alone", counts.unknown);
  else if (counts.stored < static_cast<int64_t>(rows.size()))
    gradients += fmt::format(", {} of them stored", counts.stored);
  return fmt::format("dtypes: parameters {}; gradients {}; moments {}\n", counts_text(counts.parameters), gradients,
                     counts_text(counts.moments));
}

std::string parameter_table_text(const std::vector<ParameterRow>& rows) {
  std::string text = fmt::format("{:<24} {:<22} {:>14} {:>6} {:>16} {:>10}\n", "parameter", "shape", "elements",
                                 "dtype", "gradient", "moments");
  for (const ParameterRow& row : rows) {
    std::vector<std::string_view> moments;
    for (Dtype moment : row.moments) moments.push_back(dtype_name(moment));
    text += fmt::format("{:<24} {:<22} {:>14} {:>6} {:>16} {:>10}\n", row.name, shape_text(row.type.shape),
                        numel(row.type.shape), dtype_name(row.type.dtype), gradient_text(row),
                        fmt::format("{}", fmt::join(moments, ", ")));
  }
  return text + dtype_summary(rows);
}

JsonValue dtype_json(const std::vector<ParameterRow>& rows) {
  const DtypeCounts counts = count_dtypes(rows);
  const auto object = [](const Counts& from) {
    JsonValue made{JsonValue::Object{}};
    for (const auto& [dtype, count] : from) made.add(dtype, count);
    return made;
  };
  JsonValue json;
  json.add("parameters", object(counts.parameters));
  json.add("gradients", object(counts.gradients));
  json.add("gradients_stored", counts.stored);
  json.add("moments", object(counts.moments));
  return json;
}

}  // namespace stepc
