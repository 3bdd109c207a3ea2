// ldmatrix, stmatrix and mma.sync: matrices spread over the lanes of a warp.
#include <array>

#include "runtime/emulator/instructions/families.h"
#include "runtime/emulator/instructions/memory.h"

namespace stepc::emulator {
namespace {

// Of an 8x8 matrix of 16-bit elements, lane l holds row l / 4 and columns 2 * (l % 4) and the next in one register.
// Instruction::list: registers, one a matrix; flags: kTransposed.
enum Flags : uint8_t { kTransposed = 1, kWideAddress = 2 };

// The rows of matrix q are at the addresses that lanes 8q .. 8q + 7 give.
uint8_t* matrix_row(Warp& w, const Instruction& i, size_t matrix, int matrix_line, Access kind) {
  const int lane = static_cast<int>(matrix) * 8 + matrix_line;
  const Address address{i.a, (i.flags & kWideAddress) != 0, i.offset};
  return access(w, i, lane, Space::shared, w.address(address, lane), 16, kind);
}

void load_matrix(Warp& w, const Instruction& i, Mask lanes) {
  for (size_t q = 0; q < i.list.size(); ++q) {
    uint16_t m[8][8];
    for (int r = 0; r < 8; ++r) {
      const uint8_t* from = matrix_row(w, i, q, r, Access::read);
      if (!from) return;
      std::memcpy(m[r], from, 16);
    }
    uint32_t* d = w.u32(i.list[q]);
    for (int l = 0; l < kLanes; ++l) {
      const int r = l / 4, c = l % 4 * 2;
      const uint32_t low = i.flags & kTransposed ? m[c][r] : m[r][c];
      const uint32_t high = i.flags & kTransposed ? m[c + 1][r] : m[r][c + 1];
      d[l] = high << 16 | low;
    }
  }
  w.cta().units().on_shared_loads(w, i, lanes);
}

void store_matrix(Warp& w, const Instruction& i, Mask) {
  for (size_t q = 0; q < i.list.size(); ++q) {
    uint16_t m[8][8];
    const uint32_t* a = w.u32(i.list[q]);
    for (int l = 0; l < kLanes; ++l) {
      const int r = l / 4, c = l % 4 * 2;
      (i.flags & kTransposed ? m[c][r] : m[r][c]) = static_cast<uint16_t>(a[l]);
      (i.flags & kTransposed ? m[c + 1][r] : m[r][c + 1]) = static_cast<uint16_t>(a[l] >> 16);
    }
    for (int r = 0; r < 8; ++r) {
      uint8_t* to = matrix_row(w, i, q, r, Access::write);
      if (!to) return;
      std::memcpy(to, m[r], 16);
    }
  }
  w.cta().note_store();
}

template <bool Load>
void decode_matrix_access(Form& f) {
  f.take("sync");
  f.take("aligned");
  const size_t matrices = f.take("x4") ? 4 : f.take("x2") ? 2 : f.take("x1") ? 1 : 0;
  Instruction& i = f.out();
  if (f.take("trans")) i.flags |= kTransposed;
  const bool form = f.take("m8n8") && take_space(f) == Space::shared && f.take_type() == Type::b16 && matrices != 0;
  f.expect(2);
  if (!form) return f.fail("no such form");
  const Address a = f.address(Load ? 1 : 0);
  i.a = a.base;
  i.offset = a.offset;
  if (a.wide) i.flags |= kWideAddress;
  const Operand& value = f.operand(Load ? 0 : 1);
  std::vector<Operand> parts = value.kind == OperandKind::vector ? value.parts : std::vector<Operand>{value};
  if (parts.size() != matrices) return f.fail(fmt::format("{} registers expected", matrices));
  for (const Operand& p : parts) i.list.push_back(Load ? f.target(p, Type::b32) : f.source(p, Type::b32));
  i.converged = true;
  i.run = Load ? &load_matrix : &store_matrix;
}

// ---- mma.sync: d[16 x 8] = a[16 x k] * b[k x 8] + c, f32 sums in the order of k. list: d, a, b, c.
using Tile16x8 = std::array<std::array<float, 8>, 16>;

float low_half(uint32_t bits) { return std::bit_cast<float>(bits << 16); }
float high_half(uint32_t bits) { return std::bit_cast<float>(bits & 0xffff0000u); }

template <int K>
void multiply(const float (&a)[16][K], const float (&b)[K][8], Tile16x8& d) {
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < K; ++k)
      for (int c = 0; c < 8; ++c) d[r][c] += a[r][k] * b[k][c];
}

void load_accumulator(Warp& w, const Row* rows, Tile16x8& tile) {
  for (int s = 0; s < 4; ++s)
    for (int l = 0; l < kLanes; ++l) tile[l / 4 + 8 * (s / 2)][2 * (l % 4) + s % 2] = w.f32(rows[s], l);
}
void store_accumulator(Warp& w, const Row* rows, const Tile16x8& tile) {
  for (int s = 0; s < 4; ++s)
    for (int l = 0; l < kLanes; ++l)
      w.u32(rows[s])[l] = to_bits(one_nan(tile[l / 4 + 8 * (s / 2)][2 * (l % 4) + s % 2]));
}

// bf16: a register holds two neighbours along k; registers go rows first, then eights of k.
template <int K>
void mma_bf16(Warp& w, const Instruction& i, Mask) {
  constexpr int kARegisters = K / 4, kBRegisters = K / 8;
  const Row* rows = i.list.data();
  float a[16][K], b[K][8];
  for (int s = 0; s < kARegisters; ++s)
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t bits = w.u32(rows[4 + s])[l];
      const int r = l / 4 + 8 * (s % 2), k = 2 * (l % 4) + 8 * (s / 2);
      a[r][k] = low_half(bits);
      a[r][k + 1] = high_half(bits);
    }
  for (int s = 0; s < kBRegisters; ++s)
    for (int l = 0; l < kLanes; ++l) {
      const uint32_t bits = w.u32(rows[4 + kARegisters + s])[l];
      b[2 * (l % 4) + 8 * s][l / 4] = low_half(bits);
      b[2 * (l % 4) + 8 * s + 1][l / 4] = high_half(bits);
    }
  Tile16x8 tile;
  load_accumulator(w, rows + 4 + kARegisters + kBRegisters, tile);
  multiply(a, b, tile);
  store_accumulator(w, rows, tile);
}

