// Module text -> Module: directives, declarations, scopes and operands. What an instruction means is decided by its
// family (form.h, instructions/).
#include <algorithm>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/scope.h"
#include "runtime/emulator/token.h"

namespace stepc::emulator {
namespace {

struct SharedVariable {
  std::string_view name;
  uint64_t bytes = 0;
  uint64_t align = 1;
  bool dynamic = false;  // .extern: behind the static ones
};

uint64_t align_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

// The tokens with a place, and errors there.
class Reader {
 public:
  Reader(std::vector<Token> tokens, std::string file) : tokens_(std::move(tokens)), file_(std::move(file)) {}

 protected:
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
  std::string text_between(size_t from, size_t to) const {
    std::string text;
    for (size_t i = from; i < to; ++i) text += std::string(tokens_[i].text) + (tokens_[i].is(",") ? " " : "");
    return text;
  }

  std::vector<Token> tokens_;
  std::string file_;
  size_t at_ = 0;
};

// A kernel's body. Shares the reader's place with the module's decoder.
class Decoder : Reader {
 public:
  Decoder(std::vector<Token> tokens, const std::string& file) : Reader(std::move(tokens), file) {}

  Result<std::unique_ptr<Module>> run() {
    module_ = std::make_unique<Module>();
    module_->files.emplace_back();
    while (peek().kind != TokenKind::end) STEPC_TRY(module_item());
    return std::move(module_);
  }

 private:
  // ---- module scope
  Status module_item() {
    const Token item = next();
    if (item.is(".version")) return take_into(module_->version);
    if (item.is(".target")) return target();
    if (item.is(".address_size")) return address_size();
    if (item.is(".file")) return file();
    if (item.is(".section")) return skip_section();
    if (item.is(".visible") || item.is(".weak") || item.is(".extern")) {
      linkage_extern_ = item.is(".extern");
      return {};
    }
    if (item.is(".shared")) return shared_variable(shared_);
    if (item.is(".entry")) return kernel();
    return error_at(item, fmt::format("unknown directive {}", item.text));
  }

  Status take_into(std::string& out) {
    out = std::string(next().text);
    return {};
  }

  Status target() {
    module_->target = std::string(next().text);
    while (take(",")) next();
    return {};
  }

  Status address_size() {
    STEPC_ASSIGN(const uint64_t bits, take_number());
    if (bits != 64) return error(fmt::format("address size {}, expected 64", bits));
    return {};
  }

  Status file() {
    const Token at = peek();
    STEPC_ASSIGN(const uint64_t number, take_number());
    if (number > 0xffff) return error_at(at, fmt::format("file number {} is too large", number));
    if (module_->files.size() <= number) module_->files.resize(number + 1);
    module_->files[number] = std::string(peek().text);
    skip_rest_of(at.line);
    return {};
  }

  void skip_rest_of(uint32_t line) {
    if (peek().line == line) skip_line();
  }

  Status skip_section() {
    while (peek().kind != TokenKind::end && !peek().is("{")) next();
    while (peek().kind != TokenKind::end && !take("}")) next();
    return {};
  }

  // .shared .align 16 .b8 name[64];  with .extern: name[];
  Status shared_variable(std::vector<SharedVariable>& into) {
    SharedVariable v;
    v.dynamic = linkage_extern_;
    linkage_extern_ = false;
    if (take(".align")) {
      STEPC_ASSIGN(v.align, take_number());
    }
    STEPC_ASSIGN(const std::string_view type_text, take_name());
    const Type type = type_named(type_text.substr(1));
    if (bytes_of(type) == 0) return error(fmt::format("unknown type {}", type_text));
    STEPC_ASSIGN(v.name, take_name());
    v.bytes = bytes_of(type);
    v.align = std::max<uint64_t>(v.align, bytes_of(type));
    while (take("[")) {
      if (take("]")) {
        if (!v.dynamic) return error("a shared array without size must be .extern");
        v.bytes = 0;
        continue;
      }
      STEPC_ASSIGN(const uint64_t count, take_number());
      v.bytes *= count;
      STEPC_TRY(expect("]"));
    }
    into.push_back(v);
    return expect(";");
  }

