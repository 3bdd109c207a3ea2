// Matrices in shared memory as wgmma sees them: a 64-bit descriptor, and where it puts the 16-byte chunks of a
// K-major or MN-major operand 16 deep.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/emulator/units/tensor_map.h"

namespace stepc::emulator {

// bits 0-13 start address / 16; 16-29 leading dimension byte offset / 16; 32-45 stride dimension byte offset / 16;
// 49-51 base offset; 62-63 swizzle (0 none, 1: 128, 2: 64, 3: 32 bytes).
struct MatrixDescriptor {
  uint32_t start = 0;
  uint32_t leading = 0;
  uint32_t stride = 0;
  Swizzle swizzle = Swizzle::none;
};

// "" and the descriptor, or what is wrong with the bits.
std::string decode_descriptor(uint64_t bits, MatrixDescriptor* out);

// Eight neighbouring elements (16 bytes) of an operand: along k from (mn, k) if it is K-major, else along mn.
struct MatrixChunk {
  uint32_t address = 0;
  uint16_t mn = 0;
  uint16_t k = 0;
};

// The chunks that hold rows [first_mn, first_mn + count_mn) of an operand 16 deep; count and first are multiples of 8.
void list_chunks(const MatrixDescriptor& matrix, bool mn_major, uint32_t first_mn, uint32_t count_mn,
                 std::vector<MatrixChunk>* out);

}  // namespace stepc::emulator
