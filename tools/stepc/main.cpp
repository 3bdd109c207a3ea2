// stepc: compile, plan, train, look inside. Exit codes: 0; 1 I/O or driver; 2 the user's mistake; 128 + signal
// after a signal's save.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "ir/text/names.h"
#include "tools/stepc/commands.h"

namespace {

// What CLI11 says, but for a command that there is not: "a subcommand is required" does not name it.
std::string usage_error(CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  const std::string command = argc > 1 ? argv[1] : "";
  std::vector<std::string> names;
  for (const CLI::App* known : app.get_subcommands(nullptr)) names.push_back(known->get_name());
  const bool is_known = std::find(names.begin(), names.end(), command) != names.end();
  if (command.empty() || command[0] == '-' || is_known) return error.what();
  return fmt::format("unknown command '{}'{}; the commands are {}", command,
                     stepc::did_you_mean(command, {names.begin(), names.end()}), fmt::join(names, ", "));
}

}  // namespace

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
  register_gradients(app, outcome);
  register_data(app, outcome);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "stepc: {}\n", usage_error(app, argc, argv, error));
    return 2;
  }
  if (!outcome.status) {
    std::fflush(stdout);
    fmt::print(stderr, "stepc: {}\n", outcome.status.error().text());
    return outcome.status.error().exit_code();
  }
  return outcome.signal == 0 ? 0 : 128 + outcome.signal;
}
