#include "runtime/cuda/linker.h"

#include <vector>

namespace stepc {
namespace {

constexpr size_t kLogBytes = 8192;

// Ends with its scope, and the cubin with it.
class LinkState {
 public:
  explicit LinkState(const Driver& driver) : driver_(driver) {}
  ~LinkState() {
    if (state) driver_.cuLinkDestroy(state);
  }
  LinkState(const LinkState&) = delete;
  LinkState& operator=(const LinkState&) = delete;

  CUlinkState state = nullptr;

 private:
  const Driver& driver_;
};

std::string trimmed(const std::vector<char>& log) {
  std::string text(log.data());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

tl::expected<std::string, LinkFailure> link_ptx(const Driver& driver, const std::string& ptx,
                                                const std::string& symbol) {
  std::vector<char> log(kLogBytes, 0);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size() - 1)};
  const auto failed = [&](const char* call, CUresult result) {
    return tl::unexpected(LinkFailure{call, result, trimmed(log)});
  };
  LinkState link(driver);
  if (const CUresult result = driver.cuLinkCreate(2, options, values, &link.state))
    return failed("cuLinkCreate", result);
  // The NUL that ends PTX belongs to it.
  if (const CUresult result = driver.cuLinkAddData(link.state, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.c_str()),
                                                   ptx.size() + 1, symbol.c_str(), 0, nullptr, nullptr))
    return failed("cuLinkAddData", result);
  void* cubin = nullptr;
  size_t bytes = 0;
  if (const CUresult result = driver.cuLinkComplete(link.state, &cubin, &bytes))
    return failed("cuLinkComplete", result);
  return std::string(static_cast<const char*>(cubin), bytes);
}

std::string driver_cubin_key(const CudaDeviceInfo& device, const std::string& ptx) {
  return fmt::format("driver cubin\n{}\n{}\n{}", device.driver_version, device.arch, ptx);
}

}  // namespace stepc
