// What the fuser promises to the schedule templates, in code.
//
// Every node of a group is needed for its results. A group's operands and results are dense row-major tensors.
// All else is evaluated at an index, inside: pointwise ops, iota, constant and random_bits, views (reshape,
// transpose, broadcast, slice, pad, reverse), gather_rows (a row number of -1 gives zeros) and *small
// reductions*, whose axes hold 16 elements or fewer (unrolled). concat is evaluated only where a result is stored.
//
// A result is stored through its trailing reshapes, transposes and reverses inside the group: `store_base` is
// the value before them, and row-major element number i of the base belongs to element i of the group's space.
//
//  pointwise   Every base has as many elements as the space. A result that is a concat of operands of equal shapes
//              stores each operand at its offset: then it is the operands' bases that match the space.
//  row         The space is rows x columns. Reductions that are not small are over trailing axes of `columns`
//              elements and are read at the current row only; their operand's row-major element (row, column) is
//              the space's. A base has `rows` elements, or rows * columns, of which leading axes of `rows` elements are
//              the rows; its columns are one axis if it is stored through a transpose or reverse. In addition a
//              result may be a *partial sum*: reduce_sum over axis 1 of [P, rows / P, ..columns..]; all of a group
//              have one P.
//  column_sum  Reductions that are not small, all over the same adjacent axes of equal shapes, not the trailing ones:
//              [A, R, C] -> [A, C]. They are read at their own (a, c), what they reduce is evaluated at (a, r, c).
//              Every base has A * C elements.
//  matmul      One matmul. Its operands are made outside, but for reshapes and casts bf16 -> f32. The space is
//              its result's, as (batch * m, n). The product is read at its own column alone (ColumnMap::identity),
//              or also at the neighbour in its pair of columns (pairs). In ColumnMap::halves there are bases of half
//              the size: their space is (batch * m, n / 2), and the product is read at columns j and j + n / 2
//              only; bases of full size are then evaluated at both columns. Results may be a concat as in pointwise.
//  scatter, attention, attention_grad, route    The op alone, and reshapes of its operands.
//  attention_grad    Or also what is done to its result: then that is the kernel's only one, bf16, element for element
//              as the op's result, which is read at the current element and the other of its pair (2p, 2p + 1) in the
//              head; only pointwise ops, constant, iota and views but pad and concat. Fused for Hopper alone.
#pragma once

#include "ir/graph/graph.h"

namespace stepc {

Status check_group(const Program& program, const Group& group);
Status check_groups(const Program& program);

// Over axes of 16 elements or fewer in all.
bool is_small_reduction(const Program& program, const Node& node);

enum class ReductionAxes : uint8_t { trailing, middle, scattered };
// Where the reduced axes stand among those of more than one element.
ReductionAxes reduction_axes(const Program& program, const Node& reduction);

// The result before its trailing reshapes, transposes and reverses inside the group.
ValueId store_base(const Program& program, const Group& group, ValueId result);

enum class ColumnMap : uint8_t { identity, pairs, halves };
// Of a group of template matmul that passes check_group.
ColumnMap column_map(const Program& program, const Group& group);

}  // namespace stepc
