// The parser of modules. Syntax is read first; then the verifier checks the whole, and the headers of
// kernel groups are compared with what follows from their operations.
#include "ir/graph/parse.h"

#include <algorithm>

#include "ir/graph/fused.h"
#include "ir/graph/parse_node.h"
#include "ir/graph/verify.h"
#include "ir/text/lexer.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr int kTemplateCount = static_cast<int>(Template::route) + 1;
constexpr int kArenaCount = static_cast<int>(Arena::gradients) + 1;

// A part of a kernel's header as it was written. All parts may be left out: they follow from the ops.
struct Written {
  std::string text;
  Location where;
  bool given = false;
};

struct KernelHeader {
  size_t program = 0;
  size_t group = 0;
  Written problem, operands, results;
};

std::string values_text(const Program& program, const std::vector<ValueId>& values) {
  std::string text;
  for (ValueId id : values) text += (text.empty() ? "%" : ", %") + program.value(id).name;
  return "(" + text + ")";
}

class ModuleParser {
 public:
  ModuleParser(std::string_view text, std::string file_name)
      : file_name_(file_name), reader_(text, std::move(file_name)) {}

  Result<Module> parse() {
    if (!reader_.accept("module")) return reader_.expected("'module' at the start of the file");
    STEPC_ASSIGN(module_.name, reader_.string("the module's name in quotes"));
    while (!reader_.at_end()) STEPC_TRY(parse_declaration());
    Status checked = verify(module_);
    for (size_t i = 0; checked && i < headers_.size(); ++i) checked = check_header(headers_[i]);
    if (checked) return std::move(module_);
    Error error = std::move(checked).error();
    if (error.where.file.empty()) error.where.file = file_name_;
    return tl::unexpected(std::move(error));
  }

 private:
  Status parse_declaration() {
    if (reader_.accept("param")) return parse_persistent(true);
    if (reader_.accept("state")) return parse_persistent(false);
    if (reader_.accept("program")) return parse_program();
    return reader_.expected("'param', 'state' or 'program'");
  }

