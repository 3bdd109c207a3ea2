#include "tools/stepc/peaks.h"

namespace stepc {

// Sources: NVIDIA's data sheets of H200 SXM, A100 SXM 80 GB and L40S; memory is what the driver reports free of
// error correction. Sparse figures, which are twice as high, are not used.
const std::vector<DevicePeaks>& device_peaks() {
  static const std::vector<DevicePeaks> table = {
      {"sm_90a", "H200 SXM", 989.4e12, 66.9e12, 4.8e12, int64_t{143771} << 20},
      {"sm_80", "A100 SXM 80 GB", 312e12, 19.5e12, 2.039e12, int64_t{81920} << 20},
      {"sm_89", "L40S", 362e12, 91.6e12, 0.864e12, int64_t{46068} << 20},
  };
  return table;
}

std::optional<DevicePeaks> find_device_peaks(std::string_view arch) {
  for (const DevicePeaks& peaks : device_peaks())
    if (peaks.arch == arch) return peaks;
  return std::nullopt;
}

}  // namespace stepc
