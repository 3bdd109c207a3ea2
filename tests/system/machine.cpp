#include "tests/system/machine.h"

#include <cstring>

#include "compiler/lower_gpu.h"
#include "tests/support/gpu.h"

namespace stepc::test {

HostTensor to_host(const Tensor& tensor) {
  HostTensor host{tensor.type, {}};
  for (double x : tensor.data) {
    const auto put = [&](auto element) {
      const char* raw = reinterpret_cast<const char*>(&element);
      host.bytes.insert(host.bytes.end(), raw, raw + sizeof element);
    };
    switch (tensor.type.dtype) {
      case Dtype::f32: put(static_cast<float>(x)); break;
      case Dtype::bf16: put(bf16_from_f32(static_cast<float>(x))); break;
      case Dtype::i32: put(static_cast<int32_t>(x)); break;
      case Dtype::pred: put(static_cast<uint8_t>(x != 0)); break;
    }
  }
  return host;
}

Tensor from_host(const HostTensor& host) {
  Tensor tensor{host.type, {}};
  const auto width = static_cast<size_t>(dtype_bytes(host.type.dtype));
  tensor.data.reserve(host.bytes.size() / width);
  for (size_t at = 0; at < host.bytes.size(); at += width) {
    const auto get = [&](auto element) {
      std::memcpy(&element, host.bytes.data() + at, sizeof element);
      return element;
    };
    double x = 0;
    switch (host.type.dtype) {
      case Dtype::f32: x = get(float{}); break;
      case Dtype::bf16: x = f32_from_bf16(get(uint16_t{})); break;
      case Dtype::i32: x = get(int32_t{}); break;
      case Dtype::pred: x = get(uint8_t{}); break;
    }
    tensor.data.push_back(x);
  }
  return tensor;
}

namespace {

LowerOptions lower_options(const FitOptions& fit) {
  LowerOptions options;
  options.fit = fit;
  options.cache_folder = STEPC_BINARY_DIR "/tests/cache/stepc";
  return options;
}

}  // namespace

Machine::Machine(Module module, int threads, const HostTarget& target, const FitOptions& fit) {
  const auto load = [this](const std::string& object, const std::string& symbol) -> Result<void*> {
    STEPC_ASSIGN(const HostKernelFunction function, loader_.load(object, symbol));
    return reinterpret_cast<void*>(function);
  };
  device_ = make_host_device(load, threads);
  start(lower_host(std::move(module), target, lower_options(fit)));
}

Machine::Machine(Module module, const GpuTarget& target, uint64_t seed, const FitOptions& fit, bool updates_apart)
    : device_(open_gpu(seed)) {
  GpuLowerOptions options{.common = lower_options(fit)};
  options.common.passes.updates_apart = updates_apart;
  auto lowered = lower_gpu(std::move(module), target, options);
  REQUIRE_MESSAGE(lowered.has_value(), lowered.error().text());
  start(std::move(lowered->bundle));
}

void Machine::start(Result<Bundle> bundle) {
  REQUIRE_MESSAGE(bundle.has_value(), bundle.error().text());
  auto executor = Executor::create(*device_, *std::move(bundle));
  REQUIRE_MESSAGE(executor.has_value(), executor.error().text());
  executor_ = *std::move(executor);
}

TensorMap Machine::run(std::string_view program, const TensorMap& inputs) {
  std::map<std::string, HostTensor> hosts;
  std::map<std::string, HostTensorView> views;
  for (const auto& [name, tensor] : inputs) {
    const HostTensor& host = hosts[name] = to_host(tensor);
    views[name] = {host.type, host.bytes};
  }
  const auto outputs = executor_->run(program, views, {.poison = true});
  REQUIRE_MESSAGE(outputs.has_value(), outputs.error().text());
  TensorMap tensors;
  for (const auto& [name, host] : *outputs) tensors[name] = from_host(host);
  return tensors;
}

Tensor Machine::read(const std::string& persistent) const {
  return from_host(executor_->read_persistent(persistent).value());
}

void Machine::write(const std::string& persistent, const Tensor& tensor) {
  const HostTensor host = to_host(tensor);
  const Status status = executor_->write_persistent(persistent, {host.type, host.bytes});
  REQUIRE_MESSAGE(status.has_value(), status.error().text());
}

}  // namespace stepc::test
