#include "ir/kernel/op_docs.h"

#include "ir/graph/graph.h"
#include "ir/kernel/kernel.h"
#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

constexpr std::string_view kHead = R"(# The operations of kernel IR

Made from `ir/kernel/kernel_ops.def`; to change it, change the table and run the tests with `STEPC_UPDATE=1`. How to read a kernel
is in [kernel-ir.md](kernel-ir.md).

Operands: `frag` a fragment, `index` an index expression, `ref` a place in a buffer, `map` a place in a tensor map, `bar` a barrier;
`?` may be left out, `...` any number. An operation that says nothing of the target exists on all of them.
)";

// The first operation of each section of the table.
struct Section {
  Op first;
  std::string_view title;
};
constexpr Section kSections[] = {{Op::index, "Indices and control"}, {Op::load, "Memory"},
                                 {Op::constant, "Fragments"},        {Op::reduce_sum, "Rows"},
                                 {Op::pack, "Contraction (host)"},   {Op::exp2, "GPU (cuda and sm90)"},
                                 {Op::wait, "Hopper (sm90)"}};

std::string_view operand_text(OperandKind kind) {
  switch (kind) {
    case OperandKind::frag: return "frag";
    case OperandKind::ref: return "ref";
    case OperandKind::index: return "index";
    case OperandKind::map: return "map";
    case OperandKind::bar: return "bar";
    case OperandKind::opt_index: return "index?";
    case OperandKind::list_frag: return "frag...";
  }
  STEPC_UNREACHABLE("operand kind {}", static_cast<int>(kind));
}

std::string_view result_text(ResultKind kind) {
  switch (kind) {
    case ResultKind::nothing: return "";
    case ResultKind::frag: return "frag";
    case ResultKind::frags: return "frag...";
    case ResultKind::index: return "index";
    case ResultKind::carried: return "frag...";
  }
  STEPC_UNREACHABLE("result kind {}", static_cast<int>(kind));
}

std::string_view kind_text(AttrKind kind) {
  switch (kind) {
    case AttrKind::flag: return "true or false";
    case AttrKind::integer: return "integer";
    case AttrKind::real: return "number";
    case AttrKind::integers: return "integers";
    case AttrKind::text: return "string";
  }
  STEPC_UNREACHABLE("attribute kind {}", static_cast<int>(kind));
}

// Pointwise operations without a text of their own mean what the graph's operation of that name means.
std::string_view doc_of(const OpInfo& info) {
  if (!info.doc.empty()) return info.doc;
  const auto graph_op = stepc::op_from_name(info.name);
  return graph_op ? stepc::op_info(*graph_op).doc : "";
}

std::string row_text(const OpInfo& info) {
  std::string operands, attrs, doc;
  for (OperandKind kind : info.operands)
    operands += fmt::format("{}{}", operands.empty() ? "" : ", ", operand_text(kind));
  for (std::string_view name : info.attrs)
    attrs += fmt::format("{}`{}` ({})", attrs.empty() ? "" : ", ", name, kind_text(attr_kind(name)));
  for (char c : doc_of(info)) doc += c == '|' ? "\\|" : std::string(1, c);  // a bar would end the cell
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", info.name, operands, result_text(info.result), attrs, doc);
}

}  // namespace

std::string op_table_markdown() {
  std::string text(kHead);
  const auto add_row = [&](Op op, const OpInfo& info) {
    for (const Section& section : kSections)
      if (section.first == op)
        text += fmt::format("\n## {}\n\n| op | operands | results | attributes | meaning |\n|---|---|---|---|---|\n",
                            section.title);
    text += row_text(info);
  };
#define KOP(name, ...) add_row(Op::name, op_info(Op::name));
#include "ir/kernel/kernel_ops.def"
#undef KOP
  return text;
}

}  // namespace stepc::kernel
