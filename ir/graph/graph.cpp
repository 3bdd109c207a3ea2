#include "ir/graph/graph.h"

#include <algorithm>
#include <array>

#include "ir/support/check.h"

namespace stepc {
namespace {

struct Arity {
  int low;
  int high;
};
constexpr Arity range(int low, int high) { return {low, high}; }
constexpr Arity arity(Arity both) { return both; }
constexpr Arity arity(int exact) { return {exact, exact}; }

std::vector<OpInfo> make_op_table() {
  using enum AttrKey;
#define ATTRS(...) {__VA_ARGS__}
#define OP(name, family, operands, results, attrs, shape_rule, gradient_rule, error, doc) \
  {#name, OpFamily::family, arity(operands).low, arity(operands).high, results, attrs, #gradient_rule, error, doc},
  return {
#include "ir/graph/graph_ops.def"
  };
#undef OP
#undef ATTRS
}

constexpr std::array kAttrNames = {
    std::string_view("name"),        std::string_view("value"),       std::string_view("axis"),
    std::string_view("axes"),        std::string_view("permutation"), std::string_view("start"),
    std::string_view("limit"),       std::string_view("low"),         std::string_view("high"),
    std::string_view("transpose_a"), std::string_view("transpose_b"), std::string_view("causal"),
    std::string_view("scale"),       std::string_view("top"),         std::string_view("capacity"),
    std::string_view("atomic")};

static_assert(kAttrNames.size() == static_cast<size_t>(AttrKey::atomic) + 1);

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = make_op_table();
  return table;
}

template <class T>
const T& typed(const Attrs& attrs, AttrKey key) {
  const AttrValue* value = attrs.find(key);
  STEPC_CHECK(value && std::holds_alternative<T>(*value), "attribute {} is missing or of another kind", attr_name(key));
  return std::get<T>(*value);
}

template <class Enum>
std::optional<Enum> from_name(std::string_view wanted, std::string_view (*name_of)(Enum), int count) {
  for (int i = 0; i < count; ++i)
    if (name_of(static_cast<Enum>(i)) == wanted) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

const AttrValue* Attrs::find(AttrKey key) const {
  for (const Entry& entry : entries_)
    if (entry.first == key) return &entry.second;
  return nullptr;
}
bool Attrs::flag(AttrKey key) const {
  if (is_optional(key) && !find(key)) return false;
  return typed<bool>(*this, key);
}
int64_t Attrs::integer(AttrKey key) const { return typed<int64_t>(*this, key); }
double Attrs::real(AttrKey key) const { return typed<double>(*this, key); }
const std::vector<int64_t>& Attrs::integers(AttrKey key) const { return typed<std::vector<int64_t>>(*this, key); }
const std::string& Attrs::text(AttrKey key) const { return typed<std::string>(*this, key); }

void Attrs::set(AttrKey key, AttrValue value) {
  for (Entry& entry : entries_)
    if (entry.first == key) {
      entry.second = std::move(value);
      return;
    }
  entries_.emplace_back(key, std::move(value));
}

const OpInfo& op_info(Op op) { return op_table()[static_cast<size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i)
    if (op_table()[i].name == name) return static_cast<Op>(i);
  return std::nullopt;
}

std::string_view attr_name(AttrKey key) { return kAttrNames[static_cast<size_t>(key)]; }

std::optional<AttrKey> attr_from_name(std::string_view name) {
  const auto found = std::find(kAttrNames.begin(), kAttrNames.end(), name);
  if (found == kAttrNames.end()) return std::nullopt;
  return static_cast<AttrKey>(found - kAttrNames.begin());
}

AttrKind attr_kind(AttrKey key) {
  switch (key) {
    case AttrKey::name: return AttrKind::text;
    case AttrKey::value:
    case AttrKey::scale: return AttrKind::real;
    case AttrKey::axis:
    case AttrKey::top:
    case AttrKey::capacity: return AttrKind::integer;
    case AttrKey::axes:
    case AttrKey::permutation:
    case AttrKey::start:
    case AttrKey::limit:
    case AttrKey::low:
    case AttrKey::high: return AttrKind::integers;
    case AttrKey::transpose_a:
    case AttrKey::transpose_b:
    case AttrKey::causal:
    case AttrKey::atomic: return AttrKind::flag;
  }
  STEPC_UNREACHABLE("attribute {}", static_cast<int>(key));
}

bool is_optional(AttrKey key) { return key == AttrKey::atomic; }

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::optimizer: return "optimizer";
  }
  STEPC_UNREACHABLE("phase {}", static_cast<int>(phase));
}

std::string_view template_name(Template schedule) {
  switch (schedule) {
    case Template::pointwise: return "pointwise";
    case Template::row: return "row";
    case Template::column_sum: return "column_sum";
    case Template::matmul: return "matmul";
    case Template::scatter: return "scatter";
    case Template::attention: return "attention";
    case Template::attention_grad: return "attention_grad";
    case Template::route: return "route";
  }
  STEPC_UNREACHABLE("template {}", static_cast<int>(schedule));
}

std::string_view arena_name(Arena arena) {
  switch (arena) {
    case Arena::weights: return "weights";
    case Arena::optimizer: return "optimizer";
    case Arena::gradients: return "gradients";
  }
  STEPC_UNREACHABLE("arena {}", static_cast<int>(arena));
}

std::optional<Phase> phase_from_name(std::string_view name) {
  return from_name<Phase>(name, phase_name, static_cast<int>(Phase::optimizer) + 1);
}
std::optional<Template> template_from_name(std::string_view name) {
  return from_name<Template>(name, template_name, static_cast<int>(Template::route) + 1);
}
std::optional<Arena> arena_from_name(std::string_view name) {
  return from_name<Arena>(name, arena_name, static_cast<int>(Arena::gradients) + 1);
}

const Persistent* Module::find_persistent(std::string_view wanted) const {
  for (const Persistent& persistent : persistents)
    if (persistent.name == wanted) return &persistent;
  return nullptr;
}

const Program* Module::find_program(std::string_view wanted) const {
  for (const Program& program : programs)
    if (program.name == wanted) return &program;
  return nullptr;
}

}  // namespace stepc
