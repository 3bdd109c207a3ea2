// What the row template makes of a group: which reductions run over a row's columns and in which order,
// which over a task's rows, and how results are stored.
#pragma once

#include "compiler/schedule/host/templates.h"
#include "compiler/schedule/region/boxes.h"

namespace stepc::host {

// Results of as many elements a row, stored in one loop, and partials fed beside them.
struct RowSweep {
  int64_t columns = 1;
  std::vector<Box> boxes;
  std::vector<ValueId> partials;
};

// The sum of a row of zeros but for one element, select(column == number, value, 0): the value at that column.
struct RowPick {
  ValueId sum = ValueId::none;
  ValueId value = ValueId::none;   // of the row's shape
  ValueId number = ValueId::none;  // i32, of the sum's shape
};

struct RowProblem {
  int64_t rows = 0;
  int64_t columns = 0;                       // of the reductions
  int64_t tasks = 0;                         // fixed by partials; 0 without
  int64_t registers = 4;                     // of lanes
  std::vector<std::vector<ValueId>> levels;  // reductions over columns: those of a level need those before
  std::vector<std::vector<RowPick>> picks;   // by level as well, and in no pass
  std::vector<ValueId> partials;             // reductions over a task's rows
  std::vector<RowSweep> sweeps;
  // Values that several passes need, each with the level whose pass has it first: costly ones and, on a GPU, operands
  // of long rows.
  std::vector<ValueId> kept;
  std::vector<std::pair<ValueId, size_t>> kept_at;
  bool keeps_operands = false;
};

Result<RowProblem> analyse_rows(const Problem& problem);

}  // namespace stepc::host
