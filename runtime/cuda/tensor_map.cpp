#include "runtime/cuda/tensor_map.h"

#include <array>

#include "ir/support/check.h"
#include "runtime/cuda/driver_errors.h"

namespace stepc {
namespace {

constexpr size_t kMaxRank = 5;

CUtensorMapDataType data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case Dtype::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Dtype::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case Dtype::pred: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  STEPC_UNREACHABLE("dtype {}", static_cast<int>(dtype));
}

CUtensorMapSwizzle swizzle(int64_t bytes) {
  switch (bytes) {
    case 0: return CU_TENSOR_MAP_SWIZZLE_NONE;
    case 32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: STEPC_UNREACHABLE("swizzle {}", bytes);
  }
}

std::string spec_text(const kernel::TensorMapSpec& spec, DeviceAddress address) {
  return fmt::format("{}{} strides {} box {} swizzle {} at {:#x}", dtype_name(spec.dtype), shape_text(spec.shape),
                     shape_text(spec.strides), shape_text(spec.box), spec.swizzle_bytes,
                     static_cast<uint64_t>(address));
}

}  // namespace

// The driver counts dimensions from the contiguous one, which has no stride; the IR the other way round.
Result<CUtensorMap> encode_tensor_map(const Driver& driver, const kernel::TensorMapSpec& spec, DeviceAddress address,
                                      const std::string& kernel) {
  const size_t rank = spec.shape.size();
  STEPC_CHECK(rank >= 1 && rank <= kMaxRank && spec.box.size() == rank && spec.strides.size() == rank,
              "a tensor map of kernel {} has {} dimensions", kernel, rank);
  STEPC_CHECK(spec.strides.back() == 1, "the last dimension of a tensor map of kernel {} is not contiguous", kernel);
  std::array<cuuint64_t, kMaxRank> extents = {}, stride_bytes = {};
  std::array<cuuint32_t, kMaxRank> box = {}, element_strides = {};
  for (size_t i = 0; i < rank; ++i) {
    const size_t from = rank - 1 - i;
    extents[i] = static_cast<cuuint64_t>(spec.shape[from]);
    box[i] = static_cast<cuuint32_t>(spec.box[from]);
    element_strides[i] = 1;
    if (i > 0) stride_bytes[i - 1] = static_cast<cuuint64_t>(spec.strides[from] * dtype_bytes(spec.dtype));
  }
  CUtensorMap map = {};
  const CUresult result = driver.cuTensorMapEncodeTiled(
      &map, data_type(spec.dtype), static_cast<cuuint32_t>(rank), reinterpret_cast<void*>(address), extents.data(),
      stride_bytes.data(), box.data(), element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle(spec.swizzle_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return map;
  return tl::unexpected(driver_error(driver, "cuTensorMapEncodeTiled", result,
                                     fmt::format("kernel {}, {}", kernel, spec_text(spec, address))));
}

}  // namespace stepc
