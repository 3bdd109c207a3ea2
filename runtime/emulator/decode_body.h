// The parts of the decoder: module scope (decode.cpp) hands each kernel's body to `decode_body`.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "runtime/emulator/instruction.h"
#include "runtime/emulator/reader.h"
#include "runtime/emulator/scope.h"

namespace stepc::emulator {

struct Variable {
  std::string_view name;
  uint64_t bytes = 0;
  uint64_t align = 1;
  bool dynamic = false;  // .extern, in shared memory: behind the static ones
};

inline uint64_t align_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

// The names with addresses that a kernel's body may use.
class Symbols {
 public:
  void add_shared(Kernel& kernel, const Variable& variable);
  void add_global(std::string_view name, uint64_t address) { addresses_[name] = address; }
  void add_parameter(std::string_view name, uint64_t offset);
  const uint64_t* find(std::string_view name) const;
  bool is_parameter(std::string_view name) const { return parameters_.contains(name); }

 private:
  std::map<std::string_view, uint64_t> addresses_;
  std::map<std::string_view, uint64_t> parameters_;  // offsets
  std::vector<std::string_view> dynamic_;
};

// What follows `.shared` or `.global`, up to its semicolon.
Result<Variable> decode_variable(Reader& reader, bool is_extern);

// From behind the opening brace to behind the closing one. `.file` may stand in a body too.
Status decode_body(Reader& reader, Module& module, Kernel& kernel, Symbols& symbols);
Status decode_file(Reader& reader, Module& module);

}  // namespace stepc::emulator
