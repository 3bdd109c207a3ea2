// The verifier's core: infer_types dispatches on the op table; verify walks a program node by node, so
// that each check may rely on the ones before it. The rules themselves are in verify_<family>.cpp, the
// checks of kernel groups in verify_groups.cpp.
#include "ir/graph/verify.h"

#include <algorithm>
#include <array>
#include <set>

#include "ir/graph/verify_groups.h"
#include "ir/graph/verify_rules.h"
#include "ir/support/check.h"
#include "ir/support/checked.h"
#include "ir/text/names.h"

namespace stepc {
namespace {

constexpr std::array<ShapeRule, kOpCount> kShapeRules = {
#define OP(name, family, operands, results, attrs, shape_rule, ...) infer_##shape_rule,
#include "ir/graph/graph_ops.def"
#undef OP
};

std::string_view kind_text(AttrKind kind) {
  switch (kind) {
    case AttrKind::flag: return "true or false";
    case AttrKind::integer: return "an integer";
    case AttrKind::real: return "a number";
    case AttrKind::integers: return "a list of integers";
    case AttrKind::text: return "a name";
  }
  STEPC_UNREACHABLE("kind {}", static_cast<int>(kind));
}

std::string attr_list_text(const std::vector<AttrKey>& keys) {
  std::string text;
  for (AttrKey key : keys) text += (text.empty() ? "" : ", ") + std::string(attr_name(key));
  return "{" + text + "}";
}

Status check_attrs(Op op, const Attrs& attrs) {
  std::vector<AttrKey> found;
  for (const Attrs::Entry& entry : attrs.entries()) found.push_back(entry.first);
  const OpInfo& info = op_info(op);
  std::vector<AttrKey> expected;
  for (AttrKey key : info.attrs)
    if (!is_optional(key) || attrs.find(key)) expected.push_back(key);
  if (found != expected)
    return user_error("{}: expected attributes {}, found {}", info.name, attr_list_text(expected),
                      attr_list_text(found));
  for (const Attrs::Entry& entry : attrs.entries()) {
    const AttrKind kind = attr_kind(entry.first);
    if (entry.second.index() != static_cast<size_t>(kind))
      return user_error("{}: expected {} as {}", info.name, kind_text(kind), attr_name(entry.first));
  }
  return {};
}

std::string count_text(int low, int high) {
  const std::string plural = high == 1 ? "" : "s";
  if (low == high) return fmt::format("{} operand{}", low, plural);
  return fmt::format("{} to {} operand{}", low, high, plural);
}

tl::unexpected<Error> result_count_error(Op op, size_t found) {
  const OpInfo& info = op_info(op);
  return user_error("{}: expected {} result{}, found {}", info.name, info.results, info.results == 1 ? "" : "s", found);
}

Status check_counts(Op op, size_t operands, size_t declared) {
  const OpInfo& info = op_info(op);
  const int found = static_cast<int>(std::min<size_t>(operands, 1 << 20));
  if (found < info.min_operands || found > info.max_operands)
    return user_error("{}: expected {}, found {}", info.name, count_text(info.min_operands, info.max_operands),
                      operands);
  const size_t results = static_cast<size_t>(info.results);
  if (declared != results && (declared != 0 || declares_result(op))) return result_count_error(op, declared);
  return {};
}

Status check_size(std::string_view what, const TensorType& type) {
  const auto count = checked_numel(type.shape);
  if (!count) return user_error("{}: the size of {} does not fit 64 bits", what, type_text(type));
  if (!checked_mul(*count, dtype_bytes(type.dtype)))
    return user_error("{}: the bytes of {} do not fit 64 bits", what, type_text(type));
  return {};
}

Status check_extents(std::string_view what, const TensorType& type) {
  for (int64_t extent : type.shape)
    if (extent < 0) return user_error("{}: expected extents of at least 0, found {}", what, type_text(type));
  return check_size(what, type);
}

// The walk over one program.
class ProgramVerifier {
 public:
  ProgramVerifier(const Module& module, const Program& program) : module_(module), program_(program) {}

  Status run() {
    STEPC_TRY(check_values());
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      Status status = check_node(static_cast<NodeId>(n));
      if (!status) return tl::unexpected(located(std::move(status).error(), program_.nodes[n]));
    }
    return verify_groups(program_);
  }

 private:
  // Where the text is known the position says enough; otherwise the program and value are named.
  Error located(Error error, const Node& node) const {
    if (!error.where.file.empty()) return error;
    error.where = node.where;
    if (!error.where.file.empty()) return error;
    const bool has_name = !node.results.empty() && index_of(node.results[0]) < program_.values.size();
    const std::string value = has_name ? fmt::format(", %{}", program_.value(node.results[0]).name) : "";
    error.message = fmt::format("program @{}{}: {}", program_.name, value, error.message);
    return error;
  }

  Status check_values() const {
    std::set<std::string_view> names;
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const Value& value = program_.values[v];
      if (!is_name(value.name)) return user_error("program @{}: '{}' is no value name", program_.name, value.name);
      if (!names.insert(value.name).second)
        return user_error("program @{}: %{} is defined twice", program_.name, value.name);
      const bool produced = index_of(value.producer) < program_.nodes.size();
      const auto* results = produced ? &program_.node(value.producer).results : nullptr;
      if (!results || std::find(results->begin(), results->end(), static_cast<ValueId>(v)) == results->end())
        return user_error("program @{}: %{} is not a result of its producer", program_.name, value.name);
    }
    return {};
  }

