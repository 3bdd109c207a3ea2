// Where a CTA stands in the grid, and the special registers that say so.
#pragma once

#include "runtime/emulator/launch.h"
#include "runtime/emulator/warp.h"

namespace stepc::emulator {

struct Place {
  Dim3 cta;      // %ctaid
  Dim3 cluster;  // %clusterid
  Dim3 inside;   // %cluster_ctaid
  uint32_t rank = 0;
  uint32_t linear = 0;  // of the CTA in the grid, x fastest
};

Place place_of(const Launch& launch, uint64_t cluster, uint32_t rank);
void fill_specials(Warp& warp, const Launch& launch, const Place& place);

}  // namespace stepc::emulator
