// Figures as inline SVG: curves, stacked bars, timelines and meshes. The drawing stretches with its box while
// labels are HTML beside it, so that text has the same size on a phone as on a wide screen.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace quintet::report {

struct Curve {
  std::string name;
  size_t colour = 0;
  std::vector<double> x, y;  // x ascending; points whose y is not finite are left out
  // Steady: one line. Noisy: faint, with its moving average in front once it has many points. Sparse: dots
  // joined by a dashed line. Ideal: a dashed line that is not read off.
  enum class Kind : uint8_t { Steady, Noisy, Sparse, Ideal } kind = Kind::Steady;
};

struct Chart {
  std::string x = "step";
  std::vector<Curve> curves;
  bool log_x = false, log_y = false;
  bool from_zero = false;                             // the y axis starts at 0
  int height = 230;                                   // pixels
  std::vector<double> marks;                          // vertical lines, such as skipped steps
  std::vector<double> ticks_x;                        // empty: chosen
  std::function<std::string(double)> y_text, x_text;  // of tick labels; empty: short numbers
  bool with_key = true;
};
// Empty when no curve has a point.
std::string chart(const Chart& chart);

struct BarPart {
  std::string name;
  size_t colour = 0;
  double value = 0;
  std::string text;  // of the value
};
struct Bar {
  std::string label;
  std::vector<BarPart> parts;
  std::string value;   // at the end of the row
  bool apart = false;  // a gap above it
};
// One scale for all bars: up to `limit` (a dashed line; 0: none), or the longest bar.
std::string bars(const std::vector<Bar>& list, double limit = 0, const std::string& limit_text = {});

struct Span {
  double start = 0, seconds = 0;
  size_t name = 0;  // in Timeline::names
  int64_t micro = -1;
};
struct Lane {
  std::string label;
  std::vector<Span> spans;
  bool thin = false, apart = false;
};
struct Timeline {
  double seconds = 0;
  std::vector<std::pair<std::string, size_t>> names;  // with the index of their colours
  std::vector<Lane> lanes;
};
std::string timeline(const Timeline& timeline);

// A mesh of ranks: axes from the outermost in, rank numbers count with the last one fastest.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
};
std::string mesh(const std::vector<MeshAxis>& axes);

// Stacked areas over time: one value per class and moment, each moment lasts until the next.
struct Areas {
  std::vector<double> seconds;
  double end = 0;
  struct Class {
    std::string name;
    size_t colour = 0;
    std::vector<double> bytes;
  };
  std::vector<Class> classes;
  double limit = 0;
  std::string limit_text;
};
std::string areas(const Areas& areas);

// Round numbers in [low, high], about `count` of them; on a log axis powers of ten, or 1, 2 and 5 times them.
std::vector<double> round_ticks(double low, double high, int count);
std::vector<double> log_ticks(double low, double high);

// "0.003", "1.5", "12.3k", "4.56M".
std::string short_number(double value);

}  // namespace quintet::report
