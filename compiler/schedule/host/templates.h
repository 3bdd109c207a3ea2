// The host's kernel templates and what they share. Each builds one kernel for a group: problem -> config ->
// build, and reports why it cannot.
#pragma once

#include <functional>

#include "compiler/schedule/region/region.h"
#include "compiler/schedule/region/widths.h"
#include "compiler/schedule/schedule.h"

namespace stepc::host {

using namespace schedule;  // NOLINT: positions, lanes and the region are the templates' own language

// A group with what a template asks of it.
struct Problem {
  const Program& program;
  const Group& group;
  const HostTarget& target;  // for templates of the host alone
  Widths widths;             // for those that GPUs share
  std::vector<ValueId> operands;
  std::vector<ValueId> results;
  // Shapes under which the kernel sees operands and results; the value's own where none is given.
  std::map<ValueId, Shape> shapes = {};
};

// What building a kernel gives beside the kernel itself.
struct Built {
  int64_t grid = 0;
  std::string config;
  int64_t workspace_bytes = 0;  // of the kernel's last buffer, which is no operand and no result
};
struct Draft {
  kernel::Kernel kernel;
  Built built;
  double cost = 0;
};

// Runs `build` on a fresh kernel with the group's buffers declared, again while accesses turn out to need
// flat buffers (access.h), and moves what loops do not change out of them. `build` sets the grid, begins the
// role and emits code; it calls region.fail where it cannot.
using Build = std::function<Built(KernelBuilder&, Region&)>;
Result<Draft> build_kernel(const Problem& problem, const Build& build);

Result<Draft> build_pointwise(const Problem& problem);
Result<Draft> build_row(const Problem& problem);
Result<Draft> build_column_sum(const Problem& problem);
Result<Draft> build_scatter(const Problem& problem);
Result<Draft> build_route(const Problem& problem);
Result<Draft> build_matmul(const Problem& problem);
Result<Draft> build_attention(const Problem& problem);
Result<Draft> build_attention_grad(const Problem& problem);

Result<Draft> build_one_role(const Problem& problem);  // of the templates that GPUs share, the group's own

// Lanes to work on along `extent` neighbouring elements: at most `registers` registers' worth.
int64_t pick_width(int64_t extent, int64_t native, int64_t registers);
// Lanes of one power of two, the last of them idle.
Lanes lanes_for(int64_t count);

// Runs `body` for every vector of columns [0, extent): a loop over full vectors, then the tail.
void for_columns(Region& region, int64_t extent, int64_t width, const std::function<void(const LaneIndex&)>& body);
// The same for the full vectors in [low, high), both multiples of the width (or high the end of the full vectors).
void for_full_columns(Region& region, Index low, Index high, int64_t width,
                      const std::function<void(const LaneIndex&)>& body);
void for_tail(Region& region, int64_t extent, int64_t width, const std::function<void(const LaneIndex&)>& body);

LaneIndex uniform_index(Index index);
// Rows gathered by a routing lie expert after expert, each expert's in the order of tokens. On a GPU, tasks that run
// side by side take theirs from all experts in turn: a token's row is then read for each of its experts while it is in
// the cache. Which of `tasks`, of equally many of the `rows` each, the task takes in the place of its own.
Index row_task(const Problem& problem, Index task, int64_t tasks, int64_t rows);
// Rows that a task takes so that it has about 16 to 32 thousand elements, and few rows make few tasks.
int64_t rows_per_task(const Widths& widths, int64_t rows, int64_t columns);

}  // namespace stepc::host
