// Configurations as text: JSON objects and key=value, read with errors that name the field.
#include <charconv>
#include <limits>
#include <optional>

#include "ir/text/json.h"
#include "ir/text/names.h"
#include "model/config.h"
#include "model/config_fields.h"

namespace stepc {
namespace {

constexpr std::string_view kPresetKey = "preset";

std::string unknown_field(std::string_view key) {
  std::vector<std::string_view> names{kPresetKey};
  const Config config;
  visit_fields(config, [&](std::string_view name, const auto&) { names.push_back(name); });
  return fmt::format("unknown field '{}'{}", key, did_you_mean(key, names));
}

std::string one_line(const JsonValue& value) {
  std::string text = json_text(value, std::numeric_limits<int>::max());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// What a field expects, or nullopt when `value` was one and is now in `field`.
using Expected = std::optional<std::string_view>;

Expected read(const JsonValue& value, int64_t& field) {
  if (!value.as<int64_t>()) return "an integer";
  field = *value.as<int64_t>();
  return std::nullopt;
}

Expected read(const JsonValue& value, double& field) {
  if (!value.as<double>() && !value.as<int64_t>()) return "a number";
  field = value.as<double>() ? *value.as<double>() : static_cast<double>(*value.as<int64_t>());
  return std::nullopt;
}

// One of `choices` by its name.
template <class Choice>
Expected read_choice(const JsonValue& value, Choice& field, std::initializer_list<Choice> choices,
                     std::string_view (*name)(Choice), std::string_view expected) {
  for (Choice choice : choices)
    if (value.as<std::string>() && *value.as<std::string>() == name(choice)) {
      field = choice;
      return std::nullopt;
    }
  return expected;
}

Expected read(const JsonValue& value, Schedule& field) {
  return read_choice(value, field, {Schedule::constant, Schedule::cosine}, schedule_name, "\"constant\" or \"cosine\"");
}

Expected read(const JsonValue& value, RoutingMode& field) {
  return read_choice(value, field, {RoutingMode::own, RoutingMode::equal}, routing_mode_name, "\"own\" or \"equal\"");
}

Expected read(const JsonValue& value, PrecisionPolicy& field) {
  return read_choice(value, field, {PrecisionPolicy::bf16, PrecisionPolicy::fp32}, precision_policy_name,
                     "\"bf16\" or \"fp32\"");
}

Expected read(const JsonValue& value, ExpertRows& field) {
  return read_choice(value, field, {ExpertRows::counted, ExpertRows::all}, expert_rows_name, "\"counted\" or \"all\"");
}

Expected read(const JsonValue& value, AttentionGradient& field) {
  return read_choice(value, field, {AttentionGradient::deterministic, AttentionGradient::atomic},
                     attention_gradient_name, "\"deterministic\" or \"atomic\"");
}

// Sets one field; the message of a failure without its position.
std::optional<std::string> set_field(Config& config, std::string_view key, const JsonValue& value) {
  bool known = false;
  Expected expected;
  visit_fields(config, [&](std::string_view name, auto& field) {
    if (name != key) return;
    known = true;
    expected = read(value, field);
  });
  if (!known) return unknown_field(key);
  if (!expected) return std::nullopt;
  return fmt::format("{}: expected {}, found {}", key, *expected, one_line(value));
}

// Keys are unique, so the quoted name followed by a colon is the field's place.
Location field_position(std::string_view text, std::string_view key, std::string file_name) {
  const std::string quoted = fmt::format("\"{}\"", key);
  size_t offset = text.find(quoted);
  while (offset != std::string_view::npos) {
    const size_t next = text.find_first_not_of(" \t\r\n", offset + quoted.size());
    if (next != std::string_view::npos && text[next] == ':') break;
    offset = text.find(quoted, offset + 1);
  }
  Location where{std::move(file_name), 1, 1};
  for (char c : text.substr(0, offset == std::string_view::npos ? 0 : offset)) {
    where.column = c == '\n' ? 1 : where.column + 1;
    where.line += c == '\n';
  }
  return where;
}

JsonValue number_or_text(std::string_view text) {
  int64_t integer = 0;
  const char* end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, integer); error == std::errc() && stop == end)
    return JsonValue(integer);
  double real = 0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, real); error == std::errc() && stop == end)
    return JsonValue(real);
  return JsonValue(text);
}

}  // namespace

Result<Config> parse_config(std::string_view json, std::string file_name, Config base) {
  STEPC_ASSIGN(const JsonValue value, parse_json(json, file_name));
  const auto* object = value.as<JsonValue::Object>();
  if (!object) return user_error_at({file_name, 1, 1}, "expected a JSON object, found {}", one_line(value));
  for (const auto& [key, item] : *object) {
    if (key != kPresetKey) continue;
    const Location where = field_position(json, key, file_name);
    const auto* name = item.as<std::string>();
    if (!name) return user_error_at(where, "preset: expected a name, found {}", one_line(item));
    auto preset = preset_config(*name);
    if (!preset) return user_error_at(where, "{}", preset.error().message);
    base = *std::move(preset);
  }
  for (const auto& [key, item] : *object) {
    if (key == kPresetKey) continue;
    if (const auto message = set_field(base, key, item))
      return user_error_at(field_position(json, key, file_name), "{}", *message);
  }
  return base;
}

Status override_config(Config& config, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) return user_error("expected key=value, found '{}'", assignment);
  const std::string_view key = assignment.substr(0, equals);
  if (const auto message = set_field(config, key, number_or_text(assignment.substr(equals + 1))))
    return user_error("{}", *message);
  return {};
}

std::string config_json(const Config& config) {
  JsonValue object;
  object.append(std::string(kPresetKey), config.preset);
  visit_fields(config, [&](std::string_view name, const auto& field) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, Schedule>)
      object.append(std::string(name), schedule_name(field));
    else if constexpr (std::is_same_v<Field, RoutingMode>)
      object.append(std::string(name), routing_mode_name(field));
    else if constexpr (std::is_same_v<Field, PrecisionPolicy>)
      object.append(std::string(name), precision_policy_name(field));
    else if constexpr (std::is_same_v<Field, ExpertRows>)
      object.append(std::string(name), expert_rows_name(field));
    else if constexpr (std::is_same_v<Field, AttentionGradient>)
      object.append(std::string(name), attention_gradient_name(field));
    else
      object.append(std::string(name), field);
  });
  return json_text(object, 0);
}

}  // namespace stepc
