// The tokens of a module with a place among them, and errors there.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/emulator/token.h"

namespace stepc::emulator {

class Reader {
 public:
  Reader(std::vector<Token> tokens, std::string file) : tokens_(std::move(tokens)), file_(std::move(file)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool take(std::string_view text) {
    if (!peek().is(text)) return false;
    next();
    return true;
  }
  Status expect(std::string_view text) {
    if (take(text)) return {};
    return error(fmt::format("found '{}', expected '{}'", peek().text, text));
  }
  Result<std::string_view> take_name() {
    if (peek().kind != TokenKind::name) return error(fmt::format("found '{}', expected a name", peek().text));
    return next().text;
  }
  Result<uint64_t> take_number() {
    uint64_t value = 0;
    if (peek().kind != TokenKind::number || !number_value(peek().text, &value))
      return error(fmt::format("found '{}', expected a number", peek().text));
    next();
    return value;
  }
  void skip_line() {
    const uint32_t line = peek().line;
    while (peek().kind != TokenKind::end && peek().line == line) next();
  }
  tl::unexpected<Error> error(const std::string& message) const { return error_at(peek(), message); }
  tl::unexpected<Error> error_at(const Token& at, const std::string& message) const {
    return user_error_at({file_, static_cast<int>(at.line), static_cast<int>(at.column)}, "{}", message);
  }
  size_t place() const { return at_; }
  std::string text_between(size_t from, size_t to) const {
    std::string text;
    for (size_t i = from; i < to; ++i) text += std::string(tokens_[i].text) + (tokens_[i].is(",") ? " " : "");
    return text;
  }

 private:
  std::vector<Token> tokens_;
  std::string file_;
  size_t at_ = 0;
};

}  // namespace stepc::emulator
