#include "tests/conform/groups.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "compiler/emit/nvptx.h"
#include "compiler/ptxas/ptxas.h"
#include "ir/kernel/launch.h"
#include "ir/support/thread_pool.h"
#include "tests/conform/tokens.h"
#include "tests/conform/tolerance.h"
#include "tests/support/gpu.h"
#include "tests/support/run_group.h"

namespace stepc::test {
namespace {

// Bytes before and behind every buffer.
size_t guard_bytes() { return conform_wish() == "few" ? 0 : 256; }

std::vector<const kernel::Kernel*> kernels_of(const ScheduledKernel& scheduled) {
  std::vector<const kernel::Kernel*> kernels{&scheduled.kernel};
  for (const LaterKernel& later : scheduled.later) kernels.push_back(&later.kernel);
  return kernels;
}

struct Code {
  const kernel::Kernel* kernel = nullptr;
  std::string code;
  std::string error;
};
using Codes = std::map<std::string, Code>;  // by the kernel's text

void compile(Code& code, const GpuTarget& target, const std::optional<Ptxas>& ptxas, const std::string& arch) {
  auto ptx = emit_ptx(*code.kernel, target);
  if (!ptx) {
    code.error = ptx.error().text();
    return;
  }
  code.code = std::move(ptx->ptx);
  if (!ptxas) return;
  auto cubin = assemble(*ptxas, code.code, arch, code.kernel->name);
  if (cubin)
    code.code = std::move(cubin->code);
  else
    code.error = cubin.error().text();
}

// What the driver compiles it compiles one kernel after the other: cubins where ptxas is at hand.
Codes compile_all(const std::vector<GroupJob>& jobs, const GpuTarget& target, const CudaDevice& device) {
  Codes codes;
  for (const GroupJob& job : jobs)
    if (job.error.empty())
      for (const kernel::Kernel* kernel : kernels_of(job.scheduled))
        codes.try_emplace(kernel::print_kernel(*kernel), Code{kernel, {}, {}});
  std::optional<Ptxas> ptxas;
  if (on_card()) ptxas = find_ptxas().value();
  const std::string arch = target.has_sm90() ? target.arch : device.info().arch;
  std::vector<Code*> all;
  for (auto& [text, code] : codes) all.push_back(&code);
  in_parallel(all.size(), [&](size_t i) { compile(*all[i], target, ptxas, arch); });
  return codes;
}

// Floats become NaN; what is an integer, a number that nothing computes.
std::byte poison_of(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::bf16 ? std::byte{0xff} : std::byte{0xa5};
}

Bytes guarded(const Bytes& bytes) {
  Bytes all(bytes.size() + 2 * guard_bytes(), std::byte{0xff});
  std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<ptrdiff_t>(guard_bytes()));
  return all;
}

bool same_guards(const Bytes& a, const Bytes& b) {
  const auto guard = static_cast<ptrdiff_t>(guard_bytes());
  return std::equal(a.begin(), a.begin() + guard, b.begin()) && std::equal(a.end() - guard, a.end(), b.end() - guard);
}

class Runner {
 public:
  Runner(CudaDevice& device, const Codes& codes) : device_(device), codes_(codes) {}

  // What is wrong with the job's results, if anything.
  std::string run(const GroupJob& job) {
    if (!job.error.empty()) return job.error;
    for (const kernel::Kernel* kernel : kernels_of(job.scheduled))
      if (const std::string& error = codes_.at(kernel::print_kernel(*kernel)).error; !error.empty()) return error;
    const Program& program = job.from->module.programs[job.program];
    const TensorMap& trace = job.from->traces[job.program];
    std::vector<Bytes> before, after;
    for (ValueId id : job.scheduled.operands) before.push_back(guarded(to_bytes(trace.at(program.value(id).name))));
    for (ValueId id : job.scheduled.results) {
      const TensorType& type = program.type(id);
      const auto bytes = static_cast<size_t>(numel(type.shape) * dtype_bytes(type.dtype));
      before.push_back(guarded(Bytes(bytes, poison_of(type.dtype))));
    }
    if (job.scheduled.workspace_bytes > 0)
      before.push_back(guarded(Bytes(static_cast<size_t>(job.scheduled.workspace_bytes), std::byte{0xff})));
    const Status status = execute(job.scheduled, before, after);
    if (!status) return status.error().text();
    return compare(job, before, after);
  }

 private:
  Result<KernelHandle> handle_of(const kernel::Kernel& kernel) {
    const std::string text = kernel::print_kernel(kernel);
    const auto known = handles_.find(text);
    if (known != handles_.end()) return known->second;
    STEPC_ASSIGN(const KernelHandle handle,
                 device_.load({kernel.name, codes_.at(text).code, kernel::shared_layout(kernel).total_bytes,
                               kernel::gpu_launch(kernel)}));
    handles_[text] = handle;
    return handle;
  }

  Status launch(const kernel::Kernel& kernel, int64_t grid, const std::vector<DeviceAddress>& buffers,
                const std::vector<int64_t>& scalars) {
    if (grid == 0) return {};
    STEPC_ASSIGN(const KernelHandle handle, handle_of(kernel));
    STEPC_TRY(device_.launch(handle, grid, buffers, scalars));
    return device_.synchronize();
  }

