// Token shards: files of token ids. Two forms are read, told apart by their first bytes:
//   TOK1   24-byte little-endian header: "TOK1", u32 version 1, u32 dtype 1 (u16), u32 0, u64 count
//   llm.c  1024-byte header of int32: 20240520, version 1, count, zeros
// then `count` u16 ids to the end of the file. TOK1 is what we write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/support/result.h"
#include "runtime/mapped_file.h"

namespace stepc {

class Shard {
 public:
  // Every id is checked against `vocab`; the error names the first position that is out of range.
  static Result<Shard> open(const std::string& path, int64_t vocab);

  std::span<const uint16_t> tokens() const { return tokens_; }
  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& path() const { return file_.path(); }
  // SHA-256 of the file, for checkpoints.
  std::string hash() const;

 private:
  Shard(MappedFile file, std::span<const uint16_t> tokens) : file_(std::move(file)), tokens_(tokens) {}

  MappedFile file_;
  std::span<const uint16_t> tokens_;
};

Status write_shard(const std::string& path, std::span<const uint16_t> tokens);

// Text as bytes, one token a byte. Every `held_out_every`-th block of `block_bytes` goes to the second list.
struct SplitTokens {
  std::vector<uint16_t> train;
  std::vector<uint16_t> held_out;
};
SplitTokens split_bytes(std::string_view text, int64_t block_bytes, int64_t held_out_every);

}  // namespace stepc
