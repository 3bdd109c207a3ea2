#include "runtime/emulator/units/shadow.h"

#include <fmt/format.h>

namespace stepc::emulator {
namespace {

std::string place(uint32_t address, uint32_t bytes) {
  return fmt::format("{} bytes of shared memory at +{}", bytes, address - kSharedBase);
}

// Calls piece(address, bytes) for the parts of a range in each 16-byte granule.
template <class Piece>
void for_granules(uint32_t address, uint32_t bytes, Piece&& piece) {
  const uint32_t end = address + bytes;
  while (address < end) {
    const uint32_t next = std::min(end, (address & ~15u) + 16);
    piece(address, next - address);
    address = next;
  }
}

bool asynchronous(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::wgmma_mma:
    case Opcode::bulk_store:
    case Opcode::bulk_reduce:
    case Opcode::bulk_tensor_store:
    case Opcode::bulk_tensor_reduce: return true;
    default: return false;
  }
}

}  // namespace

Shadow::Shadow(Cta& cta, ClusterState& cluster)
    : cta_(cta), cluster_(cluster), warps_(static_cast<size_t>(cluster.clocks.warps())) {
  const size_t granules = (cta.shared_bytes() + 15) / 16;
  granules_.resize(granules);
  reads_.resize(granules * warps_, 0);
  read_instructions_.resize(granules * warps_, 0);
  pages_.resize((cta.shared_bytes() + 1023) / 1024);
}

Shadow::Page& Shadow::page(uint32_t address) {
  auto& page = pages_[(address - kSharedBase) / 1024];
  if (!page) {
    page = std::make_unique<Page>();
    page->reads.resize(256 * warps_, 0);
  }
  return *page;
}

Shadow::Word& Shadow::word(uint32_t address) { return page(address).words[address % 1024 / 4]; }

Epoch* Shadow::word_reads(uint32_t address) { return page(address).reads.data() + address % 1024 / 4 * warps_; }

// The bytes of the word at `word_address` that the range covers.
uint8_t Shadow::byte_mask(uint32_t word_address, uint32_t address, uint32_t bytes) {
  uint8_t mask = 0;
  for (uint32_t b = 0; b < 4; ++b)
    if (word_address + b >= address && word_address + b < address + bytes) mask |= static_cast<uint8_t>(1u << b);
  return mask;
}

void Shadow::fault(FaultKind kind, const Party& by, std::string text, const Party& other, std::string other_text) {
  cta_.fault({kind, cluster_.site(by), std::move(text), cluster_.site(other), std::move(other_text)});
}

void Shadow::fault(FaultKind kind, const Party& by, std::string text) {
  cta_.fault({kind, cluster_.site(by), std::move(text), {}, {}});
}

// ---- reads

void Shadow::check_words(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic) {
  for (uint32_t at = address & ~3u; at < address + bytes; at += 4) {
    const Word& w = word(at);
    const uint8_t mask = byte_mask(at, address, bytes);
    if ((w.known & mask) != mask) {
      fault(FaultKind::early_read, by, fmt::format("reads {}, which nothing has written", place(address, bytes)));
      return;
    }
    if ((w.written & mask) == 0 || (atomic && w.atomic)) continue;
    const Agent writer_agent = static_cast<Agent>(w.thread / kLanes);
    const Party writer{w.instruction, writer_agent, static_cast<int16_t>(w.thread % kLanes)};
    if (writer_agent != by.agent && !cluster_.clocks.seen(by.agent, writer_agent, w.epoch)) {
      fault(FaultKind::race, by,
            fmt::format("reads {} that another warp has written, with no barrier between", place(address, bytes)),
            writer, "written by");
      return;
    }
    if (async && !cluster_.fence_seen(by.agent, w.thread, w.fences)) {
      fault(FaultKind::proxy_fence, by,
            fmt::format("reads {} through the asynchronous proxy; they were written by ordinary stores, and the "
                        "writing thread did not execute fence.proxy.async before the barrier between the two",
                        place(address, bytes)),
            writer, "written by");
      return;
    }
  }
}

void Shadow::check_read(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic) {
  const Granule& g = granule(address);
  if (g.landing != 0) {
    fault(FaultKind::early_read, by, fmt::format("reads {} while a copy to them is under way", place(address, bytes)),
          g.copier, "copied by");
    return;
  }
  switch (g.state) {
    case State::unwritten:
      fault(FaultKind::early_read, by, fmt::format("reads {}, which nothing has written", place(address, bytes)));
      return;
    case State::copied:
      if (!cluster_.clocks.seen(by.agent, g.barrier, g.epoch))
        fault(FaultKind::early_read, by,
              fmt::format("reads {} that a copy brings, without having waited for its barrier", place(address, bytes)),
              g.copier, "copied by");
      return;
    case State::words: check_words(by, address, bytes, async, atomic); return;
  }
}

