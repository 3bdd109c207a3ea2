#include "tools/bench/line_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <utility>

namespace stepc::bench {

LineProcess::LineProcess(LineProcess&& other) noexcept
    : to_(std::exchange(other.to_, nullptr)),
      from_(std::exchange(other.from_, nullptr)),
      process_(std::exchange(other.process_, -1)) {}

LineProcess::~LineProcess() {
  if (to_) std::fclose(to_);
  if (from_) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

Result<LineProcess> LineProcess::start(const std::vector<std::string>& command) {
  std::signal(SIGPIPE, SIG_IGN);
  int requests[2];
  int answers[2];
  if (pipe(requests) != 0 || pipe(answers) != 0) return system_error("cannot make a pipe");
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  LineProcess process;
  process.process_ = fork();
  if (process.process_ < 0) return system_error("cannot start another process");
  if (process.process_ == 0) {
    dup2(requests[0], 0);
    dup2(answers[1], 1);
    for (int end : {requests[0], requests[1], answers[0], answers[1]}) close(end);
    // Threads of the other side that spin after their work would take the cores from ours (and did: half the rate).
    setenv("OMP_WAIT_POLICY", "passive", 0);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  close(requests[0]);
  close(answers[1]);
  process.to_ = fdopen(requests[1], "w");
  process.from_ = fdopen(answers[0], "r");
  return process;
}

Result<std::string> LineProcess::read_line() {
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    if (c == EOF) return system_error("the other process has ended");
    line.push_back(static_cast<char>(c));
  }
  return line;
}

Result<std::string> LineProcess::ask(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
  return read_line();
}

}  // namespace stepc::bench
