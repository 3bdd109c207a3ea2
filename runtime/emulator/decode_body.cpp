// A kernel's body: statements, scopes and operands. What an instruction means is decided by its family (form.h,
// instructions/).
#include "runtime/emulator/decode_body.h"

#include <fmt/format.h>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/form.h"

namespace stepc::emulator {
namespace {

class BodyDecoder {
 public:
  BodyDecoder(Reader& reader, Module& module, Kernel& kernel, Symbols& symbols)
      : reader_(reader), module_(module), kernel_(kernel), symbols_(symbols), names_(kernel) {}

  Status run() {
    for (int depth = 1; depth > 0;) {
      if (reader_.peek().kind == TokenKind::end) return reader_.error("the text ends inside kernel " + kernel_.name);
      if (reader_.take("{")) {
        names_.open();
        ++depth;
      } else if (reader_.take("}")) {
        names_.close();
        --depth;
      } else {
        STEPC_TRY(statement());
      }
    }
    Instruction end;  // falling off the end is a return
    end.opcode = Opcode::ret;
    end.line = reader_.peek().line;
    kernel_.code.push_back(std::move(end));
    return resolve_branches();
  }

  Status statement() {
    if (reader_.take(";")) return {};
    const Token first = reader_.peek();
    if (first.is("@")) return instruction();
    if (first.kind != TokenKind::name) return reader_.error(fmt::format("unexpected '{}'", first.text));
    if (reader_.peek(1).is(":")) return label();
    if (!first.text.starts_with(".")) return instruction();
    reader_.next();
    if (first.is(".reg")) return registers();
    if (first.is(".loc")) return location(first.line);
    if (first.is(".file")) return decode_file(reader_, module_);
    if (first.is(".shared")) return body_shared();
    if (first.is(".pragma")) {
      reader_.next();
      return reader_.expect(";");
    }
    return reader_.error_at(first, fmt::format("unknown directive {}", first.text));
  }

  Status body_shared() {
    STEPC_ASSIGN(const Variable variable, decode_variable(reader_, false));
    symbols_.add_shared(kernel_, variable);
    return {};
  }

  Status label() {
    const Token name = reader_.next();
    reader_.next();
    if (reader_.peek().is(".branchtargets")) {
      reader_.next();
      std::vector<std::string_view> labels;
      do {
        STEPC_ASSIGN(labels.emplace_back(), reader_.take_name());
      } while (reader_.take(","));
      names_.declare_table(name.text, std::move(labels));
      return reader_.expect(";");
    }
    if (!names_.declare_label(name.text, static_cast<uint32_t>(kernel_.code.size())))
      return reader_.error_at(name, fmt::format("label {} is defined twice", name.text));
    return {};
  }

  Status registers() {
    STEPC_ASSIGN(const std::string_view type_text, reader_.take_name());
    const Type type = type_named(type_text.substr(1));
    do {
      const Token at = reader_.peek();
      STEPC_ASSIGN(const std::string_view name, reader_.take_name());
      std::optional<uint64_t> range;
      if (reader_.take("<")) {
        STEPC_ASSIGN(range, reader_.take_number());
        STEPC_TRY(reader_.expect(">"));
      }
      if (!names_.declare_register(name, type, range))
        return reader_.error_at(at, fmt::format("registers cannot be {}", type_text));
    } while (reader_.take(","));
    return reader_.expect(";");
  }

  // .loc file line column [, function_name ...]: the kernel IR's line of what follows.
  Status location(uint32_t line) {
    STEPC_ASSIGN(const uint64_t file_number, reader_.take_number());
    STEPC_ASSIGN(const uint64_t ir_line, reader_.take_number());
    ir_file_ = static_cast<uint16_t>(file_number);
    ir_line_ = static_cast<uint32_t>(ir_line);
    if (reader_.peek().line == line) reader_.skip_line();
    return {};
  }

  Status instruction() {
    Instruction i;
    i.line = reader_.peek().line;
    i.ir_file = ir_file_;
    i.ir_line = ir_line_;
    if (reader_.take("@")) {
      i.guard_not = reader_.take("!");
      STEPC_ASSIGN(const std::string_view name, reader_.take_name());
      const auto reg = names_.find_register(name);
      if (!reg || !reg->predicate) return reader_.error(fmt::format("guard {} is not a predicate", name));
      i.guard = reg->index;
    }
    const Token at = reader_.peek();
    STEPC_ASSIGN(const std::string_view name, reader_.take_name());
    std::vector<Operand> operands;
    while (!reader_.peek().is(";")) {
      STEPC_TRY(operand_or_pair(operands));
      if (!reader_.take(",")) break;
    }
    if (!reader_.take(";"))
      return reader_.error(fmt::format("found '{}', expected ';' after {}", reader_.peek().text, name));

    const DecodeInstruction decode = find_instruction(name);
    if (!decode) return reader_.error_at(at, fmt::format("unknown instruction {}", name));
    Form form(name, std::move(operands), names_, i);
    decode(form);
    form.finish();
    if (form.failure()) return reader_.error_at(at, fmt::format("{}: {}", name, *form.failure()));
    if (i.opcode == Opcode::branch) note_branch(form, at);
    kernel_.uses_wgmma |= name.starts_with("wgmma");
    kernel_.bulk_loads |= i.opcode == Opcode::bulk_load || i.opcode == Opcode::bulk_tensor_load;
    kernel_.noncoherent_loads |= name.starts_with("ld.") && name.find(".nc.") != std::string_view::npos;
    kernel_.global_atomics |=
        name.starts_with("cp.reduce") ||
        ((name.starts_with("atom.") || name.starts_with("red.")) && name.find(".shared") == std::string_view::npos);
    kernel_.code.push_back(std::move(i));
    return {};
  }

