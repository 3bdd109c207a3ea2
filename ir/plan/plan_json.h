// One plan to and from JSON; bundle_io puts them into files. Internal to ir/plan.
#pragma once

#include "ir/plan/plan.h"
#include "ir/text/json.h"

namespace stepc {

JsonValue plan_json(const Plan& plan);
Result<Plan> read_plan(const JsonCursor& cursor);

// The members "arena", and "dtype" with "shape".
Result<PlanArena> read_arena(const JsonCursor& cursor);
Result<TensorType> read_type(const JsonCursor& cursor);

}  // namespace stepc
