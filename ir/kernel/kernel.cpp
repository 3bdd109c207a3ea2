#include "ir/kernel/kernel.h"

#include <algorithm>
#include <array>

#include "ir/support/check.h"

namespace stepc::kernel {
namespace {

// "rows, cols" -> {"rows", "cols"}
std::vector<std::string_view> split_names(std::string_view list) {
  std::vector<std::string_view> names;
  while (!list.empty()) {
    const size_t end = list.find(',');
    names.push_back(list.substr(0, end));
    list = end == std::string_view::npos ? "" : list.substr(list.find_first_not_of(' ', end + 1));
  }
  return names;
}

std::vector<OpInfo> make_op_table() {
  using enum OperandKind;
#define KINDS(...) {__VA_ARGS__}
#define ATTRS(...) split_names(#__VA_ARGS__)
#define KOP(name, operands, result, attrs, level, doc) {#name, operands, ResultKind::result, attrs, Level::level, doc},
  return {
#include "ir/kernel/kernel_ops.def"
  };
#undef KOP
#undef ATTRS
#undef KINDS
}

constexpr int kOpCount = 0
#define KOP(...) +1
#include "ir/kernel/kernel_ops.def"
#undef KOP
    ;

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = make_op_table();
  return table;
}

struct NamedAttrKind {
  std::string_view name;
  AttrKind kind;
};
constexpr std::array kAttrKinds = {
    NamedAttrKind{"value", AttrKind::real},      NamedAttrKind{"low", AttrKind::integer},
    NamedAttrKind{"high", AttrKind::integer},    NamedAttrKind{"axis", AttrKind::integer},
    NamedAttrKind{"rows", AttrKind::integer},    NamedAttrKind{"tile", AttrKind::integers},
    NamedAttrKind{"k", AttrKind::integer},       NamedAttrKind{"warps", AttrKind::integer},
    NamedAttrKind{"pending", AttrKind::integer}, NamedAttrKind{"transposed", AttrKind::flag},
    NamedAttrKind{"write", AttrKind::flag},      NamedAttrKind{"lanes", AttrKind::integers},
    NamedAttrKind{"a", AttrKind::text},          NamedAttrKind{"b", AttrKind::text},
    NamedAttrKind{"first", AttrKind::integer},   NamedAttrKind{"cluster", AttrKind::flag},
    NamedAttrKind{"multicast", AttrKind::flag},  NamedAttrKind{"written", AttrKind::flag},
};

int64_t buffer_bytes(const Buffer& buffer) {
  constexpr int64_t kBarrierBytes = 8;
  const int64_t elements = numel(buffer.shape);
  return elements * (buffer.space == Space::barrier ? kBarrierBytes : dtype_bytes(buffer.dtype));
}

// A swizzle pattern repeats every 8 rows of its width; hardware takes it from the address.
int64_t buffer_alignment(const Buffer& buffer) {
  constexpr int64_t kCacheLine = 64;
  return buffer.swizzle_bytes ? 8 * 128 : kCacheLine;
}

// Do the warps of some role bring parts of a vector's reduction together?
bool exchanges(const Kernel& kernel) {
  if (kernel.target == Target::host) return false;
  for (const KOp& op : kernel.ops) {
    const bool reduces = op.op == Op::reduce_sum || op.op == Op::reduce_max || op.op == Op::reduce_min;
    if (reduces && kernel.frag(op.frags[0]).shape.size() == 1) return true;
  }
  return false;
}

}  // namespace

const OpInfo& op_info(Op op) { return op_table()[static_cast<size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i)
    if (op_table()[i].name == name) return static_cast<Op>(i);
  return std::nullopt;
}

AttrKind attr_kind(std::string_view name) {
  for (const NamedAttrKind& entry : kAttrKinds)
    if (entry.name == name) return entry.kind;
  STEPC_UNREACHABLE("attribute '{}' of the op table has no kind", name);
}

std::string_view target_name(Target target) {
  switch (target) {
    case Target::host: return "host";
    case Target::cuda: return "cuda";
    case Target::sm90: return "sm90";
  }
  STEPC_UNREACHABLE("target {}", static_cast<int>(target));
}

std::string_view space_name(Space space) {
  switch (space) {
    case Space::global: return "global";
    case Space::shared: return "shared";
    case Space::map: return "map";
    case Space::barrier: return "barrier";
  }
  STEPC_UNREACHABLE("space {}", static_cast<int>(space));
}

const Attr* find_attr(const KOp& op, std::string_view name) {
  for (const Attr& attr : op.attrs)
    if (attr.name == name) return &attr;
  return nullptr;
}

int64_t integer_attr(const KOp& op, std::string_view name, int64_t missing) {
  const Attr* attr = find_attr(op, name);
  return attr ? std::get<int64_t>(attr->value) : missing;
}

bool flag_attr(const KOp& op, std::string_view name) {
  const Attr* attr = find_attr(op, name);
  return attr && std::get<bool>(attr->value);
}

SharedLayout shared_layout(const Kernel& kernel) {
  SharedLayout layout;
  layout.offset_bytes.assign(kernel.buffers.size(), -1);
  std::vector<size_t> order;
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    if ((kernel.buffers[i].space == Space::shared && kernel.buffers[i].over == BufferId::none) ||
        kernel.buffers[i].space == Space::barrier)
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffer_alignment(kernel.buffers[a]) > buffer_alignment(kernel.buffers[b]);
  });
  for (size_t i : order) {
    const int64_t alignment = buffer_alignment(kernel.buffers[i]);
    layout.offset_bytes[i] = (layout.total_bytes + alignment - 1) / alignment * alignment;
    layout.total_bytes = layout.offset_bytes[i] + buffer_bytes(kernel.buffers[i]);
  }
  for (size_t i = 0; i < kernel.buffers.size(); ++i)
    if (kernel.buffers[i].over != BufferId::none)
      layout.offset_bytes[i] = layout.offset_bytes[index_of(kernel.buffers[i].over)];
  if (exchanges(kernel)) {
    constexpr int64_t kExchangeBytes = 128;  // 4 for each of up to 32 warps
    layout.exchange_offset = (layout.total_bytes + kExchangeBytes - 1) / kExchangeBytes * kExchangeBytes;
    layout.total_bytes = layout.exchange_offset + kExchangeBytes;
  }
  return layout;
}

}  // namespace stepc::kernel
