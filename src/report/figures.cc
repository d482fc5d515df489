#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "report/markup.h"

namespace quintet::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnits = 1000;      // of a drawing's width and height
constexpr size_t kMaxPoints = 700;   // of a curve
constexpr size_t kManyPoints = 100;  // from here on, a noisy curve has a moving average

struct Scale {
  double low = 0, high = 1;
  bool log = false;
  // In [0, 1] from low to high.
  double operator()(double v) const {
    if (log) return (std::log(v) - std::log(low)) / (std::log(high) - std::log(low));
    return (v - low) / (high - low);
  }
};

struct Points {
  std::vector<double> x, y;
};

Points drawable(const Curve& c, const Chart& chart) {
  Points p;
  for (size_t i = 0; i < std::min(c.x.size(), c.y.size()); ++i) {
    if (!std::isfinite(c.x[i]) || !std::isfinite(c.y[i])) continue;
    if ((chart.log_y && c.y[i] <= 0) || (chart.log_x && c.x[i] <= 0)) continue;
    p.x.push_back(c.x[i]);
    p.y.push_back(c.y[i]);
  }
  return p;
}

// The lowest and highest point of each of many intervals, in order: no peak is lost.
Points thinned(const Points& p) {
  if (p.x.size() <= kMaxPoints) return p;
  Points out;
  const size_t intervals = kMaxPoints / 2;
  for (size_t i = 0; i < intervals; ++i) {
    const size_t begin = i * p.x.size() / intervals, end = (i + 1) * p.x.size() / intervals;
    size_t least = begin, most = begin;
    for (size_t k = begin; k < end; ++k) {
      if (p.y[k] < p.y[least]) least = k;
      if (p.y[k] > p.y[most]) most = k;
    }
    for (const size_t k : {std::min(least, most), std::max(least, most)})
      if (out.x.empty() || p.x[k] > out.x.back()) out.x.push_back(p.x[k]), out.y.push_back(p.y[k]);
  }
  return out;
}

// The mean over a window around each point: a fortieth of the curve, narrower at its ends, so that the mean
// does not lag behind.
Points averaged(const Points& p) {
  Points out{p.x, p.y};
  std::vector<double> sums = {0};
  for (const double y : p.y) sums.push_back(sums.back() + y);
  const size_t size = p.y.size(), most = std::max<size_t>(2, size / 80);
  for (size_t i = 0; i < size; ++i) {
    const size_t reach = std::min({most, i, size - 1 - i});
    out.y[i] = (sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1);
  }
  return out;
}

std::string path_of(const Points& p, const Scale& x, const Scale& y) {
  std::string d;
  for (size_t i = 0; i < p.x.size(); ++i)
    d += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", kUnits * x(p.x[i]), kUnits * (1 - y(p.y[i])));
  return d;
}

std::string stroke(std::string_view path, std::string_view style, std::string_view ink) {
  return fmt::format("<path class=\"{}\" style=\"stroke:{}\" d=\"{}\"/>\n", style, ink, path);
}

// Both ends of an axis of data that spans [low, high].
Scale scale_of(double low, double high, bool log, bool zero) {
  Scale s{low, high, log};
  if (log) {
    if (s.high / s.low < 1.02) s.low /= 1.5, s.high *= 1.5;
    const double margin = std::pow(s.high / s.low, 0.04);
    s.low /= margin, s.high *= margin;
    return s;
  }
  if (zero) s.low = std::min(0.0, s.low);
  if (s.high - s.low <= 1e-12 * std::max(std::abs(s.high), 1e-300))
    s.low -= std::max(std::abs(s.low) * 0.1, 1e-12), s.high += std::max(std::abs(s.high) * 0.1, 1e-12);
  const double margin = 0.05 * (s.high - s.low);
  if (!zero || s.low < 0) s.low -= margin;
  s.high += margin;
  return s;
}

std::string x_labels(const std::vector<double>& ticks, const Scale& x,
                     const std::function<std::string(double)>& text) {
  std::string out;
  for (const double t : ticks) {
    const double at = x(t);
    out += fmt::format("<span class=\"x{}\" style=\"left:{:.2f}%\">{}</span>",
                       at < 0.02   ? " first"
                       : at > 0.98 ? " last"
                                   : "",
                       100 * at, escaped(text(t)));
  }
  return out;
}

