// Modules, launches and tensor maps of the emulated driver. Its "cubin" is the PTX itself.
#include <algorithm>
#include <cstring>

#include "runtime/emulator/driver_state.h"
#include "runtime/emulator/units/tensor_map.h"

namespace stepc::emulator {
namespace {

// Writes text into the buffer that the options name, if they name one.
void write_log(const std::string& text, unsigned count, const CUjit_option* names, void** values) {
  char* buffer = nullptr;
  size_t size = 0;
  for (unsigned k = 0; k < count; ++k) {
    if (names[k] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[k]);
    if (names[k] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = reinterpret_cast<size_t>(values[k]);
  }
  if (!buffer || size == 0) return;
  const size_t n = std::min(text.size(), size - 1);
  std::memcpy(buffer, text.data(), n);
  buffer[n] = '\0';
}

bool is_elf(const void* image) {
  return std::memcmp(image,
                     "\x7f"
                     "ELF",
                     4) == 0;
}

}  // namespace

CUresult EmulatedDevice::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* names,
                                            void** values) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  if (is_elf(image)) {
    write_log("the emulator runs PTX, not cubins", count, names, values);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  auto decoded = decode_module(static_cast<const char*>(image));
  if (!decoded) {
    write_log(decoded.error().text(), count, names, values);
    return CUDA_ERROR_INVALID_PTX;
  }
  const std::vector<GlobalVariable>& variables = (*decoded)->variables;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (memory_.place(variables[i].address, variables[i].bytes)) continue;
    for (size_t k = 0; k < i; ++k) memory_.free(variables[k].address);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto loaded = std::make_unique<LoadedModule>();
  loaded->module = std::move(*decoded);
  *module = reinterpret_cast<CUmodule>(loaded.get());
  modules_[*module] = std::move(loaded);
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuModuleUnload(CUmodule module) {
  if (sticky_ == CUDA_SUCCESS) run_everything();
  const auto found = modules_.find(module);
  if (found == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const GlobalVariable& v : found->second->module->variables) memory_.free(v.address);
  modules_.erase(found);
  return sticky_;
}

CUresult EmulatedDevice::cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const auto it = modules_.find(module);
  if (it == modules_.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto kernel = it->second->module->kernels.find(name);
  if (kernel == it->second->module->kernels.end()) return CUDA_ERROR_NOT_FOUND;
  std::unique_ptr<Function>& f = it->second->functions[name];
  if (!f) f = std::make_unique<Function>(Function{kernel->second.get()});
  *function = reinterpret_cast<CUfunction>(f.get());
  return sticky_;
}

Function* EmulatedDevice::function_of(CUfunction handle) {
  for (const auto& [module, loaded] : modules_)
    for (const auto& [name, f] : loaded->functions)
      if (reinterpret_cast<CUfunction>(f.get()) == handle) return f.get();
  return nullptr;
}

CUresult EmulatedDevice::cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  const Function* f = function_of(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = f->kernel->max_threads ? static_cast<int>(f->kernel->max_threads) : 1024;
      return sticky_;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(f->kernel->static_shared_bytes); return sticky_;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; return sticky_;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = f->kernel->max_registers; return sticky_;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = f->max_dynamic_shared; return sticky_;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *value = f->any_cluster_size; return sticky_;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult EmulatedDevice::cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  Function* f = function_of(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) {
    f->any_cluster_size = value != 0;
    return sticky_;
  }
  if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      value + static_cast<int>(f->kernel->static_shared_bytes) > kMaxSharedBytes)
    return CUDA_ERROR_INVALID_VALUE;
  f->max_dynamic_shared = value;
  return sticky_;
}

CUresult EmulatedDevice::check_launch(const CUlaunchConfig& c, const Function& f, Launch* launch) const {
  launch->grid = {c.gridDimX, c.gridDimY, c.gridDimZ};
  launch->block = {c.blockDimX, c.blockDimY, c.blockDimZ};
  for (unsigned k = 0; k < c.numAttrs; ++k)
    if (c.attrs[k].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      launch->cluster = {c.attrs[k].value.clusterDim.x, c.attrs[k].value.clusterDim.y, c.attrs[k].value.clusterDim.z};
  const Kernel& kernel = *f.kernel;
  const Dim3 &g = launch->grid, &b = launch->block, &cl = launch->cluster;
  if (g.count() == 0 || b.count() == 0 || cl.count() == 0) return CUDA_ERROR_INVALID_VALUE;
  if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || b.count() > 1024 || b.z > 64) return CUDA_ERROR_INVALID_VALUE;
  if (kernel.max_threads && b.count() > kernel.max_threads) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t* required = kernel.required_threads;
  if (required[0] && (b.x != required[0] || b.y != required[1] || b.z != required[2])) return CUDA_ERROR_INVALID_VALUE;
  if (g.x % cl.x || g.y % cl.y || g.z % cl.z) return CUDA_ERROR_INVALID_VALUE;
  if (cl.count() > (f.any_cluster_size ? 16 : 8)) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (kernel.required_cluster && cl.count() != kernel.required_cluster) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  if (c.sharedMemBytes > static_cast<unsigned>(f.max_dynamic_shared)) return CUDA_ERROR_INVALID_VALUE;
  if (c.sharedMemBytes + kernel.static_shared_bytes > kMaxSharedBytes) return CUDA_ERROR_INVALID_VALUE;
  launch->dynamic_shared_bytes = c.sharedMemBytes;
  return CUDA_SUCCESS;
}

CUresult EmulatedDevice::cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters,
                                          void** extra) {
  if (sticky_ != CUDA_SUCCESS) return sticky_;
  const Function* f = function_of(handle);
  if (!f) return CUDA_ERROR_INVALID_HANDLE;
  if (extra || (!parameters && !f->kernel->parameters.empty())) return CUDA_ERROR_INVALID_VALUE;
  Launch launch;
  if (const CUresult result = check_launch(*config, *f, &launch); result != CUDA_SUCCESS) return result;
  launch.kernel = f->kernel;
  launch.parameters.resize(f->kernel->parameter_bytes);
  for (size_t k = 0; k < f->kernel->parameters.size(); ++k) {
    const Parameter& p = f->kernel->parameters[k];
    std::memcpy(launch.parameters.data() + p.offset, parameters[k], p.bytes);
  }
  launch.memory = &memory_;
  launch.stress = options_.stress;
  launch.sm_count = options_.sm_count;
  launch.patience = options_.patience;
  return enqueue(config->hStream, [this, launch = std::move(launch)] { run_kernel(launch); });
}

