#include "compiler/ptxas/ptxas.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "ir/support/process.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace stepc {
namespace {

// Writes the thread's number to where the parameter points; `body` comes first.
std::string kernel_ptx(const std::string& body = "") {
  return ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
         ".reg .b64 %rd<4>;\n.reg .b32 %r<4>;\n" +
         body + "ld.param.u64 %rd1,[p];\nmov.u32 %r1, %tid.x;\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
}

TEST_CASE("a report of ptxas is read in full") {
  const PtxasReport report = parse_ptxas_report(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 16 barriers, 64 bytes smem, 400 bytes cmem[0]\n"
      "ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill stores\n");
  CHECK(report.registers == 168);
  CHECK(report.stack_bytes == 16);
  CHECK(report.spill_load_bytes == 12);
  CHECK(report.shared_bytes == 64);
  CHECK(report.uses_local_memory());
  REQUIRE(report.remarks.size() == 2);
  CHECK(report.remarks[0].find("(C7510)") != std::string::npos);
  CHECK_FALSE(
      parse_ptxas_report("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n").uses_local_memory());
}

TEST_CASE("a program's output and end come back") {
  const ProcessResult result = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"}).value();
  CHECK(result.exit_code == 3);
  CHECK(result.output == "out\nerr\n");
  CHECK(run_process({"sh", "-c", "kill -9 $$"}).value().exit_code == 137);
  CHECK(run_process({"stepc-no-such-program"}).error().text() ==
        "cannot run stepc-no-such-program: No such file or directory");
}

TEST_CASE("STEPC_PTXAS chooses the assembler, and must name one") {
  const char* const before = std::getenv("STEPC_PTXAS");
  const std::string saved = before ? before : "";
  ::setenv("STEPC_PTXAS", "/bin/false", 1);
  CHECK(find_ptxas().error().text() == "STEPC_PTXAS=/bin/false: that is no ptxas that can be run");
  if (before)
    ::setenv("STEPC_PTXAS", saved.c_str(), 1);
  else
    ::unsetenv("STEPC_PTXAS");
}

TEST_CASE("PTX is assembled once, and then found in the cache") {
  const auto ptxas = find_ptxas().value();
  if (!ptxas) return test::skip("ptxas", "not installed");
  const test::TempDir folder;
  const Cubin first = assemble(*ptxas, kernel_ptx(), "sm_90a", "k", folder.path()).value();
  CHECK(first.code.starts_with("\177ELF"));
  CHECK(first.report.registers > 0);
  CHECK_FALSE(first.report.uses_local_memory());
  // Another program under the same version: only the cache can answer.
  const Cubin second = assemble({"/bin/false", ptxas->version}, kernel_ptx(), "sm_90a", "k", folder.path()).value();
  CHECK(second.code == first.code);
  CHECK(second.report.registers == first.report.registers);
  CHECK_FALSE(assemble({"/bin/false", "another"}, kernel_ptx(), "sm_90a", "k", folder.path()).has_value());
  CHECK_FALSE(assemble({"/bin/false", ptxas->version}, kernel_ptx(), "sm_80", "k", folder.path()).has_value());
}

TEST_CASE("local memory and bad PTX are told") {
  const auto ptxas = find_ptxas().value();
  if (!ptxas) return test::skip("ptxas", "not installed");
  const std::string local =
      ".local .align 4 .b8 l[64];\n.reg .b64 %rl<3>;\nmov.u64 %rl1, l;\nmov.u32 %r2, %ctaid.x;\n"
      "cvt.u64.u32 %rl2, %r2;\nadd.u64 %rl1, %rl1, %rl2;\nst.local.u32 [%rl1], %r2;\n"
      "ld.local.u32 %r3, [%rl1+4];\nld.param.u64 %rd2,[p];\nst.global.u32 [%rd2+8], %r3;\n";
  CHECK(assemble(*ptxas, kernel_ptx(local), "sm_80", "k").value().report.uses_local_memory());
  const auto bad = assemble(*ptxas, kernel_ptx("foo %r1;\n"), "sm_80", "k_1");
  REQUIRE_FALSE(bad.has_value());
  CHECK(bad.error().text().find("kernel k_1: ") == 0);
  CHECK(bad.error().text().find("line 8; error   : Not a name of any known instruction: 'foo'") != std::string::npos);
}

}  // namespace
}  // namespace stepc
