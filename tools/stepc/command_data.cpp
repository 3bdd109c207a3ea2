// stepc data: text -> token shards.
#include <filesystem>

#include "ir/support/file.h"
#include "runtime/shard.h"
#include "tools/stepc/commands.h"

namespace stepc {
namespace {

struct DataOptions {
  std::string text_file;
  std::string train;
  std::string held_out;
  int64_t block_bytes = 16384;
  int64_t held_out_every = 20;
};

Status make_shards(const DataOptions& options) {
  STEPC_ASSIGN(const std::string text, read_file(options.text_file));
  if (text.empty()) return user_error("{}: the file is empty", options.text_file);
  const SplitTokens split = options.held_out.empty() ? split_bytes(text, static_cast<int64_t>(text.size()) + 1, 2)
                                                     : split_bytes(text, options.block_bytes, options.held_out_every);
  if (!options.held_out.empty() && split.held_out.empty())
    return user_error("{}: {} bytes are too few to hold out every {}th block of {}", options.text_file, text.size(),
                      options.held_out_every, options.block_bytes);
  STEPC_TRY(write_shard(options.train, split.train));
  fmt::print("{}: {} tokens, one a byte\n", options.train, split.train.size());
  if (options.held_out.empty()) return {};
  STEPC_TRY(write_shard(options.held_out, split.held_out));
  fmt::print("{}: {} tokens (every {}th block of {} bytes)\n", options.held_out, split.held_out.size(),
             options.held_out_every, options.block_bytes);
  return {};
}

}  // namespace

void register_data(CLI::App& app, Outcome& outcome) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* command = app.add_subcommand("data", "Turn text into token shards, one token a byte");
  command->add_option("text", options->text_file, "Text file")->required();
  command->add_option("--train", options->train, "Shard to write")->required();
  command->add_option("--held-out", options->held_out, "Shard of held-out blocks to write");
  command->add_option("--block-bytes", options->block_bytes, "Size of the blocks that are held out")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--held-out-every", options->held_out_every, "Hold out every n-th block")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 40));
  command->callback([options, &outcome] { outcome.status = make_shards(*options); });
}

}  // namespace stepc