// tf32: an f32 whose low 13 bits are ignored.
void mma_tf32(Warp& w, const Instruction& i, Mask) {
  const Row* rows = i.list.data();
  const auto value = [&](Row r, int l) { return std::bit_cast<float>(w.u32(r)[l] & 0xffffe000u); };
  float a[16][8], b[8][8];
  for (int s = 0; s < 4; ++s)
    for (int l = 0; l < kLanes; ++l) a[l / 4 + 8 * (s % 2)][l % 4 + 4 * (s / 2)] = value(rows[4 + s], l);
  for (int s = 0; s < 2; ++s)
    for (int l = 0; l < kLanes; ++l) b[l % 4 + 4 * s][l / 4] = value(rows[8 + s], l);
  Tile16x8 tile;
  load_accumulator(w, rows + 10, tile);
  multiply(a, b, tile);
  store_accumulator(w, rows, tile);
}

void decode_mma(Form& f) {
  f.take("sync");
  f.take("aligned");
  const bool k16 = f.take("m16n8k16"), k8 = f.take("m16n8k8");
  const bool layout = f.take("row") && f.take("col");
  const Type d = f.take_type(), a = f.take_type(), b = f.take_type(), c = f.take_type();
  f.expect(4);
  const bool bf16 = a == Type::bf16, tf32 = a == Type::tf32 && k8;
  if (!layout || d != Type::f32 || c != Type::f32 || a != b || k16 == k8 || (!bf16 && !tf32))
    return f.fail("no such form");
  const size_t registers[4] = {4, k16 || tf32 ? size_t{4} : size_t{2}, k16 || tf32 ? size_t{2} : size_t{1}, 4};
  Instruction& i = f.out();
  for (size_t o = 0; o < 4; ++o) {
    if (f.parts(o).size() != registers[o]) return f.fail(fmt::format("operand {} needs {} registers", o, registers[o]));
    for (const Operand& p : f.parts(o)) i.list.push_back(o == 0 ? f.target(p, Type::b32) : f.source(p, Type::b32));
  }
  i.converged = true;
  i.run = tf32 ? &mma_tf32 : k16 ? &mma_bf16<16> : &mma_bf16<8>;
}

constexpr InstructionEntry kEntries[] = {
    {"ldmatrix", &decode_matrix_access<true>}, {"stmatrix", &decode_matrix_access<false>}, {"mma", &decode_mma}};

}  // namespace

std::span<const InstructionEntry> matrix_family() { return kEntries; }

}  // namespace stepc::emulator
