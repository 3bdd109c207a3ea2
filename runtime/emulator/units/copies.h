// The copy engine of a CTA. Loads are cut into the rows of their boxes, which land one by one, in any order, late;
// the bytes are counted on the barrier as they land. Stores belong to bulk groups of the issuing thread: they read
// shared memory at the last moment that the group's waits allow, and write global memory later still.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "runtime/emulator/units/mbarrier.h"

namespace stepc::emulator {

class AsyncUnits;

class Copies {
 public:
  Copies(AsyncUnits& units, Cta& cta, ClusterState& cluster) : units_(units), cta_(cta), cluster_(cluster) {}

  // One lane's copy each.
  void load_tensor(Warp& warp, const Instruction& i, int lane);
  void load_bytes(Warp& warp, const Instruction& i, int lane);
  void store_tensor(Warp& warp, const Instruction& i, int lane);
  void store_bytes(Warp& warp, const Instruction& i, int lane);
  void commit(const Party& by);
  // At most `pending` of the thread's groups are left: reading shared memory (`read`), or at all.
  void wait(const Party& by, int pending, bool read);

  // Lands a few rows; false: none under way.
  bool advance(Random& random);
  bool landing() const { return !rows_.empty(); }
  // The CTA's end: writes what was read; reports what was not.
  void finish();

 private:
  // Bytes on their way to a CTA of the cluster.
  struct Row {
    Party by;
    AsyncUnits* target = nullptr;
    uint32_t barrier = 0;  // address in the target
    uint32_t shared = 0;   // of the row, unswizzled
    uint32_t bytes = 0;    // multiple of 16
    BoxRow source;
    Swizzle swizzle = Swizzle::none;
    bool plain = true;  // not through a tensor map
  };
  struct Store {
    Party by;
    uint32_t shared = 0;
    bool plain = true;
    bool add = false;
    Type element = Type::none;
    TensorMap map;  // unless plain
    std::array<int32_t, kMaxRank> corner{};
    uint64_t global = 0;  // plain
    uint32_t bytes = 0;
    bool read = false;
    std::vector<uint8_t> data;  // once read, unswizzled
  };
  struct Groups {
    std::vector<Store> open;
    std::deque<std::vector<Store>> committed;
  };

  bool map_of(Warp& warp, const Instruction& i, int lane, TensorMap* map, std::array<int32_t, kMaxRank>* corner);
  bool check_tile(const Party& by, const TensorMap& map, uint32_t address);
  bool check_bytes(const Party& by, uint32_t shared, uint64_t global, uint32_t bytes);
  uint32_t local_shared(const Party& by, uint64_t address, const char* what);
  void issue(Warp& warp, const Instruction& i, int lane, uint32_t shared, std::vector<Row> rows, uint32_t bytes);
  void land(const Row& row);
  void begin_store(Store store);
  void read_source(const Party& by, Store* store);
  void write(const Store& store);
  void write_row(const Store& store, uint64_t address, const uint8_t* data, uint32_t bytes);
  void fault(FaultKind kind, const Party& by, std::string text);

  AsyncUnits& units_;
  Cta& cta_;
  ClusterState& cluster_;
  std::vector<Row> rows_;
  std::map<uint32_t, Groups> groups_;  // by thread of the cluster
};

}  // namespace stepc::emulator
