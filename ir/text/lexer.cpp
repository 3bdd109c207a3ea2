#include "ir/text/lexer.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace stepc {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next() {
    skip_blanks();
    Token token{Token::Kind::end, {}, line_, column_};
    if (position_ >= text_.size()) return token;
    const char c = text_[position_];
    if (c == '%' || c == '@') return sigil_name(token);
    if (c == '"') return quoted(token);
    if (is_digit(c)) return finish(token, Token::Kind::number, number_length());
    if (is_name_char(c)) return finish(token, Token::Kind::word, name_length(0));
    if (text_.substr(position_, 2) == "->") return finish(token, Token::Kind::punctuation, 2);
    if (c > 0x20 && c < 0x7f) return finish(token, Token::Kind::punctuation, 1);
    finish(token, Token::Kind::invalid, 1);
    token.text = "a byte that is no part of the language";
    return token;
  }

 private:
  char peek(size_t ahead) const { return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0'; }

  void advance(size_t count) {
    for (; count > 0; --count, ++position_) {
      const bool line_break = text_[position_] == '\n';
      line_ += line_break;
      column_ = line_break ? 1 : column_ + 1;
    }
  }

  void skip_blanks() {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        advance(1);
      else if (text_.substr(position_, 2) == "//")
        advance(std::min(text_.find('\n', position_), text_.size()) - position_);
      else
        return;
    }
  }

  Token& finish(Token& token, Token::Kind kind, size_t length) {
    token.kind = kind;
    token.text = text_.substr(position_, length);
    advance(length);
    return token;
  }

  // Name characters with single dots between them, from `start` on.
  size_t name_length(size_t start) const {
    size_t length = start;
    while (is_name_char(peek(length)) || (length > start && peek(length) == '.' && is_name_char(peek(length + 1))))
      ++length;
    return length;
  }

  size_t digits_end(size_t from) const {
    while (is_digit(peek(from))) ++from;
    return from;
  }

  size_t number_length() const {
    size_t length = digits_end(0);
    if (peek(length) == '.' && is_digit(peek(length + 1))) length = digits_end(length + 1);
    if (peek(length) != 'e') return length;
    const size_t sign = peek(length + 1) == '-' || peek(length + 1) == '+';
    return is_digit(peek(length + 1 + sign)) ? digits_end(length + 1 + sign) : length;
  }

  Token& sigil_name(Token& token) {
    const bool is_value = text_[position_] == '%';
    const size_t length = name_length(1);
    finish(token, is_value ? Token::Kind::value : Token::Kind::symbol, length);
    token.text.remove_prefix(1);
    if (length > 1) return token;
    token.kind = Token::Kind::invalid;
    token.text = is_value ? kLonePercent : "'@' without a name";
    return token;
  }

  Token& quoted(Token& token) {
    size_t length = 1;
    for (char c = peek(length); position_ + length < text_.size() && c != '"' && c != '\n'; c = peek(length))
      length += c == '\\' && position_ + length + 1 < text_.size() ? 2 : 1;
    if (peek(length) != '"') {
      finish(token, Token::Kind::invalid, length);
      token.text = "a string without its closing quote";
      return token;
    }
    finish(token, Token::Kind::string, length + 1);
    token.text = token.text.substr(1, length - 1);
    return token;
  }

  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1;
  int column_ = 1;
};

// What an error shows of a token. Long ones are cut.
std::string found_text(const Token& token) {
  constexpr size_t kShownChars = 40;
  const std::string text(token.text.substr(0, kShownChars));
  const std::string shown = token.text.size() > kShownChars ? text + "..." : text;
  switch (token.kind) {
    case Token::Kind::value: return "%" + shown;
    case Token::Kind::symbol: return "@" + shown;
    case Token::Kind::string: return "\"" + shown + "\"";
    case Token::Kind::end: return "the end of the file";
    case Token::Kind::invalid: return shown;
    case Token::Kind::word:
    case Token::Kind::number:
    case Token::Kind::punctuation: break;
  }
  return "'" + shown + "'";
}

