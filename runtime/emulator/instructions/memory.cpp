// Ordinary loads and stores.
#include "runtime/emulator/instructions/memory.h"

#include "runtime/emulator/instructions/families.h"

namespace stepc::emulator {
namespace {

// Instruction::flags of a load or store.
enum Flags : uint8_t { kWide = 1, kSigned = 2, kNonCoherent = 4 };

// `i.type`: the element's type; `i.list`: its registers (kNoRow: not wanted); `i.offset` and `i.a`: the address.
Address address_of(const Instruction& i) { return {i.a, i.c != 0, i.offset}; }

uint64_t extended(const uint8_t* from, uint32_t bytes, bool is_signed) {
  if (bytes == 4 && !is_signed) {
    uint32_t word;
    std::memcpy(&word, from, 4);
    return word;
  }
  uint64_t value = 0;
  std::memcpy(&value, from, bytes);
  if (is_signed && bytes < 8 && (value >> (8 * bytes - 1) & 1)) value |= ~uint64_t{0} << (8 * bytes);
  return value;
}

// The cache behind ld.global.nc may hold what was there before the launch's own stores.
void check_unwritten(Warp& w, const Instruction& i, int lane, uint64_t address, uint32_t bytes) {
  if (!w.cta().written_by_launch(address, bytes)) return;
  w.cta().fault({FaultKind::race,
                 w.site(i, lane),
                 fmt::format("ld.global.nc of {} bytes at {:#x}, which this launch has written", bytes, address),
                 {},
                 {}});
}

template <Space S>
void load(Warp& w, const Instruction& i, Mask lanes) {
  const Address address = address_of(i);
  const auto size = static_cast<uint32_t>(bytes_of(i.type));
  const auto count = static_cast<uint32_t>(i.list.size());
  each_lane(lanes, [&](int l) {
    const uint8_t* from = access(w, i, l, S, w.address(address, l), size * count, Access::read);
    if (!from) return;
    if (S == Space::global && i.flags & kNonCoherent) check_unwritten(w, i, l, w.address(address, l), size * count);
    for (uint32_t k = 0; k < count; ++k) {
      const Row to = i.list[k];
      if (to == kNoRow) continue;
      const uint64_t value = extended(from + k * size, size, i.flags & kSigned);
      if (i.flags & kWide)
        w.u64(to)[l] = value;
      else
        w.u32(to)[l] = static_cast<uint32_t>(value);
    }
  });
  if constexpr (S == Space::shared || S == Space::shared_cluster || S == Space::generic)
    w.cta().units().on_shared_loads(w, i, lanes);
}

template <Space S>
void store(Warp& w, const Instruction& i, Mask lanes) {
  const Address address = address_of(i);
  const auto size = static_cast<uint32_t>(bytes_of(i.type));
  const auto count = static_cast<uint32_t>(i.list.size());
  each_lane(lanes, [&](int l) {
    uint8_t* to = access(w, i, l, S, w.address(address, l), size * count, Access::write);
    if (!to) return;
    for (uint32_t k = 0; k < count; ++k) {
      const uint64_t value = i.flags & kWide ? w.u64(i.list[k])[l] : w.u32(i.list[k])[l];
      std::memcpy(to + k * size, &value, size);
    }
  });
  w.cta().note_store();
}

template <bool Load>
Handler handler_for(Space space) {
  switch (space) {
    case Space::generic: return Load ? &load<Space::generic> : &store<Space::generic>;
    case Space::global: return Load ? &load<Space::global> : &store<Space::global>;
    case Space::shared: return Load ? &load<Space::shared> : &store<Space::shared>;
    case Space::shared_cluster: return Load ? &load<Space::shared_cluster> : &store<Space::shared_cluster>;
    case Space::param: return Load ? &load<Space::param> : nullptr;
  }
  return nullptr;
}

// A register of a load or store may be wider than the element.
void add_register(Form& f, const Operand& o, Type type, bool load) {
  Instruction& i = f.out();
  if (load && o.kind == OperandKind::sink) return i.list.push_back(kNoRow);
  const bool wide = o.kind == OperandKind::row ? o.wide : bytes_of(type) == 8;
  if (bytes_of(type) == 8 && !wide) f.fail(fmt::format("operand {} is too narrow for .{}", o.text, type_name(type)));
  const Type held = wide ? Type::b64 : Type::b32;
  i.list.push_back(load ? f.target(o, held) : f.source(o, held));
  if (wide) i.flags |= kWide;
}

template <bool Load>
void decode_access(Form& f) {
  if (Load && f.take("nc")) f.out().flags |= kNonCoherent;
  const Space space = take_space(f);
  f.ignore_memory_hints();
  const size_t vector = f.take("v2") ? 2 : f.take("v4") ? 4 : f.take("v8") ? 8 : 1;
  const Type type = f.take_type();
  const bool hint = f.count() == 3;  // a cache policy
  f.expect(hint ? 3 : 2);
  if (bytes_of(type) == 0 || bytes_of(type) > 8) return f.fail("no such form");
  Instruction& i = f.out();
  i.type = type;
  if (is_signed(type)) i.flags |= kSigned;
  const Address a = f.address(Load ? 1 : 0);
  i.a = a.base;
  i.c = a.wide;
  i.offset = a.offset;
  const size_t value = Load ? 0 : 1;
  if (vector > 1) {
    if (f.parts(value).size() != vector) return f.fail(fmt::format("a vector of {} registers expected", vector));
    for (const Operand& o : f.parts(value)) add_register(f, o, type, Load);
  } else {
    add_register(f, f.operand(value), type, Load);
  }
  set_handler(f, handler_for<Load>(space));
}

void nothing(Warp&, const Instruction&, Mask) {}

void decode_prefetch(Form& f) {
  take_space(f);
  while (f.take_prefixed("L1") || f.take_prefixed("L2")) {
  }
  f.expect(1);
  f.address(0);
  f.out().run = &nothing;
}

constexpr InstructionEntry kEntries[] = {
    {"ld", &decode_access<true>}, {"st", &decode_access<false>}, {"prefetch", &decode_prefetch}};

uint8_t* access_parameter(Warp& w, const Instruction& i, int lane, uint64_t address, uint32_t bytes, Access kind) {
  if (kind == Access::read) return const_cast<uint8_t*>(w.cta().constant(address, bytes, bytes, w.site(i, lane)));
  w.cta().fault({FaultKind::address, w.site(i, lane), "stores to kernel parameters", {}, {}});
  return nullptr;
}

uint8_t* access_shared(Warp& w, const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes,
                       Access kind) {
  uint32_t local = static_cast<uint32_t>(address);
  Cta* cta = &w.cta();
  if (space == Space::shared_cluster || local >= kClusterStride) {
    cta = w.cta().locate_shared(address, &local);
    if (!cta) {
      w.cta().fault({FaultKind::address,
                     w.site(i, lane),
                     fmt::format("shared address {:#x} names no CTA of the cluster", address),
                     {},
                     {}});
      return nullptr;
    }
  }
  if (!cta->shared_contains(local, bytes)) {
    w.cta().fault({FaultKind::address,
                   w.site(i, lane),
                   fmt::format("{} bytes at shared address {} ({} from the window's start), outside the CTA's {} bytes",
                               bytes, local, int64_t{local} - kSharedBase, cta->shared_bytes()),
                   {},
                   {}});
    return nullptr;
  }
  if (local % bytes != 0) {
    w.cta().fault({FaultKind::misaligned,
                   w.site(i, lane),
                   fmt::format("{} bytes at shared address {}, which is no multiple of {}", bytes, local, bytes),
                   {},
                   {}});
    return nullptr;
  }
  switch (kind) {
    case Access::read: cta->units().on_shared_read(local, bytes, w.site(i, lane)); break;
    case Access::write: cta->units().on_shared_write(local, bytes, w.site(i, lane)); break;
    case Access::atomic: cta->units().on_shared_atomic(local, bytes, w.site(i, lane)); break;
    case Access::unseen: break;
  }
  if (cta->stopped()) return nullptr;
  return cta->shared(local);
}

}  // namespace

uint8_t* access(Warp& w, const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes, Access kind) {
  if (w.cta().stopped()) return nullptr;
  if (space == Space::generic) {
    if (address >> 32 == kSharedWindow >> 32) {
      space = Space::shared_cluster;
      address -= kSharedWindow;
    } else {
      space = address >> 32 == kParamWindow >> 32 ? Space::param : Space::global;
    }
  }
  if (space == Space::global) {
    uint8_t* at = w.cta().global(address, bytes, bytes, w.site(i, lane));
    if (at && kind != Access::read) w.cta().note_global_write(address, bytes);
    return at;
  }
  if (space == Space::param) return access_parameter(w, i, lane, address, bytes, kind);
  return access_shared(w, i, lane, space, address, bytes, kind);
}

Space take_space(Form& f) {
  if (f.take("global") || f.take("const")) return Space::global;
  if (f.take("shared") || f.take("shared::cta")) return Space::shared;
  if (f.take("shared::cluster")) return Space::shared_cluster;
  if (f.take("param")) return Space::param;
  if (f.take("local")) f.fail("local memory: stepc's kernels have none");
  return Space::generic;
}

std::span<const InstructionEntry> memory_family() { return kEntries; }

}  // namespace stepc::emulator
