// Tensors of more than 2^32 elements: addressed in 64 bits. A card holds them whole. On the emulator the same programs
// run on small ones, and the last tasks of large ones' kernels, with memory for nothing but the tensors' ends.
#include "tests/conform/large.h"

#include <doctest/doctest.h>

#include <regex>

#include "compiler/pipeline.h"
#include "ir/shape.h"
#include "tests/conform/groups.h"
#include "tests/support/gpu.h"
#include "tests/support/run_gpu.h"
#include "tests/support/skip.h"

namespace stepc {
namespace {

using test::LargeRun;

// 4,295,246,400 elements.
constexpr int64_t kRows = 1046600, kColumns = 4104;
const TensorType kLarge{Dtype::bf16, {kRows, kColumns}};

// Whole: the programs at their size.
bool is_whole = test::on_card();
int64_t sized(int64_t whole, int64_t small) { return is_whole ? whole : small; }

// The matrix that is large where there is a card.
int64_t rows() { return sized(kRows, 203); }
int64_t columns() { return sized(kColumns, 72); }
TensorType matrix() { return {Dtype::bf16, {rows(), columns()}}; }
double x_at(int64_t row, int64_t column) { return test::repeated(row * columns() + column); }

// First, last, and around elements 2^31 and 2^32.
std::vector<int64_t> rows_to_see(int64_t all, int64_t width) {
  std::vector<int64_t> seen{0, all / 3, all - 2, all - 1};
  for (int64_t limit : {int64_t{1} << 31, int64_t{1} << 32})
    for (int64_t more : {-1, 0, 1}) seen.push_back(std::min(limit / width + more, all - 1));
  return seen;
}

// Calls wanted(row, column) for rows of a matrix on the device.
void check_rows(LargeRun& run, const std::string& name, const Shape& shape,
                const std::function<double(int64_t, int64_t)>& wanted) {
  for (int64_t row : rows_to_see(shape[0], shape[1])) {
    const Tensor found = run.read(name, row * shape[1], shape[1]);
    for (int64_t c = 0; c < shape[1]; ++c) {
      const double value = found.data[static_cast<size_t>(c)];
      if (value == wanted(row, c)) continue;
      FAIL_CHECK(name << "[" << row << ", " << c << "]: " << value << " where there should be " << wanted(row, c));
      return;
    }
  }
}

ValueId doubled_plus(GraphBuilder& g, ValueId x, ValueId bias) {
  const ValueId wide = g.broadcast(bias, g.shape(x), {1});
  return g.cast(g.add(g.mul(g.cast(x, Dtype::f32), 2), wide), Dtype::bf16);
}

double bf16(double x) { return static_cast<double>(round_to_bf16(x)); }

// A card without room for it; the emulator runs what is small.
bool lacks_memory() {
  constexpr int64_t kNeeded = 40'000'000'000;
  if (!test::on_card()) return test::skip("large-tensors", "whole they need 40 GB of a card's memory"), false;
  if (test::open_gpu()->available_bytes().value() >= kNeeded) return false;
  return test::skip("large-tensors", "the card has less than 40 GB left"), true;
}

void elements(GraphBuilder& g) {
  const ValueId x = g.input("x", matrix());
  g.output("y", doubled_plus(g, x, g.input("bias", {Dtype::f32, {columns()}})));
  g.output("t", g.transpose(x, {1, 0}));
  g.output("flat", g.cast(g.unary(Op::neg, g.cast(g.reshape(x, {rows() * columns()}), Dtype::f32)), Dtype::bf16));
}

TEST_CASE("conform: element by element past 2^32") {
  if (lacks_memory()) return;
  LargeRun run;
  run.input("x", matrix());
  run.input("bias", {Dtype::f32, {columns()}});
  run.execute(elements);
  check_rows(run, "y", matrix().shape, [](int64_t r, int64_t c) { return bf16(2 * x_at(r, c) + test::repeated(c)); });
  check_rows(run, "flat", matrix().shape, [](int64_t r, int64_t c) { return -x_at(r, c); });
  check_rows(run, "t", {columns(), rows()}, [](int64_t r, int64_t c) { return x_at(c, r); });
}

int64_t gathered_rows() { return sized(3000, 50); }

void gathered_and_summed(GraphBuilder& g) {
  const ValueId x = g.input("x", matrix());
  g.output("y", g.emit1(Op::gather_rows, {x, g.input("index", {Dtype::i32, {gathered_rows()}})}));
  g.output("rows", g.reduce(Op::reduce_sum, g.cast(x, Dtype::f32), {1}));
  g.output("columns", g.reduce(Op::reduce_sum, g.cast(x, Dtype::f32), {0}));
}

TEST_CASE("conform: rows past 2^32 elements are gathered and summed") {
  if (lacks_memory()) return;
  const int64_t gathered = gathered_rows();
  LargeRun run;
  run.input("x", matrix());
  std::vector<double> index;
  for (int64_t i = 0; i < gathered; ++i)
    index.push_back(static_cast<double>(i % 7 == 3 ? -1 : rows() - 1 - i * 331 % rows()));
  run.given("index", {{Dtype::i32, {gathered}}, index});
  run.execute(gathered_and_summed);
  check_rows(run, "y", {gathered, columns()}, [&](int64_t r, int64_t c) {
    const auto row = static_cast<int64_t>(index[static_cast<size_t>(r)]);
    return row < 0 ? 0 : x_at(row, c);
  });
  // Sums of so few bits are exact.
  for (int64_t row : rows_to_see(rows(), columns())) {
    double sum = 0;
    for (int64_t c = 0; c < columns(); ++c) sum += x_at(row, c);
    CHECK(run.read("rows", row, 1).data[0] == sum);
  }
  for (int64_t column : {int64_t{0}, columns() / 2, columns() - 1}) {
    double sum = 0;
    for (int64_t r = 0; r < rows(); ++r) sum += x_at(r, column);
    CHECK(run.read("columns", column, 1).data[0] == sum);
  }
}

constexpr int64_t kDepth = 64;
TensorType tall() { return {Dtype::bf16, {rows(), kDepth}}; }
TensorType wide() { return {Dtype::bf16, {kDepth, columns()}}; }

void products(GraphBuilder& g) {
  const ValueId x = g.input("x", matrix()), a = g.input("a", tall()), b = g.input("b", wide());
  g.output("result", g.matmul(a, b, Dtype::bf16));
  g.output("operand", g.matmul(x, b, Dtype::f32, false, true));
  g.output("transposed", g.matmul(x, a, Dtype::f32, true, false));
}

TEST_CASE("conform: products with more than 2^32 elements") {
  if (lacks_memory()) return;
  const auto a_at = [](int64_t r, int64_t k) { return test::repeated(r * kDepth + k); };
  const auto b_at = [](int64_t k, int64_t c) { return test::repeated(k * columns() + c); };
  LargeRun run;
  run.input("x", matrix());
  run.input("a", tall());
  run.input("b", wide());
  run.execute(products);
  check_rows(run, "result", matrix().shape, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t k = 0; k < kDepth; ++k) sum += a_at(r, k) * b_at(k, c);
    return bf16(sum);
  });
  for (int64_t row : rows_to_see(rows(), columns()))
    for (int64_t n : {int64_t{0}, kDepth - 1}) {
      double sum = 0;
      for (int64_t c = 0; c < columns(); ++c) sum += x_at(row, c) * b_at(n, c);
      CHECK(run.read("operand", row * kDepth + n, 1).data[0] == doctest::Approx(sum).epsilon(1e-5));
    }
  for (int64_t column : {int64_t{0}, columns() - 1}) {
    double sum = 0;
    for (int64_t r = 0; r < rows(); ++r) sum += x_at(r, column) * a_at(r, 5);
    CHECK(run.read("transposed", column * kDepth + 5, 1).data[0] == doctest::Approx(sum).epsilon(1e-4));
  }
}

