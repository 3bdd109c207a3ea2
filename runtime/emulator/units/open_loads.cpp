#include "runtime/emulator/units/open_loads.h"

#include <algorithm>

namespace stepc::emulator {

void OpenLoads::add_bytes(Shadow& shadow, uint32_t address, uint32_t bytes) {
  for (uint32_t at = address & ~15u; at < address + bytes; at += 16) {
    const Granule granule{&shadow, at};
    // Neighbouring lanes read the same 16 bytes.
    if (reading_.empty() || !(reading_.back() == granule)) reading_.push_back(granule);
  }
}

void OpenLoads::open(const Instruction& i, Mask lanes) {
  if (!reading_.empty() && !i.writes.empty()) {
    const auto free = std::find_if(loads_.begin(), loads_.end(), [](const Load& load) { return load.rows.empty(); });
    const auto index = static_cast<uint32_t>(free - loads_.begin());
    if (free == loads_.end()) loads_.emplace_back();
    Load& load = loads_[index];
    load.granules.swap(reading_);
    load.unfenced = lanes;
    for (const Granule& g : load.granules) g.shadow->begin_load(agent_, g.address);
    for (const Row row : i.writes) give(row, index + 1);
    ++open_;
  }
  reading_.clear();
}

void OpenLoads::use(const Instruction& i) {
  if (i.moves) return move(i);
  for (const Row row : i.reads) close_row(row);
  for (const Row row : i.writes) close_row(row);
  if (!i.async) return;
  for (const Row row : i.async->accumulators) close_row(row);
  for (const Row row : i.async->a_registers) close_row(row);
}

// Its results are one load's; any others end here.
void OpenLoads::move(const Instruction& i) {
  uint32_t moved = 0;
  for (const Row row : i.reads) {
    const uint32_t load = load_of_[static_cast<size_t>(row)];
    if (moved == 0)
      moved = load;
    else if (load != 0 && load != moved)
      close(load);
  }
  for (const Row row : i.writes) {
    if (load_of_[static_cast<size_t>(row)] == moved) continue;
    close_row(row);
    if (moved != 0) give(row, moved);
  }
}

void OpenLoads::give(Row row, uint32_t load) {
  load_of_[static_cast<size_t>(row)] = load;
  loads_[load - 1].rows.push_back(row);
}

void OpenLoads::fence(int lane) {
  for (uint32_t load = 1; load <= loads_.size(); ++load) {
    if (loads_[load - 1].rows.empty()) continue;
    loads_[load - 1].unfenced &= ~(Mask{1} << lane);
    if (loads_[load - 1].unfenced == 0) close(load);
  }
}

void OpenLoads::close(uint32_t load) {
  Load& over = loads_[load - 1];
  for (const Granule& g : over.granules) g.shadow->end_load(agent_, g.address);
  for (const Row row : over.rows) load_of_[static_cast<size_t>(row)] = 0;
  over.granules.clear();
  over.rows.clear();
  --open_;
}

void OpenLoads::close_all() {
  for (uint32_t load = 1; load <= loads_.size(); ++load)
    if (!loads_[load - 1].rows.empty()) close(load);
}

}  // namespace stepc::emulator
