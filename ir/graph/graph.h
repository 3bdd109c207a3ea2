// Graph IR: whole tensors, static shapes, SSA. A Module holds persistent tensors (parameters and
// states) and named Programs over them. Nodes live in a pool in topological order; ids are indices.
// Build with GraphBuilder (builder.h), print with print.h, read with parse.h, check with verify.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "ir/shape.h"
#include "ir/support/result.h"

namespace stepc {

enum class Op : uint8_t {
#define OP(name, ...) name,
#include "ir/graph/graph_ops.def"
#undef OP
};

enum class OpFamily : uint8_t { leaf, pointwise, view, reduction, contraction, rows, structured, effect };

// The part of the training step that a node belongs to: reported in profiles and used by the planner.
enum class Phase : uint8_t { forward, backward, optimizer };

enum class ValueId : int32_t { none = -1 };
enum class NodeId : int32_t { none = -1 };
constexpr size_t index_of(ValueId id) { return static_cast<size_t>(id); }
constexpr size_t index_of(NodeId id) { return static_cast<size_t>(id); }

enum class AttrKey : uint8_t {
  name,
  value,
  axis,
  axes,
  permutation,
  start,
  limit,
  low,
  high,
  transpose_a,
  transpose_b,
  causal,
  scale,
  top,
  capacity,
  atomic
};
using AttrValue = std::variant<bool, int64_t, double, std::vector<int64_t>, std::string>;
// The kind of value that a key always has; the enumerators follow AttrValue's alternatives.
enum class AttrKind : uint8_t { flag, integer, real, integers, text };

// A node's attributes in the order of its row in the op table. Typed access CHECKs the kind.
class Attrs {
 public:
  using Entry = std::pair<AttrKey, AttrValue>;
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries) : entries_(entries) {}

  const AttrValue* find(AttrKey key) const;
  bool flag(AttrKey key) const;  // false where an optional one is left out
  int64_t integer(AttrKey key) const;
  double real(AttrKey key) const;
  const std::vector<int64_t>& integers(AttrKey key) const;
  const std::string& text(AttrKey key) const;
  void set(AttrKey key, AttrValue value);
  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<Entry> entries_;
};

struct TensorType {
  Dtype dtype = Dtype::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

struct Value {
  std::string name;  // unique in the program, without '%'
  TensorType type;
  NodeId producer = NodeId::none;
};

struct Node {
  Op op = Op::input;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  Attrs attrs;
  Phase phase = Phase::forward;
  Location where;  // of the text it was parsed from; not part of equality
};

// How the nodes of one kernel are scheduled. The fuser picks it; compiler/schedule has a builder for each.
enum class Template : uint8_t {
  pointwise,   // one loop nest over an index space; several results
  row,         // rows in parallel, reductions along the last axis, pointwise before and after
  column_sum,  // sum over the leading axis
  matmul,      // contraction with pointwise prologue and epilogue
  scatter,     // scatter_add_rows
  attention,
  attention_grad,
  route,
};

// A kernel group of a fused program: its nodes in topological order, each node in one group at most.
// Leaves that need no code (input, param, state) and effects are in no group. What it reads and writes
// follows from the nodes (fused.h).
struct Group {
  std::string name;
  Template schedule = Template::pointwise;
  std::vector<NodeId> nodes;
};

struct Program {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Group> groups;  // empty before fusion

  const Value& value(ValueId id) const { return values[index_of(id)]; }
  const TensorType& type(ValueId id) const { return value(id).type; }
  const Node& node(NodeId id) const { return nodes[index_of(id)]; }
  // The node that makes `id`.
  const Node& producer(ValueId id) const { return node(value(id).producer); }
};

// The arena that a persistent tensor lives in (plan.h).
enum class Arena : uint8_t { weights, optimizer, gradients };

struct Persistent {
  std::string name;  // dotted path, without '@'
  TensorType type;
  bool is_param = false;  // parameters are in Arena::weights
  Arena arena = Arena::weights;
};

struct Module {
  std::string name;
  std::vector<Persistent> persistents;
  std::vector<Program> programs;

  const Persistent* find_persistent(std::string_view name) const;
  const Program* find_program(std::string_view name) const;
};

// What the op table says of an op.
struct OpInfo {
  std::string_view name;
  OpFamily family;
  int min_operands;
  int max_operands;
  int results;
  std::vector<AttrKey> attrs;
  std::string_view gradient_rule;
  double relative_error;
  std::string_view doc;
};
const OpInfo& op_info(Op op);
std::optional<Op> op_from_name(std::string_view name);
std::string_view attr_name(AttrKey key);
std::optional<AttrKey> attr_from_name(std::string_view name);
AttrKind attr_kind(AttrKey key);
bool is_optional(AttrKey key);  // a flag that texts leave out where it is false
std::string_view phase_name(Phase phase);
std::optional<Phase> phase_from_name(std::string_view name);
std::string_view template_name(Template schedule);
std::optional<Template> template_from_name(std::string_view name);
std::string_view arena_name(Arena arena);
std::optional<Arena> arena_from_name(std::string_view name);
constexpr int kOpCount = 0
#define OP(...) +1
#include "ir/graph/graph_ops.def"
#undef OP
    ;

}  // namespace stepc
