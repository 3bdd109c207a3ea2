#include "compiler/schedule/sm90/gemm_stream.h"

#include <algorithm>

#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc::sm90 {

using kernel::BufferId;
using kernel::Index;
using kernel::Ref;
using kernel::Value;

namespace {

constexpr int64_t kMapBytes = 16;  // that a row of a tensor map is a multiple of

void add_once(std::vector<ValueId>& values, ValueId value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

int64_t row_bytes(Dtype dtype) { return kStreamColumns * dtype_bytes(dtype); }

}  // namespace

bool GemmStream::fits_map(BufferId global) const {
  const kernel::Buffer& buffer = b_.kernel().buffer(global);
  const bool is_wide = buffer.dtype == Dtype::f32 || buffer.dtype == Dtype::bf16;
  return is_wide && buffer.shape.size() == 3 && buffer.shape.back() * dtype_bytes(buffer.dtype) % kMapBytes == 0;
}

// First in what is left beside A's tile, then beside B's.
std::optional<size_t> GemmStream::place_box(Dtype dtype) {
  const int64_t bytes = config_.tile_m * row_bytes(dtype);
  for (const bool over_b : {false, true}) {
    int64_t& used = over_b ? used_b_ : used_a_;
    if (used + bytes > (over_b ? config_.tile_n : config_.tile_m) * kBlockK * 2) continue;
    boxes_.push_back({.dtype = dtype, .over_b = over_b, .row = used / row_bytes(dtype)});
    used += bytes;
    return boxes_.size() - 1;
  }
  return std::nullopt;
}

bool GemmStream::add_operand(ValueId operand, BufferId global) {
  if (!fits_map(global)) return false;
  const auto box = place_box(b_.kernel().buffer(global).dtype);
  if (!box) return false;
  boxes_[*box].global = global;
  operands_[operand] = *box;
  return true;
}

bool GemmStream::add_result(ValueId result, BufferId global, bool tiles_are_whole) {
  if (!fits_map(global)) return false;
  const Dtype dtype = b_.kernel().buffer(global).dtype;
  const auto is_taken = [&](size_t box) {
    return std::any_of(results_.begin(), results_.end(), [&](const auto& entry) { return entry.second.box == box; });
  };
  std::optional<size_t> found;
  for (size_t box = 0; box < boxes_.size() && !found; ++box)
    if (boxes_[box].dtype == dtype && !is_taken(box)) found = box;
  if (!found && tiles_are_whole) found = place_box(dtype);
  if (!found) return false;
  results_[result] = {.box = *found, .global = global};
  return true;
}

void GemmStream::declare(const GemmRing& ring) {
  ring_ = ring;
  std::map<std::pair<bool, Dtype>, BufferId> tiles;
  for (Box& box : boxes_) {
    const int64_t row = row_bytes(box.dtype), bytes = (box.over_b ? config_.tile_n : config_.tile_m) * kBlockK * 2;
    const auto [tile, is_new] = tiles.try_emplace({box.over_b, box.dtype});
    if (is_new)
      tile->second = b_.shared_over(fmt::format("{}_{}", box.over_b ? "b" : "a", dtype_name(box.dtype)), box.dtype,
                                    {ring.stages, bytes / row, kStreamColumns}, row, box.over_b ? ring.b : ring.a);
    box.tile = tile->second;
    if (box.global == BufferId::none) continue;
    const std::string& name = b_.kernel().buffer(box.global).name;
    box.load_map = b_.tensor_map(name + "_map", box.global, {1, config_.tile_m, kStreamColumns}, row);
  }
  for (auto& [value, result] : results_) {
    const kernel::Buffer& buffer = b_.kernel().buffer(result.global);
    result.map =
        b_.tensor_map(buffer.name + "_map", result.global, {1, kGroupRows, kStreamColumns}, row_bytes(buffer.dtype));
  }
}

int64_t GemmStream::turn_bytes() const {
  int64_t bytes = 0;
  for (const Box& box : boxes_)
    if (box.global != BufferId::none) bytes += config_.tile_m * row_bytes(box.dtype);
  return bytes;
}

Ref GemmStream::place(const Box& box, Index stage, Index row) const {
  return b_.ref(box.tile, {stage, Index(box.row) + row, 0});
}

void GemmStream::load(const std::vector<Index>& tile, Index column, Index stage) {
  const Ref full = b_.ref(ring_.full, {stage});
  kernel::hopper::expect(b_, full, turn_bytes());
  for (const Box& box : boxes_)
    if (box.global != BufferId::none)
      kernel::hopper::tma_load(b_, b_.ref(box.load_map, {tile[0], tile[1], column}), place(box, stage, 0), full);
}

void GemmStream::begin_tile(const std::vector<Index>& tile, Index turn) {
  tile_ = tile;
  turn_ = b_.name("results", turn);
}

void GemmStream::begin_piece(int64_t first) {
  column_ = first % kStreamColumns;
  if (column_ != 0) return;
  const Index turn = turn_ + first / kStreamColumns;
  stage_ = b_.name("stage", stage_of(turn));
  kernel::hopper::wait(b_, b_.ref(ring_.full, {stage_}), turn / ring_.stages % 2);
}

std::vector<Index> GemmStream::piece_place(const Box& box) const {
  return {stage_, Index(box.row) + b_.copy() * kGroupRows, Index(column_)};
}

std::optional<Value> GemmStream::operand(ValueId operand) {
  const auto found = operands_.find(operand);
  if (found == operands_.end()) return std::nullopt;
  add_once(read_, operand);
  const Box& box = boxes_[found->second];
  return b_.load(box.tile, piece_place(box), {kGroupRows, kStreamStep});
}

bool GemmStream::put(ValueId result, Value piece) {
  const auto found = results_.find(result);
  if (found == results_.end()) return false;
  add_once(written_, result);
  const Box& box = boxes_[found->second.box];
  b_.store(piece, box.tile, piece_place(box));
  return true;
}

void GemmStream::release(int64_t turn) { kernel::hopper::arrive(b_, b_.ref(ring_.empty, {stage_of(turn_ + turn)})); }

// A stage is free when the store has read it. One thread stores, and so knows; the others learn it at the barrier of
// the next turn, and of the last turn at once.
void GemmStream::end_piece(int64_t first) {
  const int64_t turn = first / kStreamColumns, end = first + kStreamStep;
  if (end % kStreamColumns != 0) return;
  const auto wait_for_stores = [&] {
    b_.once([&] { kernel::hopper::bulk_wait(b_, 0); });
    kernel::hopper::sync(b_, b_.copy() + 1, kGroupWarps);
  };
  kernel::hopper::fence_async(b_);
  wait_for_stores();
  b_.once([&] { send(turn * kStreamColumns); });
  if (turn > 0) release(turn - 1);
  if (end < config_.tile_n) return;
  wait_for_stores();
  release(turn);
}

void GemmStream::send(int64_t first) {
  for (const auto& [value, result] : results_)
    kernel::hopper::tma_store(b_, place(boxes_[result.box], stage_, b_.copy() * kGroupRows),
                              b_.ref(result.map, {tile_[0], tile_[1], tile_[2] + first}));
  kernel::hopper::bulk_commit(b_);
}

}  // namespace stepc::sm90
