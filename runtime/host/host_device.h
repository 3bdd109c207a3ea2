// The CPU as a device: addresses are pointers, a launch is a parallel loop over the kernel's tasks, each
// thread with its own scratch. Which thread runs a task never changes a result, so thread counts do not
// either. Object code is loaded by a function value, since the loader belongs to the compiler.
#pragma once

#include <functional>

#include "runtime/device.h"

namespace stepc {

// The address of `symbol` in an object file; it stays valid as long as the function value lives.
using ObjectLoader = std::function<Result<void*>(const std::string& object, const std::string& symbol)>;

// `threads` = 0: as many as the machine has.
std::unique_ptr<Device> make_host_device(ObjectLoader loader, int threads = 0);

}  // namespace stepc
