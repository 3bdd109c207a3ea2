// Checkpoints as commands name them: a run's folder means its newest.
#pragma once

#include <string>

#include "model/config.h"
#include "runtime/checkpoint.h"
#include "runtime/executor.h"

namespace stepc {

// `path` is a run's folder or one checkpoint of it.
Result<Checkpoint> find_checkpoint(const std::string& path);
Result<Config> config_of(const Checkpoint& checkpoint);
// Weights alone, for programs that have no use for the optimizer's state.
Status load_weights(Executor& executor, const Checkpoint& checkpoint);

}  // namespace stepc
