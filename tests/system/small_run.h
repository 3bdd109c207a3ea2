// A training run that takes a moment: a shard of made-up sentences and a model of a few thousand parameters.
#pragma once

#include <fmt/format.h>

#include "tests/system/command.h"

namespace stepc::test {

// Sentences of few words: a model soon does better on them than chance.
inline std::string made_up_text(int sentences) {
  constexpr const char* kWords[] = {"the ", "stone ", "and ", "river ", "saw ", "a ", "bird ", "of "};
  std::string text;
  uint32_t state = 7;
  for (int i = 0; i < 6 * sentences; ++i) {
    state = state * 1664525u + 1013904223u;
    text += kWords[state >> 29];
    if (i % 6 == 5) text.back() = '\n';
  }
  return text;
}

inline void make_shards(const TempDir& folder, int sentences = 400) {
  write_text(folder.file("text"), made_up_text(sentences));
  run_stepc_well({"data", folder.file("text"), "--train", folder.file("train.tok"), "--held-out",
                  folder.file("held.tok"), "--block-bytes", "256"});
}

// `stepc train` of the small model on train.tok, unless another --data comes first among `more`.
inline std::vector<std::string> train_arguments(const TempDir& folder, const std::string& run,
                                                const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"train", "--run", folder.file(run)};
  if (more.empty() || more[0] != "--data") arguments.insert(arguments.end(), {"--data", folder.file("train.tok")});
  for (const char* setting : {"vocab=128", "vocab_padded=128", "dim=16", "heads=2", "head_dim=8", "layers=1", "ffn=24",
                              "seq=16", "batch=4", "steps=20", "warmup=5", "lr=1e-2"}) {
    arguments.emplace_back("--set");
    arguments.emplace_back(setting);
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

inline std::string checkpoint_of(const TempDir& folder, const std::string& run, int step) {
  return folder.file(fmt::format("{}/checkpoints/step-{:08d}", run, step));
}

inline std::string tensors_of(const TempDir& folder, const std::string& run, int step) {
  return text_of(checkpoint_of(folder, run, step) + "/tensors.safetensors");
}

}  // namespace stepc::test
