// Memory calls of the emulated driver.
#include <algorithm>
#include <cstring>

#include "runtime/emulator/driver_state.h"

namespace stepc::emulator {

bool EmulatedDevice::live(CUdeviceptr address, size_t bytes) const {
  return bytes == 0 || memory_.find(address, bytes) != nullptr;
}

bool EmulatedDevice::pinned(const void* host, size_t bytes) const {
  const auto* p = static_cast<const uint8_t*>(host);
  const auto above = host_sizes_.upper_bound(p);
  if (above == host_sizes_.begin()) return false;
  const auto& [start, size] = *std::prev(above);
  return p + bytes <= start + size;
}

CUresult EmulatedDevice::cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = memory_.allocate(bytes);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : sticky_;
}

CUresult EmulatedDevice::cuMemFree(CUdeviceptr address) {
  if (address == 0) return CUDA_SUCCESS;
  if (sticky_ == CUDA_SUCCESS) run_everything();
  if (!memory_.free(address)) return CUDA_ERROR_INVALID_VALUE;
  return sticky_;
}

CUresult EmulatedDevice::cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = memory_.capacity();
  *free_bytes = memory_.capacity() - memory_.used();
  return sticky_;
}

CUresult EmulatedDevice::cuMemAllocHost(void** address, size_t bytes) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  auto block = std::make_unique<uint8_t[]>(bytes + 64);
  auto* aligned = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(block.get()) + 63) / 64 * 64);
  host_blocks_[aligned] = std::move(block);
  host_sizes_[aligned] = bytes;
  *address = aligned;
  return sticky_;
}

CUresult EmulatedDevice::cuMemFreeHost(void* address) {
  if (sticky_ == CUDA_SUCCESS) run_everything();
  host_sizes_.erase(static_cast<const uint8_t*>(address));
  return host_blocks_.erase(static_cast<const uint8_t*>(address)) == 1 ? sticky_ : CUDA_ERROR_INVALID_VALUE;
}

// Pageable host memory has been read when the call returns, pinned memory only when the stream has come so far.
CUresult EmulatedDevice::cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  if (!live(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return sticky_;
  const auto copy_from = [this, to, bytes](const void* source) {
    if (const auto* a = memory_.find(to, bytes)) std::memcpy(a->host + (to - a->address), source, bytes);
  };
  if (pinned(from, bytes) || capturing()) return enqueue(stream, [copy_from, from] { copy_from(from); });
  auto staged = std::make_shared<std::vector<uint8_t>>(static_cast<const uint8_t*>(from),
                                                       static_cast<const uint8_t*>(from) + bytes);
  return enqueue(stream, [copy_from, staged] { copy_from(staged->data()); });
}

CUresult EmulatedDevice::cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!live(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return sticky_;
  const CUresult result = enqueue(stream, [this, to, from, bytes] {
    if (const auto* a = memory_.find(from, bytes)) std::memcpy(to, a->host + (from - a->address), bytes);
  });
  if (result != CUDA_SUCCESS || pinned(to, bytes) || capturing()) return result;
  return cuStreamSynchronize(stream);
}

CUresult EmulatedDevice::cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (!live(to, bytes) || !live(from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return sticky_;
  return enqueue(stream, [this, to, from, bytes] {
    const auto *t = memory_.find(to, bytes), *f = memory_.find(from, bytes);
    if (t && f) std::memmove(t->host + (to - t->address), f->host + (from - f->address), bytes);
  });
}

CUresult EmulatedDevice::fill(CUdeviceptr to, size_t count, uint32_t value, uint32_t value_bytes, CUstream stream) {
  const size_t bytes = count * value_bytes;
  if (to % value_bytes != 0 || !live(to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes == 0) return sticky_;
  return enqueue(stream, [this, to, bytes, value, value_bytes] {
    const auto* a = memory_.find(to, bytes);
    if (!a) return;
    uint8_t* at = a->host + (to - a->address);
    for (size_t k = 0; k < bytes; k += value_bytes) std::memcpy(at + k, &value, value_bytes);
  });
}

CUresult EmulatedDevice::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, count, value, 1, stream);
}
CUresult EmulatedDevice::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return fill(to, count, value, 2, stream);
}
CUresult EmulatedDevice::cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(to, count, value, 4, stream);
}

}  // namespace stepc::emulator
