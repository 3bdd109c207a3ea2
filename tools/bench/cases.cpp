#include "tools/bench/cases.h"

namespace stepc::bench {

std::vector<Case> all_cases() {
  const Dtype f32 = Dtype::f32;
  const Dtype bf16 = Dtype::bf16;
  return {
      {"cube 1024 f32", 1, 1024, 1024, 1024, f32, f32, false, false, 0.9},
      {"cube 1024 bf16", 1, 1024, 1024, 1024, bf16, bf16, false, false, 0.8},
      {"qkv", 1, 4096, 128, 384, bf16, bf16},
      {"qkv, input gradient", 1, 4096, 384, 128, bf16, bf16, false, true},
      {"qkv, weight gradient", 1, 128, 4096, 384, bf16, f32, true, false},
      {"experts, up", 4, 2048, 128, 512, bf16, bf16},
      {"experts, up, input gradient", 4, 2048, 512, 128, bf16, bf16, false, true},
      {"experts, up, weight gradient", 4, 128, 2048, 512, bf16, f32, true, false},
      {"experts, down", 4, 2048, 256, 128, bf16, bf16},
      {"experts, down, input gradient", 4, 2048, 128, 256, bf16, bf16, false, true},
      {"experts, down, weight gradient", 4, 256, 2048, 128, bf16, f32, true, false},
      {"head", 1, 4096, 128, 256, bf16, f32},
      {"router", 1, 4096, 128, 4, f32, f32},
      {"router, weight gradient", 1, 128, 4096, 4, f32, f32, true, false},
      {"qkv f32", 1, 4096, 128, 384, f32, f32},
      {"qkv f32, weight gradient", 1, 128, 4096, 384, f32, f32, true, false},
  };
}

}  // namespace stepc::bench
