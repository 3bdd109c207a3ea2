// Loads and stores. A thread moves what it holds in units as wide as the alignment proved from the indices and strides
// allows, up to 16 bytes; counts, heights and idle slots become conditions on units.
#include <algorithm>
#include <numeric>
#include <optional>

#include "compiler/emit/nvptx/context.h"
#include "compiler/emit/nvptx/hopper.h"
#include "compiler/emit/nvptx/leaf.h"
#include "ir/kernel/index_facts.h"
#include "ir/support/check.h"

namespace stepc::emit {
namespace {

using kernel::index_of;
using kernel::KOp;
using kernel::Space;

constexpr int64_t kWidestBytes = 16;
constexpr int64_t kGlobalAlignment = 16;  // that the kernel relies on
constexpr int64_t kSharedAlignment = 64;

// Neighbouring elements that one instruction moves.
struct Unit {
  int64_t slot = 0;
  int64_t row = 0;
  int64_t column = 0;
};

// A place in a swizzled tile: whole patterns of rows, and a column of one of them.
struct SwizzledPlace {
  llvm::Value* rows = nullptr;  // bytes
  int64_t column_bytes = 0;
};

// One load or store of a fragment.
struct Access {
  const kernel::Buffer* buffer = nullptr;
  Dtype dtype = Dtype::f32;
  Spread spread;
  PlaceAddress place;
  int64_t element_bytes = 4;
  int64_t row_bytes = 0;                // from one row of the fragment to the next
  int64_t column_bytes = 0;             // from one column to the next
  llvm::Value* thread_bytes = nullptr;  // null: 0
  llvm::Value* count = nullptr;         // i32, at most the width; null: all
  llvm::Value* height = nullptr;
  int64_t count_multiple = 1;
  int64_t width = 1;                      // columns of the fragment
  int64_t unit = 1;                       // elements
  std::optional<SwizzledPlace> swizzled;  // instead of the place
};

bool is_shared(const Access& access) { return access.buffer->space == Space::shared; }

llvm::Type* element_type(GpuContext& context, Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return context.builder.getFloatTy();
    case Dtype::i32: return context.builder.getInt32Ty();
    case Dtype::bf16: return context.builder.getInt16Ty();
    case Dtype::pred: return context.builder.getInt8Ty();
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

size_t row_dimension(const KOp& op, const kernel::Buffer& buffer) {
  return static_cast<size_t>(kernel::integer_attr(op, "rows", static_cast<int64_t>(buffer.shape.size()) - 2));
}

// The count or height in 32 bits, or null where it never cuts.
llvm::Value* limit(GpuContext& context, const KOp& op, size_t operand, int64_t extent) {
  if (operand >= op.indices.size()) return nullptr;
  if (index_range(context, op.indices[operand]).low >= extent) return nullptr;
  auto& builder = context.builder;
  llvm::Value* wanted = emit_expr(context, op.indices[operand]);
  llvm::Value* most = llvm::ConstantInt::get(wanted->getType(), static_cast<uint64_t>(extent));
  llvm::Value* least = llvm::Constant::getNullValue(wanted->getType());
  llvm::Value* bounded = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smin, wanted, most);
  bounded = builder.CreateBinaryIntrinsic(llvm::Intrinsic::smax, bounded, least);
  return builder.CreateTrunc(bounded, builder.getInt32Ty());
}

// `most`: the index is below it.
llvm::Value* add_thread_part(GpuContext& context, llvm::Value* sum, llvm::Value* index, int64_t bytes, int64_t most) {
  if (!index || bytes == 0) return sum;
  auto& builder = context.builder;
  llvm::Value* part = bytes >= INT32_MAX / most
                          ? builder.CreateMul(builder.CreateZExt(index, builder.getInt64Ty()), context.i64(bytes))
                          : builder.CreateMul(index, context.i32(bytes));
  if (!sum) return part;
  if (sum->getType() == part->getType()) return builder.CreateAdd(sum, part);
  return builder.CreateAdd(widen_index(context, sum), widen_index(context, part));
}

// Where rows are as wide as the swizzle, and the place is whole patterns of 8 rows and leaves the bits of the
// fragment's columns free, a unit lies at the thread's own place in the pattern, with its column's bits exchanged.
std::optional<SwizzledPlace> split_swizzle(GpuContext& context, const kernel::Ref& ref, const Access& access) {
  const int64_t swizzle = access.buffer->swizzle_bytes, width = access.width * access.element_bytes;
  const kernel::Expr& column = context.kernel.expr(ref.at.back());
  if (swizzle == 0 || access.row_bytes != swizzle || (width & (width - 1)) != 0 || width > swizzle) return std::nullopt;
  if (column.kind != kernel::ExprKind::constant || column.value * access.element_bytes % width != 0)
    return std::nullopt;
  for (const Piece& piece : access.spread.pieces)
    if (piece.row % 8 != 0) return std::nullopt;
  const auto strides = strides_of(*access.buffer);
  auto& builder = context.builder;
  SwizzledPlace place{context.i32(0), column.value * access.element_bytes};
  for (size_t d = 0; d + 1 < ref.at.size(); ++d) {
    const int64_t step = strides[d] * access.element_bytes;
    if (kernel::multiple_of(context.kernel, ref.at[d]) * step % (8 * swizzle) != 0) return std::nullopt;
    place.rows = builder.CreateAdd(place.rows, builder.CreateMul(emit_expr32(context, ref.at[d]), context.i32(step)));
  }
  return place;
}

Access make_access(GpuContext& context, const KOp& op, kernel::FragId id) {
  const kernel::Ref& ref = op.refs[0];
  const kernel::Frag& frag = context.kernel.frag(id);
  Access access;
  access.buffer = &context.kernel.buffer(ref.buffer);
  access.dtype = frag.dtype;
  access.spread = spread_of(context, id);
  access.place = emit_place(context, ref);
  access.element_bytes = dtype_bytes(frag.dtype);
  const auto strides = strides_of(*access.buffer);
  if (!strides.empty()) access.column_bytes = strides.back() * access.element_bytes;
  int64_t alignment = access.place.alignment;
  if (frag.shape.size() == 2) {
    // Elements at computed offsets may be a tile's while the buffer has no rows.
    if (strides.size() >= 2) access.row_bytes = strides[row_dimension(op, *access.buffer)] * access.element_bytes;
    alignment = std::gcd(alignment, access.row_bytes);
    access.height = limit(context, op, 1, frag.shape[0]);
  }
  if (!frag.shape.empty()) {
    access.width = frag.shape.back();
    access.count = limit(context, op, 0, access.width);
  }
  if (access.count) access.count_multiple = kernel::multiple_of(context.kernel, op.indices[0]);
  // A row of a thread's first block, a column of its first vector; its sums are with the place, which has 64 bits
  // there.
  constexpr int64_t kMostRows = 256, kMostColumns = 1024 * 8;
  access.thread_bytes = add_thread_part(context, nullptr, access.spread.row, access.row_bytes, kMostRows);
  access.thread_bytes =
      add_thread_part(context, access.thread_bytes, access.spread.column, access.column_bytes, kMostColumns);
  if (is_shared(access) && access.thread_bytes && frag.shape.size() == 2)
    access.swizzled = split_swizzle(context, ref, access);
  access.unit = 1;
  const bool dense = access.column_bytes == access.element_bytes;
  for (int64_t unit = 2; dense && unit <= access.spread.pieces[0].width; unit *= 2)
    if (unit * access.element_bytes <= kWidestBytes && alignment % (unit * access.element_bytes) == 0)
      access.unit = unit;
  return access;
}

std::vector<Unit> units_of(const Access& access, int64_t unit) {
  std::vector<Unit> units;
  for (const Piece& piece : access.spread.pieces)
    for (int64_t i = 0; i < piece.width; i += unit) units.push_back({piece.slot + i, piece.row, piece.column + i});
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.row < b.row; });
  return units;
}

