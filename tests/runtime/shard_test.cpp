#include "runtime/shard.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "ir/support/file.h"
#include "runtime/windows.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

std::vector<uint16_t> counting(int n) {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<uint16_t>(i));
  return tokens;
}

}  // namespace

TEST_CASE("shard: written and read back") {
  test::TempDir folder;
  const auto tokens = counting(1000);
  REQUIRE(write_shard(folder.file("a.tok"), tokens));
  const auto shard = Shard::open(folder.file("a.tok"), 1000);
  REQUIRE(shard);
  CHECK(std::vector(shard->tokens().begin(), shard->tokens().end()) == tokens);
  CHECK(shard->hash().size() == 64);
}

TEST_CASE("shard: llm.c's form is read too") {
  test::TempDir folder;
  std::string bytes(1024 + 6, '\0');
  const uint32_t head[3] = {20240520, 1, 3};
  std::memcpy(bytes.data(), head, sizeof head);
  bytes[1024] = 5;
  REQUIRE(write_file_atomic(folder.file("a.bin"), bytes));
  const auto shard = Shard::open(folder.file("a.bin"), 6);
  REQUIRE(shard);
  CHECK(shard->count() == 3);
  CHECK(shard->tokens()[0] == 5);
}

TEST_CASE("shard: errors name the file, what was found and what was expected") {
  test::TempDir folder;
  const std::string path = folder.file("a.tok");
  const auto message = [&](const std::string& bytes, int64_t vocab) {
    REQUIRE(write_file_atomic(path, bytes));
    const auto shard = Shard::open(path, vocab);
    REQUIRE(!shard);
    CHECK(shard.error().exit_code() == 2);
    return shard.error().text();
  };
  REQUIRE(write_shard(path, counting(300)));
  const std::string good = *read_file(path);
  CHECK(message(good, 256) == path + ": token 256 has id 256, but the vocabulary has 256 entries");
  CHECK(message(good.substr(0, good.size() - 1), 300) ==
        path + ": the header promises 300 tokens (600 bytes after it), but 599 bytes follow");
  CHECK(message(good + "xx", 300) ==
        path + ": the header promises 300 tokens (600 bytes after it), but 602 bytes follow");
  std::string version = good;
  version[4] = 9;
  CHECK(message(version, 300) == path + ": TOK1 version 9, expected 1");
  CHECK(message("", 300) == path + ": not a token shard (neither TOK1 nor llm.c magic 20240520 at its start)");
  CHECK(!Shard::open(folder.file("missing.tok"), 10));
}

TEST_CASE("windows: sequential order wraps, targets are one later") {
  test::TempDir folder;
  REQUIRE(write_shard(folder.file("a.tok"), counting(14)));
  const auto shard = Shard::open(folder.file("a.tok"), 256);
  auto windows = Windows::create(*shard, 4, Windows::Order::sequential, 0);
  REQUIRE(windows);
  CHECK(windows->count() == 3);
  std::vector<int32_t> tokens(8), targets(8);
  windows->fill(2, 2, tokens, targets);
  CHECK(tokens == std::vector<int32_t>{8, 9, 10, 11, 0, 1, 2, 3});
  CHECK(targets == std::vector<int32_t>{9, 10, 11, 12, 1, 2, 3, 4});
}

TEST_CASE("windows: each shuffled epoch visits every window once, in an order of its own") {
  test::TempDir folder;
  REQUIRE(write_shard(folder.file("a.tok"), counting(101)));
  const auto shard = Shard::open(folder.file("a.tok"), 256);
  auto windows = Windows::create(*shard, 1, Windows::Order::shuffled, 3);
  const auto epoch = [&](int64_t number) {
    std::vector<int32_t> tokens(100), targets(100);
    windows->fill(number * 100, 100, tokens, targets);
    return tokens;
  };
  const auto first = epoch(0), second = epoch(1);
  CHECK(std::set<int32_t>(first.begin(), first.end()).size() == 100);
  CHECK(std::set<int32_t>(second.begin(), second.end()).size() == 100);
  CHECK(first != second);
  CHECK(first == epoch(0));  // a position alone decides
}

TEST_CASE("windows: a shard too short for one window is an error, not a huge count") {
  test::TempDir folder;
  REQUIRE(write_shard(folder.file("a.tok"), counting(4)));
  const auto shard = Shard::open(folder.file("a.tok"), 256);
  const auto windows = Windows::create(*shard, 4, Windows::Order::sequential, 0);
  REQUIRE(!windows);
  CHECK(windows.error().text() ==
        folder.file("a.tok") + ": 4 tokens are too few for one window of 4 and its last target");
}

TEST_CASE("split_bytes: every n-th block is held out, nothing is lost") {
  const SplitTokens split = split_bytes("aabbccddee", 2, 2);
  CHECK(split.train == std::vector<uint16_t>{'a', 'a', 'c', 'c', 'e', 'e'});
  CHECK(split.held_out == std::vector<uint16_t>{'b', 'b', 'd', 'd'});
}

}  // namespace stepc
