#include "compiler/schedule/region/access.h"

#include <algorithm>
#include <bit>

#include "compiler/schedule/region/views.h"
#include "ir/support/check.h"

namespace stepc::schedule {
namespace {

bool all_uniform(const Position& at) {
  return std::all_of(at.begin(), at.end(), [](const LaneIndex& x) { return x.uniform(); });
}

bool any_dynamic(const Position& at) {
  return std::any_of(at.begin(), at.end(), [](const LaneIndex& x) { return x.dynamic.valid(); });
}

// Do only the last dimension's indices differ between lanes?
bool along_last(const Position& at) {
  return std::all_of(at.begin(), at.end() - 1, [](const LaneIndex& x) { return x.uniform(); });
}

std::vector<Index> bases(const Position& at) {
  std::vector<Index> result;
  for (const LaneIndex& x : at) result.push_back(x.base);
  return result;
}

std::vector<int64_t> active_pattern(const LaneIndex& x, const Lanes& lanes) {
  return {x.pattern.begin(), x.pattern.begin() + lanes.active};
}

bool contiguous(const std::vector<int64_t>& pattern) {
  for (size_t lane = 0; lane < pattern.size(); ++lane)
    if (pattern[lane] != pattern[0] + static_cast<int64_t>(lane)) return false;
  return true;
}

int64_t count_divisions(const kernel::Kernel& kernel, kernel::ExprId id) {
  if (id == kernel::ExprId::none) return 0;
  const kernel::Expr& expr = kernel.expr(id);
  const bool divides = expr.kind == kernel::ExprKind::div || expr.kind == kernel::ExprKind::rem;
  return (divides ? 1 : 0) + count_divisions(kernel, expr.a) + count_divisions(kernel, expr.b);
}

}  // namespace

// Is the place's number in row-major order easier to compute than its indices?
bool Access::easier_flat(const Position& at, const Shape& shape) {
  int64_t apart = 0;
  for (const LaneIndex& x : at) apart += count_divisions(builder_.kernel(), x.base.id(builder_));
  if (apart == 0 || any_dynamic(at)) return false;
  const LaneIndex linear = linear_position(math_, at, shape);
  return count_divisions(builder_.kernel(), linear.base.id(builder_)) < apart;
}

Access::Place Access::place_of(ValueId value, const Position& at) {
  const Shape& shape = program_.type(value).shape;
  const BufferId buffer = buffers_.ids.at(value);
  const Shape declared = builder_.kernel().buffer(buffer).shape;
  if (declared == shape) {
    if (easier_flat(at, shape)) buffers_.needs_flat.insert(value);
    return {buffer, shape, at};
  }
  return {buffer, declared, reshape_position(math_, at, shape, declared)};
}

Fragment Access::load_shared(BufferId buffer, const Position& at) {
  const Place place{buffer, builder_.kernel().buffer(buffer).shape, at};
  if (all_uniform(at)) return builder_.load(buffer, bases(at), {});
  STEPC_CHECK(along_last(at), "lanes of a shared buffer lie in several rows");
  if (any_dynamic(at)) return gather(place);
  if (const auto loaded = load_last(place)) return *loaded;
  return gather(place);
}

// Lanes whose indices differ along the last dimension alone, by a pattern known now.
std::optional<Fragment> Access::load_last(const Place& place) {
  const Lanes& lanes = math_.lanes();
  const std::vector<int64_t> pattern = active_pattern(place.at.back(), lanes);
  const int64_t low = *std::min_element(pattern.begin(), pattern.end());
  const int64_t span = *std::max_element(pattern.begin(), pattern.end()) - low + 1;
  std::vector<Index> at = bases(place.at);
  at.back() = at.back() + Index(low);
  if (contiguous(pattern)) {
    cost_ += 1;
    return builder_.load_first(place.buffer, at, {lanes.width}, lanes.count.value_or(Index(lanes.active)));
  }
  if (span > 4 * lanes.width || lanes.count) return std::nullopt;
  cost_ += 2;
  std::vector<int64_t> from = place.at.back().pattern;
  if (const auto skipped = skipped_lanes(place, low, span)) {
    std::vector<Index> block = bases(place.at);
    block.back() = block.back() - Index(*skipped);
    for (int64_t& lane : from) lane += *skipped;
    if (!math_.can_permute(from, lanes.width)) return std::nullopt;
    return builder_.permute(builder_.load(place.buffer, block, {lanes.width}), from);
  }
  const auto window = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(span)));
  for (int64_t& lane : from) lane = std::clamp<int64_t>(lane - low, 0, window - 1);
  if (!math_.can_permute(from, window)) return std::nullopt;
  return builder_.permute(builder_.load_first(place.buffer, at, {window}, Index(span)), from);
}

// How far the place's base is from the start of an aligned block of the buffer in which all lanes lie: such a
// block is one load, whatever is taken from it.
std::optional<int64_t> Access::skipped_lanes(const Place& place, int64_t low, int64_t span) const {
  const int64_t width = math_.lanes().width;
  if (place.shape.back() % width != 0) return std::nullopt;
  for (int64_t skipped = std::max<int64_t>(0, -low); skipped + low + span <= width; ++skipped) {
    const Index start = place.at.back().base - Index(skipped);
    if (builder_.multiple_of(start.id(builder_)) % width == 0) return skipped;
  }
  return std::nullopt;
}

