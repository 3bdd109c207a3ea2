// Module text -> Module: directives, declarations and the heads of kernels.
#include <atomic>
#include <utility>

#include "runtime/emulator/cta.h"
#include "runtime/emulator/decode_body.h"

namespace stepc::emulator {
namespace {

class Decoder {
 public:
  Decoder(std::vector<Token> tokens, const std::string& file) : reader_(std::move(tokens), file) {}

  Result<std::unique_ptr<Module>> run() {
    module_ = std::make_unique<Module>();
    module_->files.emplace_back();
    while (reader_.peek().kind != TokenKind::end) STEPC_TRY(module_item());
    return std::move(module_);
  }

 private:
  // ---- module scope
  Status module_item() {
    const Token item = reader_.next();
    if (item.is(".version")) return take_into(module_->version);
    if (item.is(".target")) return target();
    if (item.is(".address_size")) return address_size();
    if (item.is(".file")) return decode_file(reader_, *module_);
    if (item.is(".section")) return skip_section();
    if (item.is(".visible") || item.is(".weak") || item.is(".extern")) {
      linkage_extern_ = item.is(".extern");
      return {};
    }
    if (item.is(".shared")) return shared();
    if (item.is(".global")) return global(item);
    if (item.is(".entry")) return kernel();
    return reader_.error_at(item, fmt::format("unknown directive {}", item.text));
  }

  Status take_into(std::string& out) {
    out = std::string(reader_.next().text);
    return {};
  }

  Status target() {
    module_->target = std::string(reader_.next().text);
    while (reader_.take(",")) reader_.next();
    return {};
  }

  Status address_size() {
    STEPC_ASSIGN(const uint64_t bits, reader_.take_number());
    if (bits != 64) return reader_.error(fmt::format("address size {}, expected 64", bits));
    return {};
  }

  Status skip_section() {
    while (reader_.peek().kind != TokenKind::end && !reader_.peek().is("{")) reader_.next();
    while (reader_.peek().kind != TokenKind::end && !reader_.take("}")) reader_.next();
    return {};
  }

  Status shared() {
    STEPC_ASSIGN(shared_.emplace_back(), decode_variable(reader_, std::exchange(linkage_extern_, false)));
    return {};
  }

  // Each at an address that no other module's has.
  Status global(const Token& at) {
    constexpr uint64_t kFirst = 0x0000'6000'0000'0000, kApart = 1 << 20;
    static std::atomic<uint64_t> next{kFirst};
    if (std::exchange(linkage_extern_, false)) return reader_.error_at(at, "a variable of another module");
    STEPC_ASSIGN(const Variable v, decode_variable(reader_, false));
    if (v.bytes == 0 || v.bytes > kApart || v.align > kApart)
      return reader_.error_at(at, fmt::format("a variable of {} bytes", v.bytes));
    module_->variables.push_back({next.fetch_add(2 * kApart), v.bytes});
    globals_.emplace_back(v.name, module_->variables.back().address);
    return {};
  }

  // ---- a kernel
  Status kernel() {
    linkage_extern_ = false;
    STEPC_ASSIGN(const std::string_view name, reader_.take_name());
    auto kernel = std::make_unique<Kernel>();
    kernel_ = kernel.get();
    kernel_->name = std::string(name);
    kernel_->module = module_.get();
    symbols_ = Symbols();
    for (const Variable& v : shared_) symbols_.add_shared(*kernel_, v);
    for (const auto& [variable, address] : globals_) symbols_.add_global(variable, address);
    STEPC_TRY(parameters());
    STEPC_TRY(kernel_directives());
    STEPC_TRY(reader_.expect("{"));
    STEPC_TRY(decode_body(reader_, *module_, *kernel_, symbols_));
    if (!module_->kernels.emplace(kernel_->name, std::move(kernel)).second)
      return reader_.error(fmt::format("kernel {} is defined twice", name));
    return {};
  }

  Status parameters() {
    if (!reader_.take("(")) return {};
    if (reader_.take(")")) return {};
    do {
      STEPC_TRY(parameter());
    } while (reader_.take(","));
    return reader_.expect(")");
  }

