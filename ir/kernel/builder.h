// Builds a kernel. Index arithmetic is written with the usual operators on `Index` values and simplified as
// it is built (constants folded, divisions removed where ranges and multiples prove it), so that templates
// can write general expressions and still get plain ones. In the same spirit a loop of one turn becomes its
// body, and a branch on a constant the body taken.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/kernel/index_simplify.h"
#include "ir/kernel/kernel.h"

namespace stepc::kernel {

class KernelBuilder;

// An index expression of the kernel under construction. Mixes with int64_t.
class Index {
 public:
  Index() = default;
  Index(int64_t constant) : constant_(constant) {}  // NOLINT: implicit by design
  Index(KernelBuilder* builder, ExprId id) : builder_(builder), id_(id) {}
  bool is_constant() const;
  int64_t constant() const;  // CHECKs
  ExprId id(KernelBuilder& builder) const;
  KernelBuilder* builder() const { return builder_; }

 private:
  KernelBuilder* builder_ = nullptr;  // null: constant_
  ExprId id_ = ExprId::none;
  int64_t constant_ = 0;
};

Index operator+(Index a, Index b);
Index operator-(Index a, Index b);
Index operator*(Index a, Index b);
Index operator/(Index a, Index b);  // floor; b > 0
Index operator%(Index a, Index b);  // of the floor division; b > 0
Index min(Index a, Index b);
Index max(Index a, Index b);
Index less(Index a, Index b);   // 0 or 1
Index equal(Index a, Index b);  // 0 or 1
Index ceil_div(Index a, int64_t b);

// A fragment of the kernel under construction.
struct Value {
  FragId id = FragId::none;
  bool valid() const { return id != FragId::none; }
};

class KernelBuilder {
 public:
  KernelBuilder(std::string name, Target target);
  KernelBuilder(const KernelBuilder&) = delete;  // every Index points here
  KernelBuilder& operator=(const KernelBuilder&) = delete;

  // Declarations. Names are made unique.
  BufferId global(std::string name, Dtype dtype, Shape shape, std::vector<int64_t> strides = {});
  BufferId shared(std::string name, Dtype dtype, Shape shape, int64_t swizzle_bytes = 0);
  // The bytes of another shared buffer, in another shape.
  BufferId shared_over(std::string name, Dtype dtype, Shape shape, int64_t swizzle_bytes, BufferId over);
  BufferId tensor_map(std::string name, BufferId global, Shape box, int64_t swizzle_bytes);
  BufferId barriers(std::string name, int64_t count, int64_t arrivals);
  Index scalar(std::string name, Range range = {0, INT64_MAX}, int64_t multiple_of = 1);
  void set_grid(Index tasks);  // before task() is used
  Index task();                // this task's number, 0 <= task < grid
  void set_cluster(int64_t tasks);
  void begin_role(std::string name, int warps = 0, int registers = 0, int copies = 1);
  Index copy();  // of this role, 0 <= copy < copies; 0 where there is one

  // Ops. `at` has one index a dimension of the buffer; the fragment lies along the last dimension(s).
  Value load(BufferId buffer, std::vector<Index> at, Shape shape);
  Value load_first(BufferId buffer, std::vector<Index> at, Shape shape, Index count);
  void store(Value value, BufferId buffer, std::vector<Index> at);
  void store_first(Value value, BufferId buffer, std::vector<Index> at, Index count);
  Value gather(BufferId buffer, std::vector<Index> at, Value offsets);
  void scatter(Value tile, BufferId buffer, std::vector<Index> at, Value offsets, Index count, Index height);
  Index load_index(BufferId buffer, std::vector<Index> at, Range range);
  Index to_index(Value scalar, Range range, std::string_view name);
  Index name(std::string name, Index value);  // `index` op: computed once, here

  Value constant(double value, Dtype dtype, Shape shape = {});
  Value lane(Shape shape);  // along the last dimension
  Value lane(Shape shape, int64_t axis);
  Value from_index(Index value);
  Value splat(Value x, Shape shape);  // a scalar, or [n] to [m, n]; x itself if it has that shape
  Value permute(Value x, std::vector<int64_t> lanes);
  Value cast(Value x, Dtype dtype);  // x itself if it has that dtype
  // Any pointwise row of the table but cast; the result's dtype follows. Scalars are splat where another operand is
  // wide.
  Value pointwise(Op op, std::vector<Value> operands);
  Value random_bits(Value seed, Value stream, Value step, Index first, Shape shape);
  Value reduce(Op op, Value x);  // reduce_sum, reduce_max, reduce_min

