#include "runtime/emulator/form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/support/check.h"

namespace stepc::emulator {
namespace {

struct TypeInfo {
  Type type;
  const char* name;
  int bytes;
};
constexpr TypeInfo kTypes[] = {
    {Type::none, "", 0},     {Type::pred, "pred", 0},     {Type::b8, "b8", 1},      {Type::b16, "b16", 2},
    {Type::b32, "b32", 4},   {Type::b64, "b64", 8},       {Type::b128, "b128", 16}, {Type::u8, "u8", 1},
    {Type::u16, "u16", 2},   {Type::u32, "u32", 4},       {Type::u64, "u64", 8},    {Type::s8, "s8", 1},
    {Type::s16, "s16", 2},   {Type::s32, "s32", 4},       {Type::s64, "s64", 8},    {Type::f16, "f16", 2},
    {Type::bf16, "bf16", 2}, {Type::bf16x2, "bf16x2", 4}, {Type::tf32, "tf32", 4},  {Type::f32, "f32", 4},
    {Type::f64, "f64", 8},
};
const TypeInfo& info(Type type) { return kTypes[static_cast<int>(type)]; }

}  // namespace

int bytes_of(Type type) { return info(type).bytes; }
const char* type_name(Type type) { return info(type).name; }
bool is_signed(Type type) { return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64; }
bool is_integer(Type type) { return type >= Type::b8 && type <= Type::s64 && type != Type::b128; }
Type type_named(std::string_view name) {
  for (const TypeInfo& t : kTypes)
    if (t.type != Type::none && name == t.name) return t.type;
  return Type::none;
}

Form::Form(std::string_view full_name, std::vector<Operand> operands, RowSource& rows, Instruction& out)
    : operands_(std::move(operands)), rows_(rows), out_(&out) {
  size_t dot = full_name.find('.');
  name_ = full_name.substr(0, dot);
  while (dot != std::string_view::npos) {
    const size_t next = full_name.find('.', dot + 1);
    modifiers_.push_back(full_name.substr(dot + 1, next == std::string_view::npos ? next : next - dot - 1));
    dot = next;
  }
}

bool Form::take(std::string_view modifier) {
  const auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (it == modifiers_.end()) return false;
  modifiers_.erase(it);
  return true;
}

bool Form::take_any(std::initializer_list<std::string_view> modifiers) {
  bool any = false;
  for (const std::string_view m : modifiers) any = take(m) || any;
  return any;
}

Type Form::take_type() {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
    const Type type = type_named(*it);
    if (type == Type::none) continue;
    modifiers_.erase(it);
    return type;
  }
  return Type::none;
}

std::optional<std::string> Form::take_prefixed(std::string_view prefix) {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
    if (!it->starts_with(prefix)) continue;
    std::string found(*it);
    modifiers_.erase(it);
    return found;
  }
  return std::nullopt;
}

void Form::ignore_memory_hints() {
  take_any({"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "mmio"});
  take_any({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  while (take_prefixed("L1::") || take_prefixed("L2::")) {
  }
}

void Form::expect(size_t operands) { expect(operands, operands); }

void Form::expect(size_t least, size_t most) {
  if (count() >= least && count() <= most) return;
  fail(fmt::format("{} operands, expected {}", count(),
                   least == most ? std::to_string(least) : fmt::format("{} to {}", least, most)));
  // Whatever the family reads next exists.
  operands_.resize(std::max(count(), most));
}

Row Form::source(size_t i, Type type) { return source(operands_[i], type); }
Row Form::target(size_t i, Type type) { return target(operands_[i], type); }

Row Form::source(const Operand& operand, Type type) {
  const bool wide = bytes_of(type) == 8;
  if (operand.kind == OperandKind::immediate) return rows_.constant(operand.value, wide);
  if (operand.kind != OperandKind::row) {
    fail(fmt::format("operand {} is not a register or a number", operand.text));
    return 0;
  }
  if (operand.wide != wide)
    fail(
        fmt::format("operand {} is {} bits wide, .{} expected", operand.text, operand.wide ? 64 : 32, type_name(type)));
  out_->reads.push_back(operand.row);
  return operand.row;
}

Row Form::target(const Operand& operand, Type type) {
  const bool wide = bytes_of(type) == 8;
  if (operand.kind != OperandKind::row) {
    fail(fmt::format("result {} is not a register", operand.text));
    return 0;
  }
  if (operand.wide != wide)
    fail(fmt::format("result {} is {} bits wide, .{} expected", operand.text, operand.wide ? 64 : 32, type_name(type)));
  out_->writes.push_back(operand.row);
  return operand.row;
}

Row Form::unit_register(const Operand& operand, bool wide) {
  if (operand.kind == OperandKind::row && operand.wide == wide) return operand.row;
  fail(fmt::format("operand {} is not a register of {} bits", operand.text, wide ? 64 : 32));
  return 0;
}

Predicate Form::predicate_source(size_t i) {
  const Operand& o = operands_[i];
  if (o.kind != OperandKind::predicate || o.negated) fail(fmt::format("operand {} is not a predicate", o.text));
  return o.predicate;
}

Predicate Form::predicate_target(size_t i) {
  const Operand& o = operands_[i];
  if (o.kind == OperandKind::sink) return kNoPredicate;
  if (o.kind != OperandKind::predicate || o.negated) fail(fmt::format("result {} is not a predicate", o.text));
  return o.predicate;
}

Address Form::address(size_t i) {
  const Operand& o = operands_[i];
  if (o.kind != OperandKind::address) {
    fail(fmt::format("operand {} is not an address", o.text));
    return {0, false, 0};
  }
  out_->reads.push_back(o.address.base);
  return o.address;
}

std::optional<int64_t> Form::immediate(size_t i) {
  if (operands_[i].kind == OperandKind::immediate) return static_cast<int64_t>(operands_[i].value);
  fail(fmt::format("operand {} is not a number", operands_[i].text));
  return std::nullopt;
}

const std::vector<Operand>& Form::parts(size_t i) {
  if (operands_[i].kind != OperandKind::vector) fail(fmt::format("operand {} is not a vector", operands_[i].text));
  return operands_[i].parts;
}

void Form::fail(std::string message) {
  if (!failure_) failure_ = std::move(message);
}

void Form::finish() {
  if (!modifiers_.empty()) fail(fmt::format("unknown modifier .{}", modifiers_.front()));
}

}  // namespace stepc::emulator
