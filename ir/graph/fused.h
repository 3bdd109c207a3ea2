// Facts about the kernel groups of a fused program that follow from their nodes: what a group reads and
// writes, the sizes of its problem, its cost, and the order in which groups and lone nodes can run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

// What runs as one: a group (by index) or a node outside every group.
struct Unit {
  int group = -1;
  NodeId node = NodeId::none;
};

// Every node's group index, -1 outside.
std::vector<int> group_of_nodes(const Program& program);
// An order of all units in which each comes after what it reads; of those that are ready the one with the
// earliest node first. nullopt when groups depend on each other in a circle.
std::optional<std::vector<Unit>> unit_order(const Program& program);

// Values made outside and read by the group's nodes, in order of first use.
std::vector<ValueId> group_operands(const Program& program, const Group& group);
// Values made by the group's nodes and read outside it, in order of making.
std::vector<ValueId> group_results(const Program& program, const Group& group);

// 2 m n k per product, one per element of pointwise ops and of what reductions read, attention
// 4 B H T^2 d (half of it when causal) and its gradient 2.5 times that.
int64_t node_flops(const Program& program, const Node& node);
int64_t group_flops(const Program& program, const Group& group);
// Of them, those of bf16 products, which matrix units do; everything else, f32 products too, is vector arithmetic.
int64_t group_matrix_flops(const Program& program, const Group& group);
// Operands and results, each once; of an operand whose rows are gathered, no more rows than that.
int64_t group_bytes(const Program& program, const Group& group);

// The sizes that the group's template asks about: "matmul(m=64, n=128, k=32, batch=4)". An error names the
// op that the template needs and the group lacks.
Result<std::string> group_problem(const Program& program, const Group& group);

}  // namespace stepc