  // d|p is two operands.
  Status operand_or_pair(std::vector<Operand>& into) {
    do {
      STEPC_ASSIGN(into.emplace_back(), operand());
    } while (reader_.take("|"));
    return {};
  }

  Result<Operand> operand() {
    const size_t from = reader_.place();
    Operand o;
    if (reader_.take("{")) {
      o.kind = OperandKind::vector;
      STEPC_TRY(operand_list(o.parts, "}"));
    } else if (reader_.take("[")) {
      STEPC_TRY(address_operand(o));
    } else {
      STEPC_TRY(plain_operand(o));
    }
    o.text = reader_.text_between(from, reader_.place());
    return o;
  }

  Status operand_list(std::vector<Operand>& into, std::string_view close) {
    do {
      STEPC_ASSIGN(into.emplace_back(), operand());
    } while (reader_.take(","));
    return reader_.expect(close);
  }

  // [base], [base+8], [base+-8], [map, {c0, c1}]
  Status address_operand(Operand& o) {
    o.kind = OperandKind::address;
    Operand base;
    const std::string_view base_name = reader_.peek().text;
    STEPC_TRY(plain_operand(base));
    o.is_parameter = symbols_.is_parameter(base_name);
    if (base.kind == OperandKind::immediate)
      o.address = {names_.constant(base.value, true), true, 0};
    else if (base.kind == OperandKind::row)
      o.address = {base.row, base.wide, 0};
    else
      return reader_.error(fmt::format("'{}' is no address", base_name));
    if (reader_.peek().is("+") || reader_.peek().is("-")) {
      bool negative = reader_.next().is("-");
      if (reader_.take("-")) negative = !negative;
      STEPC_ASSIGN(const uint64_t offset, reader_.take_number());
      o.address.offset = negative ? -static_cast<int64_t>(offset) : static_cast<int64_t>(offset);
    }
    if (reader_.take(",")) {
      STEPC_TRY(reader_.expect("{"));
      STEPC_TRY(operand_list(o.parts, "}"));
    }
    return reader_.expect("]");
  }

  Status plain_operand(Operand& o) {
    if (reader_.take("!")) o.negated = true;
    if (reader_.take("-")) {
      STEPC_ASSIGN(const uint64_t value, reader_.take_number());
      o.kind = OperandKind::immediate;
      o.value = ~value + 1;
      return {};
    }
    if (reader_.peek().kind == TokenKind::number) {
      STEPC_ASSIGN(o.value, reader_.take_number());
      o.kind = OperandKind::immediate;
      return {};
    }
    const Token at = reader_.peek();
    STEPC_TRY(reader_.take_name());
    return named_operand(o, at);
  }

  Status named_operand(Operand& o, const Token& at) {
    const std::string_view name = at.text;
    if (name == "_") return {};
    if (const auto reg = names_.find_register(name)) {
      o.kind = reg->predicate ? OperandKind::predicate : OperandKind::row;
      (reg->predicate ? o.predicate : o.row) = reg->index;
      o.wide = reg->wide;
    } else if (const auto row = names_.special(name)) {
      o.kind = OperandKind::row;
      o.row = *row;
    } else if (const uint64_t* address = symbols_.find(name)) {
      o.kind = OperandKind::immediate;
      o.value = *address;
    } else if (name.starts_with("%")) {
      return reader_.error_at(at, fmt::format("unknown register {}", name));
    } else {
      o.kind = OperandKind::label;
    }
    return {};
  }

  // ---- branches: labels may come later
  struct Branch {
    uint32_t pc;
    int scope;
    std::string target;
    Token at;
  };

  void note_branch(const Form& form, const Token& at) {
    branches_.push_back(
        {static_cast<uint32_t>(kernel_.code.size()), names_.current(), form.operand(form.count() - 1).text, at});
  }

  Status resolve_branches() {
    for (const Branch& b : branches_) {
      Instruction& i = kernel_.code[b.pc];
      std::vector<std::string_view> targets = {b.target};
      if (i.a >= 0) {  // brx.idx
        const auto* table = names_.find_table(b.target, b.scope);
        if (!table) return reader_.error_at(b.at, fmt::format("unknown branch table {}", b.target));
        targets = *table;
      }
      for (const std::string_view t : targets) {
        const auto pc = names_.find_label(t, b.scope);
        if (!pc) return reader_.error_at(b.at, fmt::format("unknown label {}", t));
        i.list.push_back(static_cast<int32_t>(*pc));
      }
    }
    return {};
  }

  Reader& reader_;
  Module& module_;
  Kernel& kernel_;
  Symbols& symbols_;
  Names names_;
  std::vector<Branch> branches_;
  uint16_t ir_file_ = 0;
  uint32_t ir_line_ = 0;
};

}  // namespace

Status decode_body(Reader& reader, Module& module, Kernel& kernel, Symbols& symbols) {
  return BodyDecoder(reader, module, kernel, symbols).run();
}

}  // namespace stepc::emulator