void Shadow::record_granule_read(Agent by, uint32_t address, uint32_t instruction) {
  const size_t index = (address - kSharedBase) / 16 * warps_ + by;
  reads_[index] = cluster_.clocks.epoch(by);
  read_instructions_[index] = instruction;
}

void Shadow::read(const Party& by, uint32_t address, uint32_t bytes, bool atomic) {
  for_granules(address, bytes, [&](uint32_t at, uint32_t n) {
    check_read(by, at, n, false, atomic);
    if (n == 16) {
      record_granule_read(by.agent, at, by.instruction);
      return;
    }
    const Epoch now = cluster_.clocks.epoch(by.agent);
    for (uint32_t w = at & ~3u; w < at + n; w += 4) word_reads(w)[by.agent] = now;
    read_instructions_[(at - kSharedBase) / 16 * warps_ + by.agent] = by.instruction;
  });
}

void Shadow::begin_load(Agent by, uint32_t address) {
  if (loads_.empty()) loads_.resize(reads_.size(), 0);
  Epoch& load = loads_[(address - kSharedBase) / 16 * warps_ + by];
  load = load < kOpen ? kOpen + 1 : load + 1;
}

void Shadow::end_load(Agent by, uint32_t address) {
  Epoch& load = loads_[(address - kSharedBase) / 16 * warps_ + by];
  load = load == kOpen + 1 ? cluster_.clocks.epoch(by) : load - 1;
}

void Shadow::begin_async_read(const Party& by, uint32_t address, uint32_t bytes, Swizzle swizzle, bool plain) {
  for (uint32_t at = address; at < address + bytes; at += 16) {
    check_read(by, at, 16, true, false);
    Granule& g = granule(at);
    if (!plain && g.state == State::copied && g.swizzle != kUnknown && g.swizzle != static_cast<uint8_t>(swizzle))
      fault(FaultKind::swizzle, by,
            fmt::format("takes {} to lie with swizzle {}, but the copy laid them out with swizzle {}", place(at, 16),
                        swizzle_name(swizzle), swizzle_name(static_cast<Swizzle>(g.swizzle))),
            g.copier, "copied by");
    ++g.reading;
    g.reader = by;
  }
}

void Shadow::end_async_read(const Party& by, uint32_t address, uint32_t bytes) {
  for (uint32_t at = address; at < address + bytes; at += 16) {
    --granule(at).reading;
    record_granule_read(by.agent, at, by.instruction);
  }
}

// ---- writes

// Everybody who has read the bytes must have said so, and `by` must have heard it.
void Shadow::check_readers(const Party& by, uint32_t address, uint32_t bytes) {
  const Epoch* known = cluster_.clocks.now(by.agent).data();
  const auto check = [&](const Epoch* reads) {
    unsigned unknown = 0;
    for (size_t w = 0; w < warps_; ++w) unknown |= reads[w] > known[w];
    if (unknown != 0) report_reader(by, address, bytes, reads, known);
    return unknown == 0;
  };
  const uint32_t offset = address - kSharedBase;
  if (!check(reads_.data() + offset / 16 * warps_)) return;
  const Page* page = pages_[offset / 1024].get();
  if (page == nullptr) return;
  const Epoch* reads = page->reads.data() + address % 1024 / 4 * warps_;
  for (uint32_t at = address & ~3u; at < address + bytes; at += 4, reads += warps_)
    if (!check(reads)) return;
}

void Shadow::report_reader(const Party& by, uint32_t address, uint32_t bytes, const Epoch* reads, const Epoch* known) {
  size_t w = 0;
  while (reads[w] <= known[w]) ++w;
  const Party reader{read_instructions_[(address - kSharedBase) / 16 * warps_ + w], static_cast<Agent>(w), -1};
  const bool early = asynchronous(cta_.kernel().code[by.instruction]) ||
                     asynchronous(cta_.kernel().code[reader.instruction]) || granule(address).landing != 0;
  fault(early ? FaultKind::overwrite : FaultKind::race, by,
        fmt::format("overwrites {} that another warp has read, with no barrier after that read", place(address, bytes)),
        reader, "read by");
}

// Every load must have been over when its warp gave the bytes back.
void Shadow::check_loads(const Party& by, uint32_t address) {
  const Epoch* known = cluster_.clocks.now(by.agent).data();
  const size_t first = (address - kSharedBase) / 16 * warps_;
  const Epoch* loads = loads_.data() + first;
  unsigned unknown = 0;
  for (size_t w = 0; w < warps_; ++w) unknown |= loads[w] > known[w];
  if (unknown == 0) return;
  size_t w = 0;
  while (loads[w] <= known[w]) ++w;
  const Party loader{read_instructions_[first + w], static_cast<Agent>(w), -1};
  fault(FaultKind::overwrite, by,
        fmt::format("copies over {} whose load may still be under way: before it gave them back, the loading warp "
                    "neither used the value nor executed fence.proxy.async",
                    place(address, 16)),
        loader, "loaded by");
}

