#include <doctest/doctest.h>

#include "ir/kernel/op_docs.h"
#include "ir/support/file.h"
#include "tests/support/golden.h"

namespace stepc::kernel {
namespace {

TEST_CASE("docs/kernel_ops.md is what the op table says") {
  const std::string path = STEPC_SOURCE_DIR "/docs/kernel_ops.md";
  if (test::updates_golden()) REQUIRE(write_file_atomic(path, op_table_markdown()).has_value());
  const Result<std::string> file = read_file(path);
  REQUIRE_MESSAGE(file.has_value(), file.error().text());
  CHECK_MESSAGE(*file == op_table_markdown(), "docs/kernel_ops.md is stale: STEPC_UPDATE=1 rewrites it");
}

}  // namespace
}  // namespace stepc::kernel