// Of a vector's elements one by one; on a GPU each thread has a few, and indices that every element must divide out for
// itself cost far more than the access.
double Access::apart_cost(const Position& at) const {
  constexpr double kDivided = 16;
  const kernel::Kernel& kernel = builder_.kernel();
  const int64_t width = math_.lanes().width;
  if (kernel.target == kernel::Target::host || kernel.roles.empty()) return static_cast<double>(width);
  const int64_t threads = int64_t{32} * kernel.roles.back().warps;
  const auto loads = static_cast<double>((width + threads - 1) / threads);
  return any_dynamic(at) ? kDivided * loads : loads;
}

// The base of the place is an element that the first active lane or a neighbour reads, so that it is in bounds.
Fragment Access::gather(const Place& place) {
  cost_ += apart_cost(place.at);
  if (math_.lanes().count) failed_ = true;
  const auto [at, offset] = offsets_of(place);
  return builder_.gather(place.buffer, at, math_.materialise(offset));
}

std::pair<std::vector<Index>, LaneIndex> Access::offsets_of(const Place& place) {
  const std::vector<int64_t> strides = row_major_strides(place.shape);
  LaneIndex offset{Index(0), {}, {}, {0, 0}};
  std::vector<Index> at;
  for (size_t d = 0; d < place.at.size(); ++d) {
    LaneIndex lanes = place.at[d];
    const int64_t low = lanes.pattern.empty() ? 0 : *std::min_element(lanes.pattern.begin(), lanes.pattern.end());
    at.push_back(lanes.base + Index(low));
    lanes.base = Index(0);
    for (int64_t& lane : lanes.pattern) lane -= low;
    offset = math_.add(offset, math_.scale(lanes, strides[d]));
  }
  return {at, offset};
}

// Idle lanes are left out: they would write what the last active one does.
void Access::scatter(Fragment wide, const Place& place) {
  const Lanes& lanes = math_.lanes();
  cost_ += apart_cost(place.at);
  const auto [at, offset] = offsets_of(place);
  kernel::KOp op{.op = kernel::Op::scatter,
                 .frags = {wide.id, math_.materialise(offset).id},
                 .refs = {builder_.ref(place.buffer, at)}};
  if (lanes.active < lanes.width) op.indices = builder_.ids({Index(lanes.active)});
  builder_.emit(std::move(op));
}

Fragment Access::load(ValueId value, const Position& at) {
  const Place place = place_of(value, at);
  if (all_uniform(place.at)) {
    cost_ += 0.25;
    return builder_.load(place.buffer, bases(place.at), {});
  }
  if (any_dynamic(place.at)) return gather(place);
  if (along_last(place.at)) {
    if (auto loaded = load_last(place)) return *loaded;
    return gather(place);
  }
  const Position linear{linear_position(math_, at, place.shape)};
  const std::vector<int64_t> pattern = active_pattern(linear[0], math_.lanes());
  const auto [low, high] = std::minmax_element(pattern.begin(), pattern.end());
  if (*high - *low < 4 * math_.lanes().width) buffers_.needs_flat.insert(value);
  return gather(place);
}

bool Access::store(Fragment fragment, ValueId value, const Position& at) {
  const Place place = place_of(value, at);
  if (all_uniform(place.at)) {
    STEPC_CHECK(builder_.shape(fragment).empty(), "a vector stored at one place");
    builder_.store(fragment, place.buffer, bases(place.at));
    return true;
  }
  const Lanes& lanes = math_.lanes();
  if (any_dynamic(place.at)) {
    const LaneIndex linear = linear_position(math_, at, program_.type(value).shape);
    if (linear.dynamic.valid() || !contiguous(active_pattern(linear, lanes))) return false;
    buffers_.needs_flat.insert(value);
    return true;
  }
  const Fragment wide = builder_.splat(fragment, {lanes.width});
  if (!along_last(place.at)) {
    const LaneIndex linear = linear_position(math_, at, place.shape);
    const bool apart = linear.dynamic.valid() || !contiguous(active_pattern(linear, lanes));
    if (apart || buffers_.flat.contains(value)) return store_apart(wide, place);
    buffers_.needs_flat.insert(value);
    return true;
  }
  const std::vector<int64_t> pattern = active_pattern(place.at.back(), lanes);
  if (!contiguous(pattern)) return store_apart(wide, place);
  std::vector<Index> target = bases(place.at);
  target.back() = target.back() + Index(pattern[0]);
  cost_ += 1;
  builder_.store_first(wide, place.buffer, target, lanes.count.value_or(Index(lanes.active)));
  return true;
}

// Lane by lane; on a GPU all at once.
bool Access::store_apart(Fragment wide, const Place& place) {
  if (math_.lanes().count) return false;
  if (builder_.kernel().target != kernel::Target::host) {
    scatter(wide, place);
    return true;
  }
  cost_ += 2 * static_cast<double>(math_.lanes().active);
  for (int64_t lane = 0; lane < math_.lanes().active; ++lane) {
    std::vector<Index> target;
    for (const LaneIndex& x : place.at)
      target.push_back(x.pattern.empty() ? x.base : x.base + Index(x.pattern[static_cast<size_t>(lane)]));
    const std::vector<int64_t> only{lane};
    builder_.store(builder_.permute(wide, only), place.buffer, target);
  }
  return true;
}

Index Access::load_index(ValueId value, const Position& at, Range range) {
  const Place place = place_of(value, at);
  cost_ += 1;
  return builder_.load_index(place.buffer, bases(place.at), range);
}

}  // namespace stepc::schedule