  // ---- a kernel
  Status kernel() {
    linkage_extern_ = false;
    STEPC_ASSIGN(const std::string_view name, take_name());
    auto kernel = std::make_unique<Kernel>();
    kernel_ = kernel.get();
    kernel_->name = std::string(name);
    kernel_->module = module_.get();
    symbols_.clear();
    parameter_offsets_.clear();
    dynamic_names_.clear();
    branches_.clear();
    Names names(*kernel_);
    names_ = &names;
    ir_file_ = 0;
    ir_line_ = 0;
    for (const SharedVariable& v : shared_) place_shared(v);
    STEPC_TRY(parameters());
    STEPC_TRY(kernel_directives());
    STEPC_TRY(expect("{"));
    STEPC_TRY(body());
    STEPC_TRY(resolve_branches());
    if (!module_->kernels.emplace(kernel_->name, std::move(kernel)).second)
      return error(fmt::format("kernel {} is defined twice", name));
    return {};
  }

  void place_shared(const SharedVariable& v) {
    if (v.dynamic) {
      kernel_->dynamic_shared_align = std::max<uint32_t>(kernel_->dynamic_shared_align, v.align);
      dynamic_names_.push_back(v.name);
    } else {
      const uint64_t at = align_up(kernel_->static_shared_bytes, v.align);
      kernel_->static_shared_bytes = static_cast<uint32_t>(at + v.bytes);
      symbols_[v.name] = kSharedBase + at;
    }
    const uint64_t dynamic = kSharedBase + align_up(kernel_->static_shared_bytes, kernel_->dynamic_shared_align);
    for (const std::string_view d : dynamic_names_) symbols_[d] = dynamic;
  }

  Status parameters() {
    if (!take("(")) return {};
    if (take(")")) return {};
    do {
      STEPC_TRY(parameter());
    } while (take(","));
    return expect(")");
  }

