#include "runtime/emulator/scope.h"

#include "runtime/emulator/token.h"

namespace stepc::emulator {
namespace {

struct SpecialName {
  std::string_view name;
  Special special;
};
constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::tid_x},
    {"%tid.y", Special::tid_y},
    {"%tid.z", Special::tid_z},
    {"%ntid.x", Special::ntid_x},
    {"%ntid.y", Special::ntid_y},
    {"%ntid.z", Special::ntid_z},
    {"%ctaid.x", Special::ctaid_x},
    {"%ctaid.y", Special::ctaid_y},
    {"%ctaid.z", Special::ctaid_z},
    {"%nctaid.x", Special::nctaid_x},
    {"%nctaid.y", Special::nctaid_y},
    {"%nctaid.z", Special::nctaid_z},
    {"%laneid", Special::laneid},
    {"%warpid", Special::warpid},
    {"%nwarpid", Special::nwarpid},
    {"%smid", Special::smid},
    {"%nsmid", Special::nsmid},
    {"%gridid", Special::gridid},
    {"%clusterid.x", Special::clusterid_x},
    {"%clusterid.y", Special::clusterid_y},
    {"%clusterid.z", Special::clusterid_z},
    {"%nclusterid.x", Special::nclusterid_x},
    {"%nclusterid.y", Special::nclusterid_y},
    {"%nclusterid.z", Special::nclusterid_z},
    {"%cluster_ctaid.x", Special::cluster_ctaid_x},
    {"%cluster_ctaid.y", Special::cluster_ctaid_y},
    {"%cluster_ctaid.z", Special::cluster_ctaid_z},
    {"%cluster_nctaid.x", Special::cluster_nctaid_x},
    {"%cluster_nctaid.y", Special::cluster_nctaid_y},
    {"%cluster_nctaid.z", Special::cluster_nctaid_z},
    {"%cluster_ctarank", Special::cluster_ctarank},
    {"%cluster_nctarank", Special::cluster_nctarank},
    {"%is_explicit_cluster", Special::is_explicit_cluster},
    {"%lanemask_eq", Special::lanemask_eq},
    {"%lanemask_le", Special::lanemask_le},
    {"%lanemask_lt", Special::lanemask_lt},
    {"%lanemask_ge", Special::lanemask_ge},
    {"%lanemask_gt", Special::lanemask_gt},
    {"%dynamic_smem_size", Special::dynamic_smem_size},
    {"%total_smem_size", Special::total_smem_size},
};

}  // namespace

void Names::open() {
  scopes_.push_back({});
  scopes_.back().parent = current_;
  current_ = static_cast<int>(scopes_.size()) - 1;
}

bool Names::close() {
  if (current_ == 0) return false;
  current_ = scopes_[current_].parent;
  return true;
}

Row Names::take_row(bool wide) {
  if (wide) kernel_.rows += kernel_.rows & 1;  // 64-bit rows start at even places: aligned
  const Row row = kernel_.rows;
  kernel_.rows += wide ? 2 : 1;
  return row;
}

Register Names::make_register(Type type) {
  if (type == Type::pred) return {true, false, kernel_.predicates++};
  const bool wide = bytes_of(type) == 8;
  return {false, wide, take_row(wide)};
}

bool Names::declare_register(std::string_view name, Type type, std::optional<uint64_t> range) {
  if (type == Type::none || type == Type::b128) return false;
  Scope& scope = scopes_[current_];
  if (range)
    scope.ranges.push_back({name, type, *range});
  else
    scope.registers[name] = make_register(type);
  return true;
}

std::optional<Register> Names::find_register(std::string_view name) {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  uint64_t number = 0;
  const bool numbered = digits < name.size() && number_value(name.substr(digits), &number);
  for (int s = current_; s >= 0; s = scopes_[s].parent) {
    Scope& scope = scopes_[s];
    if (const auto it = scope.registers.find(name); it != scope.registers.end()) return it->second;
    if (!numbered) continue;
    for (const Range& r : scope.ranges)
      if (r.prefix == name.substr(0, digits) && number < r.count) return scope.registers[name] = make_register(r.type);
  }
  return std::nullopt;
}

bool Names::declare_label(std::string_view name, uint32_t pc) {
  return scopes_[current_].labels.emplace(name, pc).second;
}

void Names::declare_table(std::string_view name, std::vector<std::string_view> labels) {
  scopes_[current_].tables[name] = std::move(labels);
}

std::optional<uint32_t> Names::find_label(std::string_view name, int scope) const {
  for (int s = scope; s >= 0; s = scopes_[s].parent)
    if (const auto it = scopes_[s].labels.find(name); it != scopes_[s].labels.end()) return it->second;
  return std::nullopt;
}

const std::vector<std::string_view>* Names::find_table(std::string_view name, int scope) const {
  for (int s = scope; s >= 0; s = scopes_[s].parent)
    if (const auto it = scopes_[s].tables.find(name); it != scopes_[s].tables.end()) return &it->second;
  return nullptr;
}

Row Names::constant(uint64_t value, bool wide) {
  if (!wide) value &= 0xffffffffu;
  const auto [it, fresh] = constants_.emplace(std::pair(value, wide), 0);
  if (fresh) {
    it->second = take_row(wide);
    kernel_.constants.push_back({it->second, wide, value});
  }
  return it->second;
}

std::optional<Row> Names::special(std::string_view name) {
  for (const SpecialName& s : kSpecials) {
    if (s.name != name) continue;
    const auto [it, fresh] = specials_.emplace(s.name, 0);
    if (fresh) {
      it->second = take_row(false);
      kernel_.specials.push_back({it->second, false, s.special});
    }
    return it->second;
  }
  return std::nullopt;
}

}  // namespace stepc::emulator
