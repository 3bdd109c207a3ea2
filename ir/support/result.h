// Errors as values. A mistake of the user's is an `Error` that says where, what was found and what
// was expected; a mistake of ours is a failed STEPC_CHECK (check.h). Nothing in stepc throws.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace stepc {

// A position in a text file. Lines and columns count from 1; line 0 means "the file as a whole".
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  bool operator==(const Location&) const = default;
};

struct Error {
  enum class Kind {
    user,    // bad input: exit code 2
    system,  // file system, driver, memory: exit code 1
  };
  Kind kind = Kind::user;
  Location where;  // empty file: no position
  std::string message;

  // "file:line:column: message", leaving out what is not known.
  std::string text() const;
  int exit_code() const { return kind == Kind::user ? 2 : 1; }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

template <class... Args>
tl::unexpected<Error> user_error(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{Error::Kind::user, {}, fmt::format(format, std::forward<Args>(args)...)});
}

template <class... Args>
tl::unexpected<Error> user_error_at(Location where, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{Error::Kind::user, std::move(where), fmt::format(format, std::forward<Args>(args)...)});
}

template <class... Args>
tl::unexpected<Error> system_error(fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected(Error{Error::Kind::system, {}, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace stepc

// Returns the error of `expression` from the enclosing function, if it has one.
#define STEPC_TRY(expression)                                                                                    \
  do {                                                                                                           \
    if (auto stepc_status = (expression); !stepc_status) return tl::unexpected(std::move(stepc_status).error()); \
  } while (false)

#define STEPC_CONCAT_(a, b) a##b
#define STEPC_CONCAT(a, b) STEPC_CONCAT_(a, b)

// `STEPC_ASSIGN(auto x, f());` binds x to f()'s value or returns its error.
#define STEPC_ASSIGN(declaration, expression)                                        \
  auto STEPC_CONCAT(stepc_result_, __LINE__) = (expression);                         \
  if (!STEPC_CONCAT(stepc_result_, __LINE__))                                        \
    return tl::unexpected(std::move(STEPC_CONCAT(stepc_result_, __LINE__)).error()); \
  declaration = std::move(*STEPC_CONCAT(stepc_result_, __LINE__))
