#include "runtime/cuda/driver_errors.h"

namespace stepc {

Error driver_error(const Driver& driver, const char* call, CUresult result, const std::string& purpose) {
  std::string text = purpose.empty() ? "" : purpose + ": ";
  text += fmt::format("{}: {}", call, driver_error_text(driver, result));
  const std::string report = driver.fault_report ? driver.fault_report() : "";
  if (!report.empty()) text += "\n" + report;
  return {Error::Kind::system, {}, std::move(text)};
}

}  // namespace stepc
