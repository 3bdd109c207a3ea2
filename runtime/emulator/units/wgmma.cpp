#include "runtime/emulator/units/wgmma.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace stepc::emulator {
namespace {

float bf16_value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

void read_chunk(const uint8_t* bytes, float (&out)[8]) {
  uint16_t raw[8];
  std::memcpy(raw, bytes, sizeof raw);
  for (int e = 0; e < 8; ++e) out[e] = bf16_value(raw[e]);
}

// d[r][n] += sum over k of a[r][k] * b[k][n], in ascending k; products of two bf16 are exact in f32. Eight sums at a
// time stay in vector registers.
void multiply(const float (&a)[16][16], const float* b, int n, float* d) {
  for (int column = 0; column < n; column += 8)
    for (int r = 0; r < 16; ++r) {
      float sums[8];
      for (int e = 0; e < 8; ++e) sums[e] = d[r * n + column + e];
      for (int k = 0; k < 16; ++k)
        for (int e = 0; e < 8; ++e) sums[e] += a[r][k] * b[k * n + column + e];
      for (int e = 0; e < 8; ++e) d[r * n + column + e] = sums[e];
    }
}

}  // namespace

const Warpgroup::Entry* Warpgroup::add(int warp, const Entry& entry) {
  const uint64_t index = next_[warp]++ - dropped_;
  if (index == entries_.size()) entries_.push_back(entry);
  Entry& known = entries_[index];
  if (!(known == entry)) return &known;
  ++known.seen;
  while (!entries_.empty() && entries_.front().seen == 4) {
    entries_.pop_front();
    ++dropped_;
  }
  return nullptr;
}

void Wgmma::fault(FaultKind kind, const Site& at, std::string text) { cta_.fault({kind, at, std::move(text), {}, {}}); }

void Wgmma::fence(Warp& warp) {
  fenced_ = true;
  warp.fence_registers();
}

// ---- issue

bool Wgmma::check_registers(Warp& warp, const Instruction& i) {
  const AsyncOperands& o = *i.async;
  if (!fenced_) {
    fault(FaultKind::accumulator, warp.site(i), "is not preceded by any wgmma.fence");
    return false;
  }
  for (const Row row : o.accumulators) {
    const Instruction* by = warp.in_flight_by(row);
    if (by != nullptr && by->async->n != o.n) {
      cta_.fault({FaultKind::accumulator, warp.site(i),
                  "uses an accumulator that a product of another shape has in flight", warp.site(*by), "issued by"});
      return false;
    }
    if (warp.written_since_fence(row)) {
      fault(FaultKind::accumulator, warp.site(i),
            "uses an accumulator that an ordinary instruction has written, with no wgmma.fence between");
      return false;
    }
  }
  for (const Row row : o.a_registers) {
    if (!warp.written_since_fence(row)) continue;
    fault(FaultKind::accumulator, warp.site(i),
          "takes A from a register that an ordinary instruction has written, with no wgmma.fence between");
    return false;
  }
  return true;
}

bool Wgmma::descriptor(Warp& warp, const Instruction& i, Row row, MatrixDescriptor* out) {
  const uint64_t* bits = warp.u64(row);
  for (int lane = 1; lane < kLanes; ++lane) {
    if (bits[lane] == bits[0]) continue;
    fault(FaultKind::bad_operand, warp.site(i, lane), "has a matrix descriptor that differs between the lanes");
    return false;
  }
  const std::string wrong = decode_descriptor(bits[0], out);
  if (!wrong.empty()) fault(FaultKind::swizzle, warp.site(i), wrong);
  return wrong.empty();
}

bool Wgmma::list_operand(Warp& warp, Product* p, bool a_operand) {
  const AsyncOperands& o = *p->at->async;
  const uint32_t first = a_operand ? static_cast<uint32_t>(warp.index() % 4) * 16 : 0;
  const uint32_t count = a_operand ? 16 : static_cast<uint32_t>(o.n);
  std::vector<MatrixChunk>& chunks = a_operand ? p->a_chunks : p->b_chunks;
  list_chunks(a_operand ? p->a : p->b, a_operand ? o.a_transposed : o.b_transposed, first, count, &chunks);
  for (const MatrixChunk& chunk : chunks) {
    if (cta_.shared_contains(chunk.address, 16)) continue;
    fault(FaultKind::address, warp.site(*p->at),
          fmt::format("reads operand {} at shared +{}, beyond the {} bytes of shared memory", a_operand ? "A" : "B",
                      int64_t{chunk.address} - kSharedBase, cta_.shared_bytes()));
    return false;
  }
  return true;
}

bool Wgmma::agrees(Warp& warp, const Instruction& i, bool scale_d) {
  const AsyncOperands& o = *i.async;
  const Warpgroup::Entry entry{
      &i, o.a_registers.empty() ? warp.u64(o.a_descriptor)[0] : 0, warp.u64(o.b_descriptor)[0], scale_d, warp.site(i),
      0};
  const Warpgroup::Entry* other = group_.add(warp.index() % 4, entry);
  if (other == nullptr) return true;
  cta_.fault({FaultKind::bad_operand, warp.site(i), "is not the product that another warp of its warpgroup executes",
              other->first, "which executes"});
  return false;
}

