// Where an ordinary load, store or atomic finds its bytes.
#pragma once

#include "runtime/emulator/instructions/execute.h"

namespace stepc::emulator {

enum class Access : uint8_t { read, write, atomic, unseen };  // unseen: the caller tells the units itself

// The bytes behind an address of a space, for `bytes` bytes at once; checks bounds and alignment, and tells the
// shared memory's units. nullptr after a fault.
uint8_t* access(Warp& w, const Instruction& i, int lane, Space space, uint64_t address, uint32_t bytes, Access kind);

// Takes .global, .shared, .shared::cta, .shared::cluster, .param; generic where none is written.
Space take_space(Form& f);

}  // namespace stepc::emulator