std::string y_labels(const std::vector<double>& ticks, const Scale& y,
                     const std::function<std::string(double)>& text) {
  std::string out;
  for (const double t : ticks)
    out +=
        fmt::format("<span class=\"y\" style=\"top:{:.2f}%\">{}</span>", 100 * (1 - y(t)), escaped(text(t)));
  return out;
}

std::string grid_of(const std::vector<double>& ticks, const Scale& y) {
  std::string d;
  for (const double t : ticks) d += fmt::format("M0 {:.1f}H{:.0f}", kUnits * (1 - y(t)), kUnits);
  return fmt::format("<path class=\"grid\" d=\"{}\"/>\n<path class=\"axis\" d=\"M0 {:.0f}H{:.0f}\"/>\n", d,
                     kUnits, kUnits);
}

// Few digits, and whole numbers as such, to keep pages small: the browser shows no more.
Json rounded(double v, int digits) {
  if (!std::isfinite(v)) return nullptr;
  const double r = std::strtod(fmt::format("{:.{}g}", v, digits).c_str(), nullptr);
  if (r == std::floor(r) && std::abs(r) < 1e15) return static_cast<int64_t>(r);
  return r;
}
Json list_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double v : values) list.push_back(rounded(v, 6));
  return list;
}

std::string data_script(const Json& json) {
  return fmt::format("<script type=\"application/json\">{}</script>\n",
                     script_json(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

// Of a round number of seconds: "250 ms".
std::string time_text(double s) {
  if (s == 0) return "0";
  return s >= 1      ? fmt::format("{:g} s", s)
         : s >= 1e-3 ? fmt::format("{:g} ms", s * 1e3)
                     : fmt::format("{:g} us", s * 1e6);
}

const char* const kSvg =
    "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\n";

}  // namespace

std::string short_number(double v) {
  if (v == 0) return "0";
  for (const auto& [unit, letter] : {std::pair{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "k"}})
    if (std::abs(v) >= unit) return fmt::format("{:.4g}{}", v / unit, letter);
  if (std::abs(v) < 1e-3) {
    const std::string text = fmt::format("{:.2g}", v);
    const size_t e = text.find("e-0");
    return e == std::string::npos ? text : text.substr(0, e + 2) + text.substr(e + 3);
  }
  return fmt::format("{:.4g}", v);
}

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(high > low) || !std::isfinite(high - low)) return {};
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double f : {1.0, 2.0, 2.5, 5.0})
    if (f * power >= rough * 0.999) {
      step = f * power;
      break;
    }
  std::vector<double> ticks;
  for (double t = std::ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step)
    ticks.push_back(std::abs(t) < 1e-9 * step ? 0 : t);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  if (!(low > 0) || !(high > low)) return {};
  const double decades = std::log10(high / low);
  std::vector<double> ticks;
  const std::vector<double> factors = decades < 0.7   ? std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 8}
                                      : decades < 2.2 ? std::vector<double>{1, 2, 5}
                                                      : std::vector<double>{1};
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int e = static_cast<int>(std::floor(std::log10(low))); e <= std::ceil(std::log10(high)); ++e)
    for (const double f : factors)
      if (const double t = f * std::pow(10.0, e); e % every == 0 && t >= low && t <= high) ticks.push_back(t);
  return ticks;
}

