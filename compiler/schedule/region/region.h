// Evaluates values of a kernel group at positions: from what a template wants to store back to the loads,
// making kernel-IR ops on the way. What is asked for twice in a scope is made once. A value at a uniform
// position is a scalar fragment, else a vector over the lanes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/region/access.h"
#include "compiler/schedule/region/lanes.h"
#include "ir/graph/graph.h"

namespace stepc::schedule {

// Reductions over at most so many elements are written out wherever they are read, and products of so few k.
constexpr int64_t kUnrolledReduction = 16;

// Does the op take many instructions?
bool is_costly(Op op);

// What a reduction starts from, the op that adds an element, and the one that reduces a fragment's lanes.
double reduction_start(Op op);
kernel::Op reduction_step(Op op);
kernel::Op reduction_across(Op op);

class Region {
 public:
  // A value that the template has already, at a position it knows: a product, a row's sum. Asked first.
  using Provider = std::function<std::optional<Fragment>(ValueId, const Position&)>;

  Region(KernelBuilder& builder, const Program& program, const Group& group, Buffers& buffers);
  void provide(Provider provider) { provider_ = std::move(provider); }

  // The elements under way: those of a space of rows x columns at one row and some columns. A costly value
  // that is read at other lanes of the same vector is then computed in the space's order and permuted.
  void set_space(int64_t rows, int64_t columns, Index row, LaneIndex column) {
    space_ = Space{{rows, columns}, {{row, {}, {}, {0, 0}}, std::move(column)}};
  }

  // The lanes of what is evaluated next. Changes only between scopes.
  void set_lanes(Lanes lanes) { math_.set_lanes(std::move(lanes)); }
  const Lanes& lanes() const { return math_.lanes(); }
  LaneMath& math() { return math_; }
  KernelBuilder& builder() { return builder_; }
  const Program& program() const { return program_; }

  Fragment at(ValueId value, const Position& where);
  // at(), as a vector whatever the position.
  Fragment wide_at(ValueId value, const Position& where) { return wide(at(value, where)); }
  Fragment wide(Fragment fragment);
  // A scalar; wide() of it is a constant too.
  Fragment constant(double value, Dtype dtype);
  // Stores it as the result's element there, when the scope ends: a result may be written over an operand, and
  // all that the scope reads is read before. The first form evaluates the result.
  void store(ValueId result, const Position& where) { store(at(result, where), result, where); }
  void store(Fragment fragment, ValueId result, const Position& where);
  // The elements of a shared buffer of the template's.
  Fragment load_shared(BufferId buffer, const Position& where) { return access_.load_shared(buffer, where); }
  // The lanes under way, of a scratch row of the template's, from its element `at` on.
  Fragment load_lanes(BufferId buffer, std::vector<Index> at);
  void store_lanes(Fragment fragment, BufferId buffer, std::vector<Index> at);
  // An i32 value at a uniform position, as an index.
  Index index_at(ValueId value, const Position& where, Range range);

  // Runs `body`, with the lanes given, and forgets what it evaluated: for the bodies of loops and branches.
  void scope(const Lanes& lanes, const std::function<void()>& body);

  bool contains(ValueId value) const { return inside_[index_of(program_.value(value).producer)]; }
  double cost() const { return access_.cost(); }
  // Why the code made so far is wrong, if it is: what the template cannot do.
  const std::optional<std::string>& failure() const { return failure_; }
  void fail(std::string reason);

 private:
  using Key = std::vector<int64_t>;
  Key key_of(ValueId value, const Position& where);
  Fragment evaluate(ValueId value, const Position& where);
  Fragment leaf(ValueId value, const Node& node, const Position& where);
  Fragment random_bits(ValueId value, const Node& node, const Position& where);
  Fragment pointwise(ValueId value, const Node& node, const Position& where);
  std::optional<Fragment> compared_place(const Node& node, const Position& where);
  std::optional<Fragment> permuted(ValueId value, const Position& where);
  Fragment view(ValueId value, const Node& node, const Position& where);
  Fragment pad(ValueId value, const Node& node, const Position& where);
  Fragment concat(ValueId value, const Node& node, const Position& where);
  Fragment reduction(ValueId value, const Node& node, const Position& where);
  Fragment product(ValueId value, const Node& node, const Position& where);
  Fragment gather_rows(ValueId value, const Node& node, const Position& where);
  Fragment zeros(ValueId value) { return constant(0, program_.type(value).dtype); }
  Fragment unsupported(ValueId value, std::string_view reason);

  KernelBuilder& builder_;
  const Program& program_;
  LaneMath math_;
  Access access_;
  std::vector<bool> inside_;  // by node
  Provider provider_;
  struct Space {
    Shape shape;
    Position at;
  };
  std::optional<Space> space_;
  std::map<kernel::FragId, double> constants_;
  // Of the open scopes.
  std::map<Key, Fragment> known_;
  std::map<Key, Index> known_indices_;
  std::map<kernel::FragId, Fragment> widened_;
  struct Store {
    Fragment fragment;
    ValueId result = ValueId::none;
    Position where;
  };
  void finish_stores(size_t first);
  std::vector<Store> stores_;  // of the open scopes
  bool in_scope_ = false;
  std::optional<std::string> failure_;
};

}  // namespace stepc::schedule