  Status check_node(NodeId id) {
    const Node& node = program_.node(id);
    Types operands;
    for (ValueId operand : node.operands) {
      const bool exists = index_of(operand) < program_.values.size();
      if (!exists || index_of(program_.value(operand).producer) >= index_of(id))
        return user_error("{}: operand {} is not defined before its use", op_info(node.op).name,
                          exists ? "%" + program_.value(operand).name : "none");
      operands.push_back(program_.type(operand));
    }
    Types declared;
    for (ValueId result : node.results) {
      if (index_of(result) >= program_.values.size() || program_.value(result).producer != id)
        return user_error("{}: a result belongs to another node", op_info(node.op).name);
      declared.push_back(program_.type(result));
    }
    // infer_types takes an empty list as "not declared"; here it means that a result is missing.
    if (declared.empty() && op_info(node.op).results > 0) return result_count_error(node.op, 0);
    STEPC_TRY(infer_types(node.op, operands, node.attrs, declared));
    return check_named(node);
  }

  Status check_named(const Node& node) {
    switch (op_info(node.op).family) {
      case OpFamily::leaf:
        if (node.op == Op::input) return check_once(inputs_, node, "input");
        if (node.op == Op::param || node.op == Op::state) return check_persistent(node, program_.type(node.results[0]));
        return {};
      case OpFamily::effect:
        if (node.op == Op::output) return check_once(outputs_, node, "output");
        STEPC_TRY(check_persistent(node, program_.type(node.operands[0])));
        return check_once(assigned_, node, "assign of");
      case OpFamily::pointwise:
      case OpFamily::view:
      case OpFamily::reduction:
      case OpFamily::contraction:
      case OpFamily::rows:
      case OpFamily::structured: return {};
    }
    STEPC_UNREACHABLE("family of {}", op_info(node.op).name);
  }

  static Status check_once(std::set<std::string_view>& seen, const Node& node, std::string_view what) {
    const std::string& name = node.attrs.text(AttrKey::name);
    if (!seen.insert(name).second) return user_error("expected one {} \"{}\" in a program, found another", what, name);
    return {};
  }

  Status check_persistent(const Node& node, const TensorType& type) const {
    const std::string& name = node.attrs.text(AttrKey::name);
    const Persistent* persistent = module_.find_persistent(name);
    if (!persistent) {
      std::vector<std::string_view> names;
      for (const Persistent& other : module_.persistents) names.push_back(other.name);
      return user_error("{}: no param or state @{}{}", op_info(node.op).name, name, did_you_mean(name, names));
    }
    if (node.op == Op::param && !persistent->is_param) return user_error("param: @{} is a state, not a param", name);
    if (node.op == Op::state && persistent->is_param) return user_error("state: @{} is a param, not a state", name);
    if (persistent->type != type)
      return user_error("{}: expected {} like @{}, found {}", op_info(node.op).name, type_text(persistent->type), name,
                        type_text(type));
    return {};
  }

  const Module& module_;
  const Program& program_;
  std::set<std::string_view> inputs_, outputs_, assigned_;
};

Status check_persistents(const Module& module) {
  std::set<std::string_view> names;
  for (const Persistent& persistent : module.persistents) {
    const std::string what = "@" + persistent.name;
    if (!is_name(persistent.name)) return user_error("'{}' is no name of a param or state", persistent.name);
    if (!names.insert(persistent.name).second) return user_error("{} is declared twice", what);
    if (persistent.is_param && persistent.arena != Arena::weights)
      return user_error("{}: expected arena weights for a param, found {}", what, arena_name(persistent.arena));
    STEPC_TRY(check_extents(what, persistent.type));
  }
  return {};
}

}  // namespace

bool declares_result(Op op) {
  const ShapeRule rule = kShapeRules[static_cast<size_t>(op)];
  const ShapeRule declaring[] = {infer_declared, infer_declared_random, infer_persistent, infer_cast,
                                 infer_reshape,  infer_broadcast,       infer_matmul,     infer_scatter_add_rows};
  return std::find(std::begin(declaring), std::end(declaring), rule) != std::end(declaring);
}

Result<Types> infer_results(Op op, const Types& operands, const Attrs& attrs, const Types& declared) {
  const std::string_view name = op_info(op).name;
  STEPC_TRY(check_counts(op, operands.size(), declared.size()));
  STEPC_TRY(check_attrs(op, attrs));
  for (const TensorType& type : declared) STEPC_TRY(check_extents(name, type));
  STEPC_ASSIGN(Types types, kShapeRules[static_cast<size_t>(op)]({op, operands, attrs, declared}));
  for (const TensorType& type : types) STEPC_TRY(check_size(name, type));
  return types;
}

Result<Types> infer_types(Op op, const Types& operands, const Attrs& attrs, const Types& declared) {
  STEPC_ASSIGN(Types types, infer_results(op, operands, attrs, declared));
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i] != types[i]) {
      const std::string which = types.size() == 1 ? "a result" : fmt::format("result {}", i + 1);
      return user_error("{}: expected {} of type {}, found {}", op_info(op).name, which, type_text(types[i]),
                        type_text(declared[i]));
    }
  return types;
}

Status verify(const Module& module, const Program& program) {
  if (!is_name(program.name)) return user_error("'{}' is no name of a program", program.name);
  return ProgramVerifier(module, program).run();
}

Status verify(const Module& module) {
  STEPC_TRY(check_persistents(module));
  std::set<std::string_view> names;
  for (const Program& program : module.programs) {
    if (!names.insert(program.name).second) return user_error("program @{} is defined twice", program.name);
    STEPC_TRY(verify(module, program));
  }
  return {};
}

}  // namespace stepc
