// The tensor core of one warp. A product is queued when it is issued and executed when a wait retires it: only then
// are its operands read, and its accumulators written. In between its registers are marked in flight and its shared
// bytes as being read. Each warp computes its own 16 of a warpgroup's 64 rows.
#pragma once

#include <deque>
#include <vector>

#include "runtime/emulator/units/matrix.h"
#include "runtime/emulator/units/shadow.h"

namespace stepc::emulator {

class Wgmma {
 public:
  Wgmma(Cta& cta, ClusterState& cluster, Shadow& shadow) : cta_(cta), cluster_(cluster), shadow_(shadow) {}

  void fence(Warp& warp);
  void issue(Warp& warp, const Instruction& i);
  void commit() { ++open_; }
  // Executes products until at most `pending` committed groups are left.
  void wait(Warp& warp, int pending);
  // The warp exits: nothing may be under way.
  void finish(Warp& warp);

 private:
  struct Product {
    const Instruction* at = nullptr;
    uint64_t group = 0;
    MatrixDescriptor a, b;
    bool scale_d = true;
  };

  bool check_registers(Warp& warp, const Instruction& i);
  bool descriptor(Warp& warp, const Instruction& i, Row row, MatrixDescriptor* out);
  bool chunks(Warp& warp, const Product& p, bool a_operand, std::vector<MatrixChunk>* out);
  void execute(Warp& warp, const Product& p);
  void load_a(Warp& warp, const Product& p, float (&a)[16][16]);
  void load_b(Warp& warp, const Product& p, std::vector<float>* b);
  void for_chunks(Warp& warp, const Product& p, bool begin);
  void fault(FaultKind kind, const Site& at, std::string text);

  Cta& cta_;
  ClusterState& cluster_;
  Shadow& shadow_;
  bool fenced_ = false;  // wgmma.fence has been executed
  uint64_t open_ = 0;    // groups committed, which is the number of the open one
  std::deque<Product> queue_;
  std::vector<MatrixChunk> scratch_;
  std::vector<float> b_;
};

}  // namespace stepc::emulator
