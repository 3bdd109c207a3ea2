// Products of few columns and many k whose left side is stored with k along rows, such as the gradient of a router's
// weight: bound by memory. A thread keeps the sums of its columns of A with each column of B in registers and walks the
// rows of both; the next rows of A are on their way meanwhile. k is split over tasks, as many as run at once, whose
// sums go to workspace; a second kernel adds them in order.
#include <algorithm>
#include <bit>

#include "compiler/schedule/cuda/group_kernel.h"
#include "compiler/schedule/cuda/templates.h"
#include "compiler/schedule/region/widths.h"
#include "ir/kernel/builder_gpu.h"

namespace stepc::cuda {
namespace {

using kernel::BufferId;
using kernel::Index;
using kernel::KernelBuilder;
using kernel::Value;

constexpr int64_t kSums = 64;  // of a thread
constexpr int kWarps = 4;
constexpr int64_t kThreads = 32 * kWarps;
constexpr int kRegisters = 128;        // of a thread: four tasks share a multiprocessor
constexpr int64_t kTasksTogether = 4;  // that then run on one
constexpr int64_t kRowsTogether = 4;
constexpr int64_t kFewestRows = 64;     // of a task
constexpr int64_t kPartsTogether = 16;  // of the second kernel's loads

// Task after task takes a block of m, then the next rows.
struct NarrowConfig {
  int64_t width = 0;  // of m, in a task
  int64_t column_tasks = 0;
  int64_t task_rows = 0;
  int64_t splits = 0;
  int64_t tasks() const { return column_tasks * splits; }
};

NarrowConfig pick_narrow(const MatmulProblem& sizes) {
  const int64_t access = 16 / dtype_bytes(sizes.a_dtype);  // elements
  const auto most = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(kSums / sizes.n)));
  NarrowConfig config{.width = kThreads * std::min(access, most)};
  config.column_tasks = (sizes.m + config.width - 1) / config.width;
  const int64_t wanted = std::max<int64_t>(schedule::kMultiprocessors * kTasksTogether / config.column_tasks, 1);
  const int64_t share = std::max((sizes.k + wanted - 1) / wanted, kFewestRows);
  config.task_rows = (share + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  config.splits = (sizes.k + config.task_rows - 1) / config.task_rows;
  return config;
}

class Parts {
 public:
  Parts(KernelBuilder& builder, const MatmulProblem& sizes, const NarrowConfig& config, BufferId a, BufferId b)
      : b_(builder), p_(sizes), c_(config), left_(a), right_(b) {}

  void emit(BufferId sums) {
    column_ = b_.name("column", b_.task() % c_.column_tasks * c_.width);
    const Index split = b_.name("split", b_.task() / c_.column_tasks);
    const Index first = split * c_.task_rows;
    const Index last = b_.name("end_row", min(first + c_.task_rows, p_.k));
    const int64_t whole = p_.k / kRowsTogether * kRowsTogether;
    std::vector<Value> carried(static_cast<size_t>(p_.n), b_.constant(0, Dtype::f32, {c_.width}));
    for (int64_t r = 0; r < kRowsTogether; ++r) carried.push_back(row_of_a(first + r));
    carried = b_.loop("row", first, min(last, whole), kRowsTogether, carried,
                      [&](Index row, const std::vector<Value>& values) { return add_rows(row, values); });
    carried.resize(static_cast<size_t>(p_.n));
    if (whole < p_.k)
      carried = b_.loop("rest", max(first, whole), last, 1, carried, [&](Index row, const std::vector<Value>& values) {
        return add(values, row_of_a(row), row_of_b(row));
      });
    for (int64_t j = 0; j < p_.n; ++j)
      b_.store_first(carried[static_cast<size_t>(j)], sums, {split, j, column_}, p_.m - column_);
  }

 private:
  // Rows that are asked for ahead may not exist: the last one is brought then, and not used.
  Value row_of_a(Index row) { return b_.load_first(left_, {min(row, p_.k - 1), column_}, {c_.width}, p_.m - column_); }
  std::vector<Value> row_of_b(Index row) {
    std::vector<Value> numbers;
    for (int64_t j = 0; j < p_.n; ++j) {
      const Value number =
          b_.load(right_, p_.transpose_b ? std::vector<Index>{j, row} : std::vector<Index>{row, j}, {});
      numbers.push_back(b_.dtype(number) == Dtype::f32 ? number : b_.cast(number, Dtype::f32));
    }
    return numbers;
  }

  std::vector<Value> add(std::vector<Value> sums, Value a, const std::vector<Value>& numbers) {
    const Value x = b_.dtype(a) == Dtype::f32 ? a : b_.cast(a, Dtype::f32);
    for (size_t j = 0; j < numbers.size(); ++j)
      sums[j] = b_.pointwise(kernel::Op::fma, {x, b_.splat(numbers[j], {c_.width}), sums[j]});
    return sums;
  }

