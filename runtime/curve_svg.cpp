#include "runtime/curve_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stepc {
namespace {

constexpr double kWidth = 760, kHeight = 440;
constexpr double kLeft = 70, kRight = 20, kTop = 44, kBottom = 54;

struct Axis {
  double low = 0, high = 1, step = 1;
  double from = 0, to = 1;  // pixels
  double place(double value) const { return from + (value - low) / (high - low) * (to - from); }
};

// Round bounds and about `ticks` steps of 1, 2 or 5 times a power of ten.
Axis make_axis(double low, double high, double from, double to, int ticks) {
  if (!(high > low)) high = low + 1;
  const double raw = (high - low) / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double lead = raw / power;
  const double step = (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10) * power;
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step, from, to};
}

std::string number_text(double value) {
  if (std::fabs(value) >= 1e9) return fmt::format("{:g}G", value / 1e9);
  if (std::fabs(value) >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (std::fabs(value) >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::fabs(value) < 1e-12 ? 0.0 : value);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string grid(const Axis& x, const Axis& y) {
  std::string out;
  for (double value = y.low; value <= y.high + y.step / 2; value += y.step)
    out += fmt::format(
        "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#ddd'/>"
        "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n",
        x.from, y.place(value), x.to, y.place(value), x.from - 8, y.place(value) + 4, number_text(value));
  for (double value = x.low; value <= x.high + x.step / 2; value += x.step)
    out += fmt::format(
        "<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#eee'/>"
        "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
        x.place(value), y.from, x.place(value), y.to, x.place(value), y.from + 18, number_text(value));
  return out;
}

std::string line(const CurveSeries& series, const Axis& x, const Axis& y, size_t row) {
  std::string path, marks;
  for (const auto& [at, value] : series.points) {
    if (!std::isfinite(value)) continue;
    path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", x.place(at), y.place(value));
    if (series.marks)
      marks +=
          fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3' fill='{}'/>", x.place(at), y.place(value), series.colour);
  }
  const double top = kTop + 8 + 18.0 * static_cast<double>(row);
  return fmt::format(
      "<path d='{}' fill='none' stroke='{}' stroke-width='1.5'/>{}\n"
      "<rect x='{:.1f}' y='{:.1f}' width='12' height='12' fill='{}'/><text x='{:.1f}' y='{:.1f}'>{}</text>\n",
      path, series.colour, marks, x.to - 190, top, series.colour, x.to - 172, top + 11, escaped(series.name));
}

}  // namespace

std::string curve_svg(const CurveChart& chart) {
  double x_low = INFINITY, x_high = -INFINITY, y_low = INFINITY, y_high = -INFINITY;
  for (const CurveSeries& series : chart.series)
    for (const auto& [at, value] : series.points) {
      if (!std::isfinite(value)) continue;
      x_low = std::min(x_low, at), x_high = std::max(x_high, at);
      y_low = std::min(y_low, value), y_high = std::max(y_high, value);
    }
  if (!std::isfinite(x_low)) x_low = 0, x_high = 1, y_low = 0, y_high = 1;
  const Axis x = make_axis(x_low, x_high, kLeft, kWidth - kRight, 8);
  const Axis y = make_axis(y_low, y_high, kHeight - kBottom, kTop, 7);
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0}' height='{1}' viewBox='0 0 {0} {1}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='{0}' height='{1}' fill='white'/>\n"
      "<text x='{2}' y='24' font-size='15'>{3}</text>\n",
      kWidth, kHeight, kLeft, escaped(chart.title));
  out += grid(x, y);
  for (size_t i = 0; i < chart.series.size(); ++i) out += line(chart.series[i], x, y, i);
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text>\n", (x.from + x.to) / 2, kHeight - 12,
                     escaped(chart.x_label));
  out += fmt::format("<text transform='translate(18,{}) rotate(-90)' text-anchor='middle'>{}</text>\n</svg>\n",
                     (y.from + y.to) / 2, escaped(chart.y_label));
  return out;
}

}  // namespace stepc
