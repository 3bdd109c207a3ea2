// Decoding of the instructions that the asynchronous units execute: mbarriers, bulk and tensor copies, wgmma, proxy
// fences. Their meaning is in units/.
#include <charconv>

#include "runtime/emulator/instructions/execute.h"
#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

AsyncOperands& begin(Form& f, Opcode opcode) {
  Instruction& i = f.out();
  i.opcode = opcode;
  i.async = std::make_unique<AsyncOperands>();
  return *i.async;
}

// ---- mbarriers
bool take_barrier_space(Form& f) {
  f.take_any({"release", "acquire", "relaxed", "cta", "cluster"});
  if (f.take("shared::cluster")) return true;
  f.take_any({"shared", "shared::cta"});
  return false;
}

void need_b64(Form& f) {
  if (f.take_type() != Type::b64) f.fail("no such form");
}

void decode_mbarrier_init(Form& f) {
  f.take("init");
  AsyncOperands& a = begin(f, Opcode::mbarrier_init);
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(2);
  a.barrier = f.address(0);
  a.count = f.source(1, Type::u32);
}

void decode_mbarrier_inval(Form& f) {
  f.take("inval");
  AsyncOperands& a = begin(f, Opcode::mbarrier_inval);
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(1);
  a.barrier = f.address(0);
}

// mbarrier.arrive{.expect_tx} state, [barrier] {, count or bytes}
void decode_mbarrier_arrive(Form& f) {
  f.take("arrive");
  AsyncOperands& a = begin(f, Opcode::mbarrier_arrive);
  a.expect_tx = f.take("expect_tx");
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(a.expect_tx ? 3 : 2, 3);
  if (f.operand(0).kind != OperandKind::sink) a.state = f.target(0, Type::b64);
  a.barrier = f.address(1);
  if (f.count() == 3) (a.expect_tx ? a.bytes : a.count) = f.source(2, Type::u32);
}

void decode_mbarrier_expect_tx(Form& f) {
  f.take("expect_tx");
  AsyncOperands& a = begin(f, Opcode::mbarrier_expect_tx);
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(2);
  a.barrier = f.address(0);
  a.bytes = f.source(1, Type::u32);
}

// done, [barrier], state or parity {, time}
void decode_mbarrier_wait(Form& f) {
  const bool test = f.take("test_wait");
  if (!test) f.take("try_wait");
  AsyncOperands& a = begin(f, test ? Opcode::mbarrier_test_wait : Opcode::mbarrier_try_wait);
  const bool parity = f.take("parity");
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(3, test ? 3 : 4);
  a.done = f.predicate_target(0);
  a.barrier = f.address(1);
  if (parity)
    a.parity = f.source(2, Type::u32);
  else
    a.state = f.source(2, Type::b64);
}

void decode_copy_arrive(Form& f) {
  f.take_any({"async", "mbarrier", "arrive"});
  AsyncOperands& a = begin(f, Opcode::cp_async_mbarrier_arrive);
  a.noinc = f.take("noinc");
  a.remote = take_barrier_space(f);
  need_b64(f);
  f.expect(1);
  a.barrier = f.address(0);
}

// ---- copies
void take_hints(Form& f) {
  while (f.take_prefixed("L2::")) {
  }
}

void take_coordinates(Form& f, size_t operand, AsyncOperands& a) {
  size_t rank = 0;
  for (size_t n = 1; n <= 5; ++n)
    if (f.take(std::to_string(n) + "d")) rank = n;
  f.take("tile");
  a.global = f.address(operand);
  const std::vector<Operand>& coordinates = f.operand(operand).parts;
  if (rank == 0 || coordinates.size() != rank)
    return f.fail(fmt::format("{} coordinates for a tensor of rank {}", coordinates.size(), rank));
  for (const Operand& c : coordinates) a.coordinates.push_back(f.source(c, Type::s32));
}

// Behind the barrier of a load: the mask of a multicast, then a cache policy.
void take_multicast(Form& f, size_t operand, AsyncOperands& a) {
  const bool multicast = f.take("multicast::cluster");
  const size_t most = operand + (multicast ? 1 : 0) + 1;
  f.expect(operand + (multicast ? 1 : 0), most);
  if (multicast) a.multicast = f.source(operand, Type::b16);
}

bool take_destination_shared(Form& f) { return f.take("shared::cluster") || f.take("shared::cta"); }

