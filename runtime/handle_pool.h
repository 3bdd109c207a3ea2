// Values under small numbers that are given out again once they are free.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "ir/support/check.h"

namespace stepc {

template <class Handle, class Value>
class HandlePool {
 public:
  Handle put(Value value) {
    if (free_.empty()) {
      free_.push_back(values_.size());
      values_.emplace_back();
      taken_.push_back(false);
    }
    const size_t at = free_.back();
    free_.pop_back();
    values_[at] = std::move(value);
    taken_[at] = true;
    return static_cast<Handle>(at);
  }
  Value take(Handle handle) {
    const size_t at = index(handle);
    taken_[at] = false;
    free_.push_back(at);
    return std::move(values_[at]);
  }
  Value& operator[](Handle handle) { return values_[index(handle)]; }

 private:
  size_t index(Handle handle) const {
    const auto at = static_cast<size_t>(handle);
    STEPC_CHECK(at < taken_.size() && taken_[at], "handle {} is not in use", at);
    return at;
  }

  std::vector<Value> values_;
  std::vector<bool> taken_;
  std::vector<size_t> free_;
};

}  // namespace stepc
