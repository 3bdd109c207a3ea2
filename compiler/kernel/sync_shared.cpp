#include "compiler/kernel/sync_shared.h"

#include <algorithm>
#include <map>

#include "ir/kernel/index_facts.h"
#include "ir/kernel/layout.h"
#include "ir/support/check.h"

namespace stepc {
namespace {

using namespace kernel;

// Who touches an element: known only for neighbouring lanes from a multiple of what all threads hold at once, where it
// follows from the element's column, and for scalars, which one thread stores.
constexpr int64_t kAnyThread = 0;
constexpr int64_t kFirstThread = -1;

struct Access {
  bool writes = false;
  int64_t who = kAnyThread;  // > 0: thread (column / who) % threads
  Range columns;             // inclusive
  auto operator<=>(const Access& other) const {
    return std::tie(writes, who, columns.low, columns.high) <=>
           std::tie(other.writes, other.who, other.columns.low, other.columns.high);
  }
  bool operator==(const Access& other) const { return (*this <=> other) == 0; }
};

bool conflict(const Access& a, const Access& b) {
  if (!a.writes && !b.writes) return false;
  if (a.who == b.who && a.who != kAnyThread) return false;
  return a.columns.low <= b.columns.high && b.columns.low <= a.columns.high;
}

// Accesses since the last barrier, by buffer.
using Pending = std::map<BufferId, std::vector<Access>>;

class Syncer {
 public:
  explicit Syncer(Kernel kernel) : kernel_(std::move(kernel)) {}

  Kernel run() {
    for (Role& role : kernel_.roles) {
      threads_ = int64_t{32} * role.warps;
      Pending pending;
      role.body = walk(std::move(role.body), pending);
    }
    return std::move(kernel_);
  }

 private:
  static bool writes(const KOp& op) { return op.op == Op::store || op.op == Op::scatter; }
  static bool reads(const KOp& op) { return op.op == Op::load || op.op == Op::gather || op.op == Op::load_index; }

  Access access_of(const KOp& op) const {
    Access access;
    access.writes = writes(op);
    const Ref& ref = op.refs[0];
    const bool is_plain = op.op == Op::load || op.op == Op::store;
    if (!is_plain || ref.at.empty()) {
      access.columns = {};
      if (op.op == Op::load_index && !ref.at.empty()) access.columns = range_of(kernel_, ref.at.back());
      if (op.op == Op::store) access.who = kFirstThread;
      return access;
    }
    const Frag& frag = kernel_.frag(access.writes ? op.frags[0] : op.results[0]);
    const int64_t width = frag.shape.empty() ? 1 : frag.shape.back();
    access.columns = range_of(kernel_, ref.at.back());
    if (access.columns.high <= INT64_MAX - width) access.columns.high += width - 1;
    if (frag.shape.empty()) {
      access.who = access.writes ? kFirstThread : kAnyThread;
    } else if (frag.shape.size() == 1) {
      const int64_t vector = lane_vector(width, threads_);
      if (multiple_of(kernel_, ref.at.back()) % (vector * threads_) == 0) access.who = vector;
    }
    return access;
  }

  void add(Pending& pending, BufferId buffer, const Access& access) const {
    auto& accesses = pending[buffer];
    if (std::find(accesses.begin(), accesses.end(), access) == accesses.end()) accesses.push_back(access);
  }

  void merge(Pending& into, const Pending& from) const {
    for (const auto& [buffer, accesses] : from)
      for (const Access& access : accesses) add(into, buffer, access);
  }

  // Operands that nothing writes need no order.
  bool is_written(BufferId buffer) const {
    return std::any_of(kernel_.ops.begin(), kernel_.ops.end(),
                       [&](const KOp& op) { return writes(op) && op.refs[0].buffer == buffer; });
  }

  Body walk(Body body, Pending& pending) {
    std::vector<OpId> ops;
    for (OpId id : body.ops) {
      if (kernel_.op(id).op == Op::sync_task) pending.clear();
      if (!kernel_.op(id).bodies.empty()) walk_inner(id, pending);
      const KOp& op = kernel_.op(id);
      if ((reads(op) || writes(op)) && is_written(op.refs[0].buffer)) {
        const BufferId buffer = op.refs[0].buffer;
        const Access access = access_of(op);
        const auto& before = pending[buffer];
        if (std::any_of(before.begin(), before.end(), [&](const Access& b) { return conflict(access, b); })) {
          ops.push_back(static_cast<OpId>(kernel_.ops.size()));
          kernel_.ops.push_back({.op = Op::sync_task});
          pending.clear();
        }
        add(pending, buffer, access);
      }
      ops.push_back(id);
    }
    body.ops = std::move(ops);
    return body;
  }

  void walk_inner(OpId id, Pending& pending) {
    const bool is_loop = kernel_.op(id).op == Op::loop;
    const Pending before = pending;
    Pending after;
    for (size_t i = 0; i < kernel_.op(id).bodies.size(); ++i) {
      Pending inside = before;
      Body body = walk(kernel_.op(id).bodies[i], inside);
      // What a turn leaves pending meets the next one.
      if (is_loop) body = walk(std::move(body), inside);
      kernel_.ops[index_of(id)].bodies[i] = std::move(body);
      merge(after, inside);
    }
    // The loop may not turn, and there may be no else.
    if (is_loop || kernel_.op(id).bodies.size() == 1) merge(after, before);
    pending = std::move(after);
  }

  Kernel kernel_;
  int64_t threads_ = 32;
};

}  // namespace

Kernel sync_shared(Kernel kernel) {
  kernel = Syncer(std::move(kernel)).run();
  return kernel;
}

}  // namespace stepc
