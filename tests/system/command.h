// Runs the stepc binary as a user does, and keeps what it said.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace stepc::test {

struct CommandResult {
  int exit_code = -1;  // 128 + signal where one ended it
  std::string out;
  std::string err;
  double cpu_seconds = 0;  // of user and system
};

// A started command. The kernel cache of all of them is one folder below the build's.
class Command {
 public:
  explicit Command(const std::vector<std::string>& arguments);
  ~Command();

  std::string output() const;  // standard output up to now
  // Until standard output contains `text` or the command has ended; whether it does.
  bool wait_for(const std::string& text);
  void signal(int number) const;
  CommandResult finish();

 private:
  TempDir folder_;
  pid_t process_ = -1;
};

inline CommandResult run_stepc(const std::vector<std::string>& arguments) { return Command(arguments).finish(); }
// Checks that it exits with 0, and says why not.
CommandResult run_stepc_well(const std::vector<std::string>& arguments);

std::string text_of(const std::string& path);
void write_text(const std::string& path, const std::string& text);
// Names of all files below a folder, sorted; empty where there is none.
std::vector<std::string> files_below(const std::string& folder);
int count_of(const std::string& text, const std::string& part);

}  // namespace stepc::test
