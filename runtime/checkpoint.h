// Checkpoints: run/checkpoints/step-00001000/ with tensors.safetensors (every persistent tensor by name),
// state.json and, written last, DONE. The folder is filled under a temporary name and renamed, so one that
// can be seen is complete unless the disk lost it; without DONE it is not used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/safetensors.h"

namespace stepc {

struct ShardRecord {
  std::string path;
  std::string sha256;
  bool operator==(const ShardRecord&) const = default;
};

struct CheckpointState {
  int64_t step = 0;           // updates done
  int64_t data_position = 0;  // windows consumed (windows.h)
  std::string config;         // the configuration as JSON text
  std::vector<ShardRecord> shards;
  bool sequential = false;  // windows in the shard's order (windows.h)
};

struct Checkpoint {
  std::string path;
  CheckpointState state;
  SafetensorsFile tensors;
};

// Writes the checkpoint of `state.step` below `folder`, then deletes the oldest complete ones beyond
// `keep` (0: keep all). Returns its path.
Result<std::string> save_checkpoint(const std::string& folder, const CheckpointState& state,
                                    const std::vector<TensorStream>& tensors, int64_t keep);

// Complete checkpoints below `folder`, oldest first. A missing folder has none.
std::vector<std::string> list_checkpoints(const std::string& folder);

// Reads one checkpoint folder, everything verified.
Result<Checkpoint> load_checkpoint(const std::string& path);

}  // namespace stepc
