#include "runtime/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "ir/support/file.h"
#include "ir/text/json.h"

namespace stepc {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 1;

std::string state_text(const CheckpointState& state) {
  JsonValue::Array shards;
  for (const ShardRecord& shard : state.shards) {
    JsonValue item;
    item.add("path", shard.path);
    item.add("sha256", shard.sha256);
    shards.push_back(std::move(item));
  }
  JsonValue value;
  value.add("version", kVersion);
  value.add("step", state.step);
  value.add("data_position", state.data_position);
  value.add("shards", JsonValue(std::move(shards)));
  value.add("sequential", state.sequential);
  value.add("config", state.config);
  return json_text(value);
}

Result<CheckpointState> parse_state(const std::string& path) {
  STEPC_ASSIGN(const std::string text, read_file(path));
  STEPC_ASSIGN(const JsonValue value, parse_json(text, path));
  const JsonCursor cursor(value, path);
  STEPC_ASSIGN(const int64_t version, cursor.integer("version"));
  if (version != kVersion) return cursor.error(fmt::format("checkpoint version {}, expected {}", version, kVersion));
  STEPC_TRY(cursor.expect_keys({"version", "step", "data_position", "shards", "sequential", "config"}));
  CheckpointState state;
  STEPC_ASSIGN(state.step, cursor.integer("step", 0));
  STEPC_ASSIGN(state.data_position, cursor.integer("data_position", 0));
  STEPC_ASSIGN(state.config, cursor.string("config"));
  STEPC_ASSIGN(const JsonCursor order, cursor.member("sequential"));
  STEPC_ASSIGN(state.sequential, order.boolean());
  STEPC_ASSIGN(const JsonCursor shards, cursor.member("shards"));
  STEPC_ASSIGN(const auto items, shards.items());
  for (const JsonCursor& item : items) {
    ShardRecord record;
    STEPC_ASSIGN(record.path, item.string("path"));
    STEPC_ASSIGN(record.sha256, item.string("sha256"));
    state.shards.push_back(std::move(record));
  }
  return state;
}

}  // namespace

Result<std::string> save_checkpoint(const std::string& folder, const CheckpointState& state,
                                    const std::vector<TensorStream>& tensors, int64_t keep) {
  const std::string final_path = fmt::format("{}/step-{:08d}", folder, state.step);
  const std::string temporary = fmt::format("{}.tmp-{}", final_path, getpid());
  STEPC_TRY(make_folder(temporary));
  STEPC_TRY(write_safetensors(temporary + "/tensors.safetensors", tensors));
  STEPC_TRY(write_file_atomic(temporary + "/state.json", state_text(state)));
  STEPC_TRY(write_file_atomic(temporary + "/DONE", ""));
  std::error_code error;
  fs::remove_all(final_path, error);  // of an earlier run that ended at the same step
  fs::rename(temporary, final_path, error);
  if (error) return system_error("cannot rename {} to {}: {}", temporary, final_path, error.message());
  const auto complete = list_checkpoints(folder);
  const auto kept = static_cast<size_t>(keep);
  for (size_t i = 0; keep > 0 && i + kept < complete.size(); ++i) fs::remove_all(complete[i], error);
  return final_path;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    const bool numbered = name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (numbered && fs::exists(entry.path() / "DONE", error)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<Checkpoint> load_checkpoint(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path + "/DONE", error)) return user_error("{} is no complete checkpoint: it has no DONE", path);
  STEPC_ASSIGN(CheckpointState state, parse_state(path + "/state.json"));
  STEPC_ASSIGN(SafetensorsFile tensors, SafetensorsFile::open(path + "/tensors.safetensors"));
  return Checkpoint{path, std::move(state), std::move(tensors)};
}

}  // namespace stepc
