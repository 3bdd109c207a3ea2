#include "runtime/host/host_memory.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "ir/support/file.h"

namespace stepc {
namespace {

std::optional<int64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<int64_t> number_in_file(const std::string& path) {
  const auto text = read_file(path);
  return text ? leading_number(*text) : std::nullopt;
}

// Cached file pages count as used by the group, but give way.
int64_t reclaimable_bytes() {
  constexpr std::string_view kKey = "\ninactive_file ";
  const auto text = read_file("/sys/fs/cgroup/memory.stat");
  const size_t at = text ? text->find(kKey) : std::string::npos;
  if (at == std::string::npos) return 0;
  return leading_number(std::string_view(*text).substr(at + kKey.size())).value_or(0);
}

}  // namespace

Result<int64_t> parse_mem_available(std::string_view meminfo) {
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = meminfo.find(kKey);
  const auto kilobytes = at == std::string_view::npos ? std::nullopt : leading_number(meminfo.substr(at + kKey.size()));
  if (!kilobytes) return system_error("/proc/meminfo: expected a line MemAvailable, found none");
  return *kilobytes * 1024;
}

Result<int64_t> available_host_bytes() {
  STEPC_ASSIGN(const std::string meminfo, read_file("/proc/meminfo"));
  STEPC_ASSIGN(int64_t available, parse_mem_available(meminfo));
  // "max" where the group has no limit: no number.
  const auto limit = number_in_file("/sys/fs/cgroup/memory.max");
  const auto used = number_in_file("/sys/fs/cgroup/memory.current");
  if (limit && used) available = std::min(available, std::max<int64_t>(0, *limit - *used + reclaimable_bytes()));
  return available;
}

}  // namespace stepc