void Shadow::check_overwrite(const Party& by, uint32_t address, uint32_t bytes, bool async, bool atomic) {
  const Granule& g = granule(address);
  if (g.landing != 0) {
    fault(FaultKind::overwrite, by, fmt::format("writes {} while a copy to them is under way", place(address, bytes)),
          g.copier, "copied by");
    return;
  }
  if (g.reading != 0) {
    fault(FaultKind::overwrite, by,
          fmt::format("overwrites {} while an asynchronous operation still reads them", place(address, bytes)),
          g.reader, "read by");
    return;
  }
  if (((g.barriers & 1) != 0 && address % 16 < 8) || ((g.barriers & 2) != 0 && address % 16 + bytes > 8))
    fault(FaultKind::mbarrier, by, fmt::format("writes {}, which hold an mbarrier", place(address, bytes)));
  if (!atomic) check_readers(by, address, bytes);
  if (g.state == State::copied && !cluster_.clocks.seen(by.agent, g.barrier, g.epoch))
    fault(FaultKind::overwrite, by,
          fmt::format("overwrites {} that a copy brings, without having waited for its barrier", place(address, bytes)),
          g.copier, "copied by");
  if (g.state != State::words) return;
  for (uint32_t at = address & ~3u; at < address + bytes; at += 4) {
    const Word& w = word(at);
    if ((w.written & byte_mask(at, address, bytes)) == 0 || (atomic && w.atomic)) continue;
    const Agent writer = static_cast<Agent>(w.thread / kLanes);
    const Party other{w.instruction, writer, static_cast<int16_t>(w.thread % kLanes)};
    if (writer != by.agent && !cluster_.clocks.seen(by.agent, writer, w.epoch))
      fault(FaultKind::race, by,
            fmt::format("overwrites {} that another warp has written, with no barrier between", place(address, bytes)),
            other, "written by");
    else if (async && !cluster_.fence_seen(by.agent, w.thread, w.fences))
      fault(FaultKind::proxy_fence, by,
            fmt::format("copies over {} that ordinary stores have written, and the writing thread did not execute "
                        "fence.proxy.async before the barrier between the two",
                        place(address, bytes)),
            other, "written by");
  }
}

// The granule becomes one of words; what a copy brought stays known.
void Shadow::take_words(uint32_t address) {
  Granule& g = granule(address);
  if (g.state == State::words) return;
  for (uint32_t at = address & ~15u; at < (address & ~15u) + 16; at += 4) {
    word(at) = Word{};
    word(at).known = g.state == State::copied ? 15 : 0;
  }
  g.state = State::words;
  g.swizzle = kUnknown;
}

void Shadow::write(const Party& by, uint32_t address, uint32_t bytes, bool atomic) {
  const uint16_t thread = static_cast<uint16_t>(ClusterState::thread(by));
  const Epoch now = cluster_.clocks.epoch(by.agent);
  const uint32_t fences = cluster_.fences(thread);
  for_granules(address, bytes, [&](uint32_t from, uint32_t n) {
    check_overwrite(by, from, n, false, atomic);
    take_words(from);
    for (uint32_t at = from & ~3u; at < from + n; at += 4) {
      Word& w = word(at);
      const uint8_t mask = byte_mask(at, from, n);
      const bool same = w.thread == thread && w.epoch == now && w.fences == fences;
      w.written = same ? w.written | mask : mask;
      w.known |= mask;
      w.epoch = now;
      w.fences = fences;
      w.thread = thread;
      w.instruction = by.instruction;
      w.atomic = atomic;
    }
  });
}

// ---- copies

void Shadow::begin_landing(const Party& by, uint32_t address, uint32_t bytes) {
  for (uint32_t at = address; at < address + bytes; at += 16) {
    check_overwrite(by, at, 16, true, false);
    if (!loads_.empty()) check_loads(by, at);
    Granule& g = granule(at);
    ++g.landing;
    g.copier = by;
  }
}

void Shadow::land(const Party& by, Agent barrier, Epoch epoch, uint32_t address, uint32_t bytes, Swizzle swizzle,
                  bool plain) {
  for (uint32_t at = address; at < address + bytes; at += 16) {
    Granule& g = granule(at);
    --g.landing;
    g.state = State::copied;
    g.swizzle = plain ? kUnknown : static_cast<uint8_t>(swizzle);
    g.barrier = barrier;
    g.epoch = epoch;
    g.copier = by;
  }
}

void Shadow::begin_copy(const Party& by, uint32_t address) {
  check_overwrite(by, address, 16, false, false);
  Granule& g = granule(address);
  ++g.landing;
  g.copier = by;
}

void Shadow::complete_copy(const Party& by, uint32_t address) {
  --granule(address).landing;
  write(by, address, 16);
}

void Shadow::set_barrier(uint32_t address, bool on) {
  Granule& g = granule(address);
  const uint8_t half = (address & 8) != 0 ? 2 : 1;
  g.barriers = static_cast<uint8_t>(on ? g.barriers | half : g.barriers & ~half);
}

}  // namespace stepc::emulator
