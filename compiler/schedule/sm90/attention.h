// Hopper's attention kernels: causal, head dimension 64 or 128, any number of tokens, q, k and v read where they are.
// All are persistent and warp-specialised: one producer thread brings tiles by TMA through rings of stages, two groups
// of four warps compute on 64 rows each. Rows past the last token arrive as zeros and leave clipped, so no tile is
// special; hidden scores occur in diagonal blocks only, which come first and are peeled.
//
// The gradient has two forms. Deterministic: no two tasks add to one place; one kernel sums dQ by query tile, another
// dK and dV by key tile, and both compute scores anew, seven products in all. Atomic: five products in one kernel by
// key tile, whose tasks add their parts of dQ in f32 to the workspace, in whatever order they come; a kernel before it
// clears the sums, one after it rounds them. Either way the first kernel leaves [-lse in base 2, rowsum(dO * O)] of
// every query in the workspace for those after it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/schedule/region/attention_group.h"
#include "compiler/schedule/schedule.h"
#include "ir/kernel/builder.h"

namespace stepc::sm90 {

constexpr int64_t kAttentionBlock = 64;                        // rows of a product, and of every tensor map's box
constexpr int64_t kAttentionTile = 128;                        // rows of a task: two groups of warps
constexpr int64_t kAttentionWarps = 4;                         // of each group, and of the producer
constexpr int64_t kGroups = kAttentionTile / kAttentionBlock;  // of consumer warps
constexpr int64_t kFloatBytes = 4;

// Heads of one tensor: [batch, token, head, d], or one part of a packed [batch, token, part, head, d].
struct HeadTensor {
  kernel::BufferId buffer = kernel::BufferId::none;
  std::optional<int64_t> part;
};

struct AttentionConfig {
  int64_t tasks = 1;
  int64_t group_heads = 1;  // that run next to one another, so that the second-level cache holds their rows
  bool turns_back = false;  // every other wave of tiles goes through the tasks backwards
  int64_t stages = 2;       // of each ring
  // Of the gradient's queries: Q (1), Q and dO (2) stay in registers while a tile is worked on.
  int64_t kept_operands = 0;
  int64_t producer_registers = 40;
  int64_t consumer_registers = 232;
};
std::string describe(const AttentionConfig& config);

class AttentionTail;
struct AttentionForward {
  HeadTensor q, k, v, out;
  std::optional<kernel::BufferId> lse;  // f32 [batch, head, token]
};
struct AttentionGradient {
  HeadTensor q, k, v, out, dout, dq, dk, dv;
  kernel::BufferId lse = kernel::BufferId::none;
  kernel::BufferId workspace = kernel::BufferId::none;  // f32 attention_workspace_shape
  AttentionTail* tail = nullptr;                        // of the deterministic form
};
enum class GradientForm : uint8_t { deterministic, atomic };
GradientForm gradient_form(const AttentionSizes& sizes, bool may_be_atomic);
// [head, block of 64 queries, row, 64]. Rows 0 and 1 are what is known of the queries; in the atomic form sums of dQ
// follow, 64 rows for each 64 columns of it. Those lie as [8 columns at a time, query, 8], in which the stores of a
// warp are neighbours.
Shape attention_workspace_shape(const AttentionSizes& sizes, GradientForm form);
constexpr int64_t kStatsRows = 2;
constexpr int64_t kSumColumns = 8;  // that lie together

AttentionConfig pick_attention_forward(const AttentionSizes& sizes, const GpuTarget& target);
AttentionConfig pick_attention_queries(const AttentionSizes& sizes, const GpuTarget& target);
AttentionConfig pick_attention_keys(const AttentionSizes& sizes, const GpuTarget& target, GradientForm form);
// Of the passes before and after the atomic form's kernel.
AttentionConfig pick_attention_pass(const AttentionSizes& sizes, const GpuTarget& target);

// Each sets the grid and makes all roles; the kernel has its globals already.
void emit_attention_forward(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                            const AttentionForward& tensors);
void emit_attention_queries(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                            const AttentionGradient& tensors);
// In the atomic form dQ too.
void emit_attention_keys(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                         const AttentionGradient& tensors, GradientForm form);
void emit_attention_stats(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                          const AttentionGradient& tensors);
void emit_attention_rounding(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config,
                             const AttentionGradient& tensors);

// ---- what the kernels share
// ------------------------------------------------------------------------------------------

// One tile of a task: of one head, the rank-th longest.
struct AttentionTile {
  kernel::Index wave;  // how many tiles the task had before
  kernel::Index batch, head;
  kernel::Index batch_head;
  kernel::Index rank;
};

// Of 64 queries each.
struct QueryStats {
  kernel::Value lse;    // its negative, in base 2
  kernel::Value delta;  // rowsum(dO * O)
};

// Stages of [panel, row, 64] that the producer fills and the consumers empty. Turn t uses stage t % stages.
struct Ring {
  kernel::BufferId tile, full, empty;
  int64_t rows = 0;
  int64_t stages = 0;
  int64_t bytes = 0;  // that arrive at each turn
};

class AttentionParts {
 public:
  AttentionParts(kernel::KernelBuilder& builder, const AttentionSizes& sizes, const AttentionConfig& config);