  // .param .u64 .ptr .global .align 16 name   or   .param .align 64 .b8 name[128]
  Status parameter() {
    STEPC_TRY(expect(".param"));
    uint64_t align = 0;
    bool pointer = false;
    Type type = Type::none;
    std::string_view name;
    while (name.empty()) {
      STEPC_ASSIGN(const std::string_view word, take_name());
      if (word == ".align") {
        STEPC_ASSIGN(const uint64_t value, take_number());
        if (!pointer) align = value;  // else that of what it points at
      } else if (word == ".ptr") {
        pointer = true;
      } else if (word.starts_with(".")) {
        const Type found = type_named(word.substr(1));
        if (found != Type::none)
          type = found;
        else if (!pointer)
          return error(fmt::format("unknown parameter attribute {}", word));
      } else {
        name = word;
      }
    }
    if (bytes_of(type) == 0) return error(fmt::format("parameter {} has no type", name));
    uint64_t bytes = bytes_of(type);
    if (take("[")) {
      STEPC_ASSIGN(const uint64_t count, take_number());
      bytes *= count;
      STEPC_TRY(expect("]"));
    }
    const uint64_t offset = align_up(kernel_->parameter_bytes, std::max<uint64_t>(align, bytes_of(type)));
    kernel_->parameters.push_back({std::string(name), static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    kernel_->parameter_bytes = static_cast<uint32_t>(offset + bytes);
    parameter_offsets_[name] = offset;
    symbols_[name] = kParamWindow + offset;
    return {};
  }

  Status kernel_directives() {
    while (peek().kind == TokenKind::name) {
      const Token d = next();
      if (d.is(".explicitcluster")) continue;
      if (d.is(".pragma")) {
        next();
        STEPC_TRY(expect(";"));
        continue;
      }
      std::vector<uint64_t> values;
      do {
        STEPC_ASSIGN(values.emplace_back(), take_number());
      } while (take(","));
      values.resize(3, 1);
      const uint64_t product = values[0] * values[1] * values[2];
      if (d.is(".maxntid"))
        kernel_->max_threads = static_cast<uint32_t>(product);
      else if (d.is(".reqntid"))
        std::copy(values.begin(), values.end(), kernel_->required_threads);
      else if (d.is(".maxnreg"))
        kernel_->max_registers = static_cast<int>(values[0]);
      else if (d.is(".reqnctapercluster"))
        kernel_->required_cluster = static_cast<uint32_t>(product);
      else if (!d.is(".minnctapersm") && !d.is(".maxclusterrank"))
        return error_at(d, fmt::format("unknown directive {}", d.text));
    }
    return {};
  }

  // ---- a body
  Status body() {
    for (int depth = 1; depth > 0;) {
      if (peek().kind == TokenKind::end) return error("the text ends inside kernel " + kernel_->name);
      if (take("{")) {
        names_->open();
        ++depth;
      } else if (take("}")) {
        names_->close();
        --depth;
      } else {
        STEPC_TRY(statement());
      }
    }
    Instruction end;  // falling off the end is a return
    end.opcode = Opcode::ret;
    end.line = peek().line;
    kernel_->code.push_back(std::move(end));
    return {};
  }

  Status statement() {
    if (take(";")) return {};
    const Token first = peek();
    if (first.is("@")) return instruction();
    if (first.kind != TokenKind::name) return error(fmt::format("unexpected '{}'", first.text));
    if (peek(1).is(":")) return label();
    if (!first.text.starts_with(".")) return instruction();
    next();
    if (first.is(".reg")) return registers();
    if (first.is(".loc")) return location(first.line);
    if (first.is(".file")) return file();
    if (first.is(".shared")) return body_shared();
    if (first.is(".pragma")) {
      next();
      return expect(";");
    }
    return error_at(first, fmt::format("unknown directive {}", first.text));
  }

  Status body_shared() {
    std::vector<SharedVariable> one;
    STEPC_TRY(shared_variable(one));
    place_shared(one[0]);
    return {};
  }

  Status label() {
    const Token name = next();
    next();
    if (peek().is(".branchtargets")) {
      next();
      std::vector<std::string_view> labels;
      do {
        STEPC_ASSIGN(labels.emplace_back(), take_name());
      } while (take(","));
      names_->declare_table(name.text, std::move(labels));
      return expect(";");
    }
    if (!names_->declare_label(name.text, static_cast<uint32_t>(kernel_->code.size())))
      return error_at(name, fmt::format("label {} is defined twice", name.text));
    return {};
  }

  Status registers() {
    STEPC_ASSIGN(const std::string_view type_text, take_name());
    const Type type = type_named(type_text.substr(1));
    do {
      const Token at = peek();
      STEPC_ASSIGN(const std::string_view name, take_name());
      std::optional<uint64_t> range;
      if (take("<")) {
        STEPC_ASSIGN(range, take_number());
        STEPC_TRY(expect(">"));
      }
      if (!names_->declare_register(name, type, range))
        return error_at(at, fmt::format("registers cannot be {}", type_text));
    } while (take(","));
    return expect(";");
  }

  // .loc file line column [, function_name ...]: the kernel IR's line of what follows.
  Status location(uint32_t line) {
    STEPC_ASSIGN(const uint64_t file_number, take_number());
    STEPC_ASSIGN(const uint64_t ir_line, take_number());
    ir_file_ = static_cast<uint16_t>(file_number);
    ir_line_ = static_cast<uint32_t>(ir_line);
    skip_rest_of(line);
    return {};
  }

  Status instruction() {
    Instruction i;
    i.line = peek().line;
    i.ir_file = ir_file_;
    i.ir_line = ir_line_;
    if (take("@")) {
      i.guard_not = take("!");
      STEPC_ASSIGN(const std::string_view name, take_name());
      const auto reg = names_->find_register(name);
      if (!reg || !reg->predicate) return error(fmt::format("guard {} is not a predicate", name));
      i.guard = reg->index;
    }
    const Token at = peek();
    STEPC_ASSIGN(const std::string_view name, take_name());
    std::vector<Operand> operands;
    while (!peek().is(";")) {
      STEPC_TRY(operand_or_pair(operands));
      if (!take(",")) break;
    }
    if (!take(";")) return error(fmt::format("found '{}', expected ';' after {}", peek().text, name));

    const DecodeInstruction decode = find_instruction(name);
    if (!decode) return error_at(at, fmt::format("unknown instruction {}", name));
    Form form(name, std::move(operands), *names_, i);
    decode(form);
    form.finish();
    if (form.failure()) return error_at(at, fmt::format("{}: {}", name, *form.failure()));
    if (i.opcode == Opcode::branch) note_branch(form, at);
    kernel_->uses_wgmma |= name.starts_with("wgmma");
    kernel_->global_atomics |=
        name.starts_with("cp.reduce") ||
        ((name.starts_with("atom.") || name.starts_with("red.")) && name.find(".shared") == std::string_view::npos);
    kernel_->code.push_back(std::move(i));
    return {};
  }

  // d|p is two operands.
  Status operand_or_pair(std::vector<Operand>& into) {
    do {
      STEPC_ASSIGN(into.emplace_back(), operand());
    } while (take("|"));
    return {};
  }

  Result<Operand> operand() {
    const size_t from = at_;
    Operand o;
    if (take("{")) {
      o.kind = OperandKind::vector;
      STEPC_TRY(operand_list(o.parts, "}"));
    } else if (take("[")) {
      STEPC_TRY(address_operand(o));
    } else {
      STEPC_TRY(plain_operand(o));
    }
    o.text = text_between(from, at_);
    return o;
  }

  Status operand_list(std::vector<Operand>& into, std::string_view close) {
    do {
      STEPC_ASSIGN(into.emplace_back(), operand());
    } while (take(","));
    return expect(close);
  }

  // [base], [base+8], [base+-8], [map, {c0, c1}]
  Status address_operand(Operand& o) {
    o.kind = OperandKind::address;
    Operand base;
    const std::string_view base_name = peek().text;
    STEPC_TRY(plain_operand(base));
    o.is_parameter = parameter_offsets_.contains(base_name);
    if (base.kind == OperandKind::immediate)
      o.address = {names_->constant(base.value, true), true, 0};
    else if (base.kind == OperandKind::row)
      o.address = {base.row, base.wide, 0};
    else
      return error(fmt::format("'{}' is no address", base_name));
    if (peek().is("+") || peek().is("-")) {
      bool negative = next().is("-");
      if (take("-")) negative = !negative;
      STEPC_ASSIGN(const uint64_t offset, take_number());
      o.address.offset = negative ? -static_cast<int64_t>(offset) : static_cast<int64_t>(offset);
    }
    if (take(",")) {
      STEPC_TRY(expect("{"));
      STEPC_TRY(operand_list(o.parts, "}"));
    }
    return expect("]");
  }

  Status plain_operand(Operand& o) {
    if (take("!")) o.negated = true;
    if (take("-")) {
      STEPC_ASSIGN(const uint64_t value, take_number());
      o.kind = OperandKind::immediate;
      o.value = ~value + 1;
      return {};
    }
    if (peek().kind == TokenKind::number) {
      STEPC_ASSIGN(o.value, take_number());
      o.kind = OperandKind::immediate;
      return {};
    }
    const Token at = peek();
    STEPC_TRY(take_name());
    return named_operand(o, at);
  }

  Status named_operand(Operand& o, const Token& at) {
    const std::string_view name = at.text;
    if (name == "_") return {};
    if (const auto reg = names_->find_register(name)) {
      o.kind = reg->predicate ? OperandKind::predicate : OperandKind::row;
      (reg->predicate ? o.predicate : o.row) = reg->index;
      o.wide = reg->wide;
    } else if (const auto row = names_->special(name)) {
      o.kind = OperandKind::row;
      o.row = *row;
    } else if (const auto symbol = symbols_.find(name); symbol != symbols_.end()) {
      o.kind = OperandKind::immediate;
      o.value = symbol->second;
    } else if (name.starts_with("%")) {
      return error_at(at, fmt::format("unknown register {}", name));
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
        {static_cast<uint32_t>(kernel_->code.size()), names_->current(), form.operand(form.count() - 1).text, at});
  }

  Status resolve_branches() {
    for (const Branch& b : branches_) {
      Instruction& i = kernel_->code[b.pc];
      std::vector<std::string_view> targets = {b.target};
      if (i.a >= 0) {  // brx.idx
        const auto* table = names_->find_table(b.target, b.scope);
        if (!table) return error_at(b.at, fmt::format("unknown branch table {}", b.target));
        targets = *table;
      }
      for (const std::string_view t : targets) {
        const auto pc = names_->find_label(t, b.scope);
        if (!pc) return error_at(b.at, fmt::format("unknown label {}", t));
        i.list.push_back(static_cast<int32_t>(*pc));
      }
    }
    return {};
  }

  std::unique_ptr<Module> module_;
  std::vector<SharedVariable> shared_;
  std::vector<std::string_view> dynamic_names_;
  bool linkage_extern_ = false;

  Kernel* kernel_ = nullptr;
  Names* names_ = nullptr;
  std::map<std::string_view, uint64_t> symbols_;
  std::map<std::string_view, uint64_t> parameter_offsets_;
  std::vector<Branch> branches_;
  uint16_t ir_file_ = 0;
  uint32_t ir_line_ = 0;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

Result<std::unique_ptr<Module>> decode_module(const std::string& text, const std::string& name) {
  STEPC_ASSIGN(std::vector<Token> tokens, tokenize(text, name));
  STEPC_ASSIGN(std::unique_ptr<Module> module, Decoder(std::move(tokens), name).run());
  module->lines = split_lines(text);
  return module;
}

}  // namespace stepc::emulator
