#include "tests/conform/large.h"

#include "compiler/pipeline.h"
#include "tests/support/run_gpu.h"

namespace stepc::test {
namespace {

constexpr int64_t kPeriod = 16777213;  // a prime

const std::vector<uint8_t>& numbers() {
  static const std::vector<uint8_t> made = [] {
    std::vector<uint8_t> all(kPeriod);
    std::mt19937 random(5);
    for (uint8_t& x : all) x = static_cast<uint8_t>(random() >> 27);
    return all;
  }();
  return made;
}

int64_t bytes_of(const TensorType& type) { return numel(type.shape) * dtype_bytes(type.dtype); }

void require(const Status& status) { REQUIRE_MESSAGE(status.has_value(), status.error().text()); }

}  // namespace

double repeated(int64_t number) { return numbers()[static_cast<size_t>(number % kPeriod)] / 8.0 - 2; }

LargeRun::LargeRun() : device_(open_gpu()) {}

LargeRun::~LargeRun() {
  for (const auto& [name, held] : held_) device_->free(held.address);
}

LargeRun::Held LargeRun::allocate(const TensorType& type) {
  const auto address = device_->allocate(bytes_of(type));
  REQUIRE_MESSAGE(address.has_value(), address.error().text());
  return {type, *address};
}

void LargeRun::input(const std::string& name, const TensorType& type) {
  const Held held = held_[name] = allocate(type);
  const int64_t count = numel(type.shape);
  Tensor first{{type.dtype, {std::min(count, kPeriod)}}, {}};
  for (int64_t i = 0; i < first.type.shape[0]; ++i) first.data.push_back(repeated(i));
  const Bytes bytes = to_bytes(first);
  require(device_->copy_in(held.address, bytes.data(), static_cast<int64_t>(bytes.size())));
  const int64_t period_bytes = kPeriod * dtype_bytes(type.dtype);
  for (int64_t at = period_bytes; at < bytes_of(type); at += period_bytes)
    require(device_->copy(held.address + at, held.address, std::min(period_bytes, bytes_of(type) - at)));
}

void LargeRun::given(const std::string& name, const Tensor& tensor) {
  const Held held = held_[name] = allocate(tensor.type);
  const Bytes bytes = to_bytes(tensor);
  require(device_->copy_in(held.address, bytes.data(), static_cast<int64_t>(bytes.size())));
}

LargeSchedule schedule_large(const std::function<void(GraphBuilder&)>& declare, const GpuTarget& target) {
  LargeSchedule made;
  {
    GraphBuilder builder(made.module, "p");
    declare(builder);
  }
  require(run_passes(made.module, {.for_gpu = true}));
  const Program& program = made.module.programs[0];
  for (const Group& group : program.groups) {
    auto scheduled = schedule_gpu(program, group, target);
    REQUIRE_MESSAGE(scheduled.has_value(), scheduled.error().text());
    made.kernels.push_back(*std::move(scheduled));
  }
  return made;
}

void LargeRun::execute(const std::function<void(GraphBuilder&)>& declare) {
  const GpuTarget target{device_->info().target};
  const LargeSchedule large = schedule_large(declare, target);
  const Program& program = large.module.programs[0];
  std::map<ValueId, Held> values;
  const auto value_of = [&](ValueId id) {
    const auto [at, is_new] = values.try_emplace(id);
    if (is_new) at->second = held_["%" + program.value(id).name] = allocate(program.type(id));
    return at->second.address;
  };
  for (const Node& node : program.nodes) {
    if (node.op == Op::input) values[node.results[0]] = held_.at(node.attrs.text(AttrKey::name));
    if (node.op == Op::output) {
      const Held held = values[node.operands[0]] = allocate(program.type(node.operands[0]));
      require(device_->fill(held.address, 0xffffffff, 1, bytes_of(held.type)));
      held_[node.attrs.text(AttrKey::name)] = held;
    }
  }
  for (const ScheduledKernel& scheduled : large.kernels) {
    std::vector<DeviceAddress> buffers;
    for (ValueId id : scheduled.operands) buffers.push_back(value_of(id));
    for (ValueId id : scheduled.results) buffers.push_back(value_of(id));
    DeviceAddress workspace = DeviceAddress::null;
    if (scheduled.workspace_bytes > 0) {
      workspace = device_->allocate(scheduled.workspace_bytes).value();
      buffers.push_back(workspace);
    }
    launch_kernel(*device_, scheduled.kernel, target, scheduled.grid, buffers, scheduled.scalars);
    for (const LaterKernel& later : scheduled.later)
      launch_kernel(*device_, later.kernel, target, later.grid, buffers, later.scalars);
    if (scheduled.workspace_bytes > 0) device_->free(workspace);
  }
}

Tensor LargeRun::read(const std::string& name, int64_t first, int64_t count) {
  const Held& held = held_.at(name);
  const int64_t width = dtype_bytes(held.type.dtype);
  Bytes bytes(static_cast<size_t>(count * width));
  require(device_->copy_out(bytes.data(), held.address + first * width, count * width));
  return from_bytes({held.type.dtype, {count}}, bytes.data());
}

}  // namespace stepc::test
