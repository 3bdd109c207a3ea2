#include "compiler/schedule/region/boxes.h"

#include <algorithm>
#include <set>

#include "compiler/schedule/region/views.h"

namespace stepc::schedule {
namespace {

// Where dimension d of a value is the result's dimension `axis`, moved: index = result's index + shift.
struct Origin {
  int64_t axis = -1;  // -1: not one dimension of the result
  int64_t shift = 0;
  auto operator<=>(const Origin&) const = default;
};
using Origins = std::vector<Origin>;

struct Walk {
  const Program& program;
  std::vector<bool> inside;  // nodes of the group
  std::set<std::pair<ValueId, Origins>> seen;
  std::vector<std::set<int64_t>> cuts;  // by dimension of the result
  std::vector<std::pair<ValueId, Origins>> open;

  void cut(const Origin& origin, int64_t index) {
    if (origin.axis >= 0) cuts[static_cast<size_t>(origin.axis)].insert(index - origin.shift);
  }
  void visit(ValueId value, Origins origins) {
    if (!inside[index_of(program.value(value).producer)]) return;
    if (seen.insert({value, origins}).second) open.push_back({value, std::move(origins)});
  }
};

// Dimensions that a reshape leaves alone keep their origin.
Origins through_reshape(const Origins& origins, const Shape& from, const Shape& to) {
  Origins result(to.size());
  size_t i = 0;
  size_t j = 0;
  while (i < from.size() && j < to.size()) {
    const size_t i_begin = i;
    const size_t j_begin = j;
    int64_t from_size = from[i++];
    int64_t to_size = to[j++];
    while (from_size != to_size) {
      if (from_size < to_size) {
        from_size *= from[i++];
      } else {
        to_size *= to[j++];
      }
    }
    if (i - i_begin == 1 && j - j_begin == 1) result[j_begin] = origins[i_begin];
  }
  return result;
}

void visit_concat(Walk& walk, const Node& node, const Origins& origins) {
  const auto axis = static_cast<size_t>(node.attrs.integer(AttrKey::axis));
  int64_t start = 0;
  for (ValueId operand : node.operands) {
    walk.cut(origins[axis], start);
    Origins inner = origins;
    inner[axis].shift -= start;
    walk.visit(operand, inner);
    start += walk.program.type(operand).shape[axis];
  }
}

void visit_view(Walk& walk, const Node& node, const Shape& shape, const Origins& origins) {
  const ValueId operand = node.operands[0];
  const Shape& inner_shape = walk.program.type(operand).shape;
  Origins inner = origins;
  if (node.op == Op::concat) return visit_concat(walk, node, origins);
  if (node.op == Op::reshape) {
    if (numel(shape) == 0) return;
    inner = through_reshape(origins, shape, inner_shape);
  } else if (node.op == Op::transpose) {
    const std::vector<int64_t>& permutation = node.attrs.integers(AttrKey::permutation);
    for (size_t d = 0; d < origins.size(); ++d) inner[static_cast<size_t>(permutation[d])] = origins[d];
  } else if (node.op == Op::broadcast) {
    inner.clear();
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) inner.push_back(origins[static_cast<size_t>(axis)]);
  } else if (node.op == Op::slice) {
    for (size_t d = 0; d < inner.size(); ++d) inner[d].shift += node.attrs.integers(AttrKey::start)[d];
  } else if (node.op == Op::pad) {
    for (size_t d = 0; d < inner.size(); ++d) {
      const int64_t low = node.attrs.integers(AttrKey::low)[d];
      walk.cut(origins[d], low);
      walk.cut(origins[d], low + inner_shape[d]);
      inner[d].shift -= low;
    }
  } else {  // reverse
    for (int64_t axis : node.attrs.integers(AttrKey::axes)) inner[static_cast<size_t>(axis)] = {};
  }
  walk.visit(operand, inner);
}

void visit_operands(Walk& walk, ValueId value, const Origins& origins) {
  const Node& node = walk.program.producer(value);
  switch (op_info(node.op).family) {
    case OpFamily::view: return visit_view(walk, node, walk.program.type(value).shape, origins);
    case OpFamily::pointwise:
      for (ValueId operand : node.operands) walk.visit(operand, origins);
      return;
    case OpFamily::rows:
      if (node.op == Op::gather_rows) walk.visit(node.operands[0], {Origin{}, origins[1]});
      return;
    case OpFamily::reduction: {
      Origins inner(walk.program.type(node.operands[0]).shape.size());
      const std::vector<int64_t>& axes = node.attrs.integers(AttrKey::axes);
      for (size_t d = 0, kept = 0; d < inner.size(); ++d)
        if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d))) inner[d] = origins[kept++];
      return walk.visit(node.operands[0], inner);
    }
    case OpFamily::leaf:
    case OpFamily::contraction:
    case OpFamily::structured:
    case OpFamily::effect: return;
  }
}