// A pointer to the unit's first element.
llvm::Value* address_of(GpuContext& context, const Access& access, const Unit& unit) {
  auto& builder = context.builder;
  const int64_t constant = unit.row * access.row_bytes + unit.column * access.column_bytes;
  llvm::Value* base = context.buffer_base[index_of(access.place.buffer)];
  if (!is_shared(access)) {
    llvm::Value* pointer = builder.CreateGEP(builder.getInt8Ty(), base, access.place.bytes);
    if (access.thread_bytes) pointer = builder.CreateGEP(builder.getInt8Ty(), pointer, access.thread_bytes);
    return constant == 0 ? pointer
                         : builder.CreateConstGEP1_64(builder.getInt8Ty(), pointer, static_cast<uint64_t>(constant));
  }
  llvm::Value* bytes = access.place.bytes;
  if (access.thread_bytes) bytes = builder.CreateAdd(bytes, access.thread_bytes);
  if (access.swizzled) {
    // Threads of all places share the first two, so that what differs is an offset.
    llvm::Value* own = swizzled_address(context, access.place.buffer, access.thread_bytes);
    own = builder.CreateXor(own, context.i32(access.swizzled->column_bytes + unit.column * access.column_bytes));
    own = builder.CreateAdd(own, access.swizzled->rows);
    return builder.CreateIntToPtr(builder.CreateAdd(own, context.i32(unit.row * access.row_bytes)),
                                  builder.getPtrTy(3));
  }
  return builder.CreateIntToPtr(
      swizzled_address(context, access.place.buffer, builder.CreateAdd(bytes, context.i32(constant))),
      builder.getPtrTy(3));
}

