#include "tools/bench/torch_side.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <utility>

namespace stepc::bench {

TorchSide::TorchSide(TorchSide&& other) noexcept
    : to_(std::exchange(other.to_, nullptr)),
      from_(std::exchange(other.from_, nullptr)),
      process_(std::exchange(other.process_, -1)),
      version_(std::move(other.version_)) {}

// The process ends when its input does.
TorchSide::~TorchSide() {
  if (to_) std::fclose(to_);
  if (from_) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

Result<TorchSide> TorchSide::start(const std::string& python, const std::string& script, int threads, bool cpu_time) {
  std::signal(SIGPIPE, SIG_IGN);
  int requests[2];
  int answers[2];
  if (pipe(requests) != 0 || pipe(answers) != 0) return system_error("cannot make a pipe");
  TorchSide side;
  side.process_ = fork();
  if (side.process_ < 0) return system_error("cannot start another process");
  if (side.process_ == 0) {
    dup2(requests[0], 0);
    dup2(answers[1], 1);
    for (int end : {requests[0], requests[1], answers[0], answers[1]}) close(end);
    execl(python.c_str(), python.c_str(), script.c_str(), std::to_string(threads).c_str(), cpu_time ? "cpu" : "wall",
          nullptr);
    _exit(127);
  }
  close(requests[0]);
  close(answers[1]);
  side.to_ = fdopen(requests[1], "w");
  side.from_ = fdopen(answers[0], "r");
  auto version = side.ask("version");
  if (!version) return system_error("{} {} does not answer: is python3-torch installed?", python, script);
  side.version_ = *version;
  return side;
}

Result<std::string> TorchSide::ask(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
  std::string answer;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    if (c == EOF) return system_error("PyTorch's process ended while asked: {}", line);
    answer.push_back(static_cast<char>(c));
  }
  return answer;
}

Status TorchSide::prepare(const Case& test) {
  STEPC_ASSIGN(const std::string answer,
               ask(fmt::format("matmul {} {} {} {} {} {:d} {:d}", dtype_name(test.operands), test.batch, test.m, test.k,
                               test.n, test.transpose_a, test.transpose_b)));
  if (answer != "ready") return system_error("PyTorch cannot run '{}': {}", test.name, answer);
  return {};
}

Result<std::vector<double>> TorchSide::run(int count) {
  STEPC_ASSIGN(const std::string answer, ask(fmt::format("run {}", count)));
  std::istringstream numbers(answer);
  std::vector<double> seconds;
  for (double x = 0; numbers >> x;) seconds.push_back(x);
  return seconds;
}

}  // namespace stepc::bench
