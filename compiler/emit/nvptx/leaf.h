// The hardware leaves of leaf_ops.def as calls of inline assembly.
#pragma once

#include <string>
#include <string_view>

#include "compiler/emit/nvptx/context.h"

namespace stepc::emit {

enum class Leaf : uint8_t {
#define LEAF(name, ...) name,
#include "compiler/emit/nvptx/leaf_ops.def"
#undef LEAF
};

struct LeafInfo {
  std::string_view name;
  std::string_view text;
  std::string_view constraints;
  int minimum_sm;
  int minimum_ptx;
  std::string_view kernel_op;
};
const LeafInfo& leaf_info(Leaf leaf);

// The results of the leaf, in order.
Words emit_leaf(GpuContext& context, Leaf leaf, llvm::ArrayRef<llvm::Value*> operands);
// For leaves whose text depends on sizes: `text` and `constraints` made from the row's, which holds what does not.
Words emit_leaf_text(GpuContext& context, Leaf leaf, const std::string& text, const std::string& constraints,
                     llvm::ArrayRef<llvm::Value*> operands);
// "80" of "sm_80", "90" of "sm_90a".
int sm_version(const GpuTarget& target);

}  // namespace stepc::emit