constexpr int64_t kAdded = 200;

void added(GraphBuilder& g) {
  const ValueId x = g.input("x", {Dtype::bf16, {kAdded, columns()}});
  const ValueId to = g.input("index", {Dtype::i32, {kAdded}});
  g.output("sum", g.emit1(Op::scatter_add_rows, {x, to}, {}, {Dtype::f32, matrix().shape}));
}

TEST_CASE("conform: rows are added to more than 2^32 elements") {
  if (lacks_memory()) return;
  LargeRun run;
  std::vector<double> index;
  for (int64_t i = 0; i < kAdded; ++i) index.push_back(static_cast<double>(rows() - 1 - i % 50 * 1300 % rows()));
  run.input("x", {Dtype::bf16, {kAdded, columns()}});
  run.given("index", {{Dtype::i32, {kAdded}}, index});
  run.execute(added);
  check_rows(run, "sum", matrix().shape, [&](int64_t r, int64_t c) {
    double sum = 0;
    for (int64_t i = 0; i < kAdded; ++i)
      if (static_cast<int64_t>(index[static_cast<size_t>(i)]) == r) sum += x_at(i, c);
    return sum;
  });
}

// One head of one sequence, from the packed heads.
Tensor head_of(LargeRun& run, const std::string& name, const Shape& packed, int64_t sequence, int64_t head) {
  const int64_t tokens = packed[1], heads = packed[packed.size() - 2], dim = packed.back();
  const int64_t parts = packed.size() == 5 ? packed[2] : 1;
  Tensor tensor{{Dtype::bf16, parts == 3 ? Shape{1, tokens, 3, 1, dim} : Shape{1, tokens, 1, dim}}, {}};
  for (int64_t row = 0; row < tokens * parts; ++row) {
    const Tensor some = run.read(name, ((sequence * tokens * parts + row) * heads + head) * dim, dim);
    tensor.data.insert(tensor.data.end(), some.data.begin(), some.data.end());
  }
  return tensor;
}