// i1: the unit is read or written at all; null: always. `whole`: its last element is below the count, too.
llvm::Value* condition_of(GpuContext& context, const Access& access, const Unit& unit, bool is_store) {
  auto& builder = context.builder;
  llvm::Value* condition = is_store ? access.spread.owner : nullptr;
  const auto require = [&](llvm::Value* test) { condition = condition ? builder.CreateAnd(condition, test) : test; };
  const auto below = [&](llvm::Value* part, int64_t constant, llvm::Value* end) {
    if (!part) return builder.CreateICmpSLT(context.i32(constant), end);
    return builder.CreateICmpSLT(builder.CreateNSWAdd(part, context.i32(constant)), end);
  };
  if (access.count) require(below(access.spread.column, unit.column, access.count));
  if (access.height) require(below(access.spread.row, unit.row, access.height));
  // Only the last piece reaches past the end.
  const bool may_idle = access.spread.idle_from >= 0 && unit.column + context.role.threads() > access.spread.idle_from;
  if (may_idle && !access.count)
    require(below(access.spread.column, unit.column, context.i32(access.spread.idle_from)));
  return condition;
}

// Runs `body` on units in groups of one condition each.
template <class Body>
void for_units(GpuContext& context, const Access& access, int64_t unit, bool is_store, const Body& body) {
  const std::vector<Unit> units = units_of(access, unit);
  std::vector<Unit> group;
  llvm::Value* condition = nullptr;
  const auto flush = [&] {
    if (!group.empty()) body(group, condition);
    group.clear();
  };
  for (const Unit& each : units) {
    // Units of one row share a condition unless columns are counted.
    const bool by_column = access.count || access.spread.idle_from >= 0;
    const bool same = !group.empty() && !by_column && group.back().row == each.row;
    if (!same) {
      flush();
      condition = condition_of(context, access, each, is_store);
    }
    group.push_back(each);
  }
  flush();
}

bool is_packed(const Access& access, int64_t unit) { return access.dtype == Dtype::bf16 && unit >= 2; }

