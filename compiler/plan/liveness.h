// When each buffer of a plan is live, from its steps alone: from the first step that writes it or an alias
// of it to the last that uses one.
#pragma once

#include "ir/plan/plan.h"

namespace stepc {

// Sets first_step and last_step of every buffer (a root's covers its aliases').
void mark_live_steps(Plan& plan);

// Bytes live at each step in the activations arena, sizes as they are.
std::vector<int64_t> live_bytes_by_step(const Plan& plan);

}  // namespace stepc
