#include "ir/text/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace stepc {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Levenshtein distance, one row of the table at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_name(std::string_view text) {
  bool segment_open = false;
  for (char c : text) {
    if (c == '.' && !segment_open) return false;
    if (c != '.' && !is_name_char(c)) return false;
    segment_open = c != '.';
  }
  return segment_open;
}

std::string name_from(std::string_view text) {
  std::string name;
  for (char c : text) {
    const bool dot_fits = c == '.' && !name.empty() && name.back() != '.';
    name.push_back(is_name_char(c) || dot_fits ? c : '_');
  }
  if (name.empty() || name.back() == '.') name.push_back('_');
  return name;
}

std::string did_you_mean(std::string_view wanted, const std::vector<std::string_view>& candidates) {
  constexpr size_t kLongestName = 64;  // beyond it a suggestion helps nobody and the table grows
  if (wanted.size() > kLongestName) return "";
  std::string_view best;
  size_t best_distance = std::min<size_t>(3, wanted.size() / 2 + 1);
  for (std::string_view candidate : candidates) {
    if (candidate.size() > kLongestName) continue;
    const size_t distance = edit_distance(wanted, candidate);
    // Of two as near, the one that goes on after what was written: sm_90 is sm_90a, not sm_80.
    const bool completes = !best.empty() && candidate.starts_with(wanted) && !best.starts_with(wanted);
    if (distance < best_distance || (distance == best_distance && completes)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace stepc
