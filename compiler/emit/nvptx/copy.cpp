// Asynchronous copies of tiles from global to shared memory. Neighbouring threads move neighbouring chunks of a row,
// each as wide as the alignment proved allows; what is not aligned at all, or is widened, goes through registers.
#include <numeric>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::KOp;

constexpr int64_t kWidestBytes = 16;
constexpr int64_t kNarrowestBytes = 4;   // of an asynchronous copy
constexpr int64_t kPatternBytes = 1024;  // after which every swizzle repeats
constexpr int64_t kMostInFlight = 8;     // chunks of a thread that go through registers at once

// One copy_async: [rows, columns] in chunks of `elements`.
struct Copy {
  const kernel::Buffer* from = nullptr;
  const kernel::Buffer* to = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t from_row_bytes = 0;
  int64_t to_row_bytes = 0;
  PlaceAddress source;
  llvm::Value* target = nullptr;  // i32 byte offset of the place
  bool at_pattern = true;         // the place begins a swizzle pattern
  llvm::Value* height = nullptr;  // i32; null: all rows
  llvm::Value* width = nullptr;   // i32; null: all columns
  int64_t width_multiple = 1;
  int64_t alignment = 1;  // of the source's rows, bytes
  int64_t elements = 1;

  int64_t chunks_a_row() const { return columns / elements; }
  int64_t chunks() const { return rows * chunks_a_row(); }
  int64_t from_bytes() const { return dtype_bytes(from->dtype); }
  int64_t to_bytes() const { return dtype_bytes(to->dtype); }
  bool widens() const { return from->dtype != to->dtype; }
  bool is_async() const { return !widens() && elements * from_bytes() >= kNarrowestBytes; }
};

// A chunk of this thread.
struct Chunk {
  llvm::Value* row = nullptr;
  int64_t more_rows = 0;  // constant part of the row
  llvm::Value* column = nullptr;
  llvm::Value* is_mine = nullptr;  // i1; null: always
};

llvm::Value* row_of(GpuContext& context, const Chunk& chunk) {
  return context.builder.CreateAdd(chunk.row, context.i32(chunk.more_rows));
}

// A number of bytes that divides the place's offset in its buffer.
int64_t place_multiple(GpuContext& context, const kernel::Ref& ref) {
  const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
  const auto strides = strides_of(buffer);
  int64_t multiple = 0;
  for (size_t d = 0; d < ref.at.size(); ++d)
    multiple =
        std::gcd(multiple, kernel::multiple_of(context.kernel, ref.at[d]) * strides[d] * dtype_bytes(buffer.dtype));
  return multiple;
}

// What of the extent a count leaves, in 32 bits; null where it never cuts.
llvm::Value* clamped(GpuContext& context, kernel::ExprId count, int64_t extent) {
  if (index_range(context, count).low >= extent) return nullptr;
  auto& builder = context.builder;
  llvm::Value* wanted = emit_expr(context, count);
  llvm::Value* most = llvm::ConstantInt::get(wanted->getType(), static_cast<uint64_t>(extent));
  llvm::Value* least = llvm::Constant::getNullValue(wanted->getType());
  llvm::Value* bounded = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted, most);
  bounded = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bounded, least);
  return builder.CreateZExtOrTrunc(bounded, builder.getInt32Ty());
}

// Elements of a chunk: a whole number of chunks a row, aligned on both sides. An asynchronous copy may be cut within a
// chunk by the width; a chunk that goes through registers may not.
int64_t pick_elements(const Copy& copy, int64_t target_alignment) {
  const auto fits = [&](int64_t elements) {
    const int64_t bytes = elements * copy.from_bytes();
    return copy.columns % elements == 0 && copy.alignment % bytes == 0 &&
           target_alignment % (elements * copy.to_bytes()) == 0;
  };
  for (int64_t elements = kWidestBytes / copy.to_bytes(); elements > 1; elements /= 2) {
    const bool whole = !copy.width || copy.width_multiple % elements == 0;
    const bool is_async = !copy.widens() && elements * copy.from_bytes() >= kNarrowestBytes;
    if (fits(elements) && (is_async || whole)) return elements;
  }
  return 1;
}

