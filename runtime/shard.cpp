#include "runtime/shard.h"

#include <array>
#include <cstring>

#include "ir/support/hash.h"
#include "runtime/streamed_file.h"

namespace stepc {
namespace {

constexpr size_t kHeaderBytes = 24;
constexpr size_t kLlmcHeaderBytes = 1024;
constexpr uint32_t kLlmcMagic = 20240520;

template <class T>
T read_at(std::span<const char> bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Header {
  size_t bytes;
  uint64_t count;
};

Result<Header> read_header(std::span<const char> bytes, const std::string& path) {
  if (bytes.size() >= kHeaderBytes && std::memcmp(bytes.data(), "TOK1", 4) == 0) {
    const auto version = read_at<uint32_t>(bytes, 4);
    const auto dtype = read_at<uint32_t>(bytes, 8);
    if (version != 1) return user_error("{}: TOK1 version {}, expected 1", path, version);
    if (dtype != 1) return user_error("{}: TOK1 dtype {}, expected 1 (u16)", path, dtype);
    return Header{kHeaderBytes, read_at<uint64_t>(bytes, 16)};
  }
  if (bytes.size() >= kLlmcHeaderBytes && read_at<uint32_t>(bytes, 0) == kLlmcMagic) {
    const auto version = read_at<uint32_t>(bytes, 4);
    if (version != 1) return user_error("{}: llm.c shard version {}, expected 1", path, version);
    return Header{kLlmcHeaderBytes, read_at<uint32_t>(bytes, 8)};
  }
  return user_error("{}: not a token shard (neither TOK1 nor llm.c magic {} at its start)", path, kLlmcMagic);
}

}  // namespace

Result<Shard> Shard::open(const std::string& path, int64_t vocab) {
  STEPC_ASSIGN(MappedFile file, MappedFile::open(path));
  const auto bytes = file.bytes();
  STEPC_ASSIGN(const Header header, read_header(bytes, path));
  const size_t payload = bytes.size() - header.bytes;
  if (payload % 2 != 0 || payload / 2 != header.count)
    return user_error("{}: the header promises {} tokens ({} bytes after it), but {} bytes follow", path, header.count,
                      header.count * 2, payload);
  const std::span tokens(reinterpret_cast<const uint16_t*>(bytes.data() + header.bytes), payload / 2);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] >= vocab)
      return user_error("{}: token {} has id {}, but the vocabulary has {} entries", path, i, tokens[i], vocab);
  return Shard(std::move(file), tokens);
}

std::string Shard::hash() const { return content_hash({file_.bytes().data(), file_.bytes().size()}); }

Status write_shard(const std::string& path, std::span<const uint16_t> tokens) {
  std::array<char, kHeaderBytes> header = {'T', 'O', 'K', '1'};
  const uint32_t version = 1, dtype = 1;
  const uint64_t count = tokens.size();
  std::memcpy(header.data() + 4, &version, 4);
  std::memcpy(header.data() + 8, &dtype, 4);
  std::memcpy(header.data() + 16, &count, 8);
  STEPC_ASSIGN(StreamedFile file, StreamedFile::create(path));
  STEPC_TRY(file.write({header.data(), header.size()}));
  STEPC_TRY(file.write({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()}));
  return file.commit();
}

SplitTokens split_bytes(std::string_view text, int64_t block_bytes, int64_t held_out_every) {
  SplitTokens split;
  for (size_t i = 0; i < text.size(); ++i) {
    const int64_t block = static_cast<int64_t>(i) / block_bytes;
    auto& side = (block + 1) % held_out_every == 0 ? split.held_out : split.train;
    side.push_back(static_cast<unsigned char>(text[i]));
  }
  return split;
}

}  // namespace stepc
