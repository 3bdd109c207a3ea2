// What the emitters of one GPU kernel share. Code is written for one thread: a fragment is the values that this
// thread holds of it, in the slots of ir/kernel/layout.h.
//
//   f32, i32   one float or i32 a slot
//   pred       one i1 a slot
//   bf16       packed: word w (i32) holds slot 2w in its low half and slot 2w + 1 in its high half; the high half of an
//              odd last slot is 0
//
// Shared memory is addressed by i32, global memory by addrspace(1) pointers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/emit/emit_context.h"
#include "compiler/schedule/schedule.h"
#include "ir/kernel/layout.h"

namespace stepc::emit {

using Words = std::vector<llvm::Value*>;

// The copy of a role whose body is being emitted.
struct RoleState {
  const kernel::Role* role = nullptr;
  int64_t warps = 1;
  int64_t threads() const { return 32 * warps; }
  int64_t first_warp = 0;          // of the role's first copy, within the task
  bool alone = true;               // all threads of the task run this copy
  llvm::Value* thread = nullptr;   // i32, 0 .. threads() - 1 within the copy
  llvm::Value* warp = nullptr;     // i32, within the copy, the same in all lanes
  llvm::Value* lane = nullptr;     // i32, 0 .. 31
  llvm::Value* copy = nullptr;     // i32, the same in all lanes
  llvm::Value* barrier = nullptr;  // i32, id of a named barrier of the copy's own; unused where `alone`
};

struct GpuContext : EmitContext {
  const kernel::Kernel& kernel;
  const GpuTarget& target;
  std::vector<kernel::FragLayout> layouts;           // by FragId
  std::vector<Words> frags;                          // by FragId
  std::vector<llvm::Value*> variables;               // by VarId; i32 where its range fits, else i64
  std::vector<std::optional<kernel::Range>> ranges;  // by ExprId, of emit_index: known already
  llvm::Value* task = nullptr;                       // i32
  // By BufferId. global: ptr addrspace(1); shared, barrier: i32 address; map: ptr to the grid constant.
  std::vector<llvm::Value*> buffer_base;
  llvm::Value* shared_base = nullptr;  // i32
  int64_t exchange_offset = 0;         // bytes from shared_base to what reductions use
  RoleState role;
  bool in_once = false;         // inside `once`: one thread
  bool exchange_dirty = false;  // some warp may still read what an earlier reduction exchanged
  std::vector<int> lines;       // by OpId, in the printed kernel
  std::optional<Error> error;

  GpuContext(const kernel::Kernel& k, const GpuTarget& t, llvm::Module& m)
      : EmitContext(m),
        kernel(k),
        target(t),
        frags(k.frags.size()),
        variables(k.variables.size()),
        ranges(k.exprs.size()),
        buffer_base(k.buffers.size()) {}

  llvm::Value* exp(llvm::Value* x) override;