void Wgmma::issue(Warp& warp, const Instruction& i) {
  const AsyncOperands& o = *i.async;
  if (!check_registers(warp, i)) return;
  Product p;
  p.at = &i;
  p.group = open_;
  p.scale_d = o.scale_d == kNoPredicate ? o.scale_d_value : (warp.predicate(o.scale_d) & 1) != 0;
  if (o.a_registers.empty() && (!descriptor(warp, i, o.a_descriptor, &p.a) || !list_operand(warp, &p, true))) return;
  if (!descriptor(warp, i, o.b_descriptor, &p.b) || !list_operand(warp, &p, false)) return;
  if (!agrees(warp, i, p.scale_d)) return;
  const Party by = cluster_.party(warp.site(i));
  for (const MatrixChunk& c : p.a_chunks) shadow_.begin_async_read(by, c.address, 16, p.a.swizzle, false);
  for (const MatrixChunk& c : p.b_chunks) shadow_.begin_async_read(by, c.address, 16, p.b.swizzle, false);
  for (const Row row : o.accumulators) warp.set_in_flight(row, i, false);
  for (const Row row : o.a_registers) warp.set_in_flight(row, i, true);
  queue_.push_back(std::move(p));
}

// ---- retirement

void Wgmma::wait(Warp& warp, int pending) {
  const uint64_t keep = open_ - std::min(open_, static_cast<uint64_t>(pending));  // the first group that may stay
  while (!queue_.empty() && queue_.front().group < keep && !cta_.stopped()) {
    execute(warp, queue_.front());
    queue_.pop_front();
  }
}

void Wgmma::load_a(Warp& warp, const Product& p, float (&a)[16][16]) {
  const AsyncOperands& o = *p.at->async;
  if (!o.a_registers.empty()) {
    for (int q = 0; q < 4; ++q)
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t pair = warp.u32(o.a_registers[q])[lane];
        const int row = lane / 4 + (q & 1) * 8;
        const int column = lane % 4 * 2 + (q >> 1) * 8;
        a[row][column] = bf16_value(pair & 0xffff);
        a[row][column + 1] = bf16_value(pair >> 16);
      }
  } else {
    for (const MatrixChunk& chunk : p.a_chunks) {
      float v[8];
      read_chunk(cta_.shared(chunk.address), v);
      for (int e = 0; e < 8; ++e)
        (o.a_transposed ? a[chunk.mn % 16 + e][chunk.k] : a[chunk.mn % 16][chunk.k + e]) = v[e];
    }
  }
  if (o.scale_a < 0)
    for (auto& row : a)
      for (float& v : row) v = -v;
}

void Wgmma::load_b(const Product& p, std::vector<float>* b) {
  const AsyncOperands& o = *p.at->async;
  b->resize(static_cast<size_t>(16 * o.n));
  for (const MatrixChunk& chunk : p.b_chunks) {
    float v[8];
    read_chunk(cta_.shared(chunk.address), v);
    for (int e = 0; e < 8; ++e)
      (*b)[o.b_transposed ? static_cast<size_t>(chunk.k * o.n + chunk.mn + e)
                          : static_cast<size_t>((chunk.k + e) * o.n + chunk.mn)] = o.scale_b < 0 ? -v[e] : v[e];
  }
}

void Wgmma::execute(Warp& warp, const Product& p) {
  const AsyncOperands& o = *p.at->async;
  float a[16][16] = {};
  load_a(warp, p, a);
  load_b(p, &b_);
  std::vector<float> d(static_cast<size_t>(16 * o.n), 0.0f);
  // Register r of a lane: column 8 * (r / 4) + 2 * (lane % 4) + r % 2 of row lane / 4 + 8 * (r / 2 % 2).
  const auto for_accumulators = [&](auto&& each) {
    for (size_t r = 0; r < o.accumulators.size(); ++r)
      for (int lane = 0; lane < kLanes; ++lane) {
        const size_t row = static_cast<size_t>(lane / 4) + r / 2 % 2 * 8;
        const size_t column = r / 4 * 8 + static_cast<size_t>(lane % 4) * 2 + r % 2;
        each(warp.u32(o.accumulators[r])[lane], d[row * static_cast<size_t>(o.n) + column]);
      }
  };
  if (p.scale_d) for_accumulators([](uint32_t reg, float& v) { v = std::bit_cast<float>(reg); });
  multiply(a, b_.data(), o.n, d.data());
  for_accumulators([](uint32_t& reg, float v) { reg = std::bit_cast<uint32_t>(v); });
  const Party by = cluster_.party(warp.site(*p.at));
  for (const MatrixChunk& c : p.a_chunks) shadow_.end_async_read(by, c.address, 16);
  for (const MatrixChunk& c : p.b_chunks) shadow_.end_async_read(by, c.address, 16);
  for (const Row row : o.accumulators) warp.clear_in_flight(row);
  for (const Row row : o.a_registers) warp.clear_in_flight(row);
}

void Wgmma::finish(Warp& warp) {
  if (!queue_.empty())
    fault(FaultKind::incomplete, warp.site(*queue_.front().at),
          "is still in flight when its warp exits: no wgmma.wait_group covers it");
  queue_.clear();
}

}  // namespace stepc::emulator
