// The printer: the exact inverse of the parser. It also prints kernels that the verifier refuses, for the
// message that says so: an id out of range prints as "%?".
#include "ir/kernel/print.h"

#include <algorithm>
#include <cmath>

#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

template <class Id, class T>
bool is_in(Id id, const std::vector<T>& pool) {
  return id != Id::none && stepc::kernel::index_of(id) < pool.size();
}

std::string type_text(Dtype dtype, const Shape& shape) { return std::string(dtype_name(dtype)) + shape_text(shape); }

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  return fmt::format("{}", value);  // shortest text that reads back as the same double
}

std::string attr_text(const AttrValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<int64_t>(&value)) return fmt::format("{}", *integer);
  if (const auto* real = std::get_if<double>(&value)) return real_text(*real);
  if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) return shape_text(*integers);
  return fmt::format("\"{}\"", std::get<std::string>(value));
}

std::string attrs_text(const std::vector<Attr>& attrs) {
  std::string text;
  for (const Attr& attr : attrs)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", attr.name, attr_text(attr.value));
  return text.empty() ? "" : " {" + text + "}";
}

// ---- index expressions ---------------------------------------------------------------------------------------

struct Symbol {
  std::string_view text;
  int precedence;  // 0: written as a call
};

Symbol symbol(ExprKind kind) {
  switch (kind) {
    case ExprKind::add: return {" + ", 1};
    case ExprKind::sub: return {" - ", 1};
    case ExprKind::mul: return {" * ", 2};
    case ExprKind::div: return {" / ", 2};
    case ExprKind::rem: return {" % ", 2};
    case ExprKind::min: return {"min", 0};
    case ExprKind::max: return {"max", 0};
    case ExprKind::less: return {"less", 0};
    case ExprKind::equal: return {"equal", 0};
    case ExprKind::constant:
    case ExprKind::variable:
    case ExprKind::task: break;
  }
  return {"", 0};
}

std::string variable_text(const Kernel& kernel, VarId id) {
  if (!is_in(id, kernel.variables)) return "%?";
  const bool is_copy =
      std::any_of(kernel.roles.begin(), kernel.roles.end(), [&](const Role& role) { return role.copy == id; });
  return is_copy ? "copy" : "%" + kernel.variables[index_of(id)].name;
}

// The text of an operand of something that binds with `precedence` or stronger.
std::string operand_text(const Kernel& kernel, ExprId id, int precedence) {
  if (!is_in(id, kernel.exprs)) return "%?";
  const Expr& expr = kernel.expr(id);
  switch (expr.kind) {
    case ExprKind::constant: return fmt::format("{}", expr.value);
    case ExprKind::variable: return variable_text(kernel, expr.variable);
    case ExprKind::task: return "task";
    case ExprKind::min:
    case ExprKind::max:
    case ExprKind::less:
    case ExprKind::equal:
      return fmt::format("{}({}, {})", symbol(expr.kind).text, operand_text(kernel, expr.a, 0),
                         operand_text(kernel, expr.b, 0));
    case ExprKind::add:
    case ExprKind::sub:
    case ExprKind::mul:
    case ExprKind::div:
    case ExprKind::rem: break;
  }
  const Symbol sign = symbol(expr.kind);
  std::string text = operand_text(kernel, expr.a, sign.precedence);
  text += sign.text;
  text += operand_text(kernel, expr.b, sign.precedence + 1);
  return sign.precedence < precedence ? "(" + text + ")" : text;
}