  // .param .u64 .ptr .global .align 16 name   or   .param .align 64 .b8 name[128]
  Status parameter() {
    STEPC_TRY(reader_.expect(".param"));
    uint64_t align = 0;
    bool pointer = false;
    Type type = Type::none;
    std::string_view name;
    while (name.empty()) {
      STEPC_ASSIGN(const std::string_view word, reader_.take_name());
      if (word == ".align") {
        STEPC_ASSIGN(const uint64_t value, reader_.take_number());
        if (!pointer) align = value;  // else that of what it points at
      } else if (word == ".ptr") {
        pointer = true;
      } else if (word.starts_with(".")) {
        const Type found = type_named(word.substr(1));
        if (found != Type::none)
          type = found;
        else if (!pointer)
          return reader_.error(fmt::format("unknown parameter attribute {}", word));
      } else {
        name = word;
      }
    }
    if (bytes_of(type) == 0) return reader_.error(fmt::format("parameter {} has no type", name));
    uint64_t bytes = bytes_of(type);
    if (reader_.take("[")) {
      STEPC_ASSIGN(const uint64_t count, reader_.take_number());
      bytes *= count;
      STEPC_TRY(reader_.expect("]"));
    }
    const uint64_t offset = align_up(kernel_->parameter_bytes, std::max<uint64_t>(align, bytes_of(type)));
    kernel_->parameters.push_back({std::string(name), static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
    kernel_->parameter_bytes = static_cast<uint32_t>(offset + bytes);
    symbols_.add_parameter(name, offset);
    return {};
  }

  Status kernel_directives() {
    while (reader_.peek().kind == TokenKind::name) {
      const Token d = reader_.next();
      if (d.is(".explicitcluster")) continue;
      if (d.is(".pragma")) {
        reader_.next();
        STEPC_TRY(reader_.expect(";"));
        continue;
      }
      std::vector<uint64_t> values;
      do {
        STEPC_ASSIGN(values.emplace_back(), reader_.take_number());
      } while (reader_.take(","));
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
        return reader_.error_at(d, fmt::format("unknown directive {}", d.text));
    }
    return {};
  }

  Reader reader_;
  std::unique_ptr<Module> module_;
  std::vector<Variable> shared_;
  std::vector<std::pair<std::string_view, uint64_t>> globals_;
  bool linkage_extern_ = false;

  Kernel* kernel_ = nullptr;
  Symbols symbols_;
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

void Symbols::add_shared(Kernel& kernel, const Variable& v) {
  if (v.dynamic) {
    kernel.dynamic_shared_align = std::max<uint32_t>(kernel.dynamic_shared_align, v.align);
    dynamic_.push_back(v.name);
  } else {
    const uint64_t at = align_up(kernel.static_shared_bytes, v.align);
    kernel.static_shared_bytes = static_cast<uint32_t>(at + v.bytes);
    addresses_[v.name] = kSharedBase + at;
  }
  const uint64_t dynamic = kSharedBase + align_up(kernel.static_shared_bytes, kernel.dynamic_shared_align);
  for (const std::string_view d : dynamic_) addresses_[d] = dynamic;
}

void Symbols::add_parameter(std::string_view name, uint64_t offset) {
  parameters_[name] = offset;
  addresses_[name] = kParamWindow + offset;
}

const uint64_t* Symbols::find(std::string_view name) const {
  const auto it = addresses_.find(name);
  return it == addresses_.end() ? nullptr : &it->second;
}

// .align 16 .b8 name[64];  with .extern: name[];
Result<Variable> decode_variable(Reader& reader, bool is_extern) {
  Variable v;
  v.dynamic = is_extern;
  if (reader.take(".align")) {
    STEPC_ASSIGN(v.align, reader.take_number());
  }
  STEPC_ASSIGN(const std::string_view type_text, reader.take_name());
  const Type type = type_named(type_text.substr(1));
  if (bytes_of(type) == 0) return reader.error(fmt::format("unknown type {}", type_text));
  STEPC_ASSIGN(v.name, reader.take_name());
  v.bytes = bytes_of(type);
  v.align = std::max<uint64_t>(v.align, bytes_of(type));
  while (reader.take("[")) {
    if (reader.take("]")) {
      if (!v.dynamic) return reader.error("an array without size must be .extern");
      v.bytes = 0;
      continue;
    }
    STEPC_ASSIGN(const uint64_t count, reader.take_number());
    v.bytes *= count;
    STEPC_TRY(reader.expect("]"));
  }
  STEPC_TRY(reader.expect(";"));
  return v;
}

// .file number "path"
Status decode_file(Reader& reader, Module& module) {
  const Token at = reader.peek();
  STEPC_ASSIGN(const uint64_t number, reader.take_number());
  if (number > 0xffff) return reader.error_at(at, fmt::format("file number {} is too large", number));
  if (module.files.size() <= number) module.files.resize(number + 1);
  module.files[number] = std::string(reader.peek().text);
  if (reader.peek().line == at.line) reader.skip_line();
  return {};
}

Result<std::unique_ptr<Module>> decode_module(const std::string& text, const std::string& name) {
  STEPC_ASSIGN(std::vector<Token> tokens, tokenize(text, name));
  STEPC_ASSIGN(std::unique_ptr<Module> module, Decoder(std::move(tokens), name).run());
  module->lines = split_lines(text);
  return module;
}

}  // namespace stepc::emulator