void EmulatedDevice::run_kernel(Launch launch) {
  launch.seed = options_.seed * 0x9e3779b97f4a7c15ull + ++launches_;
  const std::optional<Fault> fault = run_launch(launch, pool_);
  if (!fault) return;
  report_ = describe(*fault);
  sticky_ = CUDA_ERROR_LAUNCH_FAILED;
}

CUresult EmulatedDevice::cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                                void* address, const cuuint64_t* extents,
                                                const cuuint64_t* stride_bytes, const cuuint32_t* box,
                                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                                CUtensorMapFloatOOBfill fill) {
  std::string why;
  const std::optional<TensorMap> made =
      check_tensor_map({type, rank, reinterpret_cast<uint64_t>(address), extents, stride_bytes, box, element_strides,
                        interleave, swizzle, fill},
                       &why);
  if (!made) {
    report_ = "cuTensorMapEncodeTiled: " + why;
    return CUDA_ERROR_INVALID_VALUE;
  }
  encode_tensor_map(*made, map);
  return CUDA_SUCCESS;
}

// ---- linking: one PTX in, the same out
CUresult EmulatedDevice::cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* state) {
  auto link = std::make_unique<Link>();
  *state = reinterpret_cast<CUlinkState>(link.get());
  links_[*state] = std::move(link);
  return sticky_;
}

CUresult EmulatedDevice::cuLinkAddData(CUlinkState state, CUjitInputType type, void* data, size_t bytes, const char*,
                                       unsigned count, CUjit_option* names, void** values) {
  const auto it = links_.find(state);
  if (it == links_.end()) return CUDA_ERROR_INVALID_HANDLE;
  if (type != CU_JIT_INPUT_PTX || !it->second->image.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  std::string text(static_cast<const char*>(data), bytes);
  text = text.substr(0, text.find('\0'));
  if (const auto decoded = decode_module(text); !decoded) {
    write_log(decoded.error().text(), count, names, values);
    return CUDA_ERROR_INVALID_PTX;
  }
  it->second->image = std::move(text);
  return sticky_;
}

CUresult EmulatedDevice::cuLinkComplete(CUlinkState state, void** cubin, size_t* bytes) {
  const auto it = links_.find(state);
  if (it == links_.end()) return CUDA_ERROR_INVALID_HANDLE;
  *cubin = it->second->image.data();
  *bytes = it->second->image.size() + 1;
  return sticky_;
}

CUresult EmulatedDevice::cuLinkDestroy(CUlinkState state) {
  return links_.erase(state) == 1 ? sticky_ : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace stepc::emulator
