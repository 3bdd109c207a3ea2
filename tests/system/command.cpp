#include "tests/system/command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "ir/support/file.h"
#include "test_paths.h"

namespace stepc::test {
namespace {

void redirect(int descriptor, const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(file, descriptor);
  ::close(file);
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const std::string& folder) {
  redirect(1, folder + "/out");
  redirect(2, folder + "/err");
  ::setenv("XDG_CACHE_HOME", STEPC_BINARY_DIR "/tests/cache", 1);
  std::vector<char*> pointers;
  std::string binary = STEPC_BINARY;
  pointers.push_back(binary.data());
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  ::execv(binary.c_str(), pointers.data());
  ::_exit(127);
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

Command::Command(const std::vector<std::string>& arguments) {
  process_ = ::fork();
  REQUIRE(process_ >= 0);
  if (process_ == 0) become(arguments, folder_.path());
}

Command::~Command() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

std::string Command::output() const { return read_file(folder_.file("out")).value_or(""); }

bool Command::wait_for(const std::string& text) {
  for (;;) {
    siginfo_t ended = {};
    ::waitid(P_PID, static_cast<id_t>(process_), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (output().find(text) != std::string::npos) return true;
    if (ended.si_pid != 0) return false;
    ::usleep(2000);
  }
}

void Command::signal(int number) const { ::kill(process_, number); }

CommandResult Command::finish() {
  int status = 0;
  rusage usage = {};
  REQUIRE(::wait4(process_, &status, 0, &usage) == process_);
  process_ = -1;
  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {exit_code, text_of(folder_.file("out")), text_of(folder_.file("err")),
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

CommandResult run_stepc_well(const std::vector<std::string>& arguments) {
  CommandResult result = run_stepc(arguments);
  std::string line;
  for (const std::string& argument : arguments) line += " " + argument;
  REQUIRE_MESSAGE(result.exit_code == 0, "stepc" << line << ": " << result.exit_code << ": " << result.err);
  return result;
}

std::string text_of(const std::string& path) {
  auto text = read_file(path);
  REQUIRE_MESSAGE(text.has_value(), text.error().text());
  return *std::move(text);
}

void write_text(const std::string& path, const std::string& text) {
  REQUIRE(write_file_atomic(path, text, Durability::unsynced).has_value());
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(std::filesystem::relative(entry.path(), folder));
  std::sort(files.begin(), files.end());
  return files;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace stepc::test
