#include "ir/support/result.h"

namespace stepc {

std::string Error::text() const {
  if (where.file.empty()) return message;
  if (where.line == 0) return fmt::format("{}: {}", where.file, message);
  return fmt::format("{}:{}:{}: {}", where.file, where.line, where.column, message);
}

}  // namespace stepc
