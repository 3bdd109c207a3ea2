#include "compiler/ptxas/ptxas.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "ir/support/cache.h"
#include "ir/support/file.h"
#include "ir/support/process.h"

namespace stepc {
namespace {

constexpr const char* kUsualPlace = "/usr/local/cuda/bin/ptxas";
constexpr const char* kOptions = "-v --warn-on-spills";

// "release 13.0, V13.0.88" of `ptxas --version`; nullopt if `path` is no such program.
std::optional<std::string> version_of(const std::string& path) {
  const auto result = run_process({path, "--version"});
  if (!result || result->exit_code != 0) return std::nullopt;
  const size_t at = result->output.find("release ");
  if (at == std::string::npos) return std::nullopt;
  return result->output.substr(at, result->output.find('\n', at) - at);
}

// A folder for the assembler's files, gone at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "stepc-ptxas-XXXXXX").string();
    if (const char* made = ::mkdtemp(pattern.data())) path_ = made;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The number before `words` in the line, or 0.
int64_t number_before(const std::string& line, const std::string& words) {
  const size_t at = line.find(" " + words);
  if (at == std::string::npos) return 0;
  size_t start = at;
  while (start > 0 && std::isdigit(static_cast<unsigned char>(line[start - 1]))) --start;
  return start == at ? 0 : std::stoll(line.substr(start, at - start));
}

// The assembler's errors, or all that it said.
std::string complaints(const std::string& output) {
  constexpr int kMost = 8;
  std::istringstream lines(output);
  std::string chosen;
  int count = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find("error") != std::string::npos && count++ < kMost) chosen += "\n" + line;
  return chosen.empty() ? "\n" + output : chosen;
}

// Cached together: the length of the report, the report, the cubin.
std::string pack(const std::string& report, const std::string& code) {
  return fmt::format("{}\n{}{}", report.size(), report, code);
}
std::optional<Cubin> unpack(const std::string& entry) {
  const size_t line_end = entry.find('\n');
  if (line_end == std::string::npos) return std::nullopt;
  const size_t report_bytes = std::strtoull(entry.c_str(), nullptr, 10);
  if (report_bytes > entry.size() - line_end - 1) return std::nullopt;
  return Cubin{entry.substr(line_end + 1 + report_bytes), parse_ptxas_report(entry.substr(line_end + 1, report_bytes))};
}

Result<std::pair<std::string, std::string>> run_ptxas(const Ptxas& ptxas, const std::string& ptx,
                                                      const std::string& arch, const std::string& name) {
  const ScratchFolder folder;
  if (folder.path().empty()) return system_error("cannot make a temporary folder");
  const std::string input = folder.path() + "/kernel.ptx", output = folder.path() + "/kernel.cubin";
  STEPC_TRY(write_file_atomic(input, ptx, Durability::unsynced));
  STEPC_ASSIGN(const ProcessResult result,
               run_process({ptxas.path, "-v", "--warn-on-spills", "-arch=" + arch, input, "-o", output}));
  if (result.exit_code != 0)
    return system_error("kernel {}: {} ({}) refuses its PTX for {}:{}", name, ptxas.path, ptxas.version, arch,
                        complaints(result.output));
  STEPC_ASSIGN(std::string code, read_file(output));
  return std::pair(result.output, std::move(code));
}

}  // namespace

Result<std::optional<Ptxas>> find_ptxas() {
  if (const char* chosen = std::getenv("STEPC_PTXAS"); chosen && *chosen) {
    const auto version = version_of(chosen);
    if (!version) return user_error("STEPC_PTXAS={}: that is no ptxas that can be run", chosen);
    return Ptxas{chosen, *version};
  }
  for (const char* path : {"ptxas", kUsualPlace})
    if (auto version = version_of(path)) return Ptxas{path, std::move(*version)};
  return std::nullopt;
}

PtxasReport parse_ptxas_report(const std::string& output) {
  PtxasReport report;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    report.stack_bytes += number_before(line, "bytes stack frame");
    report.spill_store_bytes += number_before(line, "bytes spill stores");
    report.spill_load_bytes += number_before(line, "bytes spill loads");
    report.shared_bytes += number_before(line, "bytes smem");
    report.registers = std::max(report.registers, static_cast<int>(number_before(line, "registers")));
    if (line.find("warning") != std::string::npos || line.find("(C7") != std::string::npos)
      report.remarks.push_back(line);
  }
  return report;
}

Result<Cubin> assemble(const Ptxas& ptxas, const PtxSource& source, const std::string& arch, const std::string& name,
                       const std::string& cache_folder) {
  const CacheStore cache(cache_folder);
  const std::string key = fmt::format("cubin\n{}\n{}\n{}\n{}", ptxas.version, kOptions, arch, source.key);
  if (!cache_folder.empty())
    if (const auto entry = cache.find(key))
      if (auto cubin = unpack(*entry)) {
        cubin->cached = true;
        return std::move(*cubin);
      }
  STEPC_ASSIGN(const std::string ptx, source.make());
  STEPC_ASSIGN(auto result, run_ptxas(ptxas, ptx, arch, name));
  auto& [report, code] = result;
  // A cache that cannot be written costs time, not the result.
  if (!cache_folder.empty()) (void)cache.store(key, pack(report, code));
  return Cubin{std::move(code), parse_ptxas_report(report)};
}

Result<Cubin> assemble(const Ptxas& ptxas, const std::string& ptx, const std::string& arch, const std::string& name,
                       const std::string& cache_folder) {
  return assemble(ptxas, PtxSource{ptx, [&]() -> Result<std::string> { return ptx; }}, arch, name, cache_folder);
}

}  // namespace stepc
