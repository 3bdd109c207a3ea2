// The cases of tests/compiler/schedule_pointwise_test.cpp on the GPU of tests.
// clang-format off: the order matters
#include "tests/gpu/run_cases.h"
#include "tests/compiler/schedule_pointwise_test.cpp"  // NOLINT: its cases, not its code