std::string chart(const Chart& c) {
  std::vector<Points> points;
  double x0 = std::numeric_limits<double>::max(), x1 = -x0, y0 = x0, y1 = -x0;
  for (const Curve& curve : c.curves) {
    const Points& p = points.emplace_back(drawable(curve, c));
    for (size_t i = 0; i < p.x.size(); ++i) {
      x0 = std::min(x0, p.x[i]), x1 = std::max(x1, p.x[i]);
      y0 = std::min(y0, p.y[i]), y1 = std::max(y1, p.y[i]);
    }
  }
  if (x1 < x0) return {};
  Scale x{x0, x1, c.log_x};
  if (x1 == x0) x.low -= c.log_x ? x0 / 2 : 0.5, x.high += c.log_x ? x0 : 0.5;
  const Scale y = scale_of(y0, y1, c.log_y, c.from_zero);
  const std::vector<double> ticks_y =
      c.log_y ? log_ticks(y.low, y.high) : round_ticks(y.low, y.high, c.height < 160 ? 4 : 5);
  std::vector<double> ticks_x = c.ticks_x.empty() ? round_ticks(x.low, x.high, 5) : c.ticks_x;
  if (c.x == "step") std::erase_if(ticks_x, [](double t) { return t != std::floor(t); });

  std::string drawing = grid_of(ticks_y, y);
  Json hover = Json::array();
  std::vector<KeyItem> items;
  if (!c.marks.empty()) {
    std::string d;
    for (const double m : c.marks)
      if (m >= x.low && m <= x.high) d += fmt::format("M{:.1f} 0V{:.0f}", kUnits * x(m), kUnits);
    drawing += fmt::format("<path class=\"skip\" d=\"{}\"/>\n", d);
    items.push_back({"skipped step", "var(--bad)", Mark::Line});
  }
  for (size_t i = 0; i < points.size(); ++i) {
    const Curve& curve = c.curves[i];
    const Points& p = points[i];
    if (p.x.empty()) continue;
    const std::string ink = colour(curve.colour), path = path_of(thinned(p), x, y);
    const bool sparse = curve.kind == Curve::Kind::Sparse, ideal = curve.kind == Curve::Kind::Ideal;
    if (curve.kind == Curve::Kind::Noisy && p.x.size() >= kManyPoints) {
      drawing += stroke(path, "raw", ink);
      drawing += stroke(path_of(thinned(averaged(p)), x, y), "train", ink);
    } else {
      drawing += stroke(path, (sparse && !c.log_x) || ideal ? "eval" : "train", ideal ? "var(--faint)" : ink);
    }
    if (sparse || p.x.size() == 1) {
      std::string dots;
      for (size_t k = 0; k < p.x.size() && p.x.size() <= 60; ++k)
        dots += fmt::format("M{:.1f} {:.1f}h.01", kUnits * x(p.x[k]), kUnits * (1 - y(p.y[k])));
      drawing += stroke(dots, "dots", ink);
    }
    items.push_back({curve.name, ideal ? "var(--faint)" : ink,
                     ideal    ? Mark::Dash
                     : sparse ? Mark::Dot
                              : Mark::Line});
    if (ideal) continue;
    const Points few = thinned(p);
    hover.push_back(Json::object({{"name", curve.name}, {"x", list_of(few.x)}, {"y", list_of(few.y)}}));
  }
  const auto y_text = c.y_text ? c.y_text : short_number;
  const auto x_text = c.x_text ? c.x_text : [](double v) { return base::thousands(std::llround(v)); };
  std::string out = "<figure class=\"chart\">\n";
  if (c.with_key) out += key(items);
  out += fmt::format(
      "<div class=\"plot\" style=\"height:{}px\">{}{}</svg>{}{}<div class=\"cursor\" "
      "hidden></div></div>\n",
      c.height, kSvg, drawing, y_labels(ticks_y, y, y_text),
      fmt::format("{}<span class=\"xname\">{}</span>", x_labels(ticks_x, x, x_text), escaped(c.x)));
  // On a log axis the pointer's place is not proportional to x: such charts have few points and labels.
  if (!c.log_x)
    out += data_script(Json::object(
        {{"x", c.x}, {"from", rounded(x.low, 9)}, {"to", rounded(x.high, 9)}, {"series", hover}}));
  else
    out += data_script(Json::object({{"x", ""}, {"from", 0}, {"to", 1}, {"series", Json::array()}}));
  return out + "</figure>\n";
}

