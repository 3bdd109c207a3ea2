#include "ir/support/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;  // NOLINT: POSIX

namespace stepc {
namespace {

// What the child has open: nothing to read, one pipe to write to.
class FileActions {
 public:
  explicit FileActions(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

std::string read_to_end(int file) {
  std::string text;
  char piece[4096];
  while (true) {
    const ssize_t bytes = ::read(file, piece, sizeof piece);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(piece, static_cast<size_t>(bytes));
  }
}

int wait_for_end(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& command) {
  int ends[2];
  // Close-on-exec: a child that another thread starts now must not hold our pipe open.
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe: {}", std::strerror(errno));
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_t process = -1;
  const int failure =
      ::posix_spawnp(&process, arguments[0], FileActions(ends[1]).get(), nullptr, arguments.data(), environ);
  ::close(ends[1]);
  ProcessResult result;
  if (failure == 0) {
    result.output = read_to_end(ends[0]);
    result.exit_code = wait_for_end(process);
  }
  ::close(ends[0]);
  if (failure != 0) return system_error("cannot run {}: {}", command[0], std::strerror(failure));
  return result;
}

}  // namespace stepc
