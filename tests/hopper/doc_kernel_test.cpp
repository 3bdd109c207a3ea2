// The Hopper kernels of docs/kernels do what their comments say, on small sizes.
#include <fstream>
#include <sstream>

#include "tests/hopper/run_hopper.h"
#include "tests/support/source_dir.h"

namespace stepc {
namespace {

std::string doc_kernel(const std::string& name) {
  std::ifstream file(test::source_dir() + "/docs/kernels/" + name);
  REQUIRE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::vector<std::pair<std::string, std::string>>& edits) {
  for (const auto& [from, to] : edits) {
    REQUIRE_MESSAGE(text.find(from) != std::string::npos, from);
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
      text.replace(at, from.size(), to);
  }
  return text;
}

test::Bytes random_bf16(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  test::Bytes bytes(static_cast<size_t>(count) * 2);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = bf16_from_f32(static_cast<float>(random() % 65536) / 65536.0F - 0.5F);
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

double bf16_at(const test::Bytes& bytes, int64_t i) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes.data() + 2 * i, 2);
  return f32_from_bf16(bits);
}

// 2 experts of [256, 192] x [192, 2 * 256] instead of 8 of [8192, 3072] x [3072, 2 * 4096], by 3 tasks.
TEST_CASE("up_swiglu.sm90.kir: both halves of the product, and silu(gate) * up") {
  const std::string text = replaced(doc_kernel("up_swiglu.sm90.kir"), {{"[8, 8192, 3072]", "[2, 256, 192]"},
                                                                       {"[8, 3072, 8192]", "[2, 192, 512]"},
                                                                       {"[8, 8192, 8192]", "[2, 256, 512]"},
                                                                       {"[8, 8192, 4096]", "[2, 256, 256]"},
                                                                       {"16384", "8"},
                                                                       {"2048", "4"},
                                                                       {" / 32 ", " / 2 "},
                                                                       {" / 32\n", " / 2\n"},
                                                                       {" % 32", " % 2"},
                                                                       {"4096", "256"},
                                                                       {"48", "3"},
                                                                       {"132", "3"}});
  const auto kernel = kernel::parse_kernel(text, "up_swiglu.kir");
  REQUIRE_MESSAGE(kernel.has_value(), kernel.error().text());
  ScheduledKernel scheduled;
  scheduled.kernel = *kernel;
  scheduled.grid = 3;
  constexpr int64_t kExperts = 2, kRows = 256, kDepth = 192, kWidth = 256;
  const test::Bytes x = random_bf16(kExperts * kRows * kDepth, 1);
  const test::Bytes w = random_bf16(kExperts * kDepth * 2 * kWidth, 2);
  const test::Bytes z(kExperts * kRows * 2 * kWidth * 2, std::byte{0xff}), y(kExperts * kRows * kWidth * 2);
  std::vector<test::Bytes> after;
  test::run_on_gpu(scheduled, {test::guarded(x), test::guarded(w), test::guarded(z), test::guarded(y)}, after, 1);
  const auto unguarded = [](const test::Bytes& bytes) { return test::Bytes(bytes.begin() + 256, bytes.end() - 256); };
  const test::Bytes found_z = unguarded(after[2]), found_y = unguarded(after[3]);
  const auto product = [&](int64_t e, int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t k = 0; k < kDepth; ++k)
      sum += bf16_at(x, (e * kRows + row) * kDepth + k) * bf16_at(w, (e * kDepth + k) * 2 * kWidth + column);
    return sum;
  };
  int wrong = 0;
  for (int64_t e = 0; e < kExperts; ++e)
    for (int64_t row = 0; row < kRows; row += 7)
      for (int64_t column = 0; column < kWidth; ++column) {
        const int64_t at = (e * kRows + row) * 2 * kWidth + column;
        const double gate = bf16_at(found_z, at), up = bf16_at(found_z, at + kWidth);
        const double y_found = bf16_at(found_y, (e * kRows + row) * kWidth + column);
        const double y_wanted = gate / (1 + std::exp(-gate)) * up;
        const double gate_wanted = product(e, row, column), up_wanted = product(e, row, column + kWidth);
        wrong += !(std::abs(gate - gate_wanted) <= std::abs(gate_wanted) / 256 + 1e-5);
        wrong += !(std::abs(up - up_wanted) <= std::abs(up_wanted) / 256 + 1e-5);
        wrong += !(std::abs(y_found - y_wanted) <= std::abs(y_wanted) / 128 + 1e-6);
      }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace stepc
