// The passes over graph IR, in order, between the model's program and its kernels.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace stepc {

struct PassOptions;
struct Pass {
  std::string_view name;
  void (*run)(Program&, const PassOptions&);
  std::string_view why;  // it sits where it sits
};

std::span<const Pass> passes();

struct PassOptions {
  std::vector<std::string> disable;  // names of passes to leave out
  std::string stop_after;            // the last pass to run; empty: all
  // Called after each pass that ran, for dumps.
  std::function<void(const Pass&, const Module&)> after;
  bool for_gpu = false;
  bool has_sm90 = false;       // of a GPU
  bool updates_apart = false;  // an optimizer's, from the products of their gradients, everywhere
};

// Runs the passes on every program of the module and verifies it after each. A name that is no pass is the
// user's error; a module that does not verify is a bug of the pass, which is named.
Status run_passes(Module& module, const PassOptions& options = {});

}  // namespace stepc