  Ref ref(BufferId buffer, std::vector<Index> at);
  // Contractions on the host; `rows` names a dimension of the source, -1: the one before the last.
  void pack(Ref source, Ref target, Index depth, Index width, bool transposed, int64_t rows = -1);
  Value mma(Value acc, Ref a, Ref b, Index depth, std::string a_layout, int64_t rows = -1);
  void prefetch(Ref place, std::vector<int64_t> tile, bool write, int64_t rows = -1);

  // Any other row of the table, with its operands as they are. Results take the dtype and shape given.
  Value emit(KOp op, Dtype dtype, Shape shape, std::string_view hint);
  std::vector<Value> emit_all(KOp op, const std::vector<Value>& like, std::string_view suffix);
  // One result a name.
  std::vector<Value> emit_each(KOp op, Dtype dtype, const Shape& shape, const std::vector<std::string>& names);
  void emit(KOp op) { append(std::move(op)); }
  std::vector<ExprId> ids(const std::vector<Index>& indices);
  void once(const std::function<void()>& body);
  // What `tile` accesses add: rows along a dimension of the buffer, `count` columns and `height` rows of it.
  Value load_tile(BufferId buffer, std::vector<Index> at, Shape shape, int64_t rows, Index count, Index height);
  void store_tile(Value value, BufferId buffer, std::vector<Index> at, int64_t rows, Index count, Index height);
  Value splat_column(Value x, Shape shape);  // [m] in every column of [m, n]

  // for i = low .. high step `step`: `body(i, carried)` returns the carried values of the next turn.
  std::vector<Value> loop(std::string name, Index low, Index high, Index step, std::vector<Value> initial,
                          const std::function<std::vector<Value>(Index, const std::vector<Value>&)>& body);
  void loop(std::string name, Index low, Index high, Index step, const std::function<void(Index)>& body);
  // if condition != 0. Both bodies return the results.
  std::vector<Value> branch(Index condition, const std::function<std::vector<Value>()>& then_body,
                            const std::function<std::vector<Value>()>& else_body);
  void when(Index condition, const std::function<void()>& body);

  // Gives the fragment a name for readers of the text, made unique. For values made in the innermost open body.
  Value named(std::string name, Value value);

  Dtype dtype(Value value) const { return kernel_.frag(value.id).dtype; }
  const Shape& shape(Value value) const { return kernel_.frag(value.id).shape; }

  // Expressions, used by the operators above.
  ExprId make_expr(ExprKind kind, ExprId a, ExprId b) { return simplifier_.make(kind, a, b); }
  ExprId make_constant(int64_t value) { return simplifier_.constant(value); }
  Range range(ExprId id) const { return range_of(kernel_, id); }
  // A number that divides every value; 0 for the constant 0.
  int64_t multiple_of(ExprId id) const { return kernel::multiple_of(kernel_, id); }
  const Kernel& kernel() const { return kernel_; }

  // Verifies (CHECK) and gives the kernel away.
  Kernel finish();

 private:
  // A body under construction. It becomes part of its op when it is complete, so no op in the pool ever has
  // a body that still grows.
  struct OpenBody {
    std::vector<OpId> ops;
    std::unordered_set<std::string> names;
    // By base: every number below this one is taken as long as the body is open, so the search begins here.
    std::unordered_map<std::string, int> first_free;
  };

  void free_name(const std::string& name);    // of the innermost body
  std::string unique_name(std::string base);  // not visible in the open bodies
  BufferId add_buffer(std::string name, Space space, Dtype dtype, Shape shape, std::vector<int64_t> strides);
  VarId add_variable(Variable variable);  // its name is unique already
  FragId add_frag(std::string name, Dtype dtype, Shape shape);
  Value emit_frag(KOp op, Dtype dtype, Shape shape, std::string_view hint);
  OpId append(KOp op);
  Index index_of_variable(VarId id) { return Index(this, simplifier_.variable(id)); }
  void open_body() { open_.emplace_back(); }
  Body close_body(std::vector<FragId> carried, const std::vector<Value>& yielded);
  std::vector<Value> finish_results(KOp op, const std::vector<Value>& like, std::string_view suffix);
  void end_role();

  Kernel kernel_;
  IndexSimplifier simplifier_{kernel_};
  std::unordered_set<std::string> all_names_;     // of every body so far: buffers may not take them
  std::unordered_set<std::string> global_names_;  // of buffers and scalars, visible everywhere
  std::vector<OpenBody> open_;                    // innermost last
};

}  // namespace stepc::kernel
