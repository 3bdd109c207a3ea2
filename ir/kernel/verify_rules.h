// The parts of the verifier. Not for use outside verify*.cpp.
#pragma once

#include <string>
#include <utility>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

// "file:line:column: store: message"
template <class... Args>
tl::unexpected<Error> op_error(const KOp& op, fmt::format_string<Args...> format, Args&&... args) {
  return user_error_at(op.where, "{}: {}", op_info(op.op).name, fmt::format(format, std::forward<Args>(args)...));
}
std::string frag_type_text(const Frag& frag);  // "f32[64, 128]"

// Operands, results, attributes and bodies as the table and the target have it (verify_ops.cpp).
Status check_form(const Kernel& kernel, const KOp& op);
// Types and places, of an op of good form. The bodies are checked already.
Status check_types(const Kernel& kernel, const KOp& op);
Status check_host_op(const Kernel& kernel, const KOp& op);  // verify_targets.cpp
Status check_gpu_op(const Kernel& kernel, const KOp& op);
Status check_sm90_op(const Kernel& kernel, const KOp& op);
// No access is provably out of bounds (verify_bounds.cpp).
Status check_bounds(const Kernel& kernel);

}  // namespace stepc::kernel
