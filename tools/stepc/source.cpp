#include "tools/stepc/source.h"

#include <fmt/ranges.h>

#include "compiler/graph/autodiff.h"
#include "ir/graph/parse.h"
#include "ir/support/file.h"
#include "ir/text/names.h"
#include "model/programs.h"

namespace stepc {

void ConfigOptions::add_to(CLI::App& command) {
  command.add_option("--preset", preset, "Model and training numbers to start from: tiny, small, moe-4b, narrow");
  command.add_option("--config", config_file, "JSON file of numbers that replace the preset's");
  command.add_option("--set", settings, "key=value that replaces one number; may be repeated");
}

Result<Config> ConfigOptions::resolve(std::optional<Config> base) const {
  STEPC_ASSIGN(Config config,
               preset.empty() && base ? Result<Config>(*base) : preset_config(preset.empty() ? "tiny" : preset));
  if (!config_file.empty()) {
    STEPC_ASSIGN(const std::string text, read_file(config_file));
    STEPC_ASSIGN(config, parse_config(text, config_file, config));
  }
  for (const std::string& setting : settings) STEPC_TRY(override_config(config, setting));
  STEPC_TRY(validate(config));
  return config;
}

void SourceOptions::add_to(CLI::App& command) {
  command.add_option("graph", graph_file, "Graph IR file; without it the model of the configuration");
  config.add_to(command);
}

Result<Module> SourceOptions::load() const {
  if (graph_file.empty()) {
    STEPC_ASSIGN(const Config resolved, config.resolve());
    return build_model(resolved);
  }
  if (config.given()) return user_error("give either a graph file or a configuration, not both");
  STEPC_ASSIGN(const std::string text, read_file(graph_file));
  return parse_module(text, graph_file);
}

Status keep_program(Module& module, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Program& program : module.programs) names.push_back(program.name);
  if (!module.find_program(name))
    return user_error("no program '{}'{}; the module has {}", name, did_you_mean(name, names), fmt::join(names, ", "));
  std::erase_if(module.programs, [&](const Program& program) { return program.name != name; });
  return {};
}

Module build_model(const Config& config, bool tells_choices) {
  return build_module(config, differentiate, tells_choices);
}

Module build_gradients(const Config& config) { return build_gradient_module(config, differentiate); }

}  // namespace stepc
