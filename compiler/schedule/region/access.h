// Loads and stores of a group's operands and results at positions of many lanes: as one vector where the
// lanes are neighbours, as a vector and a permutation where they are close, else as a gather.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "compiler/schedule/region/lanes.h"
#include "ir/graph/graph.h"

namespace stepc::schedule {

// The kernel's global buffers. A buffer has the value's shape, or another that the template asked for, or one
// dimension where some access of many lanes crosses rows: which values those are shows only as code is made, so `flat`
// is what an earlier attempt found and `needs_flat` what this one does. A kernel is built again until the two agree.
struct Buffers {
  std::map<ValueId, BufferId> ids;
  std::set<ValueId> flat;
  std::set<ValueId> needs_flat;
};

class Access {
 public:
  Access(KernelBuilder& builder, LaneMath& math, const Program& program, Buffers& buffers)
      : builder_(builder), math_(math), program_(program), buffers_(buffers) {}

  // A scalar where `at` is uniform, else a vector.
  Fragment load(ValueId value, const Position& at);
  // The same of any buffer, where the lanes differ along its last dimension alone.
  Fragment load_shared(BufferId buffer, const Position& at);
  // False where the places are not known now.
  bool store(Fragment fragment, ValueId value, const Position& at);
  // The i32 element at a uniform position.
  Index load_index(ValueId value, const Position& at, Range range);

  // What the accesses so far cost, in loads of one vector.
  double cost() const { return cost_; }
  // The first access that the lanes' dynamic count does not allow.
  bool failed() const { return failed_; }

 private:
  struct Place {
    BufferId buffer = BufferId::none;
    Shape shape;
    Position at;
  };
  double apart_cost(const Position& at) const;
  Place place_of(ValueId value, const Position& at);
  std::optional<Fragment> load_last(const Place& place);
  bool easier_flat(const Position& at, const Shape& shape);
  std::optional<int64_t> skipped_lanes(const Place& place, int64_t low, int64_t span) const;
  Fragment gather(const Place& place);
  void scatter(Fragment wide, const Place& place);
  // A uniform place that is in bounds, and what each lane adds to it, in elements.
  std::pair<std::vector<Index>, LaneIndex> offsets_of(const Place& place);
  bool store_apart(Fragment wide, const Place& place);

  KernelBuilder& builder_;
  LaneMath& math_;
  const Program& program_;
  Buffers& buffers_;
  double cost_ = 0;
  bool failed_ = false;
};

}  // namespace stepc::schedule
