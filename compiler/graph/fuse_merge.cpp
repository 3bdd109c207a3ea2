#include "compiler/graph/fuse_merge.h"

#include <algorithm>
#include <optional>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "ir/support/check.h"

namespace stepc {
namespace {

// The price of a kernel of its own: what memory moves while one is started.
constexpr double kKernelBytes = 256 * 1024;
// Fewer tasks than this leave a part of the machine idle.
constexpr double kWantedTasks = 8;
// More buffers than this do not fit a kernel's registers of addresses.
constexpr size_t kMaxBuffers = 32;
// Kernels that only share operands merge where they share at least this part of what the smaller one moves.
constexpr double kWorthSharing = 0.25;

struct Kernel {
  FusedKernel fused;
  std::vector<ValueId> results;
  double bytes = 0;  // to and from memory
  double cost = 0;
  bool alive = true;
  int version = 0;             // counts the merges
  std::vector<int> consumers;  // kernels that read results, by the numbers they had; see `now`
};

double cost_of(const RegionFacts& facts) {
  const double idle = std::max(1.0, kWantedTasks / std::max(1.0, facts.tasks));
  return (facts.read_bytes + facts.written_bytes + facts.work_bytes) * idle + kKernelBytes;
}

Template lone_template(const Program& program, const Node& node) {
  if (node.op == Op::matmul) return Template::matmul;
  if (node.op == Op::scatter_add_rows) return Template::scatter;
  if (node.op == Op::attention) return Template::attention;
  if (node.op == Op::attention_grad) return Template::attention_grad;
  if (node.op == Op::route) return Template::route;
  const bool long_reduction = op_info(node.op).family == OpFamily::reduction && !is_small_reduction(program, node);
  if (!long_reduction) return Template::pointwise;
  return reduction_axes(program, node) == ReductionAxes::trailing ? Template::row : Template::column_sum;
}

std::optional<Template> merged_template(Template producer, Template consumer) {
  using enum Template;
  const auto either = [&](Template wanted, Template other) {
    return (producer == wanted && consumer == other) || (producer == other && consumer == wanted);
  };
  if (producer == pointwise && consumer == pointwise) return pointwise;
  if (either(matmul, pointwise)) return matmul;
  if (producer == attention_grad && consumer == pointwise) return attention_grad;
  if (either(row, pointwise) || (producer == row && consumer == row)) return row;
  if (either(row, column_sum)) return row;  // as a partial sum
  if (either(column_sum, pointwise) || (producer == column_sum && consumer == column_sum)) return column_sum;
  return std::nullopt;
}

class Merger {
 public:
  Merger(const FuseGraph& graph, const FuseOptions& options)
      : graph_(graph), program_(graph.program()), options_(options), kernel_of_(program_.nodes.size(), -1) {}

  std::vector<FusedKernel> run() {
    start();
    do {
      for (int k = 0; k < static_cast<int>(kernels_.size()); ++k) push_neighbours(k);
      merge_along_edges();
    } while (merge_siblings());
    std::vector<FusedKernel> fused;
    for (Kernel& k : kernels_)
      if (k.alive) fused.push_back(std::move(k.fused));
    return fused;
  }

 private:
  void start() {
    for (size_t n = 0; n < program_.nodes.size(); ++n) {
      const auto id = static_cast<NodeId>(n);
      if (graph_.role(id) != Role::kernel) continue;
      kernel_of_[n] = static_cast<int>(kernels_.size());
      const auto lone = assemble({lone_template(program_, program_.node(id)), {id}}, -1, -1);
      STEPC_CHECK(lone.has_value(), "program @{}: {}", program_.name, lone.error().text());
      kernels_.push_back(*lone);
      now_.push_back(kernel_of_[n]);
    }
    seen_.assign(kernels_.size(), 0);
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k) find_consumers(k);
  }

  // The kernel of these nodes, which are now those of kernels `a` and `b`.
  Result<Kernel> assemble(FusedKernel fused, int a, int b) const {
    Region region{fused.schedule, graph_.with_repeated(fused.nodes), {}};
    for (NodeId id : fused.nodes)
      for (ValueId result : program_.node(id).results)
        if (is_read_outside(result, id, a, b)) region.results.push_back(result);
    STEPC_ASSIGN(const RegionFacts facts, analyse(program_, region));
    return Kernel{std::move(fused), region.results, facts.read_bytes + facts.written_bytes, cost_of(facts)};
  }

