// What every plan must satisfy, proved from its steps and offsets alone (nothing of the planner is used):
// references exist, bytes follow from types, offsets are aligned and inside their arenas, aliases lie inside
// their roots, every activation is written before it is read and used only while live, and no two buffers
// that are live at one step share a byte.
#pragma once

#include "ir/plan/plan.h"

namespace stepc {

Status verify_plan(const Plan& plan);
// With the plans: kernels exist and are launched with as many buffers and scalars as they take, persistent
// buffers lie where the module's layout puts them.
Status verify_bundle(const Bundle& bundle);

}  // namespace stepc
