// The subcommands of stepc, one source each. Every register_* adds a subcommand to the application; its
// callback sets `outcome`, which main turns into an exit code.
#pragma once

#include <CLI/CLI.hpp>

#include "ir/support/result.h"

namespace stepc {

struct Outcome {
  Status status;
  int signal = 0;  // a signal after whose save the command ended
};

void register_train(CLI::App& app, Outcome& outcome);
void register_sample(CLI::App& app, Outcome& outcome);
void register_plan(CLI::App& app, Outcome& outcome);
void register_compile(CLI::App& app, Outcome& outcome);
void register_dump(CLI::App& app, Outcome& outcome);
void register_run(CLI::App& app, Outcome& outcome);
void register_gradients(CLI::App& app, Outcome& outcome);
void register_data(CLI::App& app, Outcome& outcome);

}  // namespace stepc
