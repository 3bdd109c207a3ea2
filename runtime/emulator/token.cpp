#include "runtime/emulator/token.h"

#include <cctype>
#include <charconv>

namespace stepc::emulator {
namespace {

bool starts_name(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}
bool continues_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.'; }

class Tokenizer {
 public:
  Tokenizer(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<std::vector<Token>> run() {
    for (;;) {
      STEPC_TRY(skip_space());
      if (at_ >= text_.size()) break;
      STEPC_TRY(take_token());
    }
    tokens_.push_back({TokenKind::end, {}, line_, column(at_)});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  uint32_t column(size_t at) const { return static_cast<uint32_t>(at - line_start_) + 1; }
  void new_line(size_t at) {
    ++line_;
    line_start_ = at + 1;
  }

  Status skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') new_line(at_);
      if (c == '\0') {  // images end with one
        at_ = text_.size();
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        ++at_;
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        STEPC_TRY(skip_comment());
      } else {
        break;
      }
    }
    return {};
  }

  Status skip_comment() {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) return error("comment without end");
    for (; at_ < end + 2; ++at_)
      if (text_[at_] == '\n') new_line(at_);
    return {};
  }

  Status take_token() {
    const size_t from = at_;
    const char c = text_[at_];
    if (starts_name(c)) {
      ++at_;
      while (continues_name(peek()) || (peek() == ':' && peek(1) == ':' && continues_name(peek(2))))
        at_ += peek() == ':' ? 2 : 1;
      return add(TokenKind::name, from, at_);
    }
    if (std::isdigit(static_cast<unsigned char>(c))) {
      while (continues_name(peek())) ++at_;
      return add(TokenKind::number, from, at_);
    }
    if (c == '"') {
      const size_t end = text_.find('"', at_ + 1);
      if (end == std::string_view::npos) return error("string without end");
      at_ = end + 1;
      return add(TokenKind::string, from + 1, end);
    }
    if (std::string_view(",;:{}[]()<>|@!+-=").find(c) == std::string_view::npos)
      return error(fmt::format("unexpected character '{}'", c));
    ++at_;
    return add(TokenKind::punctuation, from, at_);
  }

  Status add(TokenKind kind, size_t from, size_t to) {
    tokens_.push_back({kind, text_.substr(from, to - from), line_, column(from)});
    return {};
  }

  Status error(const std::string& message) {
    return user_error_at({file_, static_cast<int>(line_), static_cast<int>(column(at_))}, "{}", message);
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  size_t line_start_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view text, const std::string& file) {
  return Tokenizer(text, file).run();
}

bool number_value(std::string_view text, uint64_t* value) {
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(std::tolower(static_cast<unsigned char>(text[1])));
    if (kind == 'x' || kind == 'f' || kind == 'd') base = 16;
    if (kind == 'b') base = 2;
    if (base != 10) text.remove_prefix(2);
  }
  if (base == 10 && text.size() > 1 && text[0] == '0') base = 8;
  if (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.remove_suffix(1);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return code == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace stepc::emulator
