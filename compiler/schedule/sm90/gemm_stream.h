// An epilogue whose operands lie as the product does, as an optimizer's moments and weights: the producer brings them
// by TMA through the same ring of stages as the product's operands, kStreamColumns columns of the tile a turn, while
// the last products are under way; results are written over operands in shared memory, and a TMA store takes them from
// there. So as much memory is under way as for the products, and no thread waits for a load of its own.
//
// What a turn holds of a value is a box of all of the tile's rows. Boxes lie over the stage's tiles of A and B. A
// result takes the place of an operand of its dtype, of which a thread has read what it writes; else, where all tiles
// are whole and so write all of it, it has a box of its own.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/schedule/sm90/gemm.h"

namespace stepc::sm90 {

constexpr int64_t kStreamColumns = 32;  // of a turn: a row of f32 is as wide as a swizzle
constexpr int64_t kStreamStep = 16;     // worked on at once: what an optimizer makes of 32 does not fit the registers

// The ring as the roles share it.
struct GemmRing {
  int64_t stages = 0;
  kernel::BufferId a{}, b{};  // tiles, by stage
  kernel::BufferId full{}, empty{};
};

class GemmStream {
 public:
  GemmStream(kernel::KernelBuilder& builder, const GemmConfig& config) : b_(builder), config_(config) {}

  // Before the roles. False: the stages have no room for it, or TMA cannot take it.
  bool add_operand(ValueId operand, kernel::BufferId global);
  bool add_result(ValueId result, kernel::BufferId global, bool tiles_are_whole);
  void declare(const GemmRing& ring);

  // By the producer, when the stage is free.
  void load(const std::vector<kernel::Index>& tile, kernel::Index column, kernel::Index stage);

  // By a consumer: its rows of the tile at [batch, row, column], pieces of kStreamStep columns in their order, the
  // first ones in turn `turn`.
  void begin_tile(const std::vector<kernel::Index>& tile, kernel::Index turn);
  void begin_piece(int64_t first);
  std::optional<kernel::Value> operand(ValueId operand);  // f32 or bf16 [64, kStreamStep]
  bool put(ValueId result, kernel::Value piece);          // false: it has no box
  void end_piece(int64_t first);

  // The operands that were read, and the results that were put.
  const std::vector<ValueId>& read() const { return read_; }
  const std::vector<ValueId>& written() const { return written_; }

 private:
  struct Box {
    Dtype dtype = Dtype::f32;
    bool over_b = false;
    int64_t row = 0;                                   // of the box in a stage's bytes
    kernel::BufferId global = kernel::BufferId::none;  // an operand to bring
    kernel::BufferId load_map{}, tile{};
  };
  struct Result {
    size_t box = 0;
    kernel::BufferId global{}, map{};
  };
  bool fits_map(kernel::BufferId global) const;
  std::optional<size_t> place_box(Dtype dtype);
  int64_t turn_bytes() const;
  kernel::Ref place(const Box& box, kernel::Index stage, kernel::Index row) const;
  std::vector<kernel::Index> piece_place(const Box& box) const;
  void send(int64_t first);
  kernel::Index stage_of(kernel::Index turn) const { return turn % ring_.stages; }
  void release(int64_t turn);

  kernel::KernelBuilder& b_;
  const GemmConfig& config_;
  GemmRing ring_;
  std::vector<Box> boxes_;
  std::map<ValueId, size_t> operands_;
  std::map<ValueId, Result> results_;
  int64_t used_a_ = 0, used_b_ = 0;  // bytes of a stage
  std::vector<ValueId> read_, written_;
  // Of the consumer's tile under way.
  std::vector<kernel::Index> tile_;
  kernel::Index turn_, stage_;
  int64_t column_ = 0;  // of the piece in the turn's
};

}  // namespace stepc::sm90
