// stepc: compile, plan, train, look inside. Exit codes: 0; 1 I/O or driver; 2 the user's mistake; 128 + signal
// after a signal's save.
#include <cstdio>

#include "tools/stepc/commands.h"

int main(int argc, char** argv) {
  using namespace stepc;
  CLI::App app("Compiles whole training steps of language models from a small tensor IR, and runs them.", "stepc");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all subcommands");
  Outcome outcome;
  register_train(app, outcome);
  register_sample(app, outcome);
  register_plan(app, outcome);
  register_compile(app, outcome);
  register_dump(app, outcome);
  register_run(app, outcome);
  register_data(app, outcome);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "stepc: {}\n", error.what());
    return 2;
  }
  if (!outcome.status) {
    std::fflush(stdout);
    fmt::print(stderr, "stepc: {}\n", outcome.status.error().text());
    return outcome.status.error().exit_code();
  }
  return outcome.signal == 0 ? 0 : 128 + outcome.signal;
}