  int64_t panels() const { return sizes_.dim / kAttentionBlock; }
  int64_t row_tiles() const { return (sizes_.tokens + kAttentionTile - 1) / kAttentionTile; }
  double scale_base2() const;  // scores to exponents of 2

  Ring ring(const std::string& name, int64_t rows, int64_t stages, int64_t more_bytes = 0);
  Ring ring_of(kernel::BufferId tile, const std::string& name, int64_t stages, int64_t bytes);
  kernel::Ref full(const Ring& ring, kernel::Index turn);
  kernel::Ref empty(const Ring& ring, kernel::Index turn);
  // Of the tile of a turn, from row `row` on.
  kernel::Ref at(const Ring& ring, kernel::Index turn, kernel::Index row = 0);

  void producer(const std::function<void()>& body);
  void consumer(const std::function<void()>& body);
  // Both roles walk the same tiles. `body` gets the ring turns before the tile and returns how many it takes, at
  // most `most_turns`.
  void for_tiles(int64_t most_turns, const std::function<kernel::Index(const AttentionTile&, kernel::Index)>& body);

  // ---- producer
  // Waits for the turn's stage and expects what `load` will bring to it.
  void begin_fill(const Ring& ring, kernel::Index turn);
  void load(const Ring& ring, kernel::Index turn, const HeadTensor& source, const AttentionTile& tile,
            kernel::Index token);
  void fill(const Ring& ring, kernel::Index turn, const HeadTensor& source, const AttentionTile& tile,
            kernel::Index token);

  // ---- consumer
  void wait_full(const Ring& ring, kernel::Index turn);
  void release(const Ring& ring, kernel::Index turn);
  // The same for a stage that ordinary loads read. They may still be under way when the warp arrives, in order with
  // what comes to shared memory by ordinary stores, but not with copies: those are kept back by a fence alone.
  void release_loaded(const Ring& ring, kernel::Index turn);
  void skip(const Ring& ring, kernel::Index turn);  // a turn that this group does not need
  // `hidden_score` where a query comes before a key; rows are queries, `transposed` keys. Both by their tokens.
  kernel::Value hide_future(kernel::Value scores, kernel::Value hidden_score, bool transposed, kernel::Index first_row,
                            kernel::Index first_column);
  // What is done to a gradient that is stored.
  void set_tail(AttentionTail* tail) { tail_ = tail; }
  // Rounds to bf16 and stores the group's 64 rows from `token` on.
  void store(kernel::Value tile, const HeadTensor& target, const AttentionTile& where, kernel::Index token);
  // Panels that are ready.
  void store(const std::vector<kernel::Value>& made, const HeadTensor& target, const AttentionTile& where,
             kernel::Index token);
  // What is stored of a gradient, if something is done to it; else nothing.
  std::vector<kernel::Value> tail_panels(kernel::Value gradient, const HeadTensor& target, const AttentionTile& where,
                                         kernel::Index token);
  // The same of what `write` puts into shared memory, [group, panel, 64, 64].
  void store_panels(const HeadTensor& target, const AttentionTile& where, kernel::Index token,
                    const std::function<void(kernel::BufferId)>& write);
  void finish_stores();
  // The group's 64 rows of a turn, a panel each, in registers.
  std::vector<kernel::Value> load_panels(const Ring& ring, kernel::Index turn);
  // What rows of O and dO have to add up to rowsum(dO * O): a thread's columns are added already.
  kernel::Value row_products(const std::vector<kernel::Value>& out, const std::vector<kernel::Value>& dout);
  // Leaves in the workspace what is known of the group's queries of a tile of rows.
  QueryStats store_stats(const AttentionGradient& tensors, const AttentionTile& tile, kernel::Index row_tile,
                         kernel::Index token, kernel::Value products);

  kernel::Value constant(double value, kernel::Value like);
  kernel::Value scaled(kernel::Value tile, double factor);
  kernel::Value zeros(int64_t columns);
  // A number for each of 64 tokens from `token` on, of [batch, head, token]; 0 past the last token.
  kernel::Value load_rows(kernel::BufferId buffer, const AttentionTile& tile, kernel::Index token);
  void store_rows(kernel::Value rows, kernel::BufferId buffer, const AttentionTile& tile, kernel::Index token);

 private:
  kernel::BufferId map_of(const HeadTensor& tensor);
  std::vector<kernel::Index> place(const HeadTensor& tensor, const AttentionTile& tile, kernel::Index token,
                                   int64_t panel) const;
  AttentionTile tile_at(kernel::Index wave);

  kernel::KernelBuilder& b_;
  const AttentionSizes& sizes_;
  const AttentionConfig& config_;
  std::map<kernel::BufferId, kernel::BufferId> maps_;
  kernel::BufferId out_ = kernel::BufferId::none;  // tiles on their way to memory, one a group
  AttentionTail* tail_ = nullptr;
};

}  // namespace stepc::sm90
