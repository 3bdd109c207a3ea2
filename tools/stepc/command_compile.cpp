// stepc compile: a graph file or a model to a bundle on disk.
#include <thread>

#include "ir/plan/bundle_io.h"
#include "tools/stepc/commands.h"
#include "tools/stepc/session.h"
#include "tools/stepc/source.h"

namespace stepc {
namespace {

struct CompileOptions {
  SourceOptions source;
  DeviceOptions device;
  std::string arch = "host";
  std::string out;
};

Status compile(const CompileOptions& options) {
  if (options.arch != "host") return user_error("--arch {}: there are templates for host only", options.arch);
  STEPC_ASSIGN(Module module, options.source.load());
  STEPC_ASSIGN(const Bundle bundle, compile_module(std::move(module), options.device));
  STEPC_TRY(save_bundle(bundle, options.out));
  size_t bytes = 0;
  for (const BundleKernel& kernel : bundle.kernels) bytes += kernel.object.size();
  fmt::print("{}: {} programs, {} kernels, {} bytes of object code\n", options.out, bundle.plans.size(),
             bundle.kernels.size(), bytes);
  return {};
}

}  // namespace

void register_compile(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* command = app.add_subcommand("compile", "Compile a graph file or a model to a bundle");
  options->source.add_to(*command);
  options->device.add_to(*command);
  command->add_option("--arch", options->arch, "Target: host");
  command->add_option("--out", options->out, "Folder to write")->required();
  command->callback([options, &outcome] { outcome.status = compile(*options); });
}

}  // namespace stepc
