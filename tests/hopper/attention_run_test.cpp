// Hopper's attention kernels on the emulator (or a card), against the graph evaluator.
#include <doctest/doctest.h>

#include "compiler/schedule/sm90/templates.h"
#include "tests/hopper/attention_case.h"
#include "tests/hopper/run_hopper.h"
#include "tests/support/skip.h"

namespace stepc::sm90 {
namespace {

const GpuTarget kHopper{"sm_90a"};

// Buffers on the device, those to be written full of NaN.
class Memory {
 public:
  explicit Memory(Device& device) : device_(device) {}

  size_t add(const test::Bytes& bytes) {
    const auto address = device_.allocate(static_cast<int64_t>(bytes.size()));
    REQUIRE_MESSAGE(address.has_value(), address.error().text());
    test::require(device_.copy_in(*address, bytes.data(), static_cast<int64_t>(bytes.size())));
    addresses_.push_back(*address);
    return addresses_.size() - 1;
  }
  size_t add_poisoned(int64_t bytes) { return add(test::Bytes(static_cast<size_t>(bytes), std::byte{0xff})); }
  Tensor read(size_t buffer, const TensorType& type) {
    test::Bytes bytes(static_cast<size_t>(numel(type.shape) * dtype_bytes(type.dtype)));
    test::require(device_.copy_out(bytes.data(), addresses_[buffer], static_cast<int64_t>(bytes.size())));
    return test::from_bytes(type, bytes.data());
  }
  void run(const AttentionLaunch& launch) {
    test::require(device_.launch(test::load_kernel(device_, launch.kernel), launch.grid, addresses_, {}));
    test::require(device_.synchronize());
  }

