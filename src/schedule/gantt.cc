#include "schedule/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/output_path.h"

namespace quintet::schedule {
namespace {

double shortest(const Timeline& line) {
  double least = line.makespan;
  for (const std::vector<Slot>& slots : line.ranks)
    for (const Slot& slot : slots)
      if (slot.end > slot.start) least = std::min(least, slot.end - slot.start);
  return least;
}

std::string summary(const Schedule& s, const Timeline& line) {
  return fmt::format("{}: {} stages, {} chunk{}, {} micro-batches; bubble {:.2f}%, by rank {:.2f}%", s.name,
                     s.stages, s.chunks, s.chunks == 1 ? "" : "s", s.micro_batches, 100 * line.bubble_rate(),
                     100 * line.span_bubble_rate());
}

// The actions of a mixed pair share one slot; each is drawn in its half.
Slot drawn(const Schedule& s, const Timeline& line, size_t rank, size_t i) {
  Slot slot = line.ranks[rank][i];
  const double middle = (slot.start + slot.end) / 2;
  if (s.ranks[rank][i].with_next)
    slot.end = middle;
  else if (i > 0 && s.ranks[rank][i - 1].with_next)
    slot.start = middle;
  return slot;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// Chunks of one kind fade from strong to pale.
std::string colour(Kind kind, int chunk, int chunks) {
  const int hue = kind == Kind::F ? 212 : kind == Kind::B ? 24 : kind == Kind::W ? 130 : 350;
  const int light = 55 + (chunks > 1 ? 30 * chunk / (chunks - 1) : 0);
  return fmt::format("hsl({},65%,{}%)", hue, light);
}

}  // namespace

std::string text_gantt(const Schedule& s, const Timeline& line, double scale, size_t columns) {
  if (scale <= 0) scale = 3 / shortest(line);
  const auto column = [&](double time) { return static_cast<size_t>(std::lround(time * scale)); };
  const int width = static_cast<int>(std::to_string(s.stages - 1).size());
  const size_t all = column(line.makespan), frame = static_cast<size_t>(width) + 3;
  const size_t panel = columns > frame ? columns - frame : all;
  std::vector<std::string> rows;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    std::string& row = rows.emplace_back(all, '.');
    for (size_t i = 0; i < s.ranks[rank].size(); ++i) {
      const Action& action = s.ranks[rank][i];
      const Slot slot = drawn(s, line, rank, i);
      const size_t from = column(slot.start), to = std::min(column(slot.end), row.size());
      if (to <= from) continue;
      const char letter = to_text(action.kind)[0];
      std::string label(1, action.chunk == 0 ? letter : static_cast<char>(letter - 'A' + 'a'));
      const std::string micro = std::to_string(action.micro);
      if (1 + micro.size() <= to - from) label += micro;
      label.resize(to - from, '-');
      row.replace(from, to - from, label);
    }
  }
  std::string out;
  for (size_t from = 0; from < all; from += panel) {
    if (from > 0) out += '\n';
    for (size_t rank = 0; rank < rows.size(); ++rank)
      out += fmt::format("{:>{}} |{}|\n", rank, width, rows[rank].substr(from, panel));
  }
  return out + summary(s, line) + "\n";
}

std::string svg_gantt(const Schedule& s, const Timeline& line) {
  constexpr double kRow = 24, kTop = 32, kLeft = 56;
  const double scale = std::max(18 / shortest(line), 600 / line.makespan);
  const double width = kLeft + line.makespan * scale + 8, height = kTop + kRow * s.stages + 28;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"10\">\n<!-- {3} -->\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n"
      "<text x=\"8\" y=\"20\" font-size=\"13\">{2}</text>\n",
      width, height, escaped(summary(s, line)), base::kPageMark);
  for (int rank = 0; rank < s.stages; ++rank) {
    const double y = kTop + kRow * rank;
    out += fmt::format("<text x=\"8\" y=\"{:.1f}\">rank {}</text>\n", y + 15, rank);
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"#eee\"/>\n", kLeft, y,
                       line.makespan * scale, kRow - 2);
    for (size_t i = 0; i < s.ranks[rank].size(); ++i) {
      const Action& action = s.ranks[rank][i];
      const Slot slot = drawn(s, line, rank, i);
      const double x = kLeft + slot.start * scale, w = (slot.end - slot.start) * scale;
      out += fmt::format(
          "<g><title>{}: {:g} to {:g}</title><rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" "
          "fill=\"{}\" stroke=\"white\" stroke-width=\"0.5\"/><text x=\"{:.2f}\" y=\"{:.1f}\" "
          "text-anchor=\"middle\">{}</text></g>\n",
          to_text(action), slot.start, slot.end, x, y, w, kRow - 2,
          colour(action.kind, action.chunk, s.chunks), x + w / 2, y + 15, action.micro);
    }
  }
  double x = kLeft;
  for (const Kind kind : {Kind::F, Kind::B, Kind::W, Kind::BW}) {
    const double y = kTop + kRow * s.stages + 8;
    out += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n",
        x, y, colour(kind, 0, 1), x + 16, y + 10, to_text(kind));
    x += 48;
  }
  return out + "</svg>\n";
}

}  // namespace quintet::schedule
