// Passes on graphs written as text.
#pragma once

#include <doctest/doctest.h>

#include <sstream>

#include "ir/graph/parse.h"
#include "ir/graph/print.h"
#include "ir/graph/verify.h"

namespace stepc::test {

inline Module parsed(const std::string& text) {
  auto module = parse_module(text, "test.gir");
  REQUIRE_MESSAGE(module.has_value(), (module ? "" : module.error().text()));
  return *module;
}

// A module with one program @main of these lines.
inline Module parsed_body(const std::string& lines) {
  return parsed("module \"test\"\n\nparam @p: f32[3]\nstate @s: f32[3] optimizer\n\nprogram @main {\n" + lines + "}\n");
}

// The lines of the program, unindented, as `parsed_body` takes them.
inline std::string body_of(const Program& program) {
  std::stringstream text(print_program(program));
  std::string lines;
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("  ")) lines += line.substr(2) + "\n";
  return lines;
}

// Runs the pass, verifies, and gives the program's lines back.
inline std::string after(void (*pass)(Program&), const std::string& lines) {
  Module module = parsed_body(lines);
  pass(module.programs[0]);
  const Status status = verify(module);
  CHECK_MESSAGE(status.has_value(), (status ? "" : status.error().text()));
  const std::string once = body_of(module.programs[0]);
  pass(module.programs[0]);
  CHECK_MESSAGE(body_of(module.programs[0]) == once, "not idempotent");
  return once;
}

}  // namespace stepc::test