// The words of one unit: packed bf16, or a value a slot.
Words load_unit(GpuContext& context, const Access& access, const Unit& unit, int64_t width) {
  auto& builder = context.builder;
  const bool packed = is_packed(access, width);
  llvm::Type* element = packed ? builder.getInt32Ty() : element_type(context, access.dtype);
  const int64_t lanes = packed ? width / 2 : width;
  llvm::Type* type = lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
  const llvm::Align alignment(static_cast<uint64_t>(width * access.element_bytes));
  llvm::Value* loaded = builder.CreateAlignedLoad(type, address_of(context, access, unit), alignment);
  Words words;
  for (int64_t i = 0; i < lanes; ++i) {
    llvm::Value* lane = lanes == 1 ? loaded : builder.CreateExtractElement(loaded, static_cast<uint64_t>(i));
    if (access.dtype == Dtype::bf16 && !packed) lane = builder.CreateZExt(lane, builder.getInt32Ty());
    if (access.dtype == Dtype::pred) lane = builder.CreateICmpNE(lane, builder.getInt8(0));
    words.push_back(lane);
  }
  return words;
}

llvm::Value* zero_word(GpuContext& context, Dtype dtype) {
  auto& builder = context.builder;
  if (dtype == Dtype::f32) return context.f32(0);
  return dtype == Dtype::pred ? static_cast<llvm::Value*>(builder.getFalse()) : context.i32(0);
}

// All words of the fragment, loaded in units of `width`.
Words load_units(GpuContext& context, const Access& access, int64_t width, int64_t slots) {
  const bool packed = is_packed(access, width);
  const int64_t words_a_unit = packed ? width / 2 : width;
  Words all(static_cast<size_t>(packed ? slots / 2 : slots), zero_word(context, access.dtype));
  for_units(context, access, width, false, [&](const std::vector<Unit>& units, llvm::Value* condition) {
    const auto load = [&] {
      Words words;
      for (const Unit& unit : units) {
        const Words loaded = load_unit(context, access, unit, width);
        words.insert(words.end(), loaded.begin(), loaded.end());
      }
      return words;
    };
    const Words zeros(units.size() * static_cast<size_t>(words_a_unit), zero_word(context, access.dtype));
    const Words words = condition ? emit_where(context, condition, zeros, load) : load();
    for (size_t u = 0; u < units.size(); ++u)
      for (int64_t i = 0; i < words_a_unit; ++i)
        all[static_cast<size_t>((packed ? units[u].slot / 2 : units[u].slot) + i)] =
            words[u * static_cast<size_t>(words_a_unit) + static_cast<size_t>(i)];
  });
  return access.dtype == Dtype::bf16 && !packed ? pack_bf16(context, all) : all;
}

void store_unit(GpuContext& context, const Access& access, const Unit& unit, int64_t width, const Words& words) {
  auto& builder = context.builder;
  const bool packed = is_packed(access, width);
  const int64_t lanes = packed ? width / 2 : width;
  const auto first = static_cast<size_t>(packed ? unit.slot / 2 : unit.slot);
  llvm::Type* element = packed ? builder.getInt32Ty() : element_type(context, access.dtype);
  llvm::Value* value = nullptr;
  for (int64_t i = 0; i < lanes; ++i) {
    llvm::Value* lane = words[first + static_cast<size_t>(i)];
    if (access.dtype == Dtype::bf16 && !packed) lane = builder.CreateTrunc(lane, element);
    if (access.dtype == Dtype::pred) lane = builder.CreateZExt(lane, element);
    if (lanes == 1) {
      value = lane;
      break;
    }
    if (!value) value = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes)));
    value = builder.CreateInsertElement(value, lane, static_cast<uint64_t>(i));
  }
  builder.CreateAlignedStore(value, address_of(context, access, unit),
                             llvm::Align(static_cast<uint64_t>(width * access.element_bytes)));
}

void store_units(GpuContext& context, const Access& access, int64_t width, kernel::FragId id) {
  const Words words = is_packed(access, width) ? context.words(id) : slots_of(context, id);
  for_units(context, access, width, true, [&](const std::vector<Unit>& units, llvm::Value* condition) {
    const auto store = [&] {
      for (const Unit& unit : units) store_unit(context, access, unit, width, words);
    };
    if (condition)
      emit_when(context, condition, store);
    else
      store();
  });
}