// ---- ops ---------------------------------------------------------------------------------------------------

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string header(const KOp& op) const {
    if (op.op == Op::index) return variable_text(kernel_, op.variable) + ": index = " + index_at(op, 0);
    if (op.op == Op::load_index || op.op == Op::to_index)
      return fmt::format("{}: index = {}{}", variable_text(kernel_, op.variable), op_info(op.op).name, operands(op));
    if (op.op == Op::loop) return loop_header(op);
    if (op.op == Op::branch) return "if " + index_at(op, 0) + results_arrow(op) + " {";
    if (op.op == Op::once) return "once {";
    std::string text = typed(op.results);
    if (!text.empty()) text += " = ";
    return text + std::string(op_info(op.op).name) + operands(op);
  }

  std::string body(const Body& body, int depth) const {
    std::string text;
    for (OpId id : body.ops) text += is_in(id, kernel_.ops) ? op_lines(kernel_.op(id), depth) : indent(depth) + "?\n";
    return text;
  }

  std::string declarations() const {
    std::string text = fmt::format("kernel @{} {}\n", kernel_.name, target_name(kernel_.target));
    for (const Buffer& buffer : kernel_.buffers) text += buffer_line(buffer);
    for (VarId id : kernel_.scalars) text += scalar_line(id);
    text += "grid " + expr_text(kernel_, kernel_.grid);
    if (kernel_.cluster != 1) text += fmt::format(" cluster {}", kernel_.cluster);
    return text + "\n";
  }

  static std::string role_header(const Role& role) {
    std::string text = "role @" + role.name;
    if (role.copies != 1) text += fmt::format(" copies {}", role.copies);
    if (role.warps != 0) text += fmt::format(" warps {}", role.warps);
    if (role.registers != 0) text += fmt::format(" registers {}", role.registers);
    return text + " {\n";
  }

 private:
  static std::string indent(int depth) { return std::string(static_cast<size_t>(depth) * 2, ' '); }

  std::string op_lines(const KOp& op, int depth) const {
    std::string text = indent(depth) + header(op) + "\n";
    for (size_t i = 0; i < op.bodies.size(); ++i) {
      if (i > 0) text += indent(depth) + "} else {\n";
      text += body(op.bodies[i], depth + 1);
    }
    return op.bodies.empty() ? text : text + indent(depth) + "}\n";
  }

  std::string index_at(const KOp& op, size_t i) const {
    return i < op.indices.size() ? expr_text(kernel_, op.indices[i]) : "%?";
  }

  std::string frag_text(FragId id) const {
    return is_in(id, kernel_.frags) ? "%" + kernel_.frag(id).name : std::string("%?");
  }

  std::string typed(FragId id) const {
    if (!is_in(id, kernel_.frags)) return "%?";
    const Frag& frag = kernel_.frag(id);
    return fmt::format("%{}: {}", frag.name, type_text(frag.dtype, frag.shape));
  }

  std::string typed(const std::vector<FragId>& frags) const {
    std::string text;
    for (FragId id : frags) text += (text.empty() ? "" : ", ") + typed(id);
    return text;
  }

  std::string results_arrow(const KOp& op) const {
    return op.results.empty() ? "" : fmt::format(" -> ({})", typed(op.results));
  }

  std::string ref_text(const Ref& ref) const {
    std::string text = is_in(ref.buffer, kernel_.buffers) ? "%" + kernel_.buffer(ref.buffer).name : std::string("%?");
    text += "[";
    for (size_t i = 0; i < ref.at.size(); ++i) text += (i ? ", " : "") + expr_text(kernel_, ref.at[i]);
    return text + "]";
  }

  // The operands in the order of the table's row, and the attributes.
  std::string operands(const KOp& op) const {
    std::vector<std::string> parts;
    size_t frag = 0, ref = 0, index = 0;
    for (OperandKind kind : op_info(op.op).operands) {
      switch (kind) {
        case OperandKind::frag:
          parts.push_back(frag < op.frags.size() ? frag_text(op.frags[frag]) : "%?");
          ++frag;
          break;
        case OperandKind::list_frag:
          for (; frag < op.frags.size(); ++frag) parts.push_back(frag_text(op.frags[frag]));
          break;
        case OperandKind::ref:
        case OperandKind::map:
        case OperandKind::bar:
          parts.push_back(ref < op.refs.size() ? ref_text(op.refs[ref]) : "%?");
          ++ref;
          break;
        case OperandKind::index: parts.push_back(index_at(op, index++)); break;
        case OperandKind::opt_index:
          if (index < op.indices.size()) parts.push_back(index_at(op, index++));
          break;
      }
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? " " : ", ") + part;
    return text + attrs_text(op.attrs);
  }

  std::string loop_header(const KOp& op) const {
    std::string text =
        fmt::format("for {} = {} .. {}", variable_text(kernel_, op.variable), index_at(op, 0), index_at(op, 1));
    const std::string step = index_at(op, 2);
    if (step != "1") text += " step " + step;
    std::string carried;
    const size_t count = op.bodies.empty() ? 0 : op.bodies[0].carried.size();
    for (size_t i = 0; i < count; ++i) {
      const std::string initial = i < op.frags.size() ? frag_text(op.frags[i]) : "%?";
      carried += fmt::format("{}{} = {}", i ? ", " : "", typed(op.bodies[0].carried[i]), initial);
    }
    if (!carried.empty()) text += " carry (" + carried + ")";
    return text + results_arrow(op) + " {";
  }

  std::string buffer_line(const Buffer& buffer) const {
    std::string text = fmt::format("{} %{}: ", space_name(buffer.space), buffer.name);
    switch (buffer.space) {
      case Space::global:
      case Space::shared: text += type_text(buffer.dtype, buffer.shape); break;
      case Space::map: {
        const std::string of = is_in(buffer.map_of, kernel_.buffers) ? kernel_.buffer(buffer.map_of).name : "?";
        text += fmt::format("%{} box {}", of, shape_text(buffer.box));
        break;
      }
      case Space::barrier:
        text += fmt::format("{} arrivals {}", buffer.shape.empty() ? 0 : buffer.shape[0], buffer.arrivals);
        break;
    }
    if (!buffer.strides.empty()) text += " strides " + shape_text(buffer.strides);
    if (buffer.overwritten) text += " overwritten";
    if (buffer.swizzle_bytes != 0) text += fmt::format(" swizzle {}", buffer.swizzle_bytes);
    if (buffer.over != BufferId::none)
      text += fmt::format(" over %{}", is_in(buffer.over, kernel_.buffers) ? kernel_.buffer(buffer.over).name : "?");
    return text + "\n";
  }

  std::string scalar_line(VarId id) const {
    if (!is_in(id, kernel_.variables)) return "scalar %?\n";
    const Variable& variable = kernel_.variables[index_of(id)];
    std::vector<Attr> attrs;
    if (variable.range.low != 0) attrs.push_back({"low", variable.range.low});
    if (variable.range.high != INT64_MAX) attrs.push_back({"high", variable.range.high});
    if (variable.multiple_of != 1) attrs.push_back({"multiple_of", variable.multiple_of});
    return fmt::format("scalar %{}{}\n", variable.name, attrs_text(attrs));
  }

  const Kernel& kernel_;
};

}  // namespace

std::string expr_text(const Kernel& kernel, ExprId id) { return operand_text(kernel, id, 0); }

std::string print_op(const Kernel& kernel, const KOp& op) { return Printer(kernel).header(op); }

std::string print_kernel(const Kernel& kernel) {
  const Printer printer(kernel);
  std::string text = printer.declarations();
  for (const Role& role : kernel.roles) text += "\n" + Printer::role_header(role) + printer.body(role.body, 1) + "}\n";
  return text;
}

}  // namespace stepc::kernel
