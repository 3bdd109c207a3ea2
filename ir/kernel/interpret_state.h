// The state of the interpreter. Not for use outside interpret*.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph/evaluate.h"
#include "ir/kernel/kernel.h"
#include "ir/kernel/print.h"

namespace stepc::kernel {

struct Lane {
  double value = 0;
  bool undefined = false;
};
using Lanes = std::vector<Lane>;  // row-major

// A buffer's elements, and for global ones which tasks touched them: -1 none, -2 several.
struct Memory {
  std::vector<int64_t> strides;
  std::vector<double>* data = nullptr;  // global: the caller's; shared: `own`
  std::vector<double> own;
  std::vector<char> undefined;  // shared
  std::vector<int64_t> writer;  // global
  std::vector<int64_t> reader;
};

class Machine {
 public:
  explicit Machine(const Kernel& kernel)
      : kernel_(kernel), frags_(kernel.frags.size()), variables_(kernel.variables.size()) {}

  Status start(const std::vector<Tensor*>& globals, const std::vector<int64_t>& scalars);
  Status run();

 private:
  template <class... Args>
  tl::unexpected<Error> error(const KOp& op, fmt::format_string<Args...> format, Args&&... args) const {
    const bool is_op = !op.results.empty() || !op.indices.empty() || !op.refs.empty();  // not of the launch itself
    return user_error_at(op.where, "@{}, task {}: {}{}", kernel_.name, task_, is_op ? print_op(kernel_, op) + ": " : "",
                         fmt::format(format, std::forward<Args>(args)...));
  }

  // interpret.cpp
  Result<int64_t> index(const KOp& op, ExprId id) const;
  Status set_variable(const KOp& op, VarId id, int64_t value);
  Status body(const Body& body);
  Status run_op(const KOp& op);
  Status loop(const KOp& op);
  Status branch(const KOp& op);
  void take_yielded(const Body& body, const std::vector<FragId>& into);

  // interpret_ops.cpp
  struct Place {
    const Buffer* buffer = nullptr;
    Memory* memory = nullptr;
    std::vector<int64_t> at;
  };
  Result<Place> place(const KOp& op, size_t ref);
  // The element `by` further along one dimension (and `more` along the last).
  Result<int64_t> offset(const KOp& op, const Place& place, size_t dimension, int64_t by, int64_t more) const;
  Result<Lane> read(const KOp& op, const Place& place, int64_t offset);
  Status write(const KOp& op, const Place& place, int64_t offset, Lane lane);
  Status load_or_store(const KOp& op);
  Status gather(const KOp& op);
  Status scatter(const KOp& op);
  Status load_index(const KOp& op);
  Status to_index(const KOp& op);
  Status pointwise(const KOp& op);
  Status make_lanes(const KOp& op);  // constant, lane, from_index, splat, permute, random_bits
  Status splat(const KOp& op);
  Status permute(const KOp& op);
  Status random_bits(const KOp& op);
  void reduce(const KOp& op);
  Lanes& frag(FragId id) { return frags_[index_of(id)]; }
  Lanes blank(FragId id) const { return Lanes(static_cast<size_t>(numel(kernel_.frag(id).shape))); }

  // interpret_host.cpp
  Status pack(const KOp& op);
  Status mma(const KOp& op);
  struct Operand {
    std::vector<float> values;
    std::vector<char> undefined;  // by row: one lane of it is
  };
  Result<Operand> mma_operand(const KOp& op, size_t ref, int64_t extent, int64_t units, bool is_panel);

  const Kernel& kernel_;
  std::vector<Memory> memories_;
  std::vector<Lanes> frags_;
  std::vector<int64_t> variables_;
  int64_t task_ = 0;
};

// To a dtype as the graph evaluator rounds in f32.
double rounded(double value, Dtype dtype);

}  // namespace stepc::kernel
