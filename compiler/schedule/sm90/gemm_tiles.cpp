#include "compiler/schedule/sm90/gemm_tiles.h"

#include "ir/kernel/builder_hopper.h"
#include "ir/support/check.h"

namespace stepc::sm90 {

using kernel::Index;
using kernel::Value;

void GemmTiles::each(const std::function<void(const GemmTile&)>& body) {
  switch (problem_.counted) {
    case CountedAxis::none: return all(body);
    case CountedAxis::m: return counted_rows(body);
    case CountedAxis::k: return counted_depth(body);
  }
  STEPC_UNREACHABLE("axis {}", static_cast<int>(problem_.counted));
}

void GemmTiles::each_in_step(const std::function<void(const GemmTile&)>& body) {
  if (config_.units(problem_) <= clusters()) return each(body);
  each([&](const GemmTile& tile) {
    b_.when(waits(tile), [&] { kernel::hopper::progress_wait(b_, tile.wave * config_.tasks(problem_)); });
    body(tile);
    const Index is_counted_on = is_counted(CountedAxis::m) ? tile.live : Index(1);
    b_.when(is_counted_on, [&] { kernel::hopper::progress_add(b_); });
  });
  kernel::hopper::progress_end(b_);
}

// Not for tiles of another depth, which take another time.
Index GemmTiles::waits(const GemmTile& tile) {
  const Index has_wave_before = less(0, tile.wave);
  if (is_counted(CountedAxis::m)) return has_wave_before * tile.live;
  if (!is_counted(CountedAxis::k)) return has_wave_before;
  const int64_t in_batch = config_.units_m(problem_) * config_.tiles_n(problem_);
  const Index before = b_.name("batch_before", max(tile.wave - 1, 0) * clusters() / in_batch);
  return has_wave_before * equal(depth_of(min(before, problem_.batch - 1)), tile.blocks);
}

Index GemmTiles::depth_of(Index batch) { return ceil_div(min(count_of(batch), problem_.k), kBlockK); }

void GemmTiles::all(const std::function<void(const GemmTile&)>& body) {
  const Index first = first_unit();
  b_.loop("unit", first, config_.units(problem_), clusters(), [&](Index unit) {
    const Index before = b_.name("count", (unit - first) / clusters());
    GemmTile tile = tile_at(unit);
    tile.number = before;
    tile.turn = before * (blocks_k() + config_.result_turns);
    tile.live = 1;
    tile.blocks = blocks_k();
    tile.results = tile.turn + blocks_k();
    tile.wave = before;
    body(tile);
  });
}

// Along m inside a group of tiles, then along n, then the next group.
GemmTile GemmTiles::tile_at(Index unit) {
  const int64_t units_m = config_.units_m(problem_), tiles_n = config_.tiles_n(problem_);
  const Index in_batch = unit % (units_m * tiles_n);
  const Index first = b_.name("first", in_batch / (group() * tiles_n) * group());
  const Index rest = in_batch % (group() * tiles_n);
  const Index height = units_m % group() == 0 ? Index(group()) : b_.name("height", min(units_m - first, group()));
  GemmTile tile;
  tile.batch = b_.name("batch", unit / (units_m * tiles_n));
  tile.row = row_of(first + rest % height);
  tile.column = b_.name("column", rest / height * config_.tile_columns(problem_));
  return tile;
}

// Tiles of one batch all have the same depth.
void GemmTiles::counted_depth(const std::function<void(const GemmTile&)>& body) {
  const int64_t most = (config_.units(problem_) + clusters() - 1) / clusters() * (blocks_k() + config_.result_turns);
  b_.loop("unit", first_unit(), config_.units(problem_), clusters(), {b_.constant(0, Dtype::i32)},
          [&](Index unit, const std::vector<Value>& carried) {
            GemmTile tile = tile_at(unit);
            tile.number = (unit - first_unit()) / clusters();
            tile.turn = b_.to_index(carried[0], {0, most}, "done");
            tile.blocks = b_.name("blocks", depth_of(tile.batch));
            tile.live = less(0, tile.blocks);
            tile.results = tile.turn + tile.blocks;
            tile.wave = tile.number;
            body(tile);
            return std::vector<Value>{b_.from_index(tile.results + config_.result_turns)};
          });
}

// The tiles of a batch from this task's next on, as each takes every clusters()-th; `before`: how many were dealt out.
GemmTiles::Share GemmTiles::share_of(Index tiles, Index before, const std::string& kind) {
  const Index first = b_.name(kind + "_first", (first_unit() + clusters() - before) % clusters());
  return {first, b_.name(kind + "_tiles", ceil_div(max(tiles - first, 0), clusters()))};
}

void GemmTiles::counted_rows(const std::function<void(const GemmTile&)>& body) {
  const int64_t units_m = config_.units_m(problem_), in_batch = units_m * config_.tiles_n(problem_), all = clusters();
  const int64_t most = config_.units(problem_) / all + problem_.batch;
  const auto carry = [&](Index batch, const std::vector<Value>& carried) {
    const Index done = b_.to_index(carried[0], {0, most * (blocks_k() + config_.result_turns)}, "done");
    const Index live_before = b_.to_index(carried[1], {0, all - 1}, "live_before");
    const Index before = b_.to_index(carried[2], {0, most}, "before");
    const Index waves = b_.to_index(carried[3], {0, most}, "waves");
    const Index live_m =
        b_.name("live_m", min(ceil_div(count_of(batch), config_.tile_m * config_.cluster), Index(units_m)));
    const Index live_in_batch = live_m * config_.tiles_n(problem_);
    const Share live = share_of(live_in_batch, live_before, "live");
    const Share dead = share_of(in_batch - live_in_batch, (batch * in_batch + all - live_before) % all, "dead");
    b_.loop("tile", 0, live.tiles + dead.tiles, 1, [&](Index i) {
      const Index is_live = b_.name("is_live", less(i, live.tiles));
      const Index number = b_.name(
          "number", is_live * (live.first + i * all) + (1 - is_live) * (dead.first + max(i - live.tiles, 0) * all));
      GemmTile tile = counted_tile(number, is_live, live_m);
      tile.batch = batch;
      tile.number = before + i;
      tile.turn = done + min(i, live.tiles) * blocks_k() + i * config_.result_turns;
      tile.live = is_live;
      tile.blocks = blocks_k();
      tile.results = tile.turn + is_live * blocks_k();
      tile.wave = waves + i;
      body(tile);
    });
    return std::vector<Value>{
        b_.from_index(done + live.tiles * blocks_k() + (live.tiles + dead.tiles) * config_.result_turns),
        b_.from_index((live_before + live_in_batch) % all), b_.from_index(before + live.tiles + dead.tiles),
        b_.from_index(waves + live.tiles)};
  };
  const Value zero = b_.constant(0, Dtype::i32);
  b_.loop("batch", 0, problem_.batch, 1, {zero, zero, zero, zero}, carry);
}

// Of the tiles that hold rows, or of the others, as tile_at has them of all. The bounds hold by themselves; they are
// there for those who do not know it.
GemmTile GemmTiles::counted_tile(Index number, Index is_live, Index live_m) {
  const int64_t units_m = config_.units_m(problem_), tiles_n = config_.tiles_n(problem_);
  const Index above = (1 - is_live) * live_m;
  const Index span = is_live * live_m + (1 - is_live) * (units_m - live_m);
  const Index first = b_.name("first", number / (group() * tiles_n) * group());
  const Index rest = b_.name("rest", number % (group() * tiles_n));
  const Index height = b_.name("height", max(min(span - first, Index(group())), 1));
  GemmTile tile;
  tile.row = row_of(min(above + first + rest % height, Index(units_m - 1)));
  tile.column = b_.name("column", min(rest / height, Index(tiles_n - 1)) * config_.tile_columns(problem_));
  return tile;
}

}  // namespace stepc::sm90
