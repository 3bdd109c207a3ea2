// What a device can do at most, for rooflines: dense peaks of the vendor's data sheet.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace stepc {

struct DevicePeaks {
  std::string_view arch;
  std::string_view name;
  double bf16_flops = 0;  // per second, dense
  double f32_flops = 0;
  double bytes = 0;  // memory, per second
  int64_t memory_bytes = 0;
};

const std::vector<DevicePeaks>& device_peaks();
std::optional<DevicePeaks> find_device_peaks(std::string_view arch);

}  // namespace stepc
