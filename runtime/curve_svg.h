// A line chart as SVG text: loss over tokens, any number of series.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace stepc {

struct CurveSeries {
  std::string name;
  std::string colour;                             // CSS
  bool marks = false;                             // a dot at each point: for few points
  std::vector<std::pair<double, double>> points;  // (x, y), x ascending; not-finite y are left out
};

struct CurveChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<CurveSeries> series;
};

std::string curve_svg(const CurveChart& chart);

}  // namespace stepc