  Status parse_persistent(bool is_param) {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token name, reader_.expect_kind(Token::Kind::symbol, "an @name"));
    if (module_.find_persistent(name.text)) return user_error_at(where, "@{} is declared twice", name.text);
    STEPC_TRY(reader_.expect(":", "a name"));
    Persistent persistent{std::string(name.text), {}, is_param, Arena::weights};
    STEPC_ASSIGN(persistent.type, parse_type(reader_));
    if (!is_param) {
      STEPC_ASSIGN(persistent.arena, parse_arena());
    }
    module_.persistents.push_back(std::move(persistent));
    return {};
  }

  Result<Arena> parse_arena() {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::word, "the state's arena"));
    if (const auto arena = arena_from_name(token.text)) return *arena;
    std::vector<std::string_view> names;
    for (int i = 0; i < kArenaCount; ++i) names.push_back(arena_name(static_cast<Arena>(i)));
    return user_error_at(where, "unknown arena '{}'{}", token.text, did_you_mean(token.text, names));
  }

  Status parse_program() {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token name, reader_.expect_kind(Token::Kind::symbol, "the program's @name"));
    if (module_.find_program(name.text)) return user_error_at(where, "program @{} is defined twice", name.text);
    STEPC_TRY(reader_.expect("{", "a program's name"));
    module_.programs.push_back({});
    Program& program = module_.programs.back();
    program.name = std::string(name.text);
    NodeParser nodes(reader_, program);
    while (!reader_.accept("}")) {
      if (!reader_.accept("kernel"))
        STEPC_TRY(parse_operation(nodes));
      else
        STEPC_TRY(parse_kernel(program, nodes));
    }
    return {};
  }

  Result<NodeId> parse_operation(NodeParser& nodes) {
    const Token::Kind kind = reader_.peek().kind;
    const bool starts = (kind == Token::Kind::value || kind == Token::Kind::word) && !reader_.at("kernel");
    if (!starts) return reader_.expected("an operation or '}'");
    return nodes.parse();
  }

  Status parse_kernel(Program& program, NodeParser& nodes) {
    const Location where = reader_.here();
    STEPC_ASSIGN(const Token name, reader_.expect_kind(Token::Kind::symbol, "the kernel's @name"));
    for (const Group& other : program.groups)
      if (other.name == name.text) return user_error_at(where, "kernel @{} is defined twice", name.text);
    KernelHeader header{module_.programs.size() - 1, program.groups.size(), {}, {}, {}};
    Group group{std::string(name.text), Template::pointwise, {}};
    STEPC_ASSIGN(group.schedule, parse_header(header));
    STEPC_TRY(reader_.expect("{", "a kernel's header"));
    while (!reader_.accept("}")) {
      STEPC_ASSIGN(const NodeId id, parse_operation(nodes));
      group.nodes.push_back(id);
    }
    if (group.nodes.empty()) return user_error_at(where, "expected an operation in kernel @{}, found none", group.name);
    program.groups.push_back(std::move(group));
    headers_.push_back(std::move(header));
    return {};
  }

  // template(problem) (operands) -> (results)
  Result<Template> parse_header(KernelHeader& header) {
    header.problem.where = reader_.here();
    STEPC_ASSIGN(const Token token, reader_.expect_kind(Token::Kind::word, "a kernel's template"));
    const auto schedule = template_from_name(token.text);
    if (!schedule) {
      std::vector<std::string_view> names;
      for (int i = 0; i < kTemplateCount; ++i) names.push_back(template_name(static_cast<Template>(i)));
      return user_error_at(header.problem.where, "unknown template '{}'{}", token.text,
                           did_you_mean(token.text, names));
    }
    if (!reader_.at("(")) return *schedule;
    STEPC_ASSIGN(header.problem.text, parse_problem());
    header.problem.text = std::string(token.text) + header.problem.text;
    header.problem.given = true;
    if (!reader_.at("(")) return *schedule;
    STEPC_ASSIGN(header.operands, parse_values());
    STEPC_TRY(reader_.expect("->", "a kernel's operands"));
    STEPC_ASSIGN(header.results, parse_values());
    return *schedule;
  }

  // "(m=64, n=128)", respelled as the printer spells it.
  Result<std::string> parse_problem() {
    std::string text;
    STEPC_TRY(reader_.expect("(", "a template"));
    do {
      STEPC_ASSIGN(const Token name, reader_.expect_kind(Token::Kind::word, "the name of a size"));
      STEPC_TRY(reader_.expect("=", "the name of a size"));
      STEPC_ASSIGN(const int64_t value, reader_.integer("an integer"));
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name.text, value);
    } while (reader_.accept(","));
    STEPC_TRY(reader_.expect(")", "a size"));
    return "(" + text + ")";
  }

  Result<Written> parse_values() {
    Written written{"", reader_.here(), true};
    STEPC_TRY(reader_.expect("(", "a kernel's problem"));
    while (!reader_.at(")")) {
      STEPC_ASSIGN(const Token value, reader_.expect_kind(Token::Kind::value, "a value"));
      written.text += (written.text.empty() ? "%" : ", %") + std::string(value.text);
      if (!reader_.accept(",")) break;
    }
    STEPC_TRY(reader_.expect(")", "a value"));
    written.text = "(" + written.text + ")";
    return written;
  }

  Status check_header(const KernelHeader& header) const {
    const Program& program = module_.programs[header.program];
    const Group& group = program.groups[header.group];
    STEPC_ASSIGN(const std::string problem, group_problem(program, group));
    STEPC_TRY(check_written("problem", header.problem, problem));
    STEPC_TRY(check_written("operands", header.operands, values_text(program, group_operands(program, group))));
    return check_written("results", header.results, values_text(program, group_results(program, group)));
  }

  static Status check_written(std::string_view what, const Written& written, const std::string& derived) {
    if (!written.given || written.text == derived) return {};
    return user_error_at(written.where, "expected {} {}, found {}", what, derived, written.text);
  }

  std::string file_name_;
  TokenReader reader_;
  Module module_;
  std::vector<KernelHeader> headers_;
};

}  // namespace

Result<Module> parse_module(std::string_view text, std::string file_name) {
  return ModuleParser(text, std::move(file_name)).parse();
}

}  // namespace stepc