std::string bars(const std::vector<Bar>& list, double limit, const std::string& limit_text) {
  double longest = limit;
  for (const Bar& b : list) {
    double sum = 0;
    for (const BarPart& p : b.parts) sum += p.value;
    longest = std::max(longest, sum);
  }
  if (longest <= 0) return {};
  std::string out = "<div class=\"bars\">\n";
  for (const Bar& b : list) {
    if (b.apart) out += "<span class=\"gap\"></span>";
    out += fmt::format("<span>{}</span><div class=\"track\">", escaped(b.label));
    for (const BarPart& p : b.parts)
      if (const double percent = 100 * p.value / longest;
          percent > 0)  // a line between parts hides small ones
        out += fmt::format("<i{} style=\"width:{:.3f}%;background:{}\" data-tip=\"{}: {}\"></i>",
                           percent > 2 ? " class=\"cut\"" : "", percent, colour(p.colour), escaped(p.name),
                           escaped(p.text));
    if (limit > 0)
      out += fmt::format("<span class=\"edge\" style=\"left:calc({:.3f}% - 1px)\" title=\"{}\"></span>",
                         100 * limit / longest, escaped(limit_text));
    out += fmt::format("</div><span class=\"value\">{}</span>\n", escaped(b.value));
  }
  return out + "</div>\n";
}

std::string timeline(const Timeline& t) {
  if (t.seconds <= 0 || t.lanes.empty()) return {};
  std::vector<KeyItem> items;
  Json names = Json::array(), lanes = Json::array();
  for (const auto& [name, ink] : t.names) {
    names.push_back(name);
    items.push_back({name, colour(ink)});
  }
  std::string out = "<figure class=\"timeline\">\n" + key(items) + "<div class=\"lanes\">\n";
  for (size_t i = 0; i < t.lanes.size(); ++i) {
    const Lane& lane = t.lanes[i];
    if (lane.apart) out += "<span class=\"gap\"></span>";
    out += fmt::format("<span{}>{}</span><div class=\"lane{}\" data-lane=\"{}\">{}",
                       lane.thin ? "" : " class=\"head\"", escaped(lane.label), lane.thin ? " thin" : "", i,
                       kSvg);
    std::vector<std::string> paths(t.names.size());
    Json spans = Json::array();
    for (const Span& s : lane.spans) {
      const double width = std::max(kUnits * s.seconds / t.seconds, 0.3);
      paths[s.name] +=
          fmt::format("M{:.1f} 0h{:.1f}v1000h-{:.1f}z", kUnits * s.start / t.seconds, width, width);
      spans.push_back(Json::array({rounded(s.start, 5), rounded(s.seconds, 4), s.name, s.micro}));
    }
    for (size_t n = 0; n < paths.size(); ++n)
      if (!paths[n].empty())
        out += fmt::format("<path style=\"fill:{}\" d=\"{}\"/>", colour(t.names[n].second), paths[n]);
    out += "</svg></div>\n";
    lanes.push_back(std::move(spans));
  }
  const Scale x{0, t.seconds, false};
  out += fmt::format("<span></span><div class=\"scale\">{}</div>\n</div>\n",
                     x_labels(round_ticks(0, t.seconds, 4), x, time_text));
  out += data_script(Json::object({{"seconds", rounded(t.seconds, 6)}, {"names", names}, {"lanes", lanes}}));
  return out + "</figure>\n";
}

