// What arithmetic costs, in the bytes that memory moves meanwhile. On an H200 and on two Zen 4 cores alike a
// byte from memory takes about as long as 16 simple operations, a fast transcendental function as long as a byte,
// one that reduces its argument as long as a few.
#include "compiler/graph/region.h"
#include "ir/support/check.h"

namespace stepc {

double op_work_bytes(Op op) {
  constexpr double kFree = 0;
  constexpr double kSimple = 1.0 / 16;
  constexpr double kTranscendental = 1;
  constexpr double kSlow = 4;
  constexpr double kGathered = 0.25;  // the place of a row has to be looked up
  switch (op) {
    case Op::input:
    case Op::param:
    case Op::state:
    case Op::constant:
    case Op::iota:
    case Op::cast:
    case Op::stop_gradient:
    case Op::reshape:
    case Op::transpose:
    case Op::broadcast:
    case Op::slice:
    case Op::pad:
    case Op::reverse:
    case Op::concat:
    case Op::matmul:
    case Op::scatter_add_rows:
    case Op::attention:
    case Op::attention_grad:
    case Op::route:
    case Op::assign:
    case Op::output: return kFree;
    case Op::neg:
    case Op::abs:
    case Op::floor:
    case Op::is_finite:
    case Op::logical_not:
    case Op::unit_from_bits:
    case Op::add:
    case Op::sub:
    case Op::mul:
    case Op::max:
    case Op::min:
    case Op::equal:
    case Op::less:
    case Op::less_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::fma:
    case Op::select:
    case Op::reduce_sum:
    case Op::reduce_max:
    case Op::reduce_min: return kSimple;
    case Op::exp:
    case Op::log:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::logistic:
    case Op::div:
    case Op::rem: return kTranscendental;
    case Op::gather_rows: return kGathered;
    case Op::sin:
    case Op::cos:
    case Op::tanh:
    case Op::pow:
    case Op::random_bits: return kSlow;
  }
  STEPC_UNREACHABLE("op {}", static_cast<int>(op));
}

}  // namespace stepc
