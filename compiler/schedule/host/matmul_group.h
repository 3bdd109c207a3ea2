// What the contraction template reads off a kernel group: the product's sizes and operands, and how each
// result follows from the product (the contract is in compiler/graph/fuse_check.h).
#pragma once

#include "compiler/schedule/host/matmul.h"
#include "compiler/schedule/host/templates.h"

namespace stepc::host {

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
  ValueId product = ValueId::none;
  std::vector<MatmulStore> stores;

  bool plain = false;  // the product itself, if reshaped, is the only result
};

MatmulGroup analyse_matmul(const Problem& problem);

}  // namespace stepc::host