 private:
  Device& device_;
  std::vector<DeviceAddress> addresses_;
};

// The operands and results of forward and gradient.
struct Reference {
  TensorType qkv, rows, lse;
  TensorMap values;  // qkv, dout, out, lse, dqkv
};

Reference reference(const AttentionSizes& s, uint32_t seed) {
  Reference made{{Dtype::bf16, {s.batch, s.tokens, 3, s.heads, s.dim}},
                 {Dtype::bf16, {s.batch, s.tokens, s.heads, s.dim}},
                 {Dtype::f32, {s.batch, s.heads, s.tokens}},
                 {}};
  Module module{"attention", {}, {}};
  GraphBuilder g(module, "p");
  const Attrs attributes{{AttrKey::causal, true}, {AttrKey::scale, s.scale}};
  const ValueId qkv = g.input("qkv", made.qkv), dout = g.input("dout", made.rows);
  const auto forward = g.emit(Op::attention, {qkv}, attributes);
  g.output("out", forward[0]);
  g.output("lse", forward[1]);
  g.output("dqkv", g.emit1(Op::attention_grad, {qkv, forward[0], forward[1], dout}, attributes));
  std::mt19937 random(seed);
  for (const auto& [name, type] : {std::pair("qkv", made.qkv), std::pair("dout", made.rows)}) {
    Tensor tensor{type, std::vector<double>(static_cast<size_t>(numel(type.shape)))};
    for (double& x : tensor.data) x = round_to_bf16(4.0 * static_cast<double>(random()) / 4294967296.0 - 2);
    made.values[name] = std::move(tensor);
  }
  TensorMap none;
  auto results = evaluate(module.programs[0], none, made.values);
  REQUIRE_MESSAGE(results.has_value(), results.error().text());
  made.values.merge(*results);
  return made;
}

// One of q, k and v.
Tensor part_of(const Tensor& packed, int64_t part) {
  const Shape& s = packed.type.shape;
  const int64_t width = s[3] * s[4];
  Tensor tensor{{packed.type.dtype, {s[0], s[1], s[3], s[4]}}, {}};
  for (int64_t row = 0; row < s[0] * s[1]; ++row)
    for (int64_t i = 0; i < width; ++i)
      tensor.data.push_back(packed.data[static_cast<size_t>((row * 3 + part) * width + i)]);
  return tensor;
}

// Sums of rounded products differ by a few roundings of their terms, where those cancel to 0 too (one token's
// gradient).
void check_close(const std::string& name, const Tensor& found, const Tensor& wanted) {
  double wrong = 0, size = 0;
  for (size_t i = 0; i < wanted.data.size(); ++i) {
    wrong += (found.data[i] - wanted.data[i]) * (found.data[i] - wanted.data[i]);
    size += wanted.data[i] * wanted.data[i];
  }
  constexpr double kCancelled = 1e-5;
  const auto count = static_cast<double>(wanted.data.size());
  const double rms = std::sqrt(size / count), wrong_rms = std::sqrt(wrong / count);
  CHECK_MESSAGE(wrong_rms <= 0.005 * rms + kCancelled, name << ": " << wrong_rms << " of " << rms);
  const std::string difference = test::differences(found, wanted, {1.0 / 64, 0.02 * rms + kCancelled});
  CHECK_MESSAGE(difference.empty(), name << ": " << difference);
}

void add_heads(Memory& memory, const AttentionCase& test, const Tensor* packed, const Reference& made) {
  if (!packed) {
    const int64_t bytes = numel(made.qkv.shape) * 2;
    for (int i = 0; i < (test.packed ? 1 : 3); ++i) memory.add_poisoned(test.packed ? bytes : bytes / 3);
  } else if (test.packed) {
    memory.add(test::to_bytes(*packed));
  } else {
    for (int64_t part = 0; part < 3; ++part) memory.add(test::to_bytes(part_of(*packed, part)));
  }
}

void check_forward(Device& device, const AttentionCase& test, const Reference& made) {
  Memory memory(device);
  add_heads(memory, test, &made.values.at("qkv"), made);
  const size_t out = memory.add_poisoned(numel(made.rows.shape) * 2);
  const size_t lse = memory.add_poisoned(numel(made.lse.shape) * 4);
  memory.run(forward_kernel(test));
  check_close("out", memory.read(out, made.rows), made.values.at("out"));
  const std::string difference = test::differences(memory.read(lse, made.lse), made.values.at("lse"), {1e-5, 1e-5});
  CHECK_MESSAGE(difference.empty(), "lse: " << difference);
}

void check_gradient(Device& device, const AttentionCase& test, const Reference& made) {
  Memory memory(device);
  add_heads(memory, test, &made.values.at("qkv"), made);
  for (const char* name : {"out", "lse", "dout"}) memory.add(test::to_bytes(made.values.at(name)));
  const size_t first = test.packed ? 4 : 6;
  add_heads(memory, test, nullptr, made);
  memory.add_poisoned(numel(attention_workspace_shape(test.sizes, test.form)) * 4);
  for (const GradientKernel which : gradient_kernels(test.form)) memory.run(gradient_kernel(test, which));
  const Tensor& wanted = made.values.at("dqkv");
  const Tensor packed = test.packed ? memory.read(first, made.qkv) : Tensor{};
  for (int64_t part = 0; part < 3; ++part) {
    const Tensor found =
        test.packed ? part_of(packed, part) : memory.read(first + static_cast<size_t>(part), made.rows);
    check_close(std::vector<std::string>{"dq", "dk", "dv"}[static_cast<size_t>(part)], found, part_of(wanted, part));
  }
}

void check_attention(const AttentionCase& test, uint64_t seed) {
  if (!test::gpu_runs(kHopper.arch)) return test::skip("attention", "no sm_90a");
  const AttentionSizes& s = test.sizes;
  CAPTURE(fmt::format("B={} T={} H={} d={}{}, {} processors, seed {}", s.batch, s.tokens, s.heads, s.dim,
                      test.packed ? " packed" : "", test.target.processors, seed));
  const Reference made = reference(s, static_cast<uint32_t>(seed));
  const auto device = test::open_gpu(seed);
  check_forward(*device, test, made);
  for (const AttentionCase& each : gradient_cases(test)) check_gradient(*device, each, made);
}

TEST_CASE("attention runs on Hopper for any number of tokens") {
  uint64_t seed = 1;
  for (const int64_t dim : {64, 128})
    for (const int64_t tokens : {1, 2, 31, 33, 127, 129, 257})
      check_attention(attention_case(1, tokens, 2, dim, tokens % 2 == 1), seed++);
}

TEST_CASE("attention runs on Hopper with several tiles a task") {
  check_attention(attention_case(2, 130, 3, 64, true, 5), 1);
  for (int64_t kept = 0; kept < 3; ++kept) {
    AttentionCase test = attention_case(1, 385, 2, 128, false, 3);
    test.kept_operands = kept;
    check_attention(test, static_cast<uint64_t>(kept) + 2);
  }
}

// ---- from groups -------------------------------------------------------------------------------------------------

test::GroupCase forward_group(const AttentionSizes& s) {
  return {"attention", Template::attention, [s](GraphBuilder& g) {
            // The fused projection comes as a matrix.
            const ValueId rows = g.input("qkv", {Dtype::bf16, {s.batch * s.tokens, 3 * s.heads * s.dim}});
            const ValueId qkv = g.reshape(rows, {s.batch, s.tokens, 3, s.heads, s.dim});
            const auto made = g.emit(Op::attention, {qkv}, {{AttrKey::causal, s.causal}, {AttrKey::scale, s.scale}});
            g.output("out", made[0]);
            g.output("lse", made[1]);
          }};
}

TEST_CASE("groups of attention become Hopper's kernel where it fits") {
  const auto fits = [](const AttentionSizes& sizes) {
    const Module module = test::one_group_module(forward_group(sizes));
    const auto scheduled = schedule_attention(module.programs[0], module.programs[0].groups[0], kHopper);
    REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
    return scheduled->has_value();
  };
  CHECK(fits({1, 100, 2, 64, true, 0.125}));
  CHECK(fits({2, 1, 1, 128, true, 0.125}));
  CHECK_FALSE(fits({1, 100, 2, 64, false, 0.125}));
  CHECK_FALSE(fits({1, 100, 2, 96, true, 0.125}));
  CHECK_FALSE(fits({1, 0, 2, 64, true, 0.125}));
  if (!test::gpu_runs(kHopper.arch)) return test::skip("attention", "no sm_90a");
  test::GroupCase test = forward_group({2, 100, 2, 64, true, 0.125});
  test.tolerance = {1.0 / 64, 0.01};
  test::check_on_gpu(test, [](const Program& program, const Group& group) {
    return schedule_attention(program, group, kHopper).value().value();
  });
}

// Its kernels through one workspace, under two orders of things; the result of each.
std::vector<test::Bytes> run_gradient_group(bool atomic, size_t kernels) {
  const AttentionSizes sizes{2, 150, 2, 64, true, 0.125};
  const Reference made = reference(sizes, 3);
  const test::GroupCase group{"gradient", Template::attention_grad, [&](GraphBuilder& g) {
                                std::vector<ValueId> operands;
                                for (const char* name : {"qkv", "out", "lse", "dout"})
                                  operands.push_back(g.input(name, made.values.at(name).type));
                                Attrs attributes{{AttrKey::causal, true}, {AttrKey::scale, sizes.scale}};
                                if (atomic) attributes.set(AttrKey::atomic, true);
                                g.output("dqkv", g.emit1(Op::attention_grad, operands, attributes));
                              }};
  const Module module = test::one_group_module(group);
  const Program& program = module.programs[0];
  const auto scheduled = schedule_attention_grad(program, program.groups[0], {"sm_90a", 4});
  REQUIRE(scheduled.has_value());
  REQUIRE(scheduled->has_value());
  const ScheduledKernel& kernel = **scheduled;
  REQUIRE(kernel.later.size() == kernels - 1);
  std::vector<test::Bytes> buffers;
  for (ValueId id : kernel.operands) {
    const std::string& name = program.producer(id).attrs.text(AttrKey::name);
    buffers.push_back(test::guarded(test::to_bytes(made.values.at(name))));
  }
  const size_t result = buffers.size();
  for (const int64_t bytes : {numel(made.qkv.shape) * 2, kernel.workspace_bytes})
    buffers.push_back(test::guarded(test::Bytes(static_cast<size_t>(bytes), std::byte{0xff})));
  std::vector<test::Bytes> results;
  for (const uint64_t seed : {1, 2}) {
    std::vector<test::Bytes> after;
    test::run_on_gpu(kernel, buffers, after, seed);
    for (size_t i = 0; i < after.size(); ++i) {
      if (i < result) CHECK(after[i] == buffers[i]);
      CHECK(std::equal(after[i].begin(), after[i].begin() + 256, buffers[i].begin()));
      CHECK(std::equal(after[i].end() - 256, after[i].end(), buffers[i].end() - 256));
    }
    check_close("dqkv", test::from_bytes(made.qkv, after[result].data() + 256), made.values.at("dqkv"));
    results.push_back(after[result]);
  }
  return results;
}

TEST_CASE("a group of attention's gradient becomes two kernels that always make the same bits") {
  if (!test::gpu_runs(kHopper.arch)) return test::skip("attention", "no sm_90a");
  const auto results = run_gradient_group(false, 2);
  CHECK(results[0] == results[1]);
}

TEST_CASE("a group of attention's gradient that may be atomic becomes three kernels") {
  if (!test::gpu_runs(kHopper.arch)) return test::skip("attention", "no sm_90a");
  run_gradient_group(true, 3);
}

}  // namespace
}  // namespace stepc::sm90