// Does the count end within units of this width?
bool count_cuts_units(const Access& access) { return access.count && access.count_multiple % access.unit != 0; }

llvm::Value* counts_all(GpuContext& context, const Access& access) {
  return context.builder.CreateICmpEQ(access.count, context.i32(access.width));
}

// Of gather and scatter: the element's distance from the place is all there is.
void move_by(GpuContext& context, Access& access, llvm::Value* offset) {
  auto& builder = context.builder;
  access.row_bytes = access.column_bytes = 0;
  access.swizzled.reset();
  access.thread_bytes = is_shared(access)
                            ? builder.CreateMul(offset, context.i32(access.element_bytes))
                            : builder.CreateMul(widen_index(context, offset), context.i64(access.element_bytes));
}

Access without_count(Access access) {
  access.count = nullptr;
  return access;
}

}  // namespace

std::vector<int64_t> strides_of(const kernel::Buffer& buffer) {
  return buffer.strides.empty() ? row_major_strides(buffer.shape) : buffer.strides;
}

PlaceAddress emit_place(GpuContext& context, const kernel::Ref& ref) {
  const kernel::Buffer& buffer = context.kernel.buffer(ref.buffer);
  const auto strides = strides_of(buffer);
  const int64_t bytes = dtype_bytes(buffer.dtype);
  auto& builder = context.builder;
  int64_t span = bytes;
  for (size_t d = 0; d < buffer.shape.size(); ++d) span += buffer.shape[d] * strides[d] * bytes;
  // What lies past a ragged edge is computed too, if never read: half the range is left for it.
  const bool narrow = buffer.space == Space::shared || span < (int64_t{1} << 30);
  PlaceAddress place;
  place.buffer = ref.buffer;
  place.alignment = buffer.space == Space::shared ? kSharedAlignment : kGlobalAlignment;
  place.bytes = narrow ? context.i32(0) : context.i64(0);
  for (size_t d = 0; d < ref.at.size(); ++d) {
    const int64_t step = strides[d] * bytes;
    llvm::Value* index = narrow ? emit_expr32(context, ref.at[d]) : emit_expr64(context, ref.at[d]);
    llvm::Value* factor = narrow ? context.i32(step) : context.i64(step);
    place.bytes = builder.CreateAdd(place.bytes, builder.CreateMul(index, factor));
    place.alignment = std::gcd(place.alignment, kernel::multiple_of(context.kernel, ref.at[d]) * step);
  }
  return place;
}

llvm::Value* swizzled_address(GpuContext& context, kernel::BufferId id, llvm::Value* bytes) {
  auto& builder = context.builder;
  const int64_t swizzle = context.kernel.buffer(id).swizzle_bytes;
  if (swizzle != 0) {
    // The 16-byte chunk's number in its 32, 64 or 128 bytes is combined with the 128-byte line's.
    llvm::Value* chunk = builder.CreateAnd(builder.CreateLShr(bytes, 3), context.i32(swizzle - 16));
    bytes = builder.CreateXor(bytes, chunk);
  }
  return builder.CreateAdd(context.buffer_base[index_of(id)], bytes);
}

llvm::Value* emit_shared_address(GpuContext& context, const kernel::Ref& ref) {
  return context.builder.CreateAdd(context.buffer_base[index_of(ref.buffer)], emit_place(context, ref).bytes);
}

llvm::Value* emit_global_address(GpuContext& context, const kernel::Ref& ref) {
  auto& builder = context.builder;
  return builder.CreateGEP(builder.getInt8Ty(), context.buffer_base[index_of(ref.buffer)],
                           emit_place(context, ref).bytes);
}

