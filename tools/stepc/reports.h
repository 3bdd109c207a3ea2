// What ptxas said of kernels, as a table, and what of it is an error.
#pragma once

#include <span>
#include <string>

#include "compiler/ptxas/ptxas.h"
#include "ir/plan/plan.h"

namespace stepc {

std::string kernel_table(std::span<const BundleKernel> kernels, std::span<const PtxasReport> reports);
// An error that names every kernel with spills, local memory, or products that ptxas runs one after the other.
Status check_reports(std::span<const BundleKernel> kernels, std::span<const PtxasReport> reports);

}  // namespace stepc