  Status execute(const ScheduledKernel& scheduled, const std::vector<Bytes>& before, std::vector<Bytes>& after) {
    std::vector<DeviceAddress> inner;
    for (const Bytes& bytes : before) {
      STEPC_ASSIGN(const DeviceAddress address, device_.allocate(static_cast<int64_t>(bytes.size())));
      STEPC_TRY(device_.copy_in(address, bytes.data(), static_cast<int64_t>(bytes.size())));
      inner.push_back(address + static_cast<int64_t>(guard_bytes()));
    }
    STEPC_TRY(launch(scheduled.kernel, scheduled.grid, inner, scheduled.scalars));
    for (const LaterKernel& later : scheduled.later) STEPC_TRY(launch(later.kernel, later.grid, inner, later.scalars));
    after = before;
    for (size_t i = 0; i < before.size(); ++i) {
      const DeviceAddress address = inner[i] + -static_cast<int64_t>(guard_bytes());
      STEPC_TRY(device_.copy_out(after[i].data(), address, static_cast<int64_t>(after[i].size())));
      device_.free(address);
    }
    return {};
  }

  std::string compare(const GroupJob& job, const std::vector<Bytes>& before, const std::vector<Bytes>& after) const {
    const Program& program = job.from->module.programs[job.program];
    const Group& group = program.groups[job.group];
    const TensorMap& trace = job.from->traces[job.program];
    const size_t operands = job.scheduled.operands.size();
    for (size_t i = 0; i < before.size(); ++i) {
      if (!same_guards(before[i], after[i])) return fmt::format("buffer {} was written outside its bounds", i);
      if (i < operands && before[i] != after[i]) return fmt::format("operand {} was written", i);
    }
    for (size_t i = 0; i < job.scheduled.results.size(); ++i) {
      const Value& value = program.value(job.scheduled.results[i]);
      const Tensor found = from_bytes(value.type, after[operands + i].data() + guard_bytes());
      const Tensor& wanted = trace.at(value.name);
      const std::string difference = differences(found, wanted, tolerance_of(program, group, wanted));
      if (!difference.empty()) return fmt::format("%{}: {}", value.name, difference);
    }
    return "";
  }

  CudaDevice& device_;
  const Codes& codes_;
  std::map<std::string, KernelHandle> handles_;
};

std::string name_of(const GroupJob& job) {
  const Program& program = job.from->module.programs[job.program];
  return fmt::format("{}: {}/{}: {}; {}", job.from->label, program.name, program.groups[job.group].name,
                     job.scheduled.problem, job.scheduled.config);
}

}  // namespace

void in_parallel(size_t count, const std::function<void(size_t)>& task) {
  ThreadPool pool;
  pool.parallel_for(static_cast<int64_t>(count), [&](int64_t i) { task(static_cast<size_t>(i)); });
}

TensorMap between_groups(const Program& program, TensorMap trace) {
  TensorMap kept;
  for (const Group& group : program.groups)
    for (const auto& values : {group_operands(program, group), group_results(program, group)})
      for (ValueId id : values) {
        const std::string& name = program.value(id).name;
        if (!kept.contains(name)) kept[name] = std::move(trace.at(name));
      }
  return kept;
}

std::vector<GroupJob> jobs_of(std::shared_ptr<const Traced> traced, const GpuTarget& target) {
  std::vector<GroupJob> jobs;
  for (size_t p = 0; p < traced->module.programs.size(); ++p) {
    if (traced->traces[p].empty()) continue;
    const Program& program = traced->module.programs[p];
    for (size_t g = 0; g < program.groups.size(); ++g) {
      GroupJob job{traced, p, g, {}, {}};
      auto scheduled = schedule_gpu(program, program.groups[g], target);
      if (scheduled)
        job.scheduled = std::move(*scheduled);
      else
        job.error = scheduled.error().text();
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

GroupResults run_jobs(const std::vector<GroupJob>& jobs, const GpuTarget& target, Repeats repeats) {
  const auto device = open_gpu();
  const Codes codes = compile_all(jobs, target, *device);
  Runner runner(*device, codes);
  std::set<std::string> seen;
  GroupResults results{0, static_cast<int>(codes.size()), {}};
  for (const GroupJob& job : jobs) {
    const bool is_new = seen.insert(kernel::print_kernel(job.scheduled.kernel)).second;
    if (!is_new && repeats == Repeats::first && job.error.empty() && !on_card()) continue;
    ++results.groups;
    const std::string fault = runner.run(job);
    if (!fault.empty()) results.faults.push_back(name_of(job) + ": " + fault);
  }
  return results;
}

void check_jobs(const std::vector<GroupJob>& jobs, const GpuTarget& target, Repeats repeats) {
  const GroupResults results = run_jobs(jobs, target, repeats);
  for (const std::string& fault : results.faults) FAIL_CHECK(fault);
  CHECK(results.groups > 0);
  MESSAGE(results.groups << " groups, " << results.kernels << " kernels");
}

}  // namespace stepc::test
