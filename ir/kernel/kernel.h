// Kernel IR: one kernel as a person would describe it. Global tensors and shared tiles, loops, and ops on
// whole fragments; thread indices never appear. On the host a kernel is a grid of independent tasks, each
// with its own shared memory; on Hopper a task is a CTA and its roles are sets of warps.
//
//   kernel @double host
//   global %x: f32[1023, 256]
//   global %y: f32[1023, 256]
//   grid 16
//   role @main {
//     for %r = task * 64 .. min(task * 64 + 64, 1023) {
//       for %c = 0 .. 256 step 64 {
//         %v: f32[64] = load %x[%r, %c]
//         %w: f32[64] = add %v, %v
//         store %w, %y[%r, %c]
//       }
//     }
//   }
//
// Ops live in a pool; bodies are lists of op ids. Index expressions are hash-consed in a pool of their own.
// Build with KernelBuilder (builder.h), print with print.h, read with parse.h, check with verify.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/dtype.h"
#include "ir/shape.h"
#include "ir/support/result.h"

namespace stepc::kernel {

enum class Op : uint8_t {
#define KOP(name, ...) name,
#include "ir/kernel/kernel_ops.def"
#undef KOP
};

enum class Target : uint8_t { host, cuda, sm90 };

enum class FragId : int32_t { none = -1 };
enum class VarId : int32_t { none = -1 };   // an index variable: of a loop, of an op that makes one, a launch scalar
enum class ExprId : int32_t { none = -1 };  // an index expression
enum class BufferId : int32_t { none = -1 };
enum class OpId : int32_t { none = -1 };
template <class Id>
constexpr size_t index_of(Id id) {
  return static_cast<size_t>(id);
}

// ---- index expressions -------------------------------------------------------------------------------
// Signed 64-bit. `div` and `rem` are floor division and its remainder by a positive number; less and equal
// give 0 or 1.
enum class ExprKind : uint8_t { constant, variable, task, add, sub, mul, div, rem, min, max, less, equal };

struct Expr {
  ExprKind kind = ExprKind::constant;
  int64_t value = 0;  // constant
  VarId variable = VarId::none;
  ExprId a = ExprId::none;
  ExprId b = ExprId::none;
  bool operator==(const Expr&) const = default;
};

// Inclusive bounds known for an expression; the widest range where nothing is known.
struct Range {
  int64_t low = INT64_MIN;
  int64_t high = INT64_MAX;
};

struct Variable {
  std::string name;  // without '%'
  Range range;
  int64_t multiple_of = 1;  // every value is a multiple of this
};

// ---- memory --------------------------------------------------------------------------------------------
enum class Space : uint8_t {
  global,   // operand of the launch, in order of declaration
  shared,   // of one task: scratch on the host, shared memory on a GPU
  map,      // a tensor map over a global tensor
  barrier,  // an array of mbarriers
};

struct Buffer {
  std::string name;
  Space space = Space::global;
  Dtype dtype = Dtype::f32;
  Shape shape;                       // barrier: [count]
  std::vector<int64_t> strides;      // elements; empty: dense row-major. Global operands may be strided.
  int64_t swizzle_bytes = 0;         // shared tiles and maps: 0, 32, 64 or 128
  bool overwritten = false;          // global, only read: a result may be written over it, see docs/kernel_abi.md
  BufferId over = BufferId::none;    // shared, on sm90: the bytes of this other buffer, from its first on
  BufferId map_of = BufferId::none;  // map: the global tensor
  Shape box;                         // map: the extent of one copy
  int64_t arrivals = 0;              // barrier: arrivals that complete a phase
};

// A place: one index a dimension.
struct Ref {
  BufferId buffer = BufferId::none;
  std::vector<ExprId> at;
  bool operator==(const Ref&) const = default;
};

// ---- fragments and ops ------------------------------------------------------------------------------------
struct Frag {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;  // rank 0, 1 or 2
};

using AttrValue = std::variant<bool, int64_t, double, std::vector<int64_t>, std::string>;
struct Attr {
  std::string name;
  AttrValue value;
  bool operator==(const Attr&) const = default;
};

struct Body {
  std::vector<FragId> carried;  // loop: the carried fragments as seen inside
  std::vector<OpId> ops;
};

struct KOp {
  Op op = Op::index;
  std::vector<FragId> frags;    // fragment operands, in order
  std::vector<Ref> refs;        // buffer, map and barrier operands, in order
  std::vector<ExprId> indices;  // index operands, in order
  std::vector<FragId> results;
  VarId variable = VarId::none;  // loop variable, or the result of index, load_index and to_index
  std::vector<Attr> attrs;
  std::vector<Body> bodies;  // loop, once: 1; branch: 1 or 2
  Location where;
};

struct Role {
  std::string name;
  int copies = 1;     // so many warp groups run it, numbered by `%copy` inside
  int warps = 0;      // of one copy; 0 on the host
  int registers = 0;  // per thread; 0: not set
  VarId copy = VarId::none;
  Body body;
};

struct Kernel {
  std::string name;
  Target target = Target::host;
  std::vector<Buffer> buffers;  // globals first, in launch order
  std::vector<VarId> scalars;   // launch scalars, in order
  ExprId grid = ExprId::none;   // number of tasks (CTAs), over constants and scalars
  int64_t cluster = 1;          // sm90: so many neighbouring tasks form a cluster; the grid is a multiple of it
  std::vector<Role> roles;
  std::vector<Expr> exprs;
  std::vector<Variable> variables;
  std::vector<Frag> frags;
  std::vector<KOp> ops;

  const Buffer& buffer(BufferId id) const { return buffers[index_of(id)]; }
  const Frag& frag(FragId id) const { return frags[index_of(id)]; }
  const Expr& expr(ExprId id) const { return exprs[index_of(id)]; }
  const KOp& op(OpId id) const { return ops[index_of(id)]; }
};

const Attr* find_attr(const KOp& op, std::string_view name);
int64_t integer_attr(const KOp& op, std::string_view name, int64_t missing);
bool flag_attr(const KOp& op, std::string_view name);  // false where it is not given
// Byte offset of each shared buffer of a task (by buffer index, -1 for others), and the total. Each is aligned to
// 64 bytes, or 1024 where it has a swizzle; those come first, so that no space is lost between them. One that lies over
// another starts where that does. Kernels for GPUs in which warps reduce a vector together have a place where they
// exchange their parts, behind the buffers.
struct SharedLayout {
  std::vector<int64_t> offset_bytes;
  int64_t exchange_offset = -1;  // -1: nothing is exchanged
  int64_t total_bytes = 0;
};
SharedLayout shared_layout(const Kernel& kernel);

// ---- the op table -----------------------------------------------------------------------------------------
enum class OperandKind : uint8_t { frag, ref, index, map, bar, opt_index, list_frag };
enum class ResultKind : uint8_t { nothing, frag, frags, index, carried };
enum class Level : uint8_t { core, host, gpu, sm90 };
enum class AttrKind : uint8_t { flag, integer, real, integers, text };

struct OpInfo {
  std::string_view name;
  std::vector<OperandKind> operands;
  ResultKind result;
  std::vector<std::string_view> attrs;
  Level level;
  std::string_view doc;
};
const OpInfo& op_info(Op op);
std::optional<Op> op_from_name(std::string_view name);
AttrKind attr_kind(std::string_view name);  // the kind of the table's attribute of this name
std::string_view target_name(Target target);
std::string_view space_name(Space space);

}  // namespace stepc::kernel
