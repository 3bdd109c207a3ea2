#include "runtime/emulator/units/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/emulator/units/units.h"

namespace stepc::emulator {
namespace {

constexpr uint32_t kPieceBytes = 256;  // of a copy without a tensor map
constexpr uint32_t kMaxRowBytes = 256 * 8;

float f32_of_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t bf16_of_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class Word, class Add>
void add_words(uint8_t* target, const uint8_t* data, uint32_t bytes, Add add) {
  for (uint32_t at = 0; at < bytes; at += sizeof(Word)) {
    Word a, b;
    std::memcpy(&a, target + at, sizeof a);
    std::memcpy(&b, data + at, sizeof b);
    a = add(a, b);
    std::memcpy(target + at, &a, sizeof a);
  }
}

}  // namespace

void Copies::fault(FaultKind kind, const Party& by, std::string text) {
  cta_.fault({kind, cluster_.site(by), std::move(text), {}, {}});
}

// ---- operands

bool Copies::map_of(Warp& warp, const Instruction& i, int lane, TensorMap* map, std::array<int32_t, kMaxRank>* corner) {
  const Site site = warp.site(i, lane);
  const uint8_t* bytes = cta_.constant(warp.address(i.async->global, lane), sizeof(CUtensorMap), 64, site);
  if (bytes == nullptr) return false;
  const auto decoded = decode_tensor_map(bytes);
  if (!decoded) {
    fault(FaultKind::tensor_map, cluster_.party(site), "is given 128 bytes that cuTensorMapEncodeTiled did not make");
    return false;
  }
  *map = *decoded;
  if (static_cast<size_t>(map->rank) != i.async->coordinates.size()) {
    fault(FaultKind::tensor_map, cluster_.party(site),
          fmt::format("names {} coordinates of a tensor map of rank {}", i.async->coordinates.size(), map->rank));
    return false;
  }
  corner->fill(0);
  for (int d = 0; d < map->rank; ++d) (*corner)[d] = static_cast<int32_t>(warp.u32(i.async->coordinates[d])[lane]);
  return true;
}

bool Copies::check_tile(const Party& by, const TensorMap& map, uint32_t address) {
  const uint32_t align = std::max(128u, swizzle_pattern(map.swizzle));
  if (address % align != 0) {
    fault(FaultKind::tensor_map, by,
          fmt::format("tile at shared +{}, expected a multiple of {} (swizzle {})", address - kSharedBase, align,
                      swizzle_name(map.swizzle)));
    return false;
  }
  if (cta_.shared_contains(address, map.box_bytes())) return true;
  fault(FaultKind::address, by,
        fmt::format("tile of {} bytes at shared +{}, beyond the {} bytes of shared memory", map.box_bytes(),
                    int64_t{address} - kSharedBase, cta_.shared_bytes()));
  return false;
}

bool Copies::check_bytes(const Party& by, uint32_t shared, uint64_t global, uint32_t bytes) {
  if (bytes == 0 || bytes % 16 != 0 || shared % 16 != 0 || global % 16 != 0) {
    fault(FaultKind::misaligned, by,
          fmt::format("bulk copy of {} bytes between shared +{} and global {:#x}: all must be multiples of 16", bytes,
                      int64_t{shared} - kSharedBase, global));
    return false;
  }
  if (cta_.shared_contains(shared, bytes)) return true;
  fault(FaultKind::address, by,
        fmt::format("{} bytes at shared +{}, beyond the {} bytes of shared memory", bytes,
                    int64_t{shared} - kSharedBase, cta_.shared_bytes()));
  return false;
}

// ---- loads

// Where a load's destination or barrier lies; copies name their own CTA, and reach others by the multicast mask.
uint32_t Copies::local_shared(const Party& by, uint64_t address, const char* what) {
  uint32_t local = 0;
  const Cta* target = cta_.locate_shared(address, &local);
  if (target == &cta_) return local;
  fault(FaultKind::address, by,
        fmt::format("{} at {:#x} is not in the shared memory of the CTA that issues the copy", what, address));
  return 0;
}

void Copies::issue(Warp& warp, const Instruction& i, int lane, uint32_t shared, std::vector<Row> rows, uint32_t bytes) {
  const Party by = cluster_.party(warp.site(i, lane));
  const uint32_t barrier = local_shared(by, warp.address(i.async->barrier, lane), "the mbarrier");
  if (barrier == 0) return;
  uint32_t targets = 1u << cta_.rank();
  if (i.async->multicast != kNoRow) targets = warp.u32(i.async->multicast)[lane] & 0xffff;
  if (targets == 0 || targets >> cta_.cluster_size() != 0)
    return fault(FaultKind::bad_operand, by,
                 fmt::format("multicast mask {:#x} in a cluster of {}", targets, cta_.cluster_size()));
  for (int rank = 0; rank < cta_.cluster_size(); ++rank) {
    if ((targets >> rank & 1) == 0) continue;
    AsyncUnits& target = units_.peer(rank);
    if (target.mbarriers().copy_issued(by, barrier, bytes) == nullptr) return;
    target.shadow().begin_landing(by, shared, bytes);
    for (Row& row : rows) {
      row.by = by;
      row.target = &target;
      row.barrier = barrier;
      rows_.push_back(row);
    }
  }
  while (!cta_.stress() && advance(cta_.random()));
}

void Copies::load_tensor(Warp& warp, const Instruction& i, int lane) {
  TensorMap map;
  std::array<int32_t, kMaxRank> corner;
  if (!map_of(warp, i, lane, &map, &corner)) return;
  const Party by = cluster_.party(warp.site(i, lane));
  const uint32_t shared = local_shared(by, warp.address(i.async->shared, lane), "the tile");
  if (shared == 0 || !check_tile(by, map, shared)) return;
  std::vector<Row> rows(map.rows());
  for (uint32_t r = 0; r < rows.size(); ++r) {
    rows[r].source = box_row(map, corner, r);
    rows[r].shared = shared + rows[r].source.box_offset;
    rows[r].bytes = map.row_bytes();
    rows[r].swizzle = map.swizzle;
    rows[r].plain = false;
  }
  issue(warp, i, lane, shared, std::move(rows), map.box_bytes());
}

void Copies::load_bytes(Warp& warp, const Instruction& i, int lane) {
  const Party by = cluster_.party(warp.site(i, lane));
  const uint32_t bytes = warp.u32(i.async->bytes)[lane];
  const uint64_t global = warp.address(i.async->global, lane);
  const uint32_t shared = local_shared(by, warp.address(i.async->shared, lane), "the target");
  if (shared == 0 || !check_bytes(by, shared, global, bytes)) return;
  std::vector<Row> rows;
  for (uint32_t at = 0; at < bytes; at += kPieceBytes) {
    Row row;
    row.shared = shared + at;
    row.bytes = std::min(kPieceBytes, bytes - at);
    row.source = {at, global + at, 0, row.bytes};
    rows.push_back(row);
  }
  issue(warp, i, lane, shared, std::move(rows), bytes);
}

bool Copies::advance(Random& random) {
  if (rows_.empty()) return false;
  const uint32_t count = std::min<uint32_t>(static_cast<uint32_t>(rows_.size()), 1 + random.below(32));
  for (uint32_t n = 0; n < count && !cta_.stopped(); ++n) {
    std::swap(rows_[random.below(static_cast<uint32_t>(rows_.size()))], rows_.back());
    const Row row = rows_.back();
    rows_.pop_back();
    land(row);
  }
  return true;
}

void Copies::land(const Row& row) {
  Cta& cta = row.target->cta();
  if (has_exited(cta))
    return fault(FaultKind::incomplete, row.by,
                 fmt::format("a copy is still landing in shared memory of CTA {}, which has exited", cta.index()));
  const uint32_t inside = row.source.end - row.source.begin;
  const uint8_t* source = nullptr;
  if (inside != 0) {
    source = cta_.global(row.source.address + row.source.begin, inside, 1, cluster_.site(row.by));
    if (source == nullptr) return;
  }
  std::array<uint8_t, kMaxRowBytes> bytes;
  std::fill_n(bytes.begin(), row.bytes, uint8_t{0});
  if (inside != 0) std::memcpy(bytes.data() + row.source.begin, source, inside);
  for (uint32_t at = 0; at < row.bytes; at += 16)
    std::memcpy(cta.shared(swizzled(row.swizzle, row.shared + at)), bytes.data() + at, 16);
  const Mbarrier* barrier = row.target->mbarriers().find(row.barrier);
  if (barrier != nullptr)
    row.target->shadow().land(row.by, barrier->agent, static_cast<Epoch>(barrier->phase + 1), row.shared, row.bytes,
                              row.swizzle, row.plain);
  row.target->mbarriers().copy_landed(row.by, row.barrier, row.bytes);
}

// ---- stores

void Copies::begin_store(Store store) {
  units_.shadow().begin_async_read(store.by, store.shared, store.bytes, store.map.swizzle, store.plain);
  groups_[ClusterState::thread(store.by)].open.push_back(std::move(store));
}

void Copies::store_tensor(Warp& warp, const Instruction& i, int lane) {
  Store store;
  if (!map_of(warp, i, lane, &store.map, &store.corner)) return;
  store.by = cluster_.party(warp.site(i, lane));
  store.shared = local_shared(store.by, warp.address(i.async->shared, lane), "the tile");
  if (store.shared == 0 || !check_tile(store.by, store.map, store.shared)) return;
  store.plain = false;
  store.add = i.opcode == Opcode::bulk_tensor_reduce;
  store.element = store.map.type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? Type::f32 : Type::bf16;
  if (store.add && store.map.type != CU_TENSOR_MAP_DATA_TYPE_FLOAT32 &&
      store.map.type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
    return fault(FaultKind::bad_operand, store.by, "adds elements that are neither f32 nor bf16: not modelled");
  store.bytes = store.map.box_bytes();
  begin_store(std::move(store));
}

void Copies::store_bytes(Warp& warp, const Instruction& i, int lane) {
  Store store;
  store.by = cluster_.party(warp.site(i, lane));
  store.shared = local_shared(store.by, warp.address(i.async->shared, lane), "the source");
  store.global = warp.address(i.async->global, lane);
  store.bytes = warp.u32(i.async->bytes)[lane];
  store.add = i.opcode == Opcode::bulk_reduce;
  store.element = i.async->element;
  if (store.shared == 0 || !check_bytes(store.by, store.shared, store.global, store.bytes)) return;
  begin_store(std::move(store));
}

void Copies::commit(const Party& by) {
  Groups& groups = groups_[ClusterState::thread(by)];
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

void Copies::wait(const Party& by, int pending, bool read) {
  const auto found = groups_.find(ClusterState::thread(by));
  if (found == groups_.end()) return;
  auto& committed = found->second.committed;
  const size_t done = committed.size() - std::min(committed.size(), static_cast<size_t>(pending));
  for (size_t g = 0; g < done; ++g) {
    for (Store& store : committed[g]) {
      read_source(by, &store);
      if (!read) write(store);
    }
  }
  if (!read) committed.erase(committed.begin(), committed.begin() + static_cast<std::ptrdiff_t>(done));
}

void Copies::read_source(const Party&, Store* store) {
  if (store->read) return;
  store->read = true;
  store->data.resize(store->bytes);
  const Swizzle swizzle = store->plain ? Swizzle::none : store->map.swizzle;
  for (uint32_t at = 0; at < store->bytes; at += 16)
    std::memcpy(store->data.data() + at, cta_.shared(swizzled(swizzle, store->shared + at)), 16);
  units_.shadow().end_async_read(store->by, store->shared, store->bytes);
}

void Copies::write(const Store& store) {
  if (store.plain) return write_row(store, store.global, store.data.data(), store.bytes);
  for (uint32_t r = 0; r < store.map.rows() && !cta_.stopped(); ++r) {
    const BoxRow row = box_row(store.map, store.corner, r);
    if (row.begin < row.end)
      write_row(store, row.address + row.begin, store.data.data() + row.box_offset + row.begin, row.end - row.begin);
  }
}

void Copies::write_row(const Store& store, uint64_t address, const uint8_t* data, uint32_t bytes) {
  uint8_t* target = cta_.global(address, bytes, 1, cluster_.site(store.by));
  if (target == nullptr) return;
  cta_.note_global_write(address, bytes);
  if (!store.add)
    std::memcpy(target, data, bytes);
  else if (store.element == Type::f32)
    add_words<float>(target, data, bytes, [](float a, float b) { return a + b; });
  else if (store.element == Type::u32 || store.element == Type::s32)
    add_words<uint32_t>(target, data, bytes, [](uint32_t a, uint32_t b) { return a + b; });
  else
    add_words<uint16_t>(target, data, bytes,
                        [](uint16_t a, uint16_t b) { return bf16_of_f32(f32_of_bf16(a) + f32_of_bf16(b)); });
}

void Copies::finish() {
  for (auto& [thread, groups] : groups_) {
    if (!groups.open.empty())
      return fault(FaultKind::incomplete, groups.open.front().by, "a bulk store is in no group when its thread exits");
    for (auto& group : groups.committed) {
      for (Store& store : group) {
        if (!store.read)
          return fault(FaultKind::incomplete, store.by,
                       "a bulk store may still read shared memory when its CTA exits: no cp.async.bulk.wait_group "
                       "covers it");
        write(store);
      }
    }
    groups.committed.clear();
  }
  if (!rows_.empty())
    fault(FaultKind::incomplete, rows_.front().by, "a copy is still landing in shared memory when its CTA exits");
}

}  // namespace stepc::emulator
