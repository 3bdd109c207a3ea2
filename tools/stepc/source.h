// What a command works on: a model configuration (preset, JSON file, key=value) or a graph file.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph/graph.h"
#include "model/config.h"

namespace stepc {

struct ConfigOptions {
  std::string preset;
  std::string config_file;
  std::vector<std::string> settings;  // key=value

  void add_to(CLI::App& command);
  bool given() const { return !preset.empty() || !config_file.empty() || !settings.empty(); }
  // Starts from `base`, or from preset tiny. Validated.
  Result<Config> resolve(std::optional<Config> base = std::nullopt) const;
};

struct SourceOptions {
  std::string graph_file;
  ConfigOptions config;

  void add_to(CLI::App& command);
  // The module of the graph file, or the model that the configuration describes.
  Result<Module> load() const;
};

// Leaves the program `name` alone in the module. The error lists what there is.
Status keep_program(Module& module, std::string_view name);

// The model with its training programs.
Module build_model(const Config& config, bool tells_choices = false);
// The parameters, and the program that gives their gradients.
Module build_gradients(const Config& config);

}  // namespace stepc