  // The first thing that cannot be emitted; emit_ptx returns it.
  void fail(const kernel::KOp& op, const std::string& message);
  const Words& words(kernel::FragId id) const { return frags[kernel::index_of(id)]; }
  void set_words(kernel::FragId id, Words words) { frags[kernel::index_of(id)] = std::move(words); }
  kernel::FragLayout layout(kernel::FragId id) const { return layouts[kernel::index_of(id)]; }
  // Slots that a thread has of the fragment.
  int64_t slots(kernel::FragId id) const {
    return kernel::slot_count(layout(id), kernel.frag(id).shape, role.threads());
  }
  llvm::Value* f32(double value) { return llvm::ConstantFP::get(builder.getFloatTy(), value); }
};

// ---- function.cpp --------------------------------------------------------------------------------------------
void emit_entry(GpuContext& context);

// ---- annotations.cpp: all that LLVM 19 keeps in nvvm.annotations. Complete before any pass runs.
void annotate_entry(GpuContext& context, int64_t threads);

// ---- lines.cpp: every instruction carries the line of its op in the printed kernel -------------------------------
void begin_lines(GpuContext& context);
std::vector<int> op_lines(const kernel::Kernel& kernel);  // by OpId
void set_line(GpuContext& context, int line);

// ---- index.cpp ---------------------------------------------------------------------------------------------------
// i32 where the expression and all its parts fit, else i64.
llvm::Value* emit_expr(GpuContext& context, kernel::ExprId id);
llvm::Value* emit_expr32(GpuContext& context, kernel::ExprId id);  // CHECKs nothing: the low 32 bits
llvm::Value* emit_expr64(GpuContext& context, kernel::ExprId id);
llvm::Value* widen_index(GpuContext& context, llvm::Value* index);  // to i64
kernel::Range index_range(GpuContext& context, kernel::ExprId id);
bool fits_i32(const kernel::Range& range);

// ---- control.cpp ---------------------------------------------------------------------------------------------------
// Emits the body's ops; a `yield` leaves the fragments' words in `yielded`.
void emit_body(GpuContext& context, const kernel::Body& body, std::vector<Words>& yielded);
// Runs `body` where `condition` (i1) holds; the body's values, or `otherwise`, come back.
Words emit_where(GpuContext& context, llvm::Value* condition, const Words& otherwise,
                 const std::function<Words()>& body);
// The values of the body that `condition` chooses.
Words emit_choice(GpuContext& context, llvm::Value* condition, const std::function<Words()>& yes,
                  const std::function<Words()>& no);
void emit_when(GpuContext& context, llvm::Value* condition, const std::function<void()>& body);
// All threads of the role copy wait for one another and see each other's shared memory.
void emit_role_barrier(GpuContext& context);
// i1: true in one thread of the role copy.
llvm::Value* emit_elected(GpuContext& context);

// ---- slots.cpp: which elements a thread holds -----------------------------------------------------------------------
// Neighbouring slots that are neighbouring elements of the last dimension.
struct Piece {
  int64_t slot = 0;
  int64_t width = 1;
  int64_t row = 0;  // constant part
  int64_t column = 0;
};
struct Spread {
  std::vector<Piece> pieces;
  llvm::Value* row = nullptr;     // i32, added to every piece; null: nothing
  llvm::Value* column = nullptr;  // i32, a multiple of column_multiple
  int64_t column_multiple = 1;
  int64_t idle_from = -1;        // columns from here on are idle; -1: none are
  llvm::Value* owner = nullptr;  // i1: this thread stores what it holds; null: always
};
Spread spread_of(GpuContext& context, kernel::FragId id);
// i32: the index of a slot's element along the last dimension (axis 0 of a tile: the row).
llvm::Value* slot_column(GpuContext& context, const Spread& spread, const Piece& piece, int64_t in_piece);
llvm::Value* slot_row(GpuContext& context, const Spread& spread, const Piece& piece);

// ---- pack.cpp: slots <-> words
// --------------------------------------------------------------------------------------- One value a slot: of bf16 an
// i32 with the bits in the low half.
Words slots_of(GpuContext& context, kernel::FragId id);
Words unpack_bf16(GpuContext& context, const Words& words, int64_t slots);
Words pack_bf16(GpuContext& context, const Words& slots);  // from i32 with the bits in the low half
// Sets a result from one value a slot.
void set_slots(GpuContext& context, kernel::FragId id, const Words& slots);
Words bf16_from_f32(GpuContext& context, const Words& slots);  // packed, two at once
Words f32_from_bf16(GpuContext& context, const Words& words, int64_t slots);

// ---- memory.cpp
// -------------------------------------------------------------------------------------------------------- A place as a
// byte offset: uniform over the threads, with what is known to divide it.
struct PlaceAddress {
  kernel::BufferId buffer = kernel::BufferId::none;
  llvm::Value* bytes = nullptr;  // i32 or i64
  int64_t alignment = 1;         // bytes; of the address as a whole
};
PlaceAddress emit_place(GpuContext& context, const kernel::Ref& ref);
std::vector<int64_t> strides_of(const kernel::Buffer& buffer);
// The shared address (i32) of a byte offset in the buffer, under its swizzle.
llvm::Value* swizzled_address(GpuContext& context, kernel::BufferId id, llvm::Value* bytes);
// The shared address (i32) of a place, without swizzle.
llvm::Value* emit_shared_address(GpuContext& context, const kernel::Ref& ref);
// ptr addrspace(1) of a place.
llvm::Value* emit_global_address(GpuContext& context, const kernel::Ref& ref);
void emit_load(GpuContext& context, const kernel::KOp& op);
void emit_store(GpuContext& context, const kernel::KOp& op);
void emit_gather(GpuContext& context, const kernel::KOp& op);
void emit_scatter(GpuContext& context, const kernel::KOp& op);
void emit_load_index(GpuContext& context, const kernel::KOp& op);

// ---- copy.cpp
void emit_copy_async(GpuContext& context, const kernel::KOp& op);
void emit_copy_commit(GpuContext& context);
void emit_copy_wait(GpuContext& context, const kernel::KOp& op);
// ---- mma.cpp
void emit_mma_sync(GpuContext& context, const kernel::KOp& op);

// ---- pointwise.cpp
// -------------------------------------------------------------------------------------------------------
void emit_pointwise(GpuContext& context, const kernel::KOp& op);
void emit_shuffle(GpuContext& context,
                  const kernel::KOp& op);  // constant, lane, from_index, splat, permute, halves, columns
// ---- rows.cpp
void emit_reduce(GpuContext& context, const kernel::KOp& op);
// ---- random.cpp
void emit_random_bits(GpuContext& context, const kernel::KOp& op);

}  // namespace stepc::emit
