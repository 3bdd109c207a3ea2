// Random but always valid graphs for tests of passes, printers and back ends: every op of the table turns
// up, values stay finite, extents are odd, 1 or sometimes 0. The same seed gives the same graph anywhere.
#pragma once

#include <cstdint>

#include "ir/graph/evaluate.h"
#include "ir/graph/graph.h"

namespace stepc::test {

// A small generator of our own: the standard library's distributions differ between libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  int64_t below(int64_t limit) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(limit)); }
  bool chance(int percent) { return below(100) < percent; }
  double unit() { return static_cast<double>(bits() >> 40) / (1 << 24); }  // in [0, 1), 24 bits

 private:
  uint64_t state_;
};

// Which ops may turn up. Rows, structured ops and views of every kind make `all` hard on a fuser; `plain`
// is leaves, pointwise ops, views, reductions and products.
enum class GraphKind { plain, all };

// A module with one program, @main, of about `nodes` nodes over inputs, params and states. Values that
// nothing reads are outputs; some states are assigned.
Module random_graph(uint64_t seed, int nodes, GraphKind kind = GraphKind::all);

Tensor random_tensor(const TensorType& type, Random& random);
TensorMap random_inputs(const Program& program, uint64_t seed);
TensorMap random_persistents(const Module& module, uint64_t seed);

}  // namespace stepc::test
