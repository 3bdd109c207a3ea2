// Tokens of both IRs' texts, and a reader over them whose errors all read alike:
// "file:3:17: expected ']' after a shape, found ','". Comments run from // to the end of the line; line
// breaks mean nothing else. Any bytes whatever may be read: what is no token is reported, not skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/support/result.h"

namespace stepc {

struct Token {
  enum class Kind : uint8_t {
    word,         // letters, digits, '_', with single dots inside: program, f32, wgmma.wait
    value,        // %name
    symbol,       // @name
    number,       // 12, 0.5, 1e-5; a sign is a token of its own
    string,       // "text"
    punctuation,  // "->" or one character
    end,
    invalid,
  };
  Kind kind = Kind::end;
  std::string_view text;  // without sigil or quotes, escapes of strings as written; of `invalid`: what is wrong
  int line = 1;
  int column = 1;
};

// The text of the `invalid` token of a lone '%', which kernel IR's indices read as an operator.
inline constexpr std::string_view kLonePercent = "'%' without a name";

// The tokens of `text`, the last of kind `end`. They view into it.
std::vector<Token> tokenize(std::string_view text);

class TokenReader {
 public:
  TokenReader(std::string_view text, std::string file_name);

  const Token& peek(size_t ahead = 0) const;
  Token take();
  bool at_end() const { return peek().kind == Token::Kind::end; }
  // Whether the next token is this word or punctuation; accept() takes it then.
  bool at(std::string_view text) const;
  bool accept(std::string_view text);
  // "expected ']' after a shape, found ','" unless `text` is next, which is taken.
  Status expect(std::string_view text, std::string_view after);

  // The next token if it is of that kind; `what` names it in the error: "expected a value, found ...".
  Result<Token> expect_kind(Token::Kind kind, std::string_view what);
  Result<int64_t> integer(std::string_view what);  // with an optional '-'
  Result<double> real(std::string_view what);      // inf and nan too
  Result<std::string> string(std::string_view what);

  Location location(const Token& token) const { return {file_name_, token.line, token.column}; }
  Location here() const { return location(peek()); }
  // The error "expected `what`, found <the next token>".
  tl::unexpected<Error> expected(std::string_view what) const;

 private:
  std::string file_name_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace stepc
