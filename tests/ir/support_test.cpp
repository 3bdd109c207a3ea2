#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>

#include "ir/support/cache.h"
#include "ir/support/checked.h"
#include "ir/support/file.h"
#include "ir/support/hash.h"
#include "ir/support/thread_pool.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

TEST_CASE("SHA-256 of the standard's examples, whole and in pieces") {
  CHECK(content_hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(content_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
  CHECK(content_hash(two_blocks) == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(content_hash(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (size_t cut : {1, 55, 56, 63, 64, 65, 119}) {
    const std::string text(131, 'x');
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    CHECK(hash.hex() == content_hash(text));
  }
}

TEST_CASE("checked arithmetic notices overflow") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  CHECK(checked_add(kMax - 1, 1) == kMax);
  CHECK_FALSE(checked_add(kMax, 1).has_value());
  CHECK(checked_mul(int64_t{1} << 31, int64_t{1} << 31) == int64_t{1} << 62);
  CHECK_FALSE(checked_mul(int64_t{1} << 32, int64_t{1} << 31).has_value());
  CHECK(saturating_mul(kMax, 3) == kMax);
  CHECK(saturating_add(kMax, 3) == kMax);
  CHECK(checked_align_up(0, 256) == 0);
  CHECK(checked_align_up(1, 256) == 256);
  CHECK(checked_align_up(256, 256) == 256);
  CHECK_FALSE(checked_align_up(kMax - 3, 256).has_value());
}

TEST_CASE("files are written whole, replace the old one and leave no temporary") {
  test::TempDir folder;
  const std::string path = folder.path() + "/a/b/file";
  REQUIRE(make_folder(folder.path() + "/a/b").has_value());
  REQUIRE(make_folder(folder.path() + "/a/b").has_value());
  for (size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{200003}}) {
    std::string bytes(size, 'q');
    if (size > 1) bytes[size / 2] = '\0';
    REQUIRE(write_file_atomic(path, bytes).has_value());
    CHECK(read_file(path).value() == bytes);
  }
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path() + "/a/b")) ++entries;
  CHECK(entries == 1);
}

TEST_CASE("file errors name the path and the reason, and a failed write leaves the old file") {
  test::TempDir folder;
  const std::string missing = folder.path() + "/missing/file";
  const auto read = read_file(missing);
  REQUIRE_FALSE(read.has_value());
  CHECK(read.error().text() == "cannot read '" + missing + "': No such file or directory");
  CHECK(read.error().exit_code() == 2);  // the path is the user's
  const auto written = write_file_atomic(missing, "x");
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().exit_code() == 1);
  CHECK(written.error().text() == "cannot write '" + missing + "': No such file or directory");
  // A folder stands where the file should go: the rename fails and the temporary goes away.
  REQUIRE(make_folder(folder.path() + "/taken/inside").has_value());
  CHECK_FALSE(write_file_atomic(folder.path() + "/taken", "x").has_value());
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  CHECK(entries == 1);
}

TEST_CASE("the cache finds what was stored and refuses what was damaged") {
  test::TempDir folder;
  const CacheStore cache(folder.path() + "/kernels");
  CHECK_FALSE(cache.find("key").has_value());
  const std::string bytes("kernel\0\n code", 13);
  REQUIRE(cache.store("key", bytes).has_value());
  REQUIRE(cache.store("empty", "").has_value());
  CHECK(cache.find("key") == bytes);
  CHECK(cache.find("empty") == "");
  CHECK_FALSE(cache.find("other").has_value());

  const std::string path = cache.path_of("key");
  const std::string whole = read_file(path).value();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 1;
    REQUIRE(write_file_atomic(path, damaged, Durability::unsynced).has_value());
    CHECK_FALSE(cache.find("key").has_value());
    CHECK_FALSE(std::filesystem::exists(path));
  }
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole + "x", std::string()}) {
    REQUIRE(write_file_atomic(path, damaged, Durability::unsynced).has_value());
    CHECK_FALSE(cache.find("key").has_value());
  }
  // An intact entry under another key's name is no hit either.
  REQUIRE(write_file_atomic(cache.path_of("other"), whole).has_value());
  CHECK_FALSE(cache.find("other").has_value());
}

TEST_CASE("a parallel loop runs each task once, for any count and number of threads") {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (int64_t count : {0, 1, 2, 3, 17, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      std::atomic<int> bad_threads{0};
      pool.parallel_for(count, [&](int64_t i, int thread) {
        runs[static_cast<size_t>(i)].fetch_add(1);
        if (thread < 0 || thread >= threads) bad_threads.fetch_add(1);
      });
      CHECK(bad_threads.load() == 0);
      for (const std::atomic<int>& run : runs) CHECK(run.load() == 1);
    }
  }
}

TEST_CASE("many short loops in a row, with and without pauses that let workers sleep") {
  ThreadPool pool(3);
  int64_t total = 0;
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int64_t> sum{0};
    const int64_t count = 1 + round % 5;
    pool.parallel_for(count, [&](int64_t i) { sum.fetch_add(i + round); });
    total += sum.load() - count * (count - 1) / 2 - count * round;
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(total == 0);
}

}  // namespace
}  // namespace stepc
