// The scalars that vary from step to step, computed on the host in double.
#pragma once

#include "model/config.h"

namespace stepc {

struct StepScalars {
  double lr = 0;
  double inv_bias1 = 1;  // 1 / (1 - beta1^t), t counting updates from 1
  double inv_bias2 = 1;
  double aux_coefficient = 0;
};

// Of the update that follows `step` earlier ones.
StepScalars step_scalars(const TrainConfig& train, int64_t step);

}  // namespace stepc
