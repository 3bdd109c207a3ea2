// nlohmann's parser feeds a builder of our own values, which notices duplicate keys.
#include "ir/text/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace stepc {
namespace {

using Json = nlohmann::json;

// Receives the parser's events; `open_` are the containers around the current place.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view text) : text_(text) {}

  bool null() override { return put({}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) return fail(fmt::format("{} does not fit 64 bits", value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) override {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    if (integer || !std::isfinite(value)) return fail(fmt::format("{} does not fit 64 bits", text));
    return put(value);
  }
  bool string(std::string& value) override { return put(JsonValue(std::move(value))); }
  bool binary(Json::binary_t&) override { return fail("binary value"); }
  bool start_object(size_t) override { return open(JsonValue(JsonValue::Object{})); }
  bool start_array(size_t) override { return open(JsonValue(JsonValue::Array{})); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    for (const auto& entry : *open_.back().value.as<JsonValue::Object>())
      if (entry.first == key) return fail(fmt::format("key \"{}\" appears twice", key));
    open_.back().key = std::move(key);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    position_ = position;
    return fail(position > text_.size() ? "expected more JSON, found the end" : "malformed JSON");
  }

  std::string message;
  size_t position_ = 0;  // counts from 1; 0: unknown
  JsonValue result;

 private:
  struct Open {
    JsonValue value;
    std::string key;  // of the member being read
  };

  bool fail(std::string why) {
    message = std::move(why);
    return false;
  }
  bool open(JsonValue value) {
    if (open_.size() >= 64) return fail("nested more than 64 deep");
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    return put(std::move(value));
  }
  bool put(JsonValue value) {
    if (open_.empty()) {
      result = std::move(value);
      return true;
    }
    open_.back().value.append(std::move(open_.back().key), std::move(value));
    return true;
  }

  std::string_view text_;
  std::vector<Open> open_;
};

Location location_of(std::string_view text, size_t position, const std::string& file) {
  if (position == 0) return {file, 0, 0};
  const std::string_view before = text.substr(0, std::min(position - 1, text.size()));
  const size_t line_start = before.rfind('\n');
  const size_t column = line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1;
  return {file, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1, static_cast<int>(column) + 1};
}

std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string double_text(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  // A double that happens to be whole stays a double when it is read back.
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

struct Printer {
  int width;

  // The value on one line.
  std::string flat(const JsonValue& value) const {
    if (const auto* flag = value.as<bool>()) return *flag ? "true" : "false";
    if (const auto* integer = value.as<int64_t>()) return std::to_string(*integer);
    if (const auto* real = value.as<double>()) return double_text(*real);
    if (const auto* text = value.as<std::string>()) return quoted(*text);
    std::string line;
    if (const auto* array = value.as<JsonValue::Array>()) {
      for (const JsonValue& item : *array) line += (line.empty() ? "" : ", ") + flat(item);
      return "[" + line + "]";
    }
    if (const auto* object = value.as<JsonValue::Object>()) {
      for (const auto& [key, item] : *object) line += (line.empty() ? "" : ", ") + quoted(key) + ": " + flat(item);
      return "{" + line + "}";
    }
    return "null";
  }

  std::string print(const JsonValue& value, int indent) const {
    std::string line = flat(value);
    if (static_cast<int>(line.size()) + indent <= width) return line;
    const std::string next(static_cast<size_t>(indent) + 2, ' ');
    std::string body;
    if (const auto* array = value.as<JsonValue::Array>()) {
      if (std::all_of(array->begin(), array->end(), [](const JsonValue& v) { return v.as<int64_t>(); })) return line;
      for (const JsonValue& item : *array) body += (body.empty() ? "" : ",\n") + next + print(item, indent + 2);
      return "[\n" + body + "\n" + next.substr(2) + "]";
    }
    if (const auto* object = value.as<JsonValue::Object>()) {
      for (const auto& [key, item] : *object)
        body += (body.empty() ? "" : ",\n") + next + quoted(key) + ": " + print(item, indent + 2);
      return "{\n" + body + "\n" + next.substr(2) + "}";
    }
    return line;
  }
};

}  // namespace

void JsonValue::append(std::string key, JsonValue item) {
  if (auto* array = std::get_if<Array>(&value_)) {
    array->push_back(std::move(item));
    return;
  }
  if (!std::holds_alternative<Object>(value_)) value_ = Object{};
  std::get<Object>(value_).emplace_back(std::move(key), std::move(item));
}

std::string json_text(const JsonValue& value, int width) { return Printer{width}.print(value, 0); }

Result<JsonValue> parse_json(std::string_view text, const std::string& file) {
  Builder builder(text);
  if (Json::sax_parse(text, &builder)) return std::move(builder.result);
  return user_error_at(location_of(text, builder.position_, file), "{}", builder.message);
}

tl::unexpected<Error> JsonCursor::error(std::string_view message) const {
  if (place_.empty()) return user_error_at({file_, 0, 0}, "{}", message);
  return user_error_at({file_, 0, 0}, "{}: {}", place_, message);
}

tl::unexpected<Error> JsonCursor::mismatch(std::string_view expected) const {
  std::string found = json_text(*value_, std::numeric_limits<int>::max());
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  return error(fmt::format("expected {}, found {}", expected, found));
}

bool JsonCursor::has(std::string_view key) const {
  const auto* object = value_->as<JsonValue::Object>();
  return object && std::any_of(object->begin(), object->end(), [&](const auto& entry) { return entry.first == key; });
}

Result<JsonCursor> JsonCursor::member(std::string_view key) const {
  const auto* object = value_->as<JsonValue::Object>();
  if (!object) return mismatch(fmt::format("an object with \"{}\"", key));
  for (const auto& [name, item] : *object)
    if (name == key) return JsonCursor(item, file_, place_.empty() ? name : place_ + "." + name);
  return error(fmt::format("expected the key \"{}\", found none", key));
}

Result<std::vector<JsonCursor>> JsonCursor::items() const {
  const auto* array = value_->as<JsonValue::Array>();
  if (!array) return mismatch("an array");
  std::vector<JsonCursor> cursors;
  for (size_t i = 0; i < array->size(); ++i)
    cursors.push_back(JsonCursor((*array)[i], file_, fmt::format("{}[{}]", place_, i)));
  return cursors;
}

Result<std::vector<std::pair<std::string, JsonCursor>>> JsonCursor::members() const {
  const auto* object = value_->as<JsonValue::Object>();
  if (!object) return mismatch("an object");
  std::vector<std::pair<std::string, JsonCursor>> cursors;
  for (const auto& [name, item] : *object)
    cursors.emplace_back(name, JsonCursor(item, file_, place_.empty() ? name : place_ + "." + name));
  return cursors;
}

Status JsonCursor::expect_keys(const std::vector<std::string_view>& keys) const {
  const auto* object = value_->as<JsonValue::Object>();
  if (!object) return mismatch("an object");
  for (const auto& entry : *object)
    if (std::find(keys.begin(), keys.end(), entry.first) == keys.end())
      return error(fmt::format("unknown key \"{}\"", entry.first));
  for (std::string_view key : keys) STEPC_TRY(member(key));
  return {};
}

Result<int64_t> JsonCursor::integer(int64_t low, int64_t high) const {
  const auto* integer = value_->as<int64_t>();
  if (integer && *integer >= low && *integer <= high) return *integer;
  if (low == INT64_MIN && high == INT64_MAX) return mismatch("an integer");
  if (high == INT64_MAX) return mismatch(fmt::format("an integer of at least {}", low));
  return mismatch(fmt::format("an integer from {} to {}", low, high));
}

Result<double> JsonCursor::number() const {
  if (const auto* real = value_->as<double>()) return *real;
  if (const auto* integer = value_->as<int64_t>()) return static_cast<double>(*integer);
  return mismatch("a number");
}

Result<bool> JsonCursor::boolean() const {
  if (const auto* flag = value_->as<bool>()) return *flag;
  return mismatch("true or false");
}

Result<std::string> JsonCursor::string() const {
  if (const auto* text = value_->as<std::string>()) return *text;
  return mismatch("a string");
}

Result<std::vector<int64_t>> JsonCursor::integers(int64_t low, int64_t high) const {
  STEPC_ASSIGN(const auto cursors, items());
  std::vector<int64_t> values;
  for (const JsonCursor& cursor : cursors) {
    STEPC_ASSIGN(const int64_t value, cursor.integer(low, high));
    values.push_back(value);
  }
  return values;
}

Result<int64_t> JsonCursor::integer(std::string_view key, int64_t low, int64_t high) const {
  STEPC_ASSIGN(const JsonCursor cursor, member(key));
  return cursor.integer(low, high);
}

Result<std::string> JsonCursor::string(std::string_view key) const {
  STEPC_ASSIGN(const JsonCursor cursor, member(key));
  return cursor.string();
}

}  // namespace stepc
