// The walks of templates that run one structured op, and of attention's gradient with what follows it.
#pragma once

#include "compiler/graph/region.h"

namespace stepc {

Result<RegionFacts> analyse_lone(const Program& program, const Region& region, Op op);
Result<RegionFacts> analyse_attention_grad(const Program& program, const Region& region);

}  // namespace stepc