Copy read_copy(GpuContext& context, const KOp& op) {
  const auto& tile = std::get<std::vector<int64_t>>(kernel::find_attr(op, "tile")->value);
  Copy copy;
  copy.from = &context.kernel.buffer(op.refs[0].buffer);
  copy.to = &context.kernel.buffer(op.refs[1].buffer);
  copy.rows = tile[0];
  copy.columns = tile[1];
  const int64_t dimension = kernel::integer_attr(op, "rows", static_cast<int64_t>(copy.from->shape.size()) - 2);
  const auto from_strides = strides_of(*copy.from);
  const auto to_strides = strides_of(*copy.to);
  STEPC_CHECK(from_strides.back() == 1, "copy_async of %{}, whose columns are {} elements apart", copy.from->name,
              from_strides.back());
  copy.from_row_bytes = from_strides[static_cast<size_t>(dimension)] * copy.from_bytes();
  copy.to_row_bytes = to_strides[to_strides.size() - 2] * copy.to_bytes();
  copy.source = emit_place(context, op.refs[0]);
  copy.alignment = std::gcd(copy.source.alignment, copy.from_row_bytes);
  copy.height = clamped(context, op.indices[0], copy.rows);
  copy.width = clamped(context, op.indices[1], copy.columns);
  copy.width_multiple = kernel::multiple_of(context.kernel, op.indices[1]);
  const PlaceAddress target = emit_place(context, op.refs[1]);
  copy.target = target.bytes;
  copy.at_pattern = place_multiple(context, op.refs[1]) % kPatternBytes == 0;
  copy.elements = pick_elements(copy, std::gcd(target.alignment, copy.to_row_bytes));
  return copy;
}

// Chunk number first + more of this thread. Where whole rows of chunks fit the threads, a turn is so many rows further.
Chunk chunk_of(GpuContext& context, const Copy& copy, llvm::Value* first, int64_t more) {
  auto& builder = context.builder;
  const int64_t threads = context.role.threads();
  const int64_t a_row = copy.chunks_a_row();
  Chunk chunk;
  llvm::Value* number = builder.CreateAdd(context.role.thread, builder.CreateMul(first, context.i32(threads)));
  if (threads % a_row == 0)
    chunk.more_rows = more * (threads / a_row);
  else
    number = builder.CreateAdd(number, context.i32(more * threads));
  chunk.row = builder.CreateUDiv(number, context.i32(a_row));
  chunk.column = builder.CreateMul(builder.CreateURem(number, context.i32(a_row)), context.i32(copy.elements));
  if (copy.chunks() % threads != 0)
    chunk.is_mine = builder.CreateICmpULT(row_of(context, chunk), context.i32(copy.rows));
  return chunk;
}

// What depends on the thread comes first: loops leave it outside.
llvm::Value* source_of(GpuContext& context, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  auto* byte = builder.getInt8Ty();
  llvm::Value* row = builder.CreateZExt(chunk.row, builder.getInt64Ty());
  llvm::Value* bytes = builder.CreateMul(row, context.i64(copy.from_row_bytes));
  llvm::Value* column = builder.CreateMul(chunk.column, context.i32(copy.from_bytes()));
  bytes = builder.CreateAdd(bytes, builder.CreateZExt(column, builder.getInt64Ty()));
  llvm::Value* base = context.buffer_base[kernel::index_of(copy.source.buffer)];
  llvm::Value* pointer = builder.CreateGEP(byte, builder.CreateGEP(byte, base, bytes), copy.source.bytes);
  return builder.CreateGEP(byte, pointer, context.i64(chunk.more_rows * copy.from_row_bytes));
}

// A swizzle of the thread's own part does not change from turn to turn of a loop.
llvm::Value* target_of(GpuContext& context, kernel::BufferId id, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  const int64_t more = chunk.more_rows * copy.to_row_bytes;
  llvm::Value* row = builder.CreateMul(chunk.row, context.i32(copy.to_row_bytes));
  llvm::Value* bytes = builder.CreateAdd(row, builder.CreateMul(chunk.column, context.i32(copy.to_bytes())));
  if (!copy.at_pattern || more % kPatternBytes != 0)
    return swizzled_address(context, id, builder.CreateAdd(copy.target, builder.CreateAdd(bytes, context.i32(more))));
  llvm::Value* address = builder.CreateAdd(swizzled_address(context, id, bytes), copy.target);
  return builder.CreateAdd(address, context.i32(more));
}

// i1: the chunk's first element is inside height and width; null: always.
llvm::Value* inside(GpuContext& context, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  llvm::Value* test = copy.height ? builder.CreateICmpULT(row_of(context, chunk), copy.height) : nullptr;
  if (!copy.width) return test;
  llvm::Value* column = builder.CreateICmpULT(chunk.column, copy.width);
  return test ? builder.CreateAnd(test, column) : column;
}

// Bytes of the chunk that are read; the rest become 0.
llvm::Value* read_bytes(GpuContext& context, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  const int64_t bytes = copy.elements * copy.from_bytes();
  llvm::Value* size = context.i32(bytes);
  if (copy.width && copy.width_multiple % copy.elements != 0) {
    llvm::Value* left = builder.CreateMul(builder.CreateSub(copy.width, chunk.column), context.i32(copy.from_bytes()));
    size = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, size);
  }
  llvm::Value* test = inside(context, copy, chunk);
  return test ? builder.CreateSelect(test, size, context.i32(0)) : size;
}

