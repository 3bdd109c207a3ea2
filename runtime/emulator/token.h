// PTX text as tokens. A name keeps its dots and double colons: `ld.global.L1::no_allocate.b32` is one token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/result.h"

namespace stepc::emulator {

enum class TokenKind : uint8_t { name, number, string, punctuation, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // of the module's text; a string without its quotes
  uint32_t line = 0;      // both from 1
  uint32_t column = 0;
  bool is(std::string_view t) const { return kind != TokenKind::string && text == t; }
};

// The last token is `end`. `file` stands for the text in errors.
Result<std::vector<Token>> tokenize(std::string_view text, const std::string& file);

// The value of a number: decimal, 0x, 0b, octal, 0f (bits of an f32), 0d (bits of an f64). False: not one.
bool number_value(std::string_view text, uint64_t* value);

}  // namespace stepc::emulator
