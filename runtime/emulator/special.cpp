#include "runtime/emulator/special.h"

#include "ir/support/check.h"
#include "runtime/emulator/cta.h"

namespace stepc::emulator {
namespace {

Dim3 split(uint64_t linear, const Dim3& size) {
  return {static_cast<uint32_t>(linear % size.x), static_cast<uint32_t>(linear / size.x % size.y),
          static_cast<uint32_t>(linear / size.x / size.y)};
}

Dim3 clusters_of(const Launch& l) { return {l.grid.x / l.cluster.x, l.grid.y / l.cluster.y, l.grid.z / l.cluster.z}; }

uint32_t value_of(Special special, const Warp& warp, const Launch& launch, const Place& place, uint32_t lane) {
  const Cta& cta = warp.cta();
  const Dim3 thread = split(static_cast<uint64_t>(warp.index()) * kLanes + lane, launch.block);
  const Dim3 clusters = clusters_of(launch);
  switch (special) {
    case Special::tid_x: return thread.x;
    case Special::tid_y: return thread.y;
    case Special::tid_z: return thread.z;
    case Special::ntid_x: return launch.block.x;
    case Special::ntid_y: return launch.block.y;
    case Special::ntid_z: return launch.block.z;
    case Special::ctaid_x: return place.cta.x;
    case Special::ctaid_y: return place.cta.y;
    case Special::ctaid_z: return place.cta.z;
    case Special::nctaid_x: return launch.grid.x;
    case Special::nctaid_y: return launch.grid.y;
    case Special::nctaid_z: return launch.grid.z;
    case Special::laneid: return lane;
    case Special::warpid: return static_cast<uint32_t>(warp.index());
    case Special::nwarpid: return static_cast<uint32_t>((launch.block.count() + kLanes - 1) / kLanes);
    case Special::smid: return place.linear % launch.sm_count;
    case Special::nsmid: return launch.sm_count;
    case Special::gridid: return 1;
    case Special::clusterid_x: return place.cluster.x;
    case Special::clusterid_y: return place.cluster.y;
    case Special::clusterid_z: return place.cluster.z;
    case Special::nclusterid_x: return clusters.x;
    case Special::nclusterid_y: return clusters.y;
    case Special::nclusterid_z: return clusters.z;
    case Special::cluster_ctaid_x: return place.inside.x;
    case Special::cluster_ctaid_y: return place.inside.y;
    case Special::cluster_ctaid_z: return place.inside.z;
    case Special::cluster_nctaid_x: return launch.cluster.x;
    case Special::cluster_nctaid_y: return launch.cluster.y;
    case Special::cluster_nctaid_z: return launch.cluster.z;
    case Special::cluster_ctarank: return place.rank;
    case Special::cluster_nctarank: return static_cast<uint32_t>(launch.cluster.count());
    case Special::is_explicit_cluster: return launch.cluster.count() > 1;
    case Special::lanemask_eq: return 1u << lane;
    case Special::lanemask_lt: return (1u << lane) - 1;
    case Special::lanemask_le: return (1u << lane) - 1 + (1u << lane);
    case Special::lanemask_gt: return ~((1u << lane) - 1 + (1u << lane));
    case Special::lanemask_ge: return ~((1u << lane) - 1);
    case Special::dynamic_smem_size: return launch.dynamic_shared_bytes;
    case Special::total_smem_size: return cta.shared_bytes();
  }
  STEPC_UNREACHABLE("special register {}", static_cast<int>(special));
}

}  // namespace

Place place_of(const Launch& launch, uint64_t cluster, uint32_t rank) {
  Place p;
  p.cluster = split(cluster, clusters_of(launch));
  p.inside = split(rank, launch.cluster);
  p.cta = {p.cluster.x * launch.cluster.x + p.inside.x, p.cluster.y * launch.cluster.y + p.inside.y,
           p.cluster.z * launch.cluster.z + p.inside.z};
  p.rank = rank;
  p.linear = (p.cta.z * launch.grid.y + p.cta.y) * launch.grid.x + p.cta.x;
  return p;
}

void fill_specials(Warp& warp, const Launch& launch, const Place& place) {
  for (const Kernel::SpecialRow& s : launch.kernel->specials) {
    uint32_t* row = warp.u32(s.row);
    for (uint32_t l = 0; l < kLanes; ++l) row[l] = value_of(s.special, warp, launch, place, l);
  }
}

}  // namespace stepc::emulator
