// The tensor core of one warp. A product is queued when it is issued and executed when a wait retires it: only then
// are its operands read, and its accumulators written. In between its registers are marked in flight and its shared
// bytes as being read. Each warp computes its own 16 of a warpgroup's 64 rows.
#pragma once

#include <deque>
#include <vector>

#include "runtime/emulator/units/matrix.h"
#include "runtime/emulator/units/shadow.h"

namespace stepc::emulator {

// The four warps of a warpgroup must execute the same products, in the same order, on the same descriptors; they do
// so at different times. Those that not all of them have come to yet are kept here.
class Warpgroup {
 public:
  struct Entry {
    const Instruction* at = nullptr;
    uint64_t a = 0, b = 0;  // descriptors
    bool scale_d = false;
    Site first;
    int seen = 0;  // warps
    bool operator==(const Entry& o) const { return at == o.at && a == o.a && b == o.b && scale_d == o.scale_d; }
  };
  // The next product of a warp; the entry that it contradicts, or nullptr.
  const Entry* add(int warp, const Entry& entry);
  // A product that some of the warps never came to.
  const Entry* unmatched() const { return entries_.empty() ? nullptr : &entries_.front(); }

 private:
  std::deque<Entry> entries_;
  uint64_t dropped_ = 0;  // entries before entries_.front()
  uint64_t next_[4] = {0, 0, 0, 0};
};

class Wgmma {
 public:
  Wgmma(Cta& cta, ClusterState& cluster, Shadow& shadow, Warpgroup& group)
      : cta_(cta), cluster_(cluster), shadow_(shadow), group_(group) {}

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
    std::vector<MatrixChunk> a_chunks, b_chunks;  // that this warp reads
  };

  bool check_registers(Warp& warp, const Instruction& i);
  bool descriptor(Warp& warp, const Instruction& i, Row row, MatrixDescriptor* out);
  bool agrees(Warp& warp, const Instruction& i, bool scale_d);
  bool list_operand(Warp& warp, Product* p, bool a_operand);
  void execute(Warp& warp, const Product& p);
  void load_a(Warp& warp, const Product& p, float (&a)[16][16]);
  void load_b(const Product& p, std::vector<float>* b);
  void fault(FaultKind kind, const Site& at, std::string text);

  Cta& cta_;
  ClusterState& cluster_;
  Shadow& shadow_;
  Warpgroup& group_;
  bool fenced_ = false;  // wgmma.fence has been executed
  uint64_t open_ = 0;    // groups committed, which is the number of the open one
  std::deque<Product> queue_;
  std::vector<float> b_;
};

}  // namespace stepc::emulator
