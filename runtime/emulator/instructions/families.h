// The instruction families: each names its instructions and how their forms are decoded.
#pragma once

#include <span>

#include "runtime/emulator/form.h"

namespace stepc::emulator {

std::span<const InstructionEntry> arithmetic_family();
std::span<const InstructionEntry> bits_family();
std::span<const InstructionEntry> compare_family();
std::span<const InstructionEntry> convert_family();
std::span<const InstructionEntry> memory_family();
std::span<const InstructionEntry> atomic_family();
std::span<const InstructionEntry> warp_family();
std::span<const InstructionEntry> matrix_family();
std::span<const InstructionEntry> async_copy_family();
std::span<const InstructionEntry> control_family();
std::span<const InstructionEntry> units_family();

// The integer forms of add, mul, min, ...; false: no such form.
bool decode_integer(Form& form, Type type);

}  // namespace stepc::emulator
