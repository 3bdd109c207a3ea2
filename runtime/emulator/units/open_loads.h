// The loads from shared memory that a warp has executed and that may still be under way. Within the generic proxy
// their order is kept by itself: an arrival at a barrier or a store after them does not overtake them, and nothing
// waits for their values before something uses these. A copy by the asynchronous proxy does overtake them. A load is
// over when an instruction has used one of its registers (as a load has one scoreboard, any of them will do; writing
// one waits as well), or when all its threads have executed fence.proxy.async. A move is no use: the assembler gives
// the register another name.
#pragma once

#include <vector>

#include "runtime/emulator/units/shadow.h"

namespace stepc::emulator {

class OpenLoads {  // of one warp
 public:
  OpenLoads(Agent agent, Row rows) : agent_(agent), load_of_(static_cast<size_t>(rows), 0) {}

  bool empty() const { return open_ == 0; }
  // Bytes that the load now executing reads; then its registers and lanes.
  void add_bytes(Shadow& shadow, uint32_t address, uint32_t bytes);
  void open(const Instruction& i, Mask lanes);
  // Before an instruction is executed: closes the loads whose registers it uses.
  void use(const Instruction& i);
  void fence(int lane);
  void close_all();

 private:
  struct Granule {  // 16 bytes; of this CTA's memory or of another's in the cluster
    Shadow* shadow;
    uint32_t address;
    bool operator==(const Granule&) const = default;
  };
  struct Load {
    std::vector<Granule> granules;
    std::vector<Row> rows;  // empty: the place is free
    Mask unfenced = 0;
  };

  void close(uint32_t load);
  void close_row(Row row) {
    if (load_of_[static_cast<size_t>(row)] != 0) close(load_of_[static_cast<size_t>(row)]);
  }
  void move(const Instruction& i);
  void give(Row row, uint32_t load);

  Agent agent_;
  size_t open_ = 0;
  std::vector<Load> loads_;
  std::vector<uint32_t> load_of_;  // by row: 1 + the load that brings its value; 0: none
  std::vector<Granule> reading_;
};

}  // namespace stepc::emulator
