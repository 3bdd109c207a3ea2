// Runs hand-written PTX on the emulator.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "runtime/emulator/launch.h"

namespace stepc::emulator {

inline std::string module_text(const std::string& body) {
  return ".version 8.0\n.target sm_90a\n.address_size 64\n" + body;
}

// A kernel with pointer parameters p0, p1, ... loaded into %rd0, %rd1, ..., %tid.x in %r0, %tid.x * 4 in %rd100 and
// %tid.x * 8 in %rd101. `body` starts at line kBodyLine of the module.
inline constexpr int kBodyLine = 6;
inline std::string kernel_text(int pointers, const std::string& body, const std::string& module_items = "") {
  std::string text = ".visible .entry k(";
  for (int p = 0; p < pointers; ++p) text += (p ? ", " : "") + std::string(".param .u64 p") + std::to_string(p);
  text +=
      ") { .reg .pred %p<20>; .reg .b16 %rs<40>; .reg .b32 %r<300>; .reg .f32 %f<300>; .reg .b64 %rd<200>; "
      ".reg .f64 %fd<20>; ";
  for (int p = 0; p < pointers; ++p)
    text += "ld.param.u64 %rd" + std::to_string(p) + ", [p" + std::to_string(p) + "]; ";
  text += "mov.u32 %r0, %tid.x; mul.wide.u32 %rd100, %r0, 4; mul.wide.u32 %rd101, %r0, 8;\n";
  return module_text(module_items + "\n" + text + body + "\nret;\n}\n");
}

class Machine {
 public:
  explicit Machine(uint64_t seed = 1, int threads = 1) : memory_(1 << 26), pool_(threads) { launch_.seed = seed; }

  template <class T>
  uint64_t buffer(const std::vector<T>& values) {
    const uint64_t address = memory_.allocate(values.size() * sizeof(T));
    std::memcpy(memory_.find(address, 1)->host, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> read(uint64_t address, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), memory_.find(address, count * sizeof(T))->host, count * sizeof(T));
    return values;
  }

  Launch& shape() { return launch_; }

  // Runs kernel k of the module; its parameters are 64-bit values.
  std::optional<Fault> run(const std::string& text, const std::vector<uint64_t>& parameters, uint32_t threads = 32,
                           uint32_t grid = 1) {
    auto module = decode_module(text);
    if (!module) FAIL(module.error().text());
    module_ = std::move(*module);
    launch_.kernel = module_->kernels.at("k").get();
    launch_.grid.x = grid;
    launch_.block.x = threads;
    launch_.memory = &memory_;
    launch_.parameters.resize(parameters.size() * 8);
    if (!parameters.empty()) std::memcpy(launch_.parameters.data(), parameters.data(), parameters.size() * 8);
    return run_launch(launch_, pool_);
  }

 private:
  GlobalMemory memory_;
  ThreadPool pool_;
  Launch launch_;
  std::unique_ptr<Module> module_;
};

// "" when there is no fault.
inline std::string text_of(const std::optional<Fault>& fault) { return fault ? describe(*fault) : ""; }

inline std::string decode_error(const std::string& text) {
  auto module = decode_module(text);
  return module ? "" : module.error().text();
}

// 32 lanes of a, b, c -> d, by one statement or more over %a, %b, %c, %d of the types D and S (registers .b32 or
// .b64 by size).
template <class D, class S>
std::vector<D> lanes_of(const std::string& statements, const std::vector<S>& a, const std::vector<S>& b = {},
                        const std::vector<S>& c = {}) {
  const auto reg = [](size_t size) { return size == 8 ? ".b64" : ".b32"; };
  const auto bits = [](size_t size) { return size == 8 ? "b64" : size == 4 ? "b32" : size == 2 ? "u16" : "u8"; };
  std::string text =
      std::string(".reg ") + reg(sizeof(D)) + " %d; .reg " + reg(sizeof(S)) + " %a, %b, %c; " + ".reg .b64 %at;\n";
  const char* names[] = {"%a", "%b", "%c"};
  for (int k = 0; k < 3; ++k)
    text += "mad.wide.u32 %at, %r0, " + std::to_string(sizeof(S)) + ", %rd" + std::to_string(k + 1) + "; ld.global." +
            bits(sizeof(S)) + " " + names[k] + ", [%at];\n";
  text += "mov" + std::string(reg(sizeof(D))) + " %d, 0;\n" + statements + "\nmad.wide.u32 %at, %r0, " +
          std::to_string(sizeof(D)) + ", %rd0; st.global." + bits(sizeof(D)) + " [%at], %d;";
  Machine m;
  const auto padded = [](std::vector<S> v) {
    v.resize(32);
    return v;
  };
  const uint64_t d = m.buffer(std::vector<D>(32));
  REQUIRE(text_of(m.run(kernel_text(4, text), {d, m.buffer(padded(a)), m.buffer(padded(b)), m.buffer(padded(c))})) ==
          "");
  return m.read<D>(d, 32);
}

}  // namespace stepc::emulator
