// How the threads of a role hold a fragment on a GPU. The text of a kernel never names a thread: what a
// fragment is used for decides how it is spread over the T = 32 * warps threads of one copy of its role.
//
//   scalar       []: one register, the same in every thread
//   lanes        [n]: slot s of thread t is element ((s / v) * T + t) * v + s % v, where v is lane_vector(n, T);
//                slots past n are idle
//   tile         [m, n], m a multiple of 16 * warps: the accumulator layout of wgmma.m64nN and mma.m16n8 (PTX ISA,
//                "Register Fragments"). Block b of 16 * warps rows, warp w, thread l of 32: rows 16 * (warps * b + w)
//                + l / 4 + 8 h and columns 8 j + 2 (l % 4) + c; slots in the order b, j, h, c
//   tile_row     [m]: one number for every row of a tile; a thread holds those of its rows, in the order b, h
//   tile_column  [n]: one number for every column of a tile; a thread holds those of its columns, in the order j, c
#pragma once

#include <vector>

#include "ir/kernel/kernel.h"

namespace stepc::kernel {

enum class FragLayout : uint8_t { scalar, lanes, tile, tile_row, tile_column };
std::string_view layout_name(FragLayout layout);

// Neighbouring elements that a thread holds of `lanes` [n]: the largest power of two up to 8 with T * v dividing n.
int64_t lane_vector(int64_t n, int64_t threads);
// Slots that each thread has of a fragment of this layout and shape.
int64_t slot_count(FragLayout layout, const Shape& shape, int64_t threads);

// By FragId. An error names a fragment that would have to be held in two ways, or a tile whose rows do not fit the
// warps of its role. Vectors that nothing ties to a tile are `lanes`.
Result<std::vector<FragLayout>> fragment_layouts(const Kernel& kernel);

}  // namespace stepc::kernel
