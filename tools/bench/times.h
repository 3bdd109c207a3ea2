// Medians and spread of measurements, and where they were made.
#pragma once

#include <string>
#include <vector>

namespace stepc::bench {

struct Times {
  double median = 0;
  double low = 0;  // quartiles
  double high = 0;
};
Times summarise(std::vector<double> values);

std::string cpu_name();
std::string date();

}  // namespace stepc::bench