// Whole bf16 tiles of swizzled shared memory come by ldmatrix.
bool takes_ldmatrix(const GpuContext& context, const KOp& op) {
  constexpr int64_t kPanelColumns = 64;
  const kernel::FragId id = op.results[0];
  const kernel::Buffer& buffer = context.kernel.buffer(op.refs[0].buffer);
  const bool is_panel = buffer.space == Space::shared && buffer.dtype == Dtype::bf16 && buffer.swizzle_bytes == 128 &&
                        buffer.shape.back() == kPanelColumns;
  if (!is_panel || context.layout(id) != kernel::FragLayout::tile || !op.indices.empty()) return false;
  const auto rows = static_cast<int64_t>(buffer.shape.size()) - 2;
  return kernel::integer_attr(op, "rows", rows) == rows && buffer.shape[static_cast<size_t>(rows)] % 8 == 0 &&
         context.kernel.frag(id).shape[1] % 16 == 0 &&
         kernel::multiple_of(context.kernel, op.refs[0].at.back()) % kPanelColumns == 0;
}

void emit_load(GpuContext& context, const KOp& op) {
  if (takes_ldmatrix(context, op)) return emit_ldmatrix(context, op);
  const kernel::FragId id = op.results[0];
  const Access access = make_access(context, op, id);
  const int64_t slots = context.slots(id);
  if (!count_cuts_units(access)) return context.set_words(id, load_units(context, access, access.unit, slots));
  context.set_words(id, emit_choice(
                            context, counts_all(context, access),
                            [&] { return load_units(context, without_count(access), access.unit, slots); },
                            [&] { return load_units(context, access, 1, slots); }));
}

void emit_store(GpuContext& context, const KOp& op) {
  const kernel::FragId id = op.frags[0];
  const Access access = make_access(context, op, id);
  if (!count_cuts_units(access)) return store_units(context, access, access.unit, id);
  emit_choice(
      context, counts_all(context, access),
      [&] {
        store_units(context, without_count(access), access.unit, id);
        return Words{};
      },
      [&] {
        store_units(context, access, 1, id);
        return Words{};
      });
}

void emit_gather(GpuContext& context, const KOp& op) {
  const kernel::FragId id = op.results[0];
  Access access = make_access(context, op, id);
  const Words offsets = context.words(op.frags[0]);
  Words all;
  for (int64_t slot = 0; slot < context.slots(id); ++slot) all.push_back(zero_word(context, access.dtype));
  for_units(context, access, 1, false, [&](const std::vector<Unit>& units, llvm::Value* condition) {
    const auto load = [&] {
      Words words;
      for (const Unit& unit : units) {
        move_by(context, access, offsets[static_cast<size_t>(unit.slot)]);
        words.push_back(load_unit(context, access, unit, 1)[0]);
      }
      return words;
    };
    const Words zeros(units.size(), zero_word(context, access.dtype));
    const Words words = condition ? emit_where(context, condition, zeros, load) : load();
    for (size_t u = 0; u < units.size(); ++u) all[static_cast<size_t>(units[u].slot)] = words[u];
  });
  set_slots(context, id, all);
}

void emit_scatter(GpuContext& context, const KOp& op) {
  const kernel::FragId id = op.frags[0];
  const Access access = make_access(context, op, id);
  const Words words = slots_of(context, id);
  const Words offsets = context.words(op.frags[1]);
  for_units(context, access, 1, true, [&](const std::vector<Unit>& units, llvm::Value* condition) {
    const auto store = [&] {
      for (const Unit& unit : units) {
        Access moved = access;
        move_by(context, moved, offsets[static_cast<size_t>(unit.slot)]);
        store_unit(context, moved, unit, 1, words);
      }
    };
    if (condition)
      emit_when(context, condition, store);
    else
      store();
  });
}

void emit_load_index(GpuContext& context, const KOp& op) {
  auto& builder = context.builder;
  llvm::Value* pointer = context.kernel.buffer(op.refs[0].buffer).space == Space::shared
                             ? builder.CreateIntToPtr(emit_shared_address(context, op.refs[0]), builder.getPtrTy(3))
                             : emit_global_address(context, op.refs[0]);
  context.variables[index_of(op.variable)] = builder.CreateAlignedLoad(builder.getInt32Ty(), pointer, llvm::Align(4));
}

}  // namespace stepc::emit