// Loads: [dst], [map, {c}], [barrier]; stores: [map, {c}], [src].
void decode_tensor_copy(Form& f) {
  f.take_any({"async", "bulk", "tensor"});
  take_hints(f);
  if (f.take("mbarrier::complete_tx::bytes")) {
    AsyncOperands& a = begin(f, Opcode::bulk_tensor_load);
    if (!take_destination_shared(f) || !f.take("global")) return f.fail("no such form");
    take_multicast(f, 3, a);
    a.shared = f.address(0);
    take_coordinates(f, 1, a);
    a.barrier = f.address(2);
    return;
  }
  AsyncOperands& a = begin(f, Opcode::bulk_tensor_store);
  if (!f.take("bulk_group") || !f.take("global") || !f.take("shared::cta")) return f.fail("no such form");
  f.expect(2, 3);
  take_coordinates(f, 0, a);
  a.shared = f.address(1);
}

void decode_tensor_reduce(Form& f) {
  f.take_any({"reduce", "async", "bulk", "tensor"});
  take_hints(f);
  AsyncOperands& a = begin(f, Opcode::bulk_tensor_reduce);
  if (!f.take("bulk_group") || !f.take("global") || !f.take("shared::cta") || !f.take("add"))
    return f.fail("no such form");
  f.expect(2, 3);
  take_coordinates(f, 0, a);
  a.shared = f.address(1);
}

// Loads: [dst], [src], bytes, [barrier]; stores: [dst], [src], bytes.
void decode_bulk_copy(Form& f) {
  f.take_any({"async", "bulk"});
  take_hints(f);
  if (f.take("mbarrier::complete_tx::bytes")) {
    AsyncOperands& a = begin(f, Opcode::bulk_load);
    if (!take_destination_shared(f) || !f.take("global")) return f.fail("no such form");
    take_multicast(f, 4, a);
    a.shared = f.address(0);
    a.global = f.address(1);
    a.bytes = f.source(2, Type::u32);
    a.barrier = f.address(3);
    return;
  }
  AsyncOperands& a = begin(f, Opcode::bulk_store);
  if (!f.take("bulk_group") || !f.take("global") || !f.take("shared::cta")) return f.fail("no such form");
  f.expect(3, 4);
  a.global = f.address(0);
  a.shared = f.address(1);
  a.bytes = f.source(2, Type::u32);
}

void decode_bulk_reduce(Form& f) {
  f.take_any({"reduce", "async", "bulk"});
  take_hints(f);
  AsyncOperands& a = begin(f, Opcode::bulk_reduce);
  f.take("noftz");
  const bool form = f.take("bulk_group") && f.take("global") && f.take("shared::cta") && f.take("add");
  a.element = f.take_type();
  f.expect(3, 4);
  if (!form || (a.element != Type::f32 && a.element != Type::u32 && a.element != Type::s32 && a.element != Type::bf16))
    return f.fail("no such form");
  a.global = f.address(0);
  a.shared = f.address(1);
  a.bytes = f.source(2, Type::u32);
}

void decode_bulk_commit(Form& f) {
  f.take_any({"async", "bulk", "commit_group"});
  begin(f, Opcode::bulk_commit);
  f.expect(0);
}

void take_groups(Form& f, AsyncOperands& a) {
  f.expect(1);
  a.groups = static_cast<int>(f.immediate(0).value_or(0));
  if (a.groups < 0) f.fail("negative number of groups");
}

void decode_bulk_wait(Form& f) {
  f.take_any({"async", "bulk", "wait_group"});
  AsyncOperands& a = begin(f, Opcode::bulk_wait);
  a.read = f.take("read");
  take_groups(f, a);
}

// Prefetches of a tensor map, of a tensor, of bytes.
void decode_bulk_prefetch(Form& f) {
  f.take_any({"async", "bulk", "prefetch", "tensor", "tensormap", "L2", "global", "param", "generic", "tile"});
  for (size_t n = 1; n <= 5; ++n) f.take(std::to_string(n) + "d");
  take_hints(f);
  begin(f, Opcode::bulk_prefetch);
  f.expect(1, 3);
  f.out().async->global = f.address(0);
}

// ---- wgmma
std::optional<int> take_shape_n(Form& f) {
  const auto shape = f.take_prefixed("m64n");
  if (!shape) return std::nullopt;
  int n = 0;
  const char* const end = shape->data() + shape->size();
  const auto [rest, code] = std::from_chars(shape->data() + 4, end, n);
  if (code != std::errc() || std::string_view(rest, static_cast<size_t>(end - rest)) != "k16") return std::nullopt;
  return n >= 8 && n <= 256 && n % 8 == 0 ? std::optional(n) : std::nullopt;
}

int sign_immediate(Form& f, size_t operand) {
  const int64_t value = f.immediate(operand).value_or(0);
  if (value != 1 && value != -1) f.fail(fmt::format("scale {}, expected 1 or -1", value));
  return static_cast<int>(value);
}

bool transpose_immediate(Form& f, size_t operand) {
  const int64_t value = f.immediate(operand).value_or(0);
  if (value != 0 && value != 1) f.fail(fmt::format("transpose {}, expected 0 or 1", value));
  return value == 1;
}