TensorType packed_heads() { return {Dtype::bf16, {sized(2736, 2), sized(256, 33), 3, sized(16, 2), 128}}; }
TensorType out_heads() {
  const Shape qkv = packed_heads().shape;
  return {Dtype::bf16, {qkv[0], qkv[1], qkv[3], qkv[4]}};
}

void attention_of(GraphBuilder& g, const TensorType& qkv_type, const TensorType& dout_type) {
  const Attrs attrs{{AttrKey::causal, true}, {AttrKey::scale, 0.05}};
  const ValueId qkv = g.input("qkv", qkv_type), dout = g.input("dout", dout_type);
  const auto forward = g.emit(Op::attention, {qkv}, attrs);
  g.output("out", forward[0]);
  g.output("dqkv", g.emit1(Op::attention_grad, {qkv, forward[0], forward[1], dout}, attrs));
}

void attention(GraphBuilder& g) { attention_of(g, packed_heads(), out_heads()); }

TEST_CASE("conform: attention over more than 2^32 elements") {
  if (lacks_memory()) return;
  const Shape packed = packed_heads().shape, unpacked = out_heads().shape;
  LargeRun run;
  run.input("qkv", packed_heads());
  run.input("dout", out_heads());
  run.execute(attention);
  const int64_t sequences = packed[0], heads = packed[3];
  for (const auto& [sequence, head] :
       {std::pair(int64_t{0}, int64_t{0}), {sequences / 2, heads / 2}, {sequences - 1, heads - 1}}) {
    TensorMap none, inputs{{"qkv", head_of(run, "qkv", packed, sequence, head)},
                           {"dout", head_of(run, "dout", unpacked, sequence, head)}};
    Module one{"one", {}, {}};
    {
      GraphBuilder g(one, "p");
      attention_of(g, inputs.at("qkv").type, inputs.at("dout").type);
    }
    const TensorMap wanted = evaluate(one.programs[0], none, inputs).value();
    for (const auto& [name, shape] : {std::pair("out", unpacked), {"dqkv", packed}}) {
      const Tensor found = head_of(run, name, shape, sequence, head);
      const std::string difference = test::differences(found, wanted.at(name), {1e-2, 0.02});
      CHECK_MESSAGE(difference.empty(), name << " of " << sequence << ", " << head << ": " << difference);
    }
  }
}

