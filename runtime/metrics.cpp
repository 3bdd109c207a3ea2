#include "runtime/metrics.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "ir/support/file.h"

namespace stepc {
namespace {

// The lines of `text` that a run resumed after `last_step` keeps.
std::string kept_lines(const std::string& text, const std::string& path, int64_t last_step) {
  std::string kept;
  size_t start = 0;
  for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const std::string line = text.substr(start, end - start);
    const auto value = parse_json(line, path);
    if (!value) continue;
    const auto step = JsonCursor(*value, path).integer("step");
    if (step && *step <= last_step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

Result<MetricsLog> MetricsLog::open(const std::string& path, int64_t last_step) {
  std::string kept;
  if (last_step >= 0 && std::filesystem::exists(path)) {
    STEPC_ASSIGN(const std::string text, read_file(path));
    kept = kept_lines(text, path, last_step);
  }
  STEPC_TRY(write_file_atomic(path, kept));
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (!file) return system_error("cannot write {}: {}", path, std::strerror(errno));
  return MetricsLog(path, file);
}

Status MetricsLog::write(const JsonValue& line) {
  std::string text = json_text(line, INT32_MAX);
  if (text.empty() || text.back() != '\n') text += '\n';
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0)
    return system_error("cannot write {}: {}", path_, std::strerror(errno));
  return {};
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return fmt::format("{}h {:02d}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02d}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace stepc