std::optional<int> hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

// The string that `raw` is an escaped form of; nullopt if an escape is unknown.
std::optional<std::string> unescape(std::string_view raw) {
  std::string text;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\') {
      text += raw[i];
      continue;
    }
    const char c = ++i < raw.size() ? raw[i] : '\0';
    if (c == '"' || c == '\\')
      text += c;
    else if (c == 'n')
      text += '\n';
    else if (c == 'x' && i + 2 < raw.size() && hex_digit(raw[i + 1]) && hex_digit(raw[i + 2])) {
      text += static_cast<char>(*hex_digit(raw[i + 1]) * 16 + *hex_digit(raw[i + 2]));
      i += 2;
    } else {
      return std::nullopt;
    }
  }
  return text;
}

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  Lexer lexer(text);
  std::vector<Token> tokens;
  do tokens.push_back(lexer.next());
  while (tokens.back().kind != Token::Kind::end);
  return tokens;
}

TokenReader::TokenReader(std::string_view text, std::string file_name)
    : file_name_(std::move(file_name)), tokens_(tokenize(text)) {}

const Token& TokenReader::peek(size_t ahead) const { return tokens_[std::min(next_ + ahead, tokens_.size() - 1)]; }

Token TokenReader::take() {
  const Token token = peek();
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool TokenReader::at(std::string_view text) const {
  const Token& token = peek();
  return (token.kind == Token::Kind::word || token.kind == Token::Kind::punctuation) && token.text == text;
}

bool TokenReader::accept(std::string_view text) {
  if (!at(text)) return false;
  take();
  return true;
}

tl::unexpected<Error> TokenReader::expected(std::string_view what) const {
  return user_error_at(here(), "expected {}, found {}", what, found_text(peek()));
}

Status TokenReader::expect(std::string_view text, std::string_view after) {
  if (accept(text)) return {};
  return expected(fmt::format("'{}' after {}", text, after));
}

Result<Token> TokenReader::expect_kind(Token::Kind kind, std::string_view what) {
  if (peek().kind != kind) return expected(what);
  return take();
}

Result<int64_t> TokenReader::integer(std::string_view what) {
  const size_t sign = at("-");
  const Token number = peek(sign);
  const std::string text = (sign ? "-" : "") + std::string(number.text);
  if (number.kind != Token::Kind::number) return expected(what);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return user_error_at(here(), "expected {} of 64 bits, found {}", what, found_text(number));
  if (end != text.data() + text.size()) return expected(what);
  for (size_t i = 0; i <= sign; ++i) take();
  return value;
}

Result<double> TokenReader::real(std::string_view what) {
  const size_t sign = at("-");
  const Token number = peek(sign);
  double value = 0;
  const char* const last = number.text.data() + number.text.size();
  if (number.kind == Token::Kind::word && number.text == "inf")
    value = std::numeric_limits<double>::infinity();
  else if (number.kind == Token::Kind::word && number.text == "nan")
    value = std::numeric_limits<double>::quiet_NaN();
  else if (number.kind != Token::Kind::number)
    return expected(what);
  else if (const auto [end, error] = std::from_chars(number.text.data(), last, value);
           error != std::errc() || end != last)
    return user_error_at(here(), "expected {} that a double can hold, found {}", what, found_text(number));
  for (size_t i = 0; i <= sign; ++i) take();
  return sign ? -value : value;
}

Result<std::string> TokenReader::string(std::string_view what) {
  if (peek().kind != Token::Kind::string) return expected(what);
  std::optional<std::string> text = unescape(peek().text);
  if (!text) return expected(fmt::format("{} with no escapes but \\\", \\\\, \\n and \\xNN", what));
  take();
  return *std::move(text);
}

}  // namespace stepc
