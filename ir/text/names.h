// Names in the texts of both IRs: segments of letters, digits and '_', joined by single dots.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stepc {

bool is_name(std::string_view text);
// `text` with every character that a name cannot have replaced by '_'; "_" where nothing is left.
std::string name_from(std::string_view text);
// "; did you mean 'reshape'?" for the candidate nearest to `wanted`, or "" when none is near.
std::string did_you_mean(std::string_view wanted, const std::vector<std::string_view>& candidates);

}  // namespace stepc
