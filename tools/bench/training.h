// A whole training step of preset tiny (forward, backward, AdamW), beside PyTorch eager written by hand for the
// same model (tools/oracle/tiny_torch.py) in its fp32 and its bf16 form. Rounds of the sides take turns.
#pragma once

#include <map>
#include <string>

#include "ir/support/result.h"
#include "tools/bench/times.h"

namespace stepc::bench {

struct TrainingOptions {
  int threads = 0;  // 0: one per processor
  int rounds = 40;
  bool cpu_time = false;  // of the processor instead of the wall clock's: `threads` must be 1
  std::string python;     // the interpreter that has PyTorch; empty: our side alone
};

struct TrainingResult {
  std::string preset;
  int threads = 0;
  Times ours;                          // tokens per second
  std::map<std::string, Times> torch;  // by form
  std::string torch_version;
};

Result<TrainingResult> measure_training(const TrainingOptions& options);
// Of PyTorch's faster form.
double training_ratio(const TrainingResult& result);
std::string training_text(const TrainingResult& result);

}  // namespace stepc::bench
