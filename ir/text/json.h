// JSON as plain values, for plans, bundles, checkpoints and metrics. Objects keep their order, so the same
// value gives the same text. Reading is strict (UTF-8, no duplicate keys, nothing after the value), integers
// that do not fit int64 are refused, and errors name the file and the place inside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/support/result.h"

namespace stepc {

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;
  using Variant = std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object>;

  JsonValue() : value_(nullptr) {}
  JsonValue(bool value) : value_(value) {}                           // NOLINT: implicit by design
  JsonValue(int value) : value_(int64_t{value}) {}                   // NOLINT
  JsonValue(int64_t value) : value_(value) {}                        // NOLINT
  JsonValue(double value) : value_(value) {}                         // NOLINT
  JsonValue(std::string value) : value_(std::move(value)) {}         // NOLINT
  JsonValue(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  JsonValue(const char* value) : value_(std::string(value)) {}       // NOLINT
  JsonValue(Array value) : value_(std::move(value)) {}               // NOLINT
  JsonValue(Object value) : value_(std::move(value)) {}              // NOLINT
  template <class T>
  static JsonValue list(const std::vector<T>& items) {
    return JsonValue(Array(items.begin(), items.end()));
  }

  const Variant& value() const { return value_; }
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }
  // Appends to an array, or under `key` to an object (a null becomes one).
  void append(std::string key, JsonValue item);
  void add(std::string key, JsonValue item) { append(std::move(key), std::move(item)); }

 private:
  Variant value_;
};

// What fits into `width` columns stands on one line, the rest is indented by two. Doubles are written with
// the fewest digits that read back the same; not-finite ones as null.
std::string json_text(const JsonValue& value, int width = 110);
Result<JsonValue> parse_json(std::string_view text, const std::string& file);

// A value together with its place, for reading with errors such as
//   plan.json: programs[0].steps[3].grid: expected an integer from 0 to 7, found "x"
class JsonCursor {
 public:
  JsonCursor(const JsonValue& value, std::string file) : value_(&value), file_(std::move(file)) {}

  Result<JsonCursor> member(std::string_view key) const;  // must exist
  bool has(std::string_view key) const;
  Result<std::vector<JsonCursor>> items() const;
  Result<std::vector<std::pair<std::string, JsonCursor>>> members() const;
  // An object with these keys and no others.
  Status expect_keys(const std::vector<std::string_view>& keys) const;

  Result<int64_t> integer(int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;
  Result<double> number() const;
  Result<bool> boolean() const;
  Result<std::string> string() const;
  Result<std::vector<int64_t>> integers(int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;

  // The same for the member `key`.
  Result<int64_t> integer(std::string_view key, int64_t low = INT64_MIN, int64_t high = INT64_MAX) const;
  Result<std::string> string(std::string_view key) const;

  // "file: place: expected <expected>, found <this value>".
  tl::unexpected<Error> mismatch(std::string_view expected) const;
  tl::unexpected<Error> error(std::string_view message) const;
  const JsonValue& value() const { return *value_; }

 private:
  JsonCursor(const JsonValue& value, std::string file, std::string place)
      : value_(&value), file_(std::move(file)), place_(std::move(place)) {}

  const JsonValue* value_;
  std::string file_;
  std::string place_;
};

}  // namespace stepc
