#include "tests/hopper/planted.h"

#include <algorithm>
#include <sstream>

namespace stepc::test {
namespace {

constexpr uint64_t kSeeds = 10;

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Small values around zero, so that sums stay in range.
Bytes random_buffer(const kernel::Buffer& buffer, std::mt19937& random) {
  Tensor tensor{{buffer.dtype, buffer.shape}, {}};
  std::uniform_real_distribution<double> value(-1, 1);
  tensor.data.resize(static_cast<size_t>(numel(buffer.shape)));
  for (double& v : tensor.data) v = value(random);
  return to_bytes(tensor);
}

}  // namespace

PlantedKernel::PlantedKernel(kernel::Kernel kernel) : kernel_(std::move(kernel)) {
  ops_ = split_lines(kernel::print_kernel(kernel_));
  const auto ptx = emit_ptx(kernel_, {"sm_90a"});
  REQUIRE_MESSAGE(ptx.has_value(), ptx.error().text());
  int op = 0;
  for (std::string& text : split_lines(ptx->ptx)) {
    std::istringstream words(text);
    std::string word;
    int file = 0;
    if (words >> word && word == ".loc") words >> file >> op;
    lines_.push_back({std::move(text), op});
  }
  code_ = {kernel_.name, "", kernel::shared_layout(kernel_).total_bytes, kernel::gpu_launch(kernel_)};
}

int PlantedKernel::edit(const std::function<bool(int)>& wanted, const std::string& from,
                        const std::function<void(Line&)>& change) {
  int edited = 0;
  for (Line& line : lines_) {
    if (!wanted(line.op) || !contains(line.text, from)) continue;
    change(line);
    ++edited;
  }
  CHECK_MESSAGE(edited > 0, "no line to edit contains " << from);
  return edited;
}

PlantedKernel& PlantedKernel::remove(const std::string& op, const std::string& text) {
  edit([&](int at) { return at > 0 && contains(ops_[static_cast<size_t>(at - 1)], op); }, text,
       [](Line& line) { line.text.clear(); });
  return *this;
}

PlantedKernel& PlantedKernel::replace(const std::string& op, const std::string& from, const std::string& to) {
  edit([&](int at) { return at > 0 && contains(ops_[static_cast<size_t>(at - 1)], op); }, from,
       [&](Line& line) { replace_all(line.text, from, to); });
  return *this;
}

PlantedKernel& PlantedKernel::replace_one(const std::string& op, bool last, const std::string& from,
                                          const std::string& to) {
  int chosen = 0;
  for (size_t at = 0; at < ops_.size(); ++at)
    if (contains(ops_[at], op) && (chosen == 0 || last)) chosen = static_cast<int>(at) + 1;
  REQUIRE_MESSAGE(chosen > 0, "no op contains " << op);
  edit([&](int at) { return at == chosen; }, from, [&](Line& line) { replace_all(line.text, from, to); });
  return *this;
}

PlantedKernel& PlantedKernel::remove_before(const std::string& op, const std::string& text) {
  size_t at = 0;
  while (at < ops_.size() && !contains(ops_[at], op)) ++at;
  REQUIRE_MESSAGE(at < ops_.size(), "no op contains " << op);
  edit([&](int line) { return line == static_cast<int>(at); }, text, [](Line& line) { line.text.clear(); });
  return *this;
}

PlantedKernel& PlantedKernel::replace_anywhere(const std::string& from, const std::string& to) {
  edit([](int) { return true; }, from, [&](Line& line) { replace_all(line.text, from, to); });
  return *this;
}

std::string PlantedKernel::run(uint64_t seed) const {
  KernelCode code = code_;
  for (const Line& line : lines_) code.code += line.text + "\n";
  EmulatorOptions options;
  options.seed = seed;
  options.threads = 1;
  const auto device = make_cuda_device(emulated_driver(options), {.ordinal = 0, .synchronous = true});
  REQUIRE_MESSAGE(device.has_value(), device.error().text());
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<DeviceAddress> buffers;
  for (const kernel::Buffer& buffer : kernel_.buffers) {
    if (buffer.space != kernel::Space::global) continue;
    const Bytes bytes = random_buffer(buffer, random);
    const auto address = (*device)->allocate(static_cast<int64_t>(bytes.size()));
    REQUIRE_MESSAGE(address.has_value(), address.error().text());
    require((*device)->copy_in(*address, bytes.data(), static_cast<int64_t>(bytes.size())));
    buffers.push_back(*address);
  }
  const auto handle = (*device)->load(code);
  if (!handle) return handle.error().text();
  const Status launched = (*device)->launch(*handle, kernel_.expr(kernel_.grid).value, buffers, {});
  if (!launched) return launched.error().text();
  const Status finished = (*device)->synchronize();
  return finished ? "" : finished.error().text();
}

std::vector<std::string> PlantedKernel::ops_in(const std::string& report) const {
  const std::string mark = "kernel IR line ";
  std::vector<std::string> named;
  for (size_t at = 0; (at = report.find(mark, at)) != std::string::npos; at += mark.size()) {
    const auto line = static_cast<size_t>(std::atoi(report.c_str() + at + mark.size()));
    if (line >= 1 && line <= ops_.size()) named.push_back(ops_[line - 1]);
  }
  return named;
}

std::string PlantedKernel::op_at(const std::string& report) const {
  const std::vector<std::string> named = ops_in(report);
  return named.empty() ? "" : named[0];
}

void check_planted(const PlantedKernel& kernel, const std::string& fault, const std::string& op,
                   const std::string& text) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string report = kernel.run(seed);
    CAPTURE(seed);
    CAPTURE(report);
    CHECK(contains(report, fault));
    CHECK(contains(report, text));
    CHECK(contains(kernel.op_at(report), op));
  }
}

void check_planted_among(const PlantedKernel& kernel, const std::string& fault, const std::string& op,
                         const std::string& text) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string report = kernel.run(seed);
    const std::vector<std::string> named = kernel.ops_in(report);
    CAPTURE(seed);
    CAPTURE(report);
    CHECK(contains(report, fault));
    CHECK(contains(report, text));
    CHECK(std::any_of(named.begin(), named.end(), [&](const std::string& each) { return contains(each, op); }));
  }
}

void check_whole(const PlantedKernel& kernel) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) CHECK(kernel.run(seed) == "");
}

}  // namespace stepc::test
