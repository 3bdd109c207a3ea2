// The kernels of host_kernels.h as PTX, written by hand, for tests of devices without a compiler.
#pragma once

#include "runtime/device.h"

namespace stepc {

// c[i] = a[i] + b[i]; scalars: count, elements of a task; a thread an element.
inline constexpr const char* kAddPtx = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry add(.param .u64 p_a, .param .u64 p_b, .param .u64 p_c, .param .s64 p_count, .param .s64 p_step)
{
  .reg .pred %p<2>;
  .reg .b32 %r<3>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<16>;
  ld.param.u64 %rd1, [p_a];
  ld.param.u64 %rd2, [p_b];
  ld.param.u64 %rd3, [p_c];
  ld.param.u64 %rd4, [p_count];
  ld.param.u64 %rd5, [p_step];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  cvt.u64.u32 %rd6, %r1;
  cvt.u64.u32 %rd7, %r2;
  mul.lo.s64 %rd8, %rd6, %rd5;
  add.s64 %rd8, %rd8, %rd7;
  setp.ge.s64 %p1, %rd8, %rd4;
  @%p1 bra $done;
  shl.b64 %rd9, %rd8, 2;
  cvta.to.global.u64 %rd10, %rd1;
  cvta.to.global.u64 %rd11, %rd2;
  cvta.to.global.u64 %rd12, %rd3;
  add.s64 %rd10, %rd10, %rd9;
  add.s64 %rd11, %rd11, %rd9;
  add.s64 %rd12, %rd12, %rd9;
  ld.global.f32 %f1, [%rd10];
  ld.global.f32 %f2, [%rd11];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd12], %f3;
$done:
  ret;
}
)";

// b[i] = s[] / a[i] by way of shared memory, one task an element; thread 0 works, 32 wait for it.
inline constexpr const char* kDividePtx = R"(.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry divide(.param .u64 p_a, .param .u64 p_s, .param .u64 p_b)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p_a];
  ld.param.u64 %rd2, [p_s];
  ld.param.u64 %rd3, [p_b];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, shared;
  mul.wide.u32 %rd4, %r1, 4;
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  cvta.to.global.u64 %rd3, %rd3;
  add.s64 %rd1, %rd1, %rd4;
  add.s64 %rd3, %rd3, %rd4;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra $wait;
  ld.global.f32 %f1, [%rd1];
  st.shared.f32 [%r3+60], %f1;
$wait:
  bar.sync 0;
  @%p1 bra $done;
  ld.shared.f32 %f1, [%r3+60];
  ld.global.f32 %f2, [%rd2];
  div.rn.f32 %f3, %f2, %f1;
  st.global.f32 [%rd3], %f3;
$done:
  ret;
}
)";

inline KernelCode gpu_add() { return {"add", kAddPtx, 0, {64, 1, {}}}; }
inline KernelCode gpu_divide() { return {"divide", kDividePtx, 64, {32, 1, {}}}; }

}  // namespace stepc
