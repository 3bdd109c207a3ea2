#include "tests/emulator/pipeline.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

namespace stepc::emulator {

size_t PtxText::find(const std::string& tag, size_t* begin) const {
  const size_t mark = text_.find("//@" + tag + "\n");
  REQUIRE_MESSAGE(mark != std::string::npos, "no line is tagged " << tag);
  *begin = text_.rfind('\n', mark) + 1;
  return mark + tag.size() + 3;  // the line's end, before its newline
}

PtxText& PtxText::replace(const std::string& tag, const std::string& line) {
  size_t begin = 0;
  const size_t end = find(tag, &begin);
  text_.replace(begin, end - begin, line);
  return *this;
}

PtxText& PtxText::change(const std::string& tag, const std::string& from, const std::string& to) {
  size_t begin = 0;
  const size_t end = find(tag, &begin);
  std::string line = text_.substr(begin, end - begin);
  REQUIRE(line.find(from) != std::string::npos);
  for (size_t at = 0; (at = line.find(from, at)) != std::string::npos; at += to.size())
    line.replace(at, from.size(), to);
  text_.replace(begin, end - begin, line);
  return *this;
}

PtxText& PtxText::move_after(const std::string& tag, const std::string& other) {
  size_t begin = 0;
  size_t end = find(tag, &begin);
  const std::string line = text_.substr(begin, end - begin);
  replace(tag, "");
  end = find(other, &begin);
  text_.insert(end, "\n" + line);
  return *this;
}

int PtxText::line_of(const std::string& tag) const {
  size_t begin = 0;
  find(tag, &begin);
  return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
}

namespace {

constexpr const char* kHead = R"(.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 tiles[];
.visible .entry product(
  .param .u32 product_param_0,
  .param .align 64 .b8 product_param_1[128],
  .param .align 64 .b8 product_param_2[128],
  .param .align 64 .b8 product_param_3[128]
)
.maxntid 160, 1, 1
{
  .reg .pred %p<16>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<32>;
  .reg .f32 %f<32>;
  mov.u32 %r1, tiles;
  mov.u32 %r2, %tid.x;
  shr.u32 %r3, %r2, 5;
  and.b32 %r4, %r2, 31;
  mov.u32 %r20, 0;
  ld.param.u32 %r5, [product_param_0];
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra $SET_UP;
  mbarrier.init.shared::cta.b64 [%r1+40960], 1; //@init
  mbarrier.init.shared::cta.b64 [%r1+40968], 1;
  mbarrier.init.shared::cta.b64 [%r1+40976], 4;
  mbarrier.init.shared::cta.b64 [%r1+40984], 4;
  fence.mbarrier_init.release.cluster; //@init_fence
$SET_UP:
  bar.sync 0; //@init_barrier
  setp.lt.u32 %p2, %r3, 4;
  @%p2 bra $CONSUMER;
)";

constexpr const char* kProducer = R"(
  setp.ne.u32 %p3, %r2, 128;
  @%p3 bra $EXIT;
  mov.b64 %rd1, product_param_1;
  cvta.param.u64 %rd1, %rd1;
  mov.b64 %rd2, product_param_2;
  cvta.param.u64 %rd2, %rd2;
  mov.u32 %r6, 0;
$LOAD:
  setp.ge.u32 %p4, %r6, %r5;
  @%p4 bra $EXIT;
  and.b32 %r7, %r6, 1;
  shr.u32 %r8, %r6, 1;
  add.u32 %r8, %r8, 1;
  and.b32 %r8, %r8, 1;
  shl.b32 %r9, %r7, 3;
  add.u32 %r9, %r9, %r1;
$WAIT_EMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r9+40976], %r8; //@wait_empty
  @!%p5 bra $WAIT_EMPTY; //@wait_empty_loop
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9+40960], 16384; //@expect
  shl.b32 %r10, %r7, 13;
  add.u32 %r10, %r10, %r1;
  add.u32 %r11, %r10, 16384;
  add.u32 %r12, %r9, 40960;
  shl.b32 %r13, %r6, 6;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1, {%r13, %r20}], [%r12]; //@load_a
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd2, {%r13, %r20}], [%r12]; //@load_b
  add.u32 %r6, %r6, 1;
  bra $LOAD;
)";

constexpr const char* kConsumerHead = R"(
$CONSUMER:
  mov.u32 %r6, 0;