TEST_CASE("conform: there are kernels for tensors past 2^32 elements") {
  is_whole = true;
  for (const auto declare : {elements, gathered_and_summed, products, added, attention}) {
    const auto scheduled = test::schedule_large(declare, {"sm_90a"});
    CHECK(!scheduled.kernels.empty());
    for (const ScheduledKernel& each : scheduled.kernels)
      CHECK(kernel::shared_layout(each.kernel).total_bytes <= 227 * 1024);
  }
  is_whole = test::on_card();
}

// ---- on the emulator
// -------------------------------------------------------------------------------------------------

// The kernel's last tasks alone: it calls them 0, 1, ...
kernel::Kernel last_tasks(const kernel::Kernel& kernel, int64_t grid, int64_t tasks) {
  std::string text = kernel::print_kernel(kernel);
  text = std::regex_replace(text, std::regex(R"(\btask\b)"), fmt::format("(task + {})", grid - tasks));
  text = std::regex_replace(text, std::regex(R"(\ngrid \d+)"), fmt::format("\ngrid {}", tasks));
  auto parsed = kernel::parse_kernel(text, "kernel.kir");
  REQUIRE_MESSAGE(parsed.has_value(), parsed.error().text() << "\n" << text);
  return *parsed;
}

// A group whose buffers are large matrices of which the last `kept` rows are there, or small ones.
struct Ends {
  static constexpr int64_t kKept = 64;
  static constexpr int64_t kTasks = 2;

  explicit Ends(const std::function<void(GraphBuilder&)>& declare) {
    {
      GraphBuilder builder(module, "p");
      declare(builder);
    }
    REQUIRE(run_passes(module, {.for_gpu = true}).has_value());
    program = &module.programs[0];
    REQUIRE(program->groups.size() == 1);
    auto made = schedule_gpu(*program, program->groups[0], {"sm_90a"});
    REQUIRE_MESSAGE(made.has_value(), made.error().text());
    scheduled = *std::move(made);
  }

  // By number of element: whether there is memory for it.
  int64_t first_kept(const TensorType& type) const {
    return type.shape[0] == kRows ? (kRows - kKept) * numel(type.shape) / kRows : 0;
  }

  // The elements of the result that are there, NaN where nothing was written.
  Tensor run(const std::map<std::string, Tensor>& small) {
    const auto device = test::open_gpu();
    std::vector<DeviceAddress> addresses;
    std::vector<ValueId> values = scheduled.operands;
    values.insert(values.end(), scheduled.results.begin(), scheduled.results.end());
    for (size_t i = 0; i < values.size(); ++i) {
      const Value& value = program->value(values[i]);
      const int64_t first = first_kept(value.type), count = numel(value.type.shape) - first;
      Tensor tensor{{value.type.dtype, {count}}, {}};
      const bool is_result = i >= scheduled.operands.size();
      for (int64_t e = 0; e < count; ++e) tensor.data.push_back(is_result ? NAN : test::repeated(first + e));
      if (const auto given = small.find(value.name); given != small.end()) tensor = given->second;
      const test::Bytes bytes = test::to_bytes(tensor);
      const DeviceAddress there = device->allocate(static_cast<int64_t>(bytes.size())).value();
      REQUIRE(device->copy_in(there, bytes.data(), static_cast<int64_t>(bytes.size())).has_value());
      addresses.push_back(there + -first * dtype_bytes(value.type.dtype));
    }
    const kernel::Kernel kernel = last_tasks(scheduled.kernel, scheduled.grid, kTasks);
    test::launch_kernel(*device, kernel, {"sm_90a"}, kTasks, addresses, scheduled.scalars);
    const TensorType& type = program->type(values.back());
    const int64_t first = first_kept(type), count = numel(type.shape) - first;
    test::Bytes bytes(static_cast<size_t>(count * dtype_bytes(type.dtype)));
    const DeviceAddress from = addresses.back() + first * dtype_bytes(type.dtype);
    REQUIRE(device->copy_out(bytes.data(), from, static_cast<int64_t>(bytes.size())).has_value());
    return test::from_bytes({type.dtype, {count}}, bytes.data());
  }