void copy_chunk(GpuContext& context, kernel::BufferId to, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  const int64_t bytes = copy.elements * copy.from_bytes();
  const Leaf leaf = bytes == 16 ? Leaf::cp_async_16 : bytes == 8 ? Leaf::cp_async_8 : Leaf::cp_async_4;
  llvm::Value* from = builder.CreatePtrToInt(source_of(context, copy, chunk), builder.getInt64Ty());
  emit_leaf(context, leaf, {target_of(context, to, copy, chunk), from, read_bytes(context, copy, chunk)});
}

// A chunk's elements in registers: integers as wide as in memory.
Words load_chunk(GpuContext& context, const Copy& copy, const Chunk& chunk) {
  auto& builder = context.builder;
  llvm::Type* element = builder.getIntNTy(static_cast<unsigned>(8 * copy.from_bytes()));
  const auto lanes = static_cast<unsigned>(copy.elements);
  const auto load = [&]() -> Words {
    llvm::Type* type = lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
    const llvm::Align alignment(static_cast<uint64_t>(copy.elements * copy.from_bytes()));
    return {builder.CreateAlignedLoad(type, source_of(context, copy, chunk), alignment)};
  };
  llvm::Value* test = inside(context, copy, chunk);
  if (chunk.is_mine) test = test ? builder.CreateAnd(test, chunk.is_mine) : chunk.is_mine;
  if (!test) return load();
  llvm::Type* type = lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
  return emit_where(context, test, {llvm::Constant::getNullValue(type)}, load);
}

void store_chunk(GpuContext& context, kernel::BufferId to, const Copy& copy, const Chunk& chunk, llvm::Value* value) {
  auto& builder = context.builder;
  if (copy.widens()) {
    llvm::Type* wide = builder.getInt32Ty();
    if (copy.elements > 1) wide = llvm::FixedVectorType::get(wide, static_cast<unsigned>(copy.elements));
    value = builder.CreateShl(builder.CreateZExt(value, wide), 16);
  }
  const auto store = [&] {
    llvm::Value* pointer = builder.CreateIntToPtr(target_of(context, to, copy, chunk), builder.getPtrTy(3));
    builder.CreateAlignedStore(value, pointer, llvm::Align(static_cast<uint64_t>(copy.elements * copy.to_bytes())));
  };
  if (chunk.is_mine)
    emit_when(context, chunk.is_mine, store);
  else
    store();
}

// Turns [first, first + count) of every thread.
void copy_turns(GpuContext& context, kernel::BufferId to, const Copy& copy, llvm::Value* first, int64_t count) {
  std::vector<Chunk> chunks;
  for (int64_t i = 0; i < count; ++i) chunks.push_back(chunk_of(context, copy, first, i));
  if (copy.is_async()) {
    for (const Chunk& chunk : chunks) {
      const auto start = [&] { copy_chunk(context, to, copy, chunk); };
      if (chunk.is_mine)
        emit_when(context, chunk.is_mine, start);
      else
        start();
    }
    return;
  }
  Words loaded;
  for (const Chunk& chunk : chunks) loaded.push_back(load_chunk(context, copy, chunk)[0]);
  for (size_t i = 0; i < chunks.size(); ++i) store_chunk(context, to, copy, chunks[i], loaded[i]);
}

// Turns [0, count) in a loop, `step` of them at once.
void loop_turns(GpuContext& context, kernel::BufferId to, const Copy& copy, int64_t count, int64_t step) {
  auto& builder = context.builder;
  llvm::BasicBlock* before = builder.GetInsertBlock();
  llvm::BasicBlock* body = context.block("copy");
  llvm::BasicBlock* after = context.block("copied");
  builder.CreateBr(body);
  builder.SetInsertPoint(body);
  llvm::PHINode* turn = builder.CreatePHI(builder.getInt32Ty(), 2);
  copy_turns(context, to, copy, turn, step);
  llvm::Value* next = builder.CreateAdd(turn, context.i32(step));
  turn->addIncoming(context.i32(0), before);
  turn->addIncoming(next, builder.GetInsertBlock());
  builder.CreateCondBr(builder.CreateICmpULT(next, context.i32(count)), body, after);
  builder.SetInsertPoint(after);
}

}  // namespace

void emit_copy_async(GpuContext& context, const KOp& op) {
  const Copy copy = read_copy(context, op);
  const kernel::BufferId to = op.refs[1].buffer;
  const int64_t threads = context.role.threads();
  const int64_t turns = (copy.chunks() + threads - 1) / threads;
  const int64_t in_loop = copy.is_async() || turns <= kMostInFlight ? 0 : turns / kMostInFlight * kMostInFlight;
  if (in_loop > 0) loop_turns(context, to, copy, in_loop, kMostInFlight);
  if (in_loop < turns) copy_turns(context, to, copy, context.i32(in_loop), turns - in_loop);
}

void emit_copy_commit(GpuContext& context) { emit_leaf(context, Leaf::cp_async_commit, {}); }

void emit_copy_wait(GpuContext& context, const KOp& op) {
  emit_leaf(context, Leaf::cp_async_wait, {context.i32(kernel::integer_attr(op, "pending", 0))});
}

}  // namespace stepc::emit
