#include "runtime/emulator/instructions/families.h"

#include <unordered_map>

namespace stepc::emulator {
namespace {

using Table = std::unordered_map<std::string_view, DecodeInstruction>;

Table make_table() {
  Table table;
  for (const auto family :
       {arithmetic_family(), bits_family(), compare_family(), convert_family(), memory_family(), atomic_family(),
        warp_family(), matrix_family(), async_copy_family(), control_family(), units_family()})
    for (const InstructionEntry& e : family) table.emplace(e.name, e.decode);
  return table;
}

}  // namespace

DecodeInstruction find_instruction(std::string_view full_name) {
  static const Table table = make_table();
  for (std::string_view prefix = full_name;;) {
    if (const auto it = table.find(prefix); it != table.end()) return it->second;
    const size_t dot = prefix.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    prefix = prefix.substr(0, dot);
  }
}

}  // namespace stepc::emulator
