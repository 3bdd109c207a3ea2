#include "tools/bench/torch_side.h"

#include <sstream>

namespace stepc::bench {

Result<TorchSide> TorchSide::start(const std::string& python, const std::string& script, int threads, bool cpu_time) {
  STEPC_ASSIGN(LineProcess process,
               LineProcess::start({python, script, std::to_string(threads), cpu_time ? "cpu" : "wall"}));
  auto version = process.ask("version");
  if (!version) return system_error("{} {} does not answer: is python3-torch installed?", python, script);
  TorchSide side(std::move(process));
  side.version_ = *version;
  return side;
}

Status TorchSide::prepare(const Case& test) {
  STEPC_ASSIGN(const std::string answer,
               process_.ask(fmt::format("matmul {} {} {} {} {} {:d} {:d}", dtype_name(test.operands), test.batch,
                                        test.m, test.k, test.n, test.transpose_a, test.transpose_b)));
  if (answer != "ready") return system_error("PyTorch cannot run '{}': {}", test.name, answer);
  return {};
}

Result<std::vector<double>> TorchSide::run(int count) {
  STEPC_ASSIGN(const std::string answer, process_.ask(fmt::format("run {}", count)));
  std::istringstream numbers(answer);
  std::vector<double> seconds;
  for (double x = 0; numbers >> x;) seconds.push_back(x);
  return seconds;
}

}  // namespace stepc::bench
