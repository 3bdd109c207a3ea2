// One instruction on its way from text to `Instruction`: its name split at the dots, its operands resolved. The
// decoder of an instruction family (instructions/*.cpp) takes the modifiers and operands that it understands; what
// is left over afterwards is an error that names it, so no form is executed by halves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/emulator/instruction.h"

namespace stepc::emulator {

enum class OperandKind : uint8_t { row, predicate, immediate, address, vector, sink, label };

struct Operand {
  OperandKind kind = OperandKind::sink;
  Row row = kNoRow;
  bool wide = false;  // of a row
  Predicate predicate = kNoPredicate;
  bool negated = false;        // !p
  uint64_t value = 0;          // of an immediate
  Address address;             // of an address
  bool is_parameter = false;   // the address is a kernel parameter
  std::vector<Operand> parts;  // of a vector; of an address: its coordinates
  std::string text;            // as written, for errors and labels
};

// Where constants become rows.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual Row constant(uint64_t value, bool wide) = 0;
};

int bytes_of(Type type);
bool is_signed(Type type);
bool is_integer(Type type);  // u, s and b types
const char* type_name(Type type);
Type type_named(std::string_view name);  // none: not a type

class Form {
 public:
  Form(std::string_view full_name, std::vector<Operand> operands, RowSource& rows, Instruction& out);

  std::string_view name() const { return name_; }  // before the first dot
  Instruction& out() { return *out_; }

  // ---- modifiers
  bool take(std::string_view modifier);  // true once for each time it is written
  bool take_any(std::initializer_list<std::string_view> modifiers);
  Type take_type();  // the first type among the modifiers; none if there is none
  std::optional<std::string> take_prefixed(std::string_view prefix);  // "L2::cache_hint" by "L2::"
  void ignore_memory_hints();  // caching, eviction and ordering: no effect on the emulator

  // ---- operands
  size_t count() const { return operands_.size(); }
  const Operand& operand(size_t i) const { return operands_[i]; }
  void expect(size_t operands);
  void expect(size_t least, size_t most);
  Row source(size_t i, Type type);  // a register or an immediate of that type
  Row target(size_t i, Type type);
  Row source(const Operand& operand, Type type);
  Row target(const Operand& operand, Type type);
  Row unit_register(const Operand& operand, bool wide);  // owned by a unit: not an ordinary read or write
  Predicate predicate_source(size_t i);                  // not negated
  Predicate predicate_target(size_t i);                  // kNoPredicate for the sink `_`
  Address address(size_t i);
  std::optional<int64_t> immediate(size_t i);
  const std::vector<Operand>& parts(size_t i);

  void fail(std::string message);
  const std::optional<std::string>& failure() const { return failure_; }
  // After decoding: complains about what nobody took.
  void finish();

 private:
  std::string_view name_;
  std::vector<std::string_view> modifiers_;
  std::vector<Operand> operands_;
  RowSource& rows_;
  Instruction* out_;
  std::optional<std::string> failure_;
};

using DecodeInstruction = void (*)(Form& form);
struct InstructionEntry {
  std::string_view name;  // the part before the first dot, or a longer prefix: "cp.async.bulk"
  DecodeInstruction decode;
};
// The decoder for an instruction's full name: that of the longest matching prefix; nullptr: unknown.
DecodeInstruction find_instruction(std::string_view full_name);

}  // namespace stepc::emulator
