// What a contraction template of any target reads off a kernel group: the product's sizes and operands, and how
// each result follows from the product (the contract is in compiler/graph/fuse_check.h).
#pragma once

#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

// What a count of each batch promises: that from there on A is zeros along m or along k.
enum class CountedAxis : uint8_t { none, m, k };
std::string describe(CountedAxis counted);  // as it follows a configuration

// [batch, m, k] x [batch, k, n]; with transpose_a a is [batch, k, m], with transpose_b b is [batch, n, k].
struct MatmulProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t batch = 1;
  Dtype a_dtype = Dtype::f32;  // in memory
  Dtype b_dtype = Dtype::f32;
  Dtype math_dtype = Dtype::f32;  // of the product's operands: bf16 only if both are bf16 in memory
  bool transpose_a = false;
  bool transpose_b = false;
  bool halves = false;  // columns j and j + n / 2 are made side by side; the grid then covers n / 2 columns
  CountedAxis counted = CountedAxis::none;

  // Columns that the grid covers, each `parts()` times.
  int64_t columns() const { return halves ? n / 2 : n; }
  int64_t parts() const { return halves ? 2 : 1; }
};
std::string describe(const MatmulProblem& problem);

// A result, or one operand of a concat that is one: it is made element by element at `base`, whose row-major
// elements are those of the product (or of half its columns), and stored through views that move elements.
struct MatmulStore {
  ValueId result = ValueId::none;
  std::vector<int64_t> offset;  // of the piece in the result, by dimension
  ValueId base = ValueId::none;
  std::vector<NodeId> views;  // from the base to the piece
  bool half = false;          // of the product's columns
};

struct MatmulGroup {
  MatmulProblem sizes;
  ValueId a = ValueId::none;  // operands of the kernel
  ValueId b = ValueId::none;
  ValueId count = ValueId::none;  // i32, one a batch, if there is one
  ValueId product = ValueId::none;
  std::vector<MatmulStore> stores;

  bool plain = false;  // the product itself, if reshaped, is the only result
};

// `results`: the group's (fused.h's order).
MatmulGroup analyse_matmul(const Program& program, const Group& group, const std::vector<ValueId>& results);

}  // namespace stepc