std::string areas(const Areas& a) {
  if (a.seconds.size() < 2 || a.end <= 0) return {};
  std::vector<double> below(a.seconds.size(), 0);
  double top = 0;
  for (size_t i = 0; i < a.seconds.size(); ++i) {
    double sum = 0;
    for (const Areas::Class& c : a.classes) sum += c.bytes[i];
    top = std::max(top, sum);
  }
  if (top <= 0) return {};
  // A limit far above would press the areas flat: it is named, not drawn.
  constexpr double kFarAbove = 2.5;
  const bool far = a.limit > kFarAbove * top;
  if (!far) top = std::max(top, a.limit);
  const Scale x{0, a.end, false}, y{0, 1.03 * top, false};
  // Ticks at round numbers of the unit that the largest has.
  const double unit = top >= 1e12 ? 0x1p40 : top >= 1e9 ? 0x1p30 : top >= 1e6 ? 0x1p20 : 0x1p10;
  std::vector<double> ticks = round_ticks(0, y.high / unit, 5);
  for (double& t : ticks) t *= unit;
  std::string drawing = grid_of(ticks, y);
  std::vector<KeyItem> items;
  for (const Areas::Class& c : a.classes) {
    std::string up, down;
    for (size_t i = 0; i < a.seconds.size(); ++i) {
      const double from = kUnits * x(a.seconds[i]);
      const double to = kUnits * x(i + 1 < a.seconds.size() ? a.seconds[i + 1] : a.end);
      const double bottom = kUnits * (1 - y(below[i])), roof = kUnits * (1 - y(below[i] + c.bytes[i]));
      up += fmt::format("{}{:.1f} {:.1f}H{:.1f}", i == 0 ? "M" : "L", from, roof, to);
      down = fmt::format("L{:.1f} {:.1f}H{:.1f}", to, bottom, from) + down;
      below[i] += c.bytes[i];
    }
    drawing += fmt::format("<path style=\"fill:{}\" d=\"{}{}z\"/>\n", colour(c.colour), up, down);
    items.push_back({c.name, colour(c.colour)});
  }
  const char* const name = unit == 0x1p40 ? "TiB" : unit == 0x1p30 ? "GiB" : unit == 0x1p20 ? "MiB" : "KiB";
  std::string labels = y_labels(ticks, y, [&](double v) {
    return v == 0 ? std::string("0") : fmt::format("{:.4g} {}", v / unit, name);
  });
  if (far) {
    items.push_back({a.limit_text + ", above the chart", "var(--bad)", Mark::Dash});
  } else if (a.limit > 0) {
    drawing += fmt::format("<path class=\"limit\" d=\"M0 {0:.1f}H1000\"/>\n", kUnits * (1 - y(a.limit)));
    labels += fmt::format("<span class=\"inplot\" style=\"top:{:.2f}%\">{}</span>", 100 * (1 - y(a.limit)),
                          escaped(a.limit_text));
  }
  return fmt::format(
      "<figure class=\"areas\">\n{}<div class=\"plot\" style=\"height:240px\">{}{}</svg>{}{}</div>\n"
      "</figure>\n",
      key(items), kSvg, drawing, labels, x_labels(round_ticks(0, a.end, 4), x, time_text));
}

std::string mesh(const std::vector<MeshAxis>& axes) {
  constexpr int64_t kMaxRows = 32, kMaxColumns = 32;
  if (axes.empty()) return {};
  // The innermost axis makes the columns.
  const size_t split = axes.size() - 1;
  int64_t columns = axes.back().size, rows = 1;
  for (size_t a = 0; a < split; ++a) rows *= axes[a].size;
  const auto label = [&](int64_t index, size_t from, size_t to) {
    std::string text;
    for (size_t a = to; a-- > from;) {
      text = fmt::format("{} {}{}{}", axes[a].name, index % axes[a].size, text.empty() ? "" : " \xC2\xB7 ",
                         text);
      index /= axes[a].size;
    }
    return text;
  };
  // A long inner axis takes several rows.
  const int64_t folds = columns > 8 && columns % 8 == 0 ? columns / 8 : 1;
  rows *= folds;
  columns /= folds;
  std::string out = "<figure class=\"meshes\">\n<div class=\"pick\">";
  Json shown = Json::array();
  for (const MeshAxis& a : axes) {
    out += fmt::format("<button type=\"button\">{} {}</button>", escaped(a.name), a.size);
    shown.push_back(Json::object({{"axis", a.name}, {"size", a.size}}));
  }
  out += "</div>\n<div class=\"mesh\"><table><thead><tr><th></th>";
  const int64_t wide = std::min(columns, kMaxColumns), high = std::min(rows, kMaxRows);
  for (int64_t c = 0; c < wide && folds == 1; ++c)
    out += fmt::format("<th>{}</th>", escaped(label(c, split, axes.size())));
  out += "</tr></thead><tbody>\n";
  for (int64_t r = 0; r < high; ++r) {
    out += fmt::format("<tr><th>{}</th>",
                       escaped(folds > 1 ? label(r * columns, 0, axes.size()) : label(r, 0, split)));
    for (int64_t c = 0; c < wide; ++c)
      out += fmt::format("<td data-rank=\"{0}\" style=\"background:var(--m{1})\">{0}</td>", r * columns + c,
                         r % 8);
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (wide < columns || high < rows)
    out += fmt::format("<p class=\"soft small\">The first {} of {} ranks are drawn.</p>\n",
                       base::thousands(wide * high), base::thousands(rows * columns));
  out += data_script(Json::object({{"axes", shown}}));
  return out + "</figure>\n";
}

}  // namespace quintet::report
