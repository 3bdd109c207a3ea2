
#include "compiler/emit/emitter_id.h"
#include "compiler/emit/host.h"
#include "compiler/lower_target.h"
#include "ir/kernel/print.h"

namespace stepc {
namespace {

LowerTarget lower_target(const HostTarget& target, const LowerOptions& options) {
  LowerTarget host;
  host.text = host_target_text(target);
  host.schedule = [target](const Program& program, const Group& group) {
    return schedule_host(program, group, target);
  };
  host.compile = [target, text = host.text, cache = options.cache_folder](
                     size_t, const kernel::Kernel& definition) -> Result<CompiledCode> {
    const std::string key = fmt::format("{}\n{}\n{}", emitter_id(), text, kernel::print_kernel(definition));
    return cached_code(cache, key, [&]() -> Result<std::string> {
      STEPC_ASSIGN(HostCode code, emit_host(definition, target));
      return std::move(code.object);
    });
  };
  return host;
}

}  // namespace

std::string host_target_text(const HostTarget& target) {
  return fmt::format("host x86-64, cpu {}, vector bytes {}, bf16 dot {}, features {}", target.cpu, target.vector_bytes,
                     target.bf16_dot ? "yes" : "no", target.features);
}

Result<std::vector<ScheduledProgram>> schedule_module_host(const Module& module, const HostTarget& target) {
  return schedule_module(module, lower_target(target, {}));
}

Result<Bundle> lower_host(Module module, const HostTarget& target, const LowerOptions& options) {
  (void)detect_host_target();  // LLVM registers its target on first use, before threads share it
  const LowerTarget host = lower_target(target, options);
  return lower_module(module, host, options);
}

}  // namespace stepc