$MULTIPLY:
  setp.ge.u32 %p4, %r6, %r5;
  @%p4 bra $STORE;
  and.b32 %r7, %r6, 1;
  shr.u32 %r8, %r6, 1;
  and.b32 %r8, %r8, 1;
  shl.b32 %r9, %r7, 3;
  add.u32 %r9, %r9, %r1;
$WAIT_FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r9+40960], %r8; //@wait_full
  @!%p5 bra $WAIT_FULL; //@wait_full_loop
  shl.b32 %r10, %r7, 13;
  add.u32 %r10, %r10, %r1;
  shr.u32 %r11, %r10, 4;
  cvt.u64.u32 %rd3, %r11;
  or.b64 %rd4, %rd3, 0x4000004000010000; //@descriptor_a
  add.u64 %rd5, %rd4, 1024; //@descriptor_b
  setp.ne.u32 %p6, %r6, 0;
  wgmma.fence.sync.aligned; //@wgmma_fence
)";

constexpr const char* kConsumerTail = R"(
  wgmma.commit_group.sync.aligned; //@commit
  wgmma.wait_group.sync.aligned 0; //@wgmma_wait
  setp.ne.u32 %p7, %r4, 0;
  @%p7 bra $RELEASED;
  mbarrier.arrive.shared::cta.b64 _, [%r9+40976]; //@arrive
$RELEASED:
  add.u32 %r6, %r6, 1;
  bra $MULTIPLY;
$STORE:
  shr.u32 %r10, %r4, 3;
  and.b32 %r11, %r4, 7;
  and.b32 %r12, %r10, 1;
  shl.b32 %r12, %r12, 3;
  add.u32 %r12, %r12, %r11;
  shr.u32 %r13, %r10, 1;
  shl.b32 %r14, %r3, 11;
  shl.b32 %r15, %r12, 7;
  add.u32 %r14, %r14, %r15;
  add.u32 %r14, %r14, %r1;
)";

constexpr const char* kEnd = R"(
  fence.proxy.async.shared::cta; //@proxy_fence
  bar.sync 1, 128; //@store_barrier
  setp.ne.u32 %p8, %r2, 0;
  @%p8 bra $EXIT;
  mov.b64 %rd6, product_param_3;
  cvta.param.u64 %rd6, %rd6;
  add.u32 %r16, %r1, 32768;
  cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd6, {%r20, %r20}], [%r16]; //@store_c
  cp.async.bulk.commit_group; //@bulk_commit
  cp.async.bulk.wait_group 0; //@bulk_wait
$EXIT:
  ret;
}
)";

std::string accumulators() {
  std::string list;
  for (int r = 0; r < 32; ++r) list += fmt::format("{}%f{}", r == 0 ? "" : ", ", r);
  return list;
}

// Four products 16 deep; the first of all starts the sums.
std::string products() {
  std::string text;
  for (int step = 0; step < 4; ++step) {
    text += fmt::format("  add.u64 %rd{}, %rd4, {};\n  add.u64 %rd{}, %rd5, {};\n", 8 + step, 2 * step, 12 + step,
                        2 * step);
    text += fmt::format(
        "  wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {{{}}}, %rd{}, %rd{}, {}, 1, 1, 0, 0; //@product{}\n",
        accumulators(), 8 + step, 12 + step, step == 0 ? "%p6" : "%p9", step);
  }
  return "  setp.eq.u32 %p9, %r20, 0;\n" + text;
}

// 16 rows of each warp as bf16, 16 columns at a time, in tiles swizzled by 128 bytes.
std::string stores() {
  std::string text;
  for (int j = 0; j < 4; ++j) {
    for (int q = 0; q < 4; ++q)
      text += fmt::format("  cvt.rn.bf16x2.f32 %r{}, %f{}, %f{};\n", 30 + q, 8 * j + 2 * q + 1, 8 * j + 2 * q);
    text += fmt::format("  add.u32 %r40, %r13, {};\n  xor.b32 %r40, %r40, %r11;\n", 2 * j);
    text += "  shl.b32 %r40, %r40, 4;\n  add.u32 %r41, %r14, %r40;\n";
    text += fmt::format(
        "  stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r41+32768], {{%r30, %r31, %r32, %r33}}; //@stmatrix{}\n", j);
  }
  return text;
}

}  // namespace

PtxText product_kernel() {
  return PtxText(std::string(kHead) + kProducer + kConsumerHead + products() + kConsumerTail + stores() + kEnd);
}

}  // namespace stepc::emulator
