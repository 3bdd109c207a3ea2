// A kernel group in the making, and what evaluating it costs. `analyse` walks from the results to the
// operands, each value at the index it is read at; it is at once the check of the contract in fuse_check.h
// and the measure by which the fuser decides.
#pragma once

#include <vector>

#include "compiler/graph/fuse_check.h"
#include "ir/graph/graph.h"

namespace stepc {

struct Region {
  Template schedule = Template::pointwise;
  std::vector<NodeId> nodes;     // ascending
  std::vector<ValueId> results;  // read outside
};

struct RegionFacts {
  double read_bytes = 0;     // of operands, as often as they come from memory
  double written_bytes = 0;  // of results
  double work_bytes = 0;     // of pointwise arithmetic: the bytes that could be moved meanwhile
  double tasks = 0;          // what can run in parallel
  ColumnMap columns = ColumnMap::identity;
};

Result<RegionFacts> analyse(const Program& program, const Region& region);

// Bytes that memory moves while one element of the op is computed.
double op_work_bytes(Op op);

}  // namespace stepc
