// What crosses from compiler to runtime. A Plan is one program as a list of steps over buffers, each buffer
// at a fixed place in one of five arenas; a Bundle is the plans of a module, the placement of its persistent
// tensors, which all its programs share, and the code of its kernels. Both are plain values with a JSON form
// (bundle_io.h) and are verified whenever they are read.
//
// Steps run in order. Several buffers may share bytes: aliases on purpose, others because they are never
// live at the same step; verify_plan proves that from the steps alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ir/graph/graph.h"
#include "ir/kernel/launch.h"

namespace stepc {

// The first three hold persistent tensors and follow graph.h's Arena. `io` holds inputs (the scalar ones
// first, side by side, so that one copy brings them all) and outputs.
enum class PlanArena : uint8_t { weights, optimizer, gradients, activations, io };
constexpr int kPlanArenas = 5;
constexpr int kPersistentArenas = 3;
std::string_view plan_arena_name(PlanArena arena);
std::optional<PlanArena> plan_arena_from_name(std::string_view name);
constexpr PlanArena plan_arena(Arena arena) { return static_cast<PlanArena>(arena); }

struct PlanBuffer {
  std::string name;  // of the value, of a persistent tensor with '@', or of the kernel whose workspace it is
  PlanArena arena = PlanArena::activations;
  TensorType type;  // workspace: pred[bytes]
  int64_t bytes = 0;
  int64_t offset_bytes = 0;  // in its arena
  int alias_of = -1;         // the buffer whose first bytes it names; that one is no alias
  // The steps from the first that writes it to the last that uses it or an alias of it; -1 and -1 where no
  // step does. Only activations may share bytes by this; in other arenas every buffer is live throughout.
  int first_step = -1;
  int last_step = -1;
  bool operator==(const PlanBuffer&) const = default;
};

// What the caller gives or gets under `name`.
struct PlanPort {
  std::string name;
  int buffer = -1;
  bool operator==(const PlanPort&) const = default;
};

// Runs kernel `kernel` of the bundle for tasks 0 .. grid-1 on operands, results, workspace in this order.
struct LaunchStep {
  int kernel = -1;  // -1 in a plan made before there are kernels
  int64_t grid = 0;
  std::vector<int> operands;
  std::vector<int> results;
  int workspace = -1;  // -1: none
  std::vector<int64_t> scalars;
  bool operator==(const LaunchStep&) const = default;
};
struct CopyStep {
  int from = -1;
  int to = -1;
  bool operator==(const CopyStep&) const = default;
};
// Every element becomes `value`.
struct FillStep {
  int buffer = -1;
  double value = 0;
  bool operator==(const FillStep&) const = default;
};
// Calls the function that the runtime knows by `function`.
struct HostCallStep {
  std::string function;
  std::vector<int> reads;
  std::vector<int> writes;
  bool operator==(const HostCallStep&) const = default;
};

struct PlanStep {
  std::string name;  // the group's, or what the step is for
  std::variant<LaunchStep, CopyStep, FillStep, HostCallStep> action;
  Phase phase = Phase::forward;
  int64_t flops = 0;
  int64_t matrix_flops = 0;  // of them, those that matrix units do where there are any
  int64_t bytes = 0;         // moved to and from memory, each operand and result once
  bool operator==(const PlanStep&) const = default;
};
std::vector<int> step_reads(const PlanStep& step);
std::vector<int> step_writes(const PlanStep& step);  // with the workspace

struct Plan {
  std::string program;
  std::vector<PlanBuffer> buffers;
  std::vector<PlanPort> inputs;
  std::vector<PlanPort> outputs;
  std::vector<PlanStep> steps;
  int64_t alignment_bytes = 64;
  int64_t activations_bytes = 0;  // the peak: what the arena needs
  int64_t io_bytes = 0;
  int64_t lower_bound_bytes = 0;  // no packing of the activations needs less
  std::string packing;            // the method that gave the offsets
  bool operator==(const Plan&) const = default;
};

struct PersistentPlacement {
  std::string name;  // without '@'
  PlanArena arena = PlanArena::weights;
  TensorType type;
  int64_t bytes = 0;
  int64_t offset_bytes = 0;
  bool operator==(const PersistentPlacement&) const = default;
};
struct ModuleLayout {
  std::vector<PersistentPlacement> tensors;
  std::array<int64_t, kPersistentArenas> arena_bytes = {};
  const PersistentPlacement* find(std::string_view name) const;
  bool operator==(const ModuleLayout&) const = default;
};

struct BundleKernel {
  std::string name;    // the symbol that the object defines
  std::string key;     // content hash of `text`
  std::string text;    // kernel IR
  std::string object;  // target code: an object file, PTX or a cubin; empty in a bundle that was only planned
  std::string problem;
  std::string config;
  int buffers = 0;  // that a launch passes
  int scalars = 0;
  int64_t shared_bytes = 0;  // scratch of one task
  kernel::GpuLaunch launch;  // empty on the host
  bool operator==(const BundleKernel&) const = default;
};

// A decision of the compiler's and its reason.
struct BundleChoice {
  std::string subject;
  std::string choice;
  bool operator==(const BundleChoice&) const = default;
};

constexpr int64_t kBundleVersion = 4;
struct Bundle {
  std::string target;  // "host x86-64, cpu znver4, ...", "cuda sm_90a, ..."
  std::string module_name;
  ModuleLayout persistents;
  std::vector<BundleKernel> kernels;
  std::vector<Plan> plans;
  std::vector<BundleChoice> choices;
  const Plan* find_plan(std::string_view program) const;
  bool operator==(const Bundle&) const = default;
};

// Bytes of a tensor; an error where they do not fit int64.
Result<int64_t> checked_bytes(const TensorType& type);

// The buffer that `buffer` is an alias of, or itself.
int root_buffer(const Plan& plan, int buffer);

}  // namespace stepc