  Module module{"ends", {}, {}};
  const Program* program = nullptr;
  ScheduledKernel scheduled;
};

// Everything that was written is right, and the last row was.
void check_end(const Tensor& found, int64_t row_elements, const std::function<double(int64_t)>& wanted) {
  const auto count = static_cast<int64_t>(found.data.size());
  for (int64_t e = 0; e < count; ++e) {
    const double value = found.data[static_cast<size_t>(e)];
    if (std::isnan(value) && e < count - row_elements) continue;
    REQUIRE_MESSAGE(value == wanted(e), "element " << e << " of " << count << ": " << value << ", not " << wanted(e));
  }
}

constexpr int64_t kEnd = (kRows - Ends::kKept) * kColumns;  // the first element that is there

TEST_CASE("conform: the ends of large tensors, element by element") {
  if (test::on_card()) return;  // which has them whole
  const auto bias_at = [](int64_t c) { return test::repeated(c); };
  Ends ends([](GraphBuilder& g) {
    g.output("y", doubled_plus(g, g.input("x", kLarge), g.input("bias", {Dtype::f32, {kColumns}})));
  });
  check_end(ends.run({}), kColumns,
            [&](int64_t e) { return bf16(2 * test::repeated(kEnd + e) + bias_at(e % kColumns)); });
  Ends flat([](GraphBuilder& g) {
    const ValueId x = g.input("x", {Dtype::bf16, {kRows, kColumns / 8, 8}});
    g.output("y", g.cast(g.unary(Op::neg, g.cast(x, Dtype::f32)), Dtype::bf16));
  });
  check_end(flat.run({}), kColumns, [](int64_t e) { return -test::repeated(kEnd + e); });
}

TEST_CASE("conform: the ends of large tensors, rows") {
  if (test::on_card()) return;
  Ends sums(
      [](GraphBuilder& g) { g.output("y", g.reduce(Op::reduce_sum, g.cast(g.input("x", kLarge), Dtype::f32), {1})); });
  check_end(sums.run({}), 1, [](int64_t e) {
    double sum = 0;
    for (int64_t c = 0; c < kColumns; ++c) sum += test::repeated(kEnd + e * kColumns + c);
    return sum;
  });
  constexpr int64_t kGathered = 20;
  const auto from = [](int64_t i) { return Ends::kKept - 1 - i * 3; };  // of the rows that are there
  Tensor index{{Dtype::i32, {kGathered}}, {}};
  for (int64_t i = 0; i < kGathered; ++i) index.data.push_back(static_cast<double>(kRows - Ends::kKept + from(i)));
  Ends gathered([](GraphBuilder& g) {
    const ValueId x = g.input("x", kLarge);
    g.output("y", g.emit1(Op::gather_rows, {x, g.input("index", {Dtype::i32, {kGathered}})}));
  });
  check_end(gathered.run({{"index", index}}), kColumns,
            [&](int64_t e) { return test::repeated(kEnd + from(e / kColumns) * kColumns + e % kColumns); });
}

// No lane can hold such an index: it is said, not wrapped.
TEST_CASE("conform: what 32 bits cannot hold is refused") {
  Module module{"far", {}, {}};
  {
    GraphBuilder g(module, "p");
    const ValueId x = g.input("x", {Dtype::bf16, {int64_t{1} << 33}});
    g.output("y", g.emit1(Op::pad, {x},
                          {{AttrKey::low, std::vector<int64_t>{1}}, {AttrKey::high, std::vector<int64_t>{1}}}));
  }
  REQUIRE(run_passes(module, {.for_gpu = true}).has_value());
  const auto made = schedule_gpu(module.programs[0], module.programs[0].groups[0], {"sm_90a"});
  REQUIRE_FALSE(made.has_value());
  CHECK_MESSAGE(made.error().message.find("lanes would hold an index that does not fit 32 bits") != std::string::npos,
                made.error().message);
}

}  // namespace
}  // namespace stepc
