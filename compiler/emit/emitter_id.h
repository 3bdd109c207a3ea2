// What turned kernel IR into code: part of the key under which code is cached.
#pragma once

#include <string>

namespace stepc {

// "LLVM 19.1.7, emitter 0123abcd...": changes with LLVM and with any source of the emitter.
std::string emitter_id();

}  // namespace stepc