// The seams to cut at along one axis: none if a piece would leave runs that are too short.
std::vector<int64_t> seams(const std::set<int64_t>& cuts, int64_t extent, int64_t inner, int64_t min_run) {
  std::vector<int64_t> seams{0};
  for (int64_t cut : cuts)
    if (cut > 0 && cut < extent) seams.push_back(cut);
  seams.push_back(extent);
  for (size_t i = 0; i + 1 < seams.size(); ++i)
    if ((seams[i + 1] - seams[i]) * inner < min_run) return {0, extent};
  return seams;
}

std::vector<bool> membership(const Program& program, const Group& group) {
  std::vector<bool> inside(program.nodes.size(), false);
  for (NodeId id : group.nodes) inside[index_of(id)] = true;
  return inside;
}

// The box of a whole value, cut at the seams.
std::vector<Box> cut_into_boxes(const Program& program, const Group& group, const Box& whole, int64_t min_run) {
  const ValueId result = whole.value;
  const Shape& shape = whole.extents;
  Walk walk{
      program, std::vector<bool>(program.nodes.size(), false), {}, std::vector<std::set<int64_t>>(shape.size()), {}};
  for (NodeId id : group.nodes) walk.inside[index_of(id)] = true;
  Origins identity;
  for (size_t d = 0; d < shape.size(); ++d) identity.push_back({static_cast<int64_t>(d), 0});
  walk.visit(result, identity);
  while (!walk.open.empty()) {
    const auto [value, origins] = walk.open.back();
    walk.open.pop_back();
    visit_operands(walk, value, origins);
  }
  std::vector<Box> boxes{whole};
  int64_t inner = 1;
  for (size_t d = shape.size(); d-- > 0; inner *= shape[d]) {
    const std::vector<int64_t> at = seams(walk.cuts[d], shape[d], inner, min_run);
    if (at.size() == 2) continue;
    std::vector<Box> pieces;
    for (const Box& box : boxes) {
      for (size_t i = 0; i + 1 < at.size(); ++i) {
        pieces.push_back(box);
        pieces.back().offset[d] = at[i];
        pieces.back().extents[d] = at[i + 1] - at[i];
        pieces.back().whole = false;
      }
    }
    boxes = std::move(pieces);
  }
  return boxes;
}

bool is_stored_through(const Node& node) {
  return node.op == Op::reshape || node.op == Op::transpose || node.op == Op::reverse || node.op == Op::concat;
}

void follow(const Program& program, const std::vector<bool>& inside, Box box, std::vector<Box>& wholes) {
  const Node& node = program.producer(box.value);
  if (!inside[index_of(program.value(box.value).producer)] || !is_stored_through(node)) {
    box.extents = program.type(box.value).shape;
    box.offset.assign(box.extents.size(), 0);
    wholes.push_back(std::move(box));
    return;
  }
  for (size_t i = 0; i < node.operands.size(); ++i) {
    Box operand = box;
    operand.path.insert(operand.path.begin(), {program.value(box.value).producer, i});
    operand.value = node.operands[i];
    follow(program, inside, std::move(operand), wholes);
  }
}

}  // namespace

std::vector<Box> boxes_of(const Program& program, const Group& group, ValueId result, int64_t min_run,
                          bool through_views) {
  const Shape& shape = program.type(result).shape;
  std::vector<Box> wholes;
  if (through_views)
    follow(program, membership(program, group), {result, result}, wholes);
  else
    wholes = {{result, result, {}, std::vector<int64_t>(shape.size(), 0), shape}};
  std::vector<Box> boxes;
  for (const Box& whole : wholes)
    for (Box& box : cut_into_boxes(program, group, whole, min_run)) boxes.push_back(std::move(box));
  return boxes;
}

bool ends_in_views(const Program& program, const Group& group, const std::vector<ValueId>& results) {
  const std::vector<bool> inside = membership(program, group);
  return std::any_of(results.begin(), results.end(), [&](ValueId result) {
    return inside[index_of(program.value(result).producer)] && is_stored_through(program.producer(result));
  });
}

Position stored_position(LaneMath& math, const Program& program, const Box& box, Position at) {
  for (const Box::Step& step : box.path) {
    const Node& view = program.node(step.view);
    const Shape& to = program.type(view.results[0]).shape;
    if (view.op == Op::reshape) {
      at = reshape_position(math, at, program.type(view.operands[0]).shape, to);
    } else if (view.op == Op::transpose) {
      const Position from = at;
      const std::vector<int64_t>& permutation = view.attrs.integers(AttrKey::permutation);
      for (size_t d = 0; d < to.size(); ++d) at[d] = from[static_cast<size_t>(permutation[d])];
    } else if (view.op == Op::reverse) {
      at = view_position(math, view, at, to, to);
    } else {
      const auto axis = static_cast<size_t>(view.attrs.integer(AttrKey::axis));
      for (size_t i = 0; i < step.operand; ++i)
        at[axis].base = at[axis].base + Index(program.type(view.operands[i]).shape[axis]);
    }
  }
  return at;
}

}  // namespace stepc::schedule
