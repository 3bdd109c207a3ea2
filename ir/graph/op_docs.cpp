#include "ir/graph/op_docs.h"

#include "ir/graph/graph.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

constexpr std::string_view kHead = R"(# The operations of graph IR

Made from `ir/graph/graph_ops.def`; to change it, change the table and run the tests with `STEPC_UPDATE=1`.

A value has a dtype (`f32`, `bf16`, `i32`, `pred`) and a static shape: `f32[8, 256]`; a scalar is `f32[]`. Unless a row says
otherwise pointwise operations take and give f32, of equal shapes: broadcasting is an operation of its own. bf16 is storage: only
`cast`, `matmul`, rows and structured operations produce it, and every bf16 value is rounded to nearest even.

*Error* is the relative error that one element may have against exact arithmetic on the same inputs, beyond the rounding of the
result's dtype; 0 means correctly rounded. Sums of reductions and products differ by order of accumulation besides.
)";

std::string_view family_title(OpFamily family) {
  switch (family) {
    case OpFamily::leaf: return "Leaves";
    case OpFamily::pointwise: return "Pointwise";
    case OpFamily::view: return "Views";
    case OpFamily::reduction: return "Reductions";
    case OpFamily::contraction: return "Contraction";
    case OpFamily::rows: return "Rows";
    case OpFamily::structured: return "Structured";
    case OpFamily::effect: return "Effects";
  }
  STEPC_UNREACHABLE("family {}", static_cast<int>(family));
}

std::string_view kind_name(AttrKind kind) {
  switch (kind) {
    case AttrKind::flag: return "true or false";
    case AttrKind::integer: return "integer";
    case AttrKind::real: return "number";
    case AttrKind::integers: return "integers";
    case AttrKind::text: return "name";
  }
  STEPC_UNREACHABLE("kind {}", static_cast<int>(kind));
}

// A cell's text: a bar would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string operands_text(const OpInfo& info) {
  if (info.min_operands == info.max_operands) return fmt::format("{}", info.min_operands);
  return fmt::format("{} to {}", info.min_operands, info.max_operands);
}

std::string attrs_text(const OpInfo& info) {
  std::string text;
  for (AttrKey key : info.attrs)
    text += fmt::format("{}`{}` ({}{})", text.empty() ? "" : ", ", attr_name(key), kind_name(attr_kind(key)),
                        is_optional(key) ? "; may be left out" : "");
  return text;
}

std::string gradient_text(const OpInfo& info) {
  if (info.gradient_rule == "none") return "no";
  if (info.gradient_rule == "zero") return "0";
  return info.gradient_rule == "effect" ? "" : "yes";
}

std::string row_text(const OpInfo& info) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", info.name, operands_text(info), info.results,
                     attrs_text(info), gradient_text(info), info.relative_error, cell(info.doc));
}

}  // namespace

std::string op_table_markdown() {
  std::string text(kHead);
  for (int f = 0; f <= static_cast<int>(OpFamily::effect); ++f) {
    const auto family = static_cast<OpFamily>(f);
    text += fmt::format("\n## {}\n\n", family_title(family));
    text += "| op | operands | results | attributes | gradient | error | meaning |\n|---|---|---|---|---|---|---|\n";
    for (int op = 0; op < kOpCount; ++op) {
      const OpInfo& info = op_info(static_cast<Op>(op));
      if (info.family == family) text += row_text(info);
    }
  }
  return text;
}

}  // namespace stepc
