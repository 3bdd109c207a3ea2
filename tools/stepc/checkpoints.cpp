#include "tools/stepc/checkpoints.h"

namespace stepc {

Result<Checkpoint> find_checkpoint(const std::string& path) {
  const auto of_run = list_checkpoints(path + "/checkpoints");
  return load_checkpoint(of_run.empty() ? path : of_run.back());
}

Result<Config> config_of(const Checkpoint& checkpoint) {
  STEPC_ASSIGN(const Config base, preset_config("tiny"));
  return parse_config(checkpoint.state.config, checkpoint.path + "/state.json", base);
}

Status load_weights(Executor& executor, const Checkpoint& checkpoint) {
  for (const PersistentPlacement& tensor : executor.bundle().persistents.tensors) {
    if (tensor.arena != PlanArena::weights) continue;
    STEPC_ASSIGN(const auto bytes, checkpoint.tensors.tensor(tensor.name, tensor.type));
    STEPC_TRY(executor.write_persistent(tensor.name, {tensor.type, bytes}));
  }
  return {};
}

}  // namespace stepc
