// What a plan needs and when, for people: text, JSON and SVG. Works on any plan, before a kernel exists.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "ir/plan/plan.h"

namespace stepc {

// Bytes that running the plan allocates: predicted peak = allocated bytes.
struct MemoryNeed {
  std::array<int64_t, kPlanArenas> arena_bytes = {};
  int64_t total_bytes = 0;
};
MemoryNeed memory_need(const Plan& plan, const ModuleLayout& layout);

// "1.50 GiB", "12.0 KiB", "17 B".
std::string bytes_text(int64_t bytes);

// Peak by arena, the bound that no packing beats, and the ten largest buffers with the steps they live for.
std::string memory_report(const Plan& plan, const ModuleLayout& layout);
// The `count` largest tensors and buffers, aliases left out, one a line.
std::string largest_buffers(const Plan& plan, const ModuleLayout& layout, int count = 10);

// What lives when in the activations arena.
std::string live_chart_text(const Plan& plan, int rows = 40);  // a bar of live bytes per step, or per few steps
std::string live_chart_json(const Plan& plan);                 // buffers with offsets and steps, live bytes by step
std::string live_chart_svg(const Plan& plan);                  // a rectangle per buffer: steps across, bytes up

// An error that says what is needed and what there is, with the ten largest buffers.
Status check_fits(const Plan& plan, const ModuleLayout& layout, int64_t available_bytes);

// The largest batch from 1 to `limit` whose need is at most `available_bytes`; 0 if one does not fit. `need`
// plans anew at a batch size, `first` before others, and must not fall as the batch grows. Needs grow almost
// linearly, so where the line through two of them says is looked first: a few plans will do.
Result<int64_t> largest_batch(int64_t available_bytes, int64_t limit,
                              const std::function<Result<int64_t>(int64_t batch)>& need, int64_t first = 1);

}  // namespace stepc
