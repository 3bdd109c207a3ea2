// stepc compile: a graph file or a model to a bundle on disk; a file of kernel IR to its code.
#include "ir/plan/bundle_io.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/kernel_file.h"
#include "tools/stepc/reports.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

struct CompileOptions {
  SourceOptions source;
  DeviceOptions device;
  std::string arch;
  std::string out;
  std::string emit;
  bool cubin = false;
};

Status compile_file(const CompileOptions& options) {
  if (options.source.config.given()) return user_error("give either a file of kernel IR or a configuration, not both");
  if (options.cubin && !options.emit.empty()) return user_error("give either --cubin or --emit, not both");
  return compile_kernel_file({options.source.graph_file, options.arch, options.cubin ? "cubin" : options.emit,
                              options.out, options.device.choice.baseline});
}

Status compile(const CompileOptions& options) {
  if (is_kernel_file(options.source.graph_file)) return compile_file(options);
  if (!options.emit.empty()) return user_error("--emit {}: only for a file of kernel IR (.kir)", options.emit);
  if (options.out.empty()) return user_error("--out is required");
  const std::string arch = options.arch.empty() ? "host" : options.arch;
  STEPC_ASSIGN(const CodeTarget target, code_target(arch, options.device.choice.baseline));
  if (options.cubin && !target.gpu) return user_error("--cubin: only for GPUs, not --arch {}", arch);
  STEPC_ASSIGN(Module module, options.source.load());
  STEPC_ASSIGN(
      const GpuLowered lowered,
      compile_module(std::move(module), target, options.device,
                     {.need_cubins = options.cubin, .want_reports = true, .memory_bytes = memory_bytes(arch)}));
  const Bundle& bundle = lowered.bundle;
  STEPC_TRY(save_bundle(bundle, options.out));
  size_t bytes = 0;
  for (const BundleKernel& kernel : bundle.kernels) bytes += kernel.object.size();
  if (!lowered.reports.empty()) fmt::print("{}\n", kernel_table(bundle.kernels, lowered.reports));
  fmt::print("{}: {} programs, {} kernels, {} bytes of {}\n", options.out, bundle.plans.size(), bundle.kernels.size(),
             bytes,
             !target.gpu     ? "object code"
             : options.cubin ? "cubins"
                             : "PTX");
  if (target.gpu && lowered.reports.empty() && !bundle.kernels.empty())
    fmt::print("not checked for spills: there is no ptxas in PATH, and STEPC_PTXAS is not set\n");
  return check_reports(bundle.kernels, lowered.reports);
}

}  // namespace

void register_compile(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* command = app.add_subcommand("compile", "Compile a graph file or a model to a bundle, or a kernel to code");
  options->source.add_to(*command);
  options->device.add_to(*command);
  options->device.recompute.add_to(*command);
  command->add_option("--arch", options->arch, "Target: " + architectures_text());
  command->add_option("-o,--out", options->out, "Folder to write; of a kernel (.kir) the file, or standard output");
  command->add_flag("--cubin", options->cubin, "Put cubins into the bundle, not PTX; needs ptxas");
  command->add_option("--emit", options->emit, "Of a kernel (.kir): llvm, asm, ptx or cubin");
  command->callback([options, &outcome] { outcome.status = compile(*options); });
}

}  // namespace stepc