  std::vector<Value> add_rows(Index row, const std::vector<Value>& values) {
    const auto columns = static_cast<size_t>(p_.n);
    std::vector<Value> next;
    for (int64_t r = 0; r < kRowsTogether; ++r) next.push_back(row_of_a(row + kRowsTogether + r));
    std::vector<std::vector<Value>> numbers;
    for (int64_t r = 0; r < kRowsTogether; ++r) numbers.push_back(row_of_b(row + r));
    std::vector<Value> sums(values.begin(), values.begin() + static_cast<ptrdiff_t>(columns));
    for (size_t r = 0; r < numbers.size(); ++r) sums = add(std::move(sums), values[columns + r], numbers[r]);
    sums.insert(sums.end(), next.begin(), next.end());
    return sums;
  }

  KernelBuilder& b_;
  const MatmulProblem& p_;
  const NarrowConfig& c_;
  BufferId left_, right_;
  Index column_;
};

// y[m, n] from the parts [splits, n, m]: a task has one column and a few rows, one a thread.
void emit_sum(KernelBuilder& b, const MatmulProblem& sizes, const NarrowConfig& config, BufferId parts, BufferId y) {
  const Index column = b.name("column", b.task() % sizes.n);
  const Index first = b.name("first", b.task() / sizes.n * kThreads);
  const auto part = [&](Index split) {
    return b.load_first(parts, {split, column, first}, {kThreads}, sizes.m - first);
  };
  const auto add = [&](Index low, Index high, int64_t together, Value zero) {
    return b.loop("split", low, high, together, {zero}, [&](Index split, const std::vector<Value>& sums) {
      std::vector<Value> more;
      for (int64_t i = 0; i < together; ++i) more.push_back(part(split + i));
      Value sum = sums[0];
      for (Value each : more) sum = b.pointwise(kernel::Op::add, {sum, each});
      return std::vector{sum};
    })[0];
  };
  const int64_t whole = config.splits / kPartsTogether * kPartsTogether;
  Value sum = b.constant(0, Dtype::f32, {kThreads});
  if (whole > 0) sum = add(0, whole, kPartsTogether, sum);
  if (whole < config.splits) sum = add(whole, config.splits, 1, sum);
  const Dtype dtype = b.kernel().buffer(y).dtype;
  if (dtype != Dtype::f32) sum = b.cast(sum, dtype);
  const Value step = b.constant(static_cast<double>(sizes.n), Dtype::i32, {kThreads});
  const Value offsets = b.pointwise(kernel::Op::mul, {b.lane({kThreads}), step});
  kernel::KOp store{.op = kernel::Op::scatter, .frags = {sum.id, offsets.id}, .refs = {b.ref(y, {first, column})}};
  if (sizes.m % kThreads != 0) store.indices = b.ids({min(sizes.m - first, kThreads)});
  b.emit(std::move(store));
}

}  // namespace

bool is_narrow(const MatmulGroup& matmul) {
  constexpr int64_t kMostColumns = 16, kManyRows = 1024;
  const MatmulProblem& sizes = matmul.sizes;
  return matmul.plain && sizes.math_dtype == Dtype::f32 && sizes.transpose_a && sizes.batch == 1 &&
         sizes.counted == CountedAxis::none && sizes.m >= kThreads && sizes.n > 0 && sizes.n <= kMostColumns &&
         sizes.k >= kManyRows;
}

Result<ScheduledKernel> schedule_narrow_matmul(const Program& program, const Group& group, const MatmulGroup& matmul) {
  const MatmulProblem& sizes = matmul.sizes;
  const NarrowConfig config = pick_narrow(sizes);
  const std::map<ValueId, Shape> shapes{
      {matmul.a, {sizes.k, sizes.m}},
      {matmul.b, sizes.transpose_b ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n}},
      {matmul.stores[0].result, {sizes.m, sizes.n}}};
  const Shape parts{config.splits, sizes.n, sizes.m};
  const std::string text = fmt::format("sums of {} x {} in registers, {} rows together, k in {} parts of {}",
                                       config.width, sizes.n, kRowsTogether, config.splits, config.task_rows);
  GroupKernel products(program, group, shapes, "matmul_parts");
  const BufferId sums = products.workspace(Dtype::f32, parts);
  products.builder().set_grid(config.tasks());
  products.builder().begin_role("main", kWarps, kRegisters);
  Parts(products.builder(), sizes, config, products.buffer(matmul.a), products.buffer(matmul.b)).emit(sums);
  STEPC_ASSIGN(ScheduledKernel first, products.finish(config.tasks(), text));
  const int64_t sum_tasks = sizes.n * ((sizes.m + kThreads - 1) / kThreads);
  GroupKernel added(program, group, shapes);
  const BufferId w = added.workspace(Dtype::f32, parts);
  added.builder().set_grid(sum_tasks);
  added.builder().begin_role("main", kWarps);
  emit_sum(added.builder(), sizes, config, w, added.buffer(matmul.stores[0].result));
  STEPC_ASSIGN(ScheduledKernel second, added.finish(sum_tasks, text));
  first.later.push_back({std::move(second.kernel), std::move(second.scalars), second.grid});
  return first;
}

}  // namespace stepc::cuda