void take_scale_d(Form& f, size_t operand, AsyncOperands& a) {
  const Operand& o = f.operand(operand);
  if (o.kind == OperandKind::immediate)
    a.scale_d_value = o.value != 0;
  else
    a.scale_d = f.predicate_source(operand);
}

// {d}, a, b, scale-d, scale-a, scale-b {, transpose-a}, transpose-b; transpose-a only where a is a descriptor.
void decode_wgmma(Form& f) {
  f.take("mma_async");
  AsyncOperands& a = begin(f, Opcode::wgmma_mma);
  f.out().converged = true;
  const bool form = f.take("sync") && f.take("aligned");
  const auto n = take_shape_n(f);
  const Type d = f.take_type(), in_a = f.take_type(), in_b = f.take_type();
  if (!form || !n || d != Type::f32 || in_a != Type::bf16 || in_b != Type::bf16)
    return f.fail("only m64nNk16.f32.bf16.bf16 is known");
  a.n = *n;
  a.input = in_a;
  const bool registers = f.count() > 1 && f.operand(1).kind == OperandKind::vector;
  f.expect(registers ? 7 : 8);
  for (const Operand& o : f.parts(0)) a.accumulators.push_back(f.unit_register(o, false));
  if (static_cast<int>(a.accumulators.size()) != *n / 2)
    f.fail(fmt::format("{} accumulators, expected {}", a.accumulators.size(), *n / 2));
  if (registers) {
    for (const Operand& o : f.parts(1)) a.a_registers.push_back(f.unit_register(o, false));
    if (a.a_registers.size() != 4) f.fail(fmt::format("{} registers of a, expected 4", a.a_registers.size()));
  } else {
    a.a_descriptor = f.source(1, Type::b64);
  }
  a.b_descriptor = f.source(2, Type::b64);
  take_scale_d(f, 3, a);
  a.scale_a = sign_immediate(f, 4);
  a.scale_b = sign_immediate(f, 5);
  if (!registers) a.a_transposed = transpose_immediate(f, 6);
  a.b_transposed = transpose_immediate(f, registers ? 6 : 7);
}

template <Opcode O>
void decode_wgmma_control(Form& f) {
  f.take_any({"fence", "commit_group", "wait_group"});
  AsyncOperands& a = begin(f, O);
  f.out().converged = true;
  if (!f.take("sync") || !f.take("aligned")) return f.fail("no such form");
  if (O == Opcode::wgmma_wait) return take_groups(f, a);
  f.expect(0);
}

// ---- fences
void decode_proxy_fence(Form& f) {
  f.take_any({"proxy", "async"});
  AsyncOperands& a = begin(f, Opcode::fence_proxy_async);
  if (f.take("global")) a.space = Space::global;
  if (f.take("shared::cta")) a.space = Space::shared;
  if (f.take("shared::cluster")) a.space = Space::shared_cluster;
  f.expect(0);
}

void decode_init_fence(Form& f) {
  f.take("mbarrier_init");
  begin(f, Opcode::fence_mbarrier_init);
  if (!f.take("release") || !f.take("cluster")) f.fail("no such form");
  f.expect(0);
}

constexpr InstructionEntry kEntries[] = {
    {"mbarrier.init", &decode_mbarrier_init},
    {"mbarrier.inval", &decode_mbarrier_inval},
    {"mbarrier.arrive", &decode_mbarrier_arrive},
    {"mbarrier.expect_tx", &decode_mbarrier_expect_tx},
    {"mbarrier.test_wait", &decode_mbarrier_wait},
    {"mbarrier.try_wait", &decode_mbarrier_wait},
    {"cp.async.mbarrier.arrive", &decode_copy_arrive},
    {"cp.async.bulk.tensor", &decode_tensor_copy},
    {"cp.reduce.async.bulk.tensor", &decode_tensor_reduce},
    {"cp.async.bulk", &decode_bulk_copy},
    {"cp.reduce.async.bulk", &decode_bulk_reduce},
    {"cp.async.bulk.commit_group", &decode_bulk_commit},
    {"cp.async.bulk.wait_group", &decode_bulk_wait},
    {"cp.async.bulk.prefetch", &decode_bulk_prefetch},
    {"prefetch.tensormap", &decode_bulk_prefetch},
    {"wgmma.mma_async", &decode_wgmma},
    {"wgmma.fence", &decode_wgmma_control<Opcode::wgmma_fence>},
    {"wgmma.commit_group", &decode_wgmma_control<Opcode::wgmma_commit>},
    {"wgmma.wait_group", &decode_wgmma_control<Opcode::wgmma_wait>},
    {"fence.proxy.async", &decode_proxy_fence},
    {"fence.mbarrier_init", &decode_init_fence},
};

}  // namespace

std::span<const InstructionEntry> units_family() { return kEntries; }

}  // namespace stepc::emulator
