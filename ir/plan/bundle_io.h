// Bundles on disk: a folder with plan.json, and for every kernel kernels/NAME.kir and its code:
// NAME.o, NAME.ptx or NAME.cubin. plan.json
// holds each file's hash. Reading refuses another version, verifies hashes and the whole bundle, and names
// the file and the place of what is wrong.
#pragma once

#include "ir/plan/plan.h"

namespace stepc {

Status save_bundle(const Bundle& bundle, const std::string& folder);
Result<Bundle> load_bundle(const std::string& folder);

// plan.json alone: everything but the kernels' text and object, of which it has the hashes.
std::string bundle_text(const Bundle& bundle);
std::string plan_text(const Plan& plan);
Result<Plan> parse_plan(std::string_view text, const std::string& file);

}  // namespace stepc
