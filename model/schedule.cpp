#include "model/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/support/check.h"

namespace stepc {
namespace {

double learning_rate(const TrainConfig& train, int64_t step) {
  if (step < train.warmup) return train.lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  switch (train.schedule) {
    case Schedule::constant: return train.lr;
    case Schedule::cosine: {
      const auto span = static_cast<double>(std::max<int64_t>(1, train.steps - train.warmup));
      const double progress = std::min(1.0, static_cast<double>(step - train.warmup) / span);
      const double wave = 0.5 * (1 + std::cos(std::numbers::pi * progress));
      return train.lr * (train.final_lr_fraction + (1 - train.final_lr_fraction) * wave);
    }
  }
  STEPC_UNREACHABLE("schedule {}", static_cast<int>(train.schedule));
}

}  // namespace

StepScalars step_scalars(const TrainConfig& train, int64_t step) {
  const auto update = static_cast<double>(step + 1);
  const double left = 1 - static_cast<double>(step) / static_cast<double>(train.aux_horizon);
  return {learning_rate(train, step), 1 / (1 - std::pow(train.beta1, update)), 1 / (1 - std::pow(train.beta2, update)),
          train.aux_coefficient * std::max(0.0, left)};
}

}  // namespace stepc
