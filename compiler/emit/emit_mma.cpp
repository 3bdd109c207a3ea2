// Host contractions.
#include "compiler/emit/host_context.h"
#include "ir/support/check.h"

namespace stepc::emit {

void emit_pack(HostContext& context, const kernel::KOp&) {
  STEPC_UNREACHABLE("pack in @{}: no emitter yet", context.kernel.name);
}

void emit_mma(HostContext& context, const kernel::KOp&) {
  STEPC_UNREACHABLE("mma in @{}: no emitter yet", context.kernel.name);
}

}  // namespace stepc::emit
