// Configurations as text: JSON objects and key=value, read with errors that name the field.
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "ir/text/names.h"
#include "model/config.h"
#include "model/config_fields.h"

namespace stepc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPresetKey = "preset";

std::string unknown_field(std::string_view key) {
  std::vector<std::string_view> names{kPresetKey};
  const Config config;
  visit_fields(config, [&](std::string_view name, const auto&) { names.push_back(name); });
  return fmt::format("unknown field '{}'{}", key, did_you_mean(key, names));
}

// What a field expects, or nullopt when `value` was one and is now in `field`.
using Expected = std::optional<std::string_view>;

Expected read(const Json& value, int64_t& field) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits) return "an integer";
  field = value.get<int64_t>();
  return std::nullopt;
}

Expected read(const Json& value, double& field) {
  if (!value.is_number()) return "a number";
  field = value.get<double>();
  return std::nullopt;
}

Expected read(const Json& value, Schedule& field) {
  for (Schedule schedule : {Schedule::constant, Schedule::cosine})
    if (value.is_string() && value.get<std::string>() == schedule_name(schedule)) {
      field = schedule;
      return std::nullopt;
    }
  return "\"constant\" or \"cosine\"";
}

// Sets one field; the message of a failure without its position.
std::optional<std::string> set_field(Config& config, std::string_view key, const Json& value) {
  bool known = false;
  Expected expected;
  visit_fields(config, [&](std::string_view name, auto& field) {
    if (name != key) return;
    known = true;
    expected = read(value, field);
  });
  if (!known) return unknown_field(key);
  if (!expected) return std::nullopt;
  return fmt::format("{}: expected {}, found {}", key, *expected, value.dump());
}

Location position(std::string_view text, size_t offset, std::string file_name) {
  Location where{std::move(file_name), 1, 1};
  for (char c : text.substr(0, offset)) {
    where.column = c == '\n' ? 1 : where.column + 1;
    where.line += c == '\n';
  }
  return where;
}

// Fields are unique and hold no escapes, so the quoted name's first place is the field's.
Location field_position(std::string_view text, std::string_view key, std::string file_name) {
  const size_t offset = text.find(fmt::format("\"{}\"", key));
  return position(text, offset == std::string_view::npos ? 0 : offset, std::move(file_name));
}

Result<Json> parse_object(std::string_view text, const std::string& file_name) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    const size_t offset = error.byte > 0 ? error.byte - 1 : 0;
    return user_error_at(position(text, offset, file_name), "expected JSON, found a syntax error here");
  }
  if (!json.is_object())
    return user_error_at(position(text, 0, file_name), "expected a JSON object, found {}", json.type_name());
  return json;
}

Json number_or_text(std::string_view text) {
  int64_t integer = 0;
  const char* end = text.data() + text.size();
  if (const auto [stop, error] = std::from_chars(text.data(), end, integer); error == std::errc() && stop == end)
    return integer;
  double real = 0;
  if (const auto [stop, error] = std::from_chars(text.data(), end, real); error == std::errc() && stop == end)
    return real;
  return std::string(text);
}

}  // namespace

Result<Config> parse_config(std::string_view json, std::string file_name, Config base) {
  STEPC_ASSIGN(const Json object, parse_object(json, file_name));
  if (const auto preset = object.find(kPresetKey); preset != object.end()) {
    const Location where = field_position(json, kPresetKey, file_name);
    if (!preset->is_string()) return user_error_at(where, "preset: expected a string, found {}", preset->dump());
    auto found = preset_config(preset->get<std::string>());
    if (!found) return user_error_at(where, "{}", found.error().message);
    base = *std::move(found);
  }
  for (const auto& [key, value] : object.items()) {
    if (key == kPresetKey) continue;
    if (const auto message = set_field(base, key, value))
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
  Json json;
  json[std::string(kPresetKey)] = config.preset;
  visit_fields(config, [&](std::string_view name, const auto& field) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Schedule>)
      json[std::string(name)] = schedule_name(field);
    else
      json[std::string(name)] = field;
  });
  return json.dump(2) + "\n";
}

}  // namespace stepc