  bool is_read_outside(ValueId value, NodeId maker, int a, int b) const {
    const std::vector<NodeId>& readers = graph_.readers(value);
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      const int k = kernel_of_[index_of(reader)];
      const bool same = reader == maker || (k >= 0 && (k == a || k == b));
      return !same;
    });
  }

  void find_consumers(int k) {
    std::vector<int>& found = kernel(k).consumers;
    for (ValueId result : kernel(k).results)
      for (NodeId reader : graph_.readers(result)) found.push_back(kernel_of_[index_of(reader)]);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    std::erase_if(found, [&](int consumer) { return consumer == k || consumer < 0; });
  }

  // The kernel that the one which had this number is part of.
  int now(int k) {
    int& merged_into = now_[static_cast<size_t>(k)];
    if (merged_into != k) merged_into = now(merged_into);
    return merged_into;
  }

  // The kernels that read results of this one, or those whose results it reads.
  std::set<int> consumers(int k) {
    std::set<int> found;
    for (int consumer : kernel(k).consumers) found.insert(now(consumer));
    return found;
  }
  std::set<int> producers(int k) const {
    std::set<int> found;
    for (NodeId id : kernel(k).fused.nodes)
      for (ValueId source : graph_.sources(id)) found.insert(kernel_of_[index_of(program_.value(source).producer)]);
    found.erase(k);
    found.erase(-1);
    return found;
  }

  // A way from `from` to `to` through at least one other kernel.
  bool reaches_around(int from, int to) {
    ++search_;
    std::vector<int> open;
    const auto push_consumers = [&](int k) {
      for (int number : kernel(k).consumers) {
        const int consumer = now(number);
        if (consumer == to && k != from) return true;
        if (consumer == to || std::exchange(seen_[static_cast<size_t>(consumer)], search_) == search_) continue;
        open.push_back(consumer);
      }
      return false;
    };
    seen_[static_cast<size_t>(from)] = search_;
    push_consumers(from);
    while (!open.empty()) {
      const int k = open.back();
      open.pop_back();
      if (push_consumers(k)) return true;
    }
    return false;
  }

  size_t buffers(const FusedKernel& fused, size_t results) const {
    std::set<ValueId> operands;
    for (NodeId id : fused.nodes)
      for (ValueId source : graph_.sources(id))
        if (!std::binary_search(fused.nodes.begin(), fused.nodes.end(), program_.value(source).producer))
          operands.insert(source);
    return operands.size() + results;
  }

  bool takes_tail(int k) const {
    return options_.takes_tail &&
           std::any_of(kernel(k).fused.nodes.begin(), kernel(k).fused.nodes.end(), [&](NodeId id) {
             return program_.node(id).op == Op::attention_grad && options_.takes_tail(program_, program_.node(id));
           });
  }

  bool is_update(int k) const { return phase_of(k) == Phase::optimizer; }

  // Does the product among the two have an update made with it?
  bool takes_update(int a, int b) const {
    if (options_.updates != Updates::in_bf16_products) return options_.updates == Updates::in_products;
    for (NodeId id : kernel(schedule_of(a) == Template::matmul ? a : b).fused.nodes) {
      const Node& node = program_.node(id);
      if (node.op == Op::matmul) return program_.type(node.operands[0]).dtype == Dtype::bf16;
    }
    return false;
  }

  // The kernel of `a` and `b`, if there may be one and it pays; circles are not looked for.
  std::optional<Kernel> merged(int a, int b, Template schedule) const {
    if (schedule == Template::matmul && is_update(a) != is_update(b) && !takes_update(a, b)) return std::nullopt;
    if (schedule == Template::attention_grad && !takes_tail(a)) return std::nullopt;
    const Kernel& into = kernel(a);
    const Kernel& from = kernel(b);
    FusedKernel fused{schedule, into.fused.nodes};
    fused.nodes.insert(fused.nodes.end(), from.fused.nodes.begin(), from.fused.nodes.end());
    std::sort(fused.nodes.begin(), fused.nodes.end());
    Result<Kernel> both = assemble(std::move(fused), a, b);
    if (!both || both->cost >= into.cost + from.cost) return std::nullopt;
    if (buffers(both->fused, both->results.size()) > kMaxBuffers) return std::nullopt;
    return std::move(*both);
  }

  // Merges `b` into `a`, unless that made a circle.
  bool merge(int a, int b, Kernel both) {
    if (reaches_around(a, b) || reaches_around(b, a)) return false;
    both.version = kernel(a).version + 1;
    kernel(a) = std::move(both);
    kernel(b) = {};
    kernel(b).alive = false;
    now_[static_cast<size_t>(b)] = a;
    for (NodeId id : kernel(a).fused.nodes) kernel_of_[index_of(id)] = a;
    find_consumers(a);
    return true;
  }

  Kernel& kernel(int k) { return kernels_[static_cast<size_t>(k)]; }
  const Kernel& kernel(int k) const { return kernels_[static_cast<size_t>(k)]; }
  Template schedule_of(int k) const { return kernel(k).fused.schedule; }
  bool alive(int k) const { return kernel(k).alive; }
  int version(int k) const { return kernel(k).version; }
  double cost(int k) const { return kernel(k).cost; }

  void push(int producer, int consumer) {
    const auto schedule = merged_template(schedule_of(producer), schedule_of(consumer));
    if (!schedule) return;
    const auto both = merged(producer, consumer, *schedule);
    if (!both) return;
    const double gain = cost(producer) + cost(consumer) - both->cost;
    candidates_.push({gain, -producer, -consumer, version(producer), version(consumer), *schedule});
  }

  void push_neighbours(int k) {
    if (!alive(k)) return;
    for (int consumer : consumers(k)) push(k, consumer);
    for (int producer : producers(k)) push(producer, k);
  }

  // The pair that saves most first: what a product's epilogue saves is then weighed against what the same op saves
  // elsewhere.
  void merge_along_edges() {
    while (!candidates_.empty()) {
      const auto [gain, a_negative, b_negative, a_version, b_version, schedule] = candidates_.top();
      candidates_.pop();
      const int a = -a_negative;
      const int b = -b_negative;
      if (!alive(a) || !alive(b) || version(a) != a_version || version(b) != b_version) continue;
      auto both = merged(a, b, schedule);
      if (both && merge(a, b, std::move(*both))) push_neighbours(a);
    }
  }

  Phase phase_of(int k) const { return program_.node(kernel(k).fused.nodes.back()).phase; }

  bool worth_sharing(ValueId value, int a, int b) const {
    const TensorType& type = program_.type(value);
    const auto bytes = static_cast<double>(numel(type.shape) * dtype_bytes(type.dtype));
    const double smaller = std::min(kernel(a).bytes, kernel(b).bytes);
    return bytes >= kWorthSharing * smaller && phase_of(a) == phase_of(b);
  }

  bool merge_siblings() {
    bool changed = false;
    for (size_t v = 0; v < program_.values.size(); ++v) {
      const auto value = static_cast<ValueId>(v);
      if (numel(program_.type(value).shape) <= 1) continue;
      while (merge_readers(value)) changed = true;
    }
    return changed;
  }

  bool merge_readers(ValueId value) {
    std::set<int> found;
    for (NodeId reader : graph_.readers(value)) found.insert(kernel_of_[index_of(reader)]);
    found.erase(-1);
    for (int a : found)
      for (int b : found) {
        if (a >= b || !worth_sharing(value, a, b)) continue;
        const auto schedule = merged_template(schedule_of(a), schedule_of(b));
        if (!schedule || schedule == Template::matmul || schedule == Template::attention_grad) continue;
        auto both = merged(a, b, *schedule);
        if (both && merge(a, b, std::move(*both))) return true;
      }
    return false;
  }

  const FuseGraph& graph_;
  const Program& program_;
  const FuseOptions& options_;
  std::vector<Kernel> kernels_;
  std::vector<int> kernel_of_;  // of a node; -1: in none
  std::vector<int> now_;        // of a kernel: itself, or one that it was merged into
  std::vector<int> seen_;       // the last search that came to a kernel
  int search_ = 0;
  // Pairs that may merge, the best last: gain, then the earliest kernels; with the versions that were looked at.
  std::priority_queue<std::tuple<double, int, int, int, int, Template>> candidates_;
};

}  // namespace

std::vector<FusedKernel> merge_kernels(const FuseGraph& graph, const FuseOptions& options) {
  return Merger(graph, options).run();
}

}  // namespace stepc
