#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "report/markup.h"

namespace quintet::report {
namespace {

using base::human_bytes;
using base::thousands;

constexpr std::string_view kStyle = R"css(
:root{--ink:#1b1f24;--soft:#5b6570;--paper:#fff;--line:#d9dee3;--track:#eef1f4;--good:#1a7f4b;--bad:#b42318}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--paper:#14181c;--line:#2c333a;--track:#222930;
--good:#4cc38a;--bad:#ff8f85}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:0 auto;
padding:1rem}
h1{font-size:1.3rem;margin:.2rem 0}h2{font-size:1.05rem;margin:1.6rem 0 .4rem;border-bottom:1px solid var(--line)}
p{margin:.3rem 0}.soft{color:var(--soft)}.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.5rem;margin:.8rem 0}
.facts div{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem}.facts b{display:block;font-size:1.15rem}
.bar{display:grid;grid-template-columns:6.5rem 1fr 6.5rem;gap:.5rem;align-items:center;margin:.15rem 0;font-size:.85rem}
.bar span:last-child{text-align:right;font-variant-numeric:tabular-nums}
.track{display:flex;height:1.1rem;background:var(--track);border-radius:.2rem;overflow:hidden;position:relative}
.track i{display:block;height:100%}.limit{position:absolute;top:0;bottom:0;border-left:2px dashed var(--bad)}
.key{display:flex;flex-wrap:wrap;gap:.2rem .9rem;font-size:.85rem;margin:.4rem 0}
.key i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.3rem;vertical-align:-.08rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;width:100%}
th,td{text-align:right;padding:.2rem .5rem;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}svg text{fill:var(--ink);font-size:11px}
@media(max-width:30rem){.bar{grid-template-columns:4.5rem 1fr 5rem}}
)css";

// Colours that most readers can tell apart, in both themes.
constexpr std::string_view kColours[] = {"#3b76c4", "#d98324", "#3f9c6c", "#b5539c", "#8a6d3b",
                                         "#5aa6b8", "#c7514b", "#7d7fb3", "#93a13a", "#777f88"};
std::string_view plan_colour(size_t i) { return kColours[i % std::size(kColours)]; }

class Page {
 public:
  Page(const plan::Report& report, const PageParts& parts) : r_(report), parts_(parts) {}

  std::string html() {
    head();
    facts();
    verdict();
    advice();
    memory();
    memory_over_time();
    time();
    pipeline();
    links();
    scaling();
    cost();
    notes();
    return out_ + "</body></html>\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> form, Args&&... args) {
    out_ += fmt::format(form, std::forward<Args>(args)...);
  }
  void title(std::string_view text) { add("<h2>{}</h2>\n", escaped(text)); }

  void head() {
    const config::Recipe& r = r_.recipe;
    const hardware::Cluster& c = r_.assumptions.cluster;
    const std::string model = r.model.preset.empty() ? r.name : r.model.preset;
    const std::string machine = c.accelerator.title.empty() ? c.accelerator.name : c.accelerator.title;
    add("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<title>{} on {} x {}</title>\n<style>{}</style></head><body>\n",
        escaped(model), thousands(c.world()), escaped(machine), kStyle);
    add("<h1>{} on {} x {}</h1>\n<p class=\"soft\">{}; {} sequences of {} tokens per step, {} micro-batches "
        "of "
        "{}</p>\n",
        escaped(model), thousands(c.world()), escaped(machine), escaped(plan::axes_text(r.parallel)),
        thousands(r.batch.global), thousands(r.data.seq_len), thousands(r.batch.accumulation), r.batch.micro);
  }

  void facts() {
    const plan::RankMemory& most = r_.memory.ranks[r_.memory.most_loaded];
    const plan::Time& t = r_.time;
    const auto fact = [&](std::string_view what, const std::string& value, std::string_view style = "") {
      add("<div><span class=\"soft\">{}</span><b class=\"{}\">{}</b></div>", what, style, escaped(value));
    };
    out_ += "<div class=\"facts\">";
    fact("memory", r_.memory.fits() ? "fits" : "does not fit", r_.memory.fits() ? "good" : "bad");
    fact("most loaded device",
         fmt::format("{} of {}", human_bytes(most.total()), human_bytes(r_.memory.limit)));
    fact("step", plan::seconds_text(t.step));
    fact("tokens/s", base::human_count(t.tokens_per_s));
    fact("tokens/s per device", plan::number_text(t.tokens_per_s_per_device));
    fact("MFU", fmt::format("{:.1f} %", 100 * t.mfu));
    fact("TFLOP/s per device", plan::number_text(t.model_flops_per_device() / 1e12));
    fact("parameters", base::human_count(static_cast<double>(r_.parameters)));
    out_ += "</div>\n";
  }

  void verdict() {
    if (parts_.verdict.empty()) return;
    title("Verdict");
    for (const std::string& line : parts_.verdict) add("<p>{}</p>\n", escaped(line));
  }

  void advice() {
    if (parts_.advice.empty()) return;
    title("Any one of these makes it fit");
    out_ += "<div class=\"wide\"><table><tr><th>change</th><th>needs</th><th>time</th><th>how</th></tr>\n";
    for (const PageParts::Change& c : parts_.advice)
      add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(c.what), escaped(c.needs),
          escaped(c.time), escaped(c.how));
    out_ += "</table></div>\n";
  }

  void key(const std::vector<std::pair<std::string, size_t>>& items) {
    out_ += "<div class=\"key\">";
    for (const auto& [what, i] : items)
      add("<span><i style=\"background:{}\"></i>{}</span>", plan_colour(i), escaped(what));
    out_ += "</div>\n";
  }

  // Bytes by class, followed by gaps and the runtime.
  static std::vector<int64_t> parts_of(const plan::RankMemory& m) {
    std::vector<int64_t> parts(m.by_class.begin(), m.by_class.end());
    parts.push_back(m.gaps());
    parts.push_back(m.runtime_bytes);
    return parts;
  }

  void memory() {
    title("Memory per device, by pipeline stage");
    const plan::Memory& m = r_.memory;
    const double scale = static_cast<double>(std::max(m.limit, m.ranks[m.most_loaded].total()));
    std::vector<std::pair<std::string, size_t>> shown;
    for (size_t i = 0; i < static_cast<size_t>(program::kNumMemoryClasses) + 2; ++i) {
      const auto has = [&](const plan::RankMemory& r) { return parts_of(r)[i] > 0; };
      if (std::none_of(m.ranks.begin(), m.ranks.end(), has)) continue;
      const size_t classes = static_cast<size_t>(program::kNumMemoryClasses);
      shown.emplace_back(i < classes    ? std::string(to_string(static_cast<program::MemoryClass>(i)))
                         : i == classes ? "gaps"
                                        : "runtime",
                         i);
    }
    key(shown);
    for (const plan::RankMemory& r : m.ranks) {
      add("<div class=\"bar\"><span>stage {}</span><div class=\"track\">", r.stage);
      const std::vector<int64_t> parts = parts_of(r);
      for (const auto& [what, i] : shown)
        if (parts[i] > 0)
          add("<i style=\"width:{:.3f}%;background:{}\" title=\"{}: {}\"></i>",
              100 * static_cast<double>(parts[i]) / scale, plan_colour(i), escaped(what),
              human_bytes(parts[i]));
      add("<span class=\"limit\" style=\"left:{:.3f}%\" title=\"limit "
          "{}\"></span></div><span>{}</span></div>\n",
          100 * static_cast<double>(m.limit) / scale, human_bytes(m.limit), human_bytes(r.total()));
    }
    add("<p class=\"soft\">Dashed: the device's {}. Bytes come from the programs' memory plans; all ranks of "
        "a "
        "stage are equal.</p>\n",
        human_bytes(m.limit));
  }

  // Stacked classes; each moment is as wide as it lasts.
  void memory_over_time() {
    const std::vector<plan::MemoryPoint>& list = r_.memory.timeline;
    if (list.size() < 2) return;
    constexpr double kWidth = 640, kHeight = 220, kLeft = 60, kBottom = 22;
    title("Memory of the most loaded device over the step");
    const plan::RankMemory& most = r_.memory.ranks[r_.memory.most_loaded];
    int64_t top = r_.memory.limit - most.runtime_bytes;
    for (const plan::MemoryPoint& p : list) top = std::max(top, p.bytes());
    const double end = std::max(r_.timeline ? r_.timeline->simulation.end : 0, list.back().seconds);
    const auto x_of = [&](double seconds) { return kLeft + seconds / end * (kWidth - kLeft - 4); };
    const auto y_of = [&](int64_t bytes) {
      return 6 + (1 - static_cast<double>(bytes) / static_cast<double>(top)) * (kHeight - kBottom - 6);
    };
    std::vector<std::pair<std::string, size_t>> shown;
    std::string areas;
    std::vector<int64_t> below(list.size(), 0);
    for (size_t c = 0; c < static_cast<size_t>(program::kNumMemoryClasses); ++c) {
      if (std::none_of(list.begin(), list.end(),
                       [&](const plan::MemoryPoint& p) { return p.by_class[c] > 0; }))
        continue;
      shown.emplace_back(to_string(static_cast<program::MemoryClass>(c)), c);
      std::string up, down;
      for (size_t i = 0; i < list.size(); ++i) {
        const double from = x_of(list[i].seconds), to = x_of(i + 1 < list.size() ? list[i + 1].seconds : end);
        const double bottom = y_of(below[i]), roof = y_of(below[i] + list[i].by_class[c]);
        up += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", from, roof, to, roof);
        down = fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", to, bottom, from, bottom) + down;
        below[i] += list[i].by_class[c];
      }
      areas += fmt::format("<polygon points=\"{}{}\" fill=\"{}\"><title>{}</title></polygon>\n", up, down,
                           plan_colour(c), escaped(shown.back().first));
    }
    key(shown);
    const double limit = y_of(r_.memory.limit - most.runtime_bytes);
    add("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" aria-label=\"live bytes by class over the "
        "step\">\n{2}<line x1=\"{3}\" x2=\"{0}\" y1=\"{4:.1f}\" y2=\"{4:.1f}\" stroke=\"var(--soft)\" "
        "stroke-dasharray=\"4 4\"/><text x=\"0\" y=\"{5:.1f}\">{6}</text><text x=\"{3}\" y=\"{7}\">0</text>"
        "<text x=\"{0}\" y=\"{7}\" text-anchor=\"end\">{8}</text></svg>\n",
        kWidth, kHeight, areas, kLeft, limit, limit + 5, human_bytes(r_.memory.limit - most.runtime_bytes),
        kHeight - 6, plan::seconds_text(end));
    add("<p class=\"soft\">Peak at {}. Dashed: the limit without context and libraries. Nothing is placed in "
        "host memory or on disk.</p>\n",
        escaped(most.peak_at));
  }

  void time() {
    title("Time per step");
    const plan::Time& t = r_.time;
    for (size_t i = 0; i < t.shares.size(); ++i) {
      const double share = t.shares[i].seconds / t.step;
      if (share < 0.0005) continue;
      add("<div class=\"bar\"><span>{}</span><div class=\"track\"><i "
          "style=\"width:{:.3f}%;background:{}\"></i></div><span>{} ({:.1f} %)</span></div>\n",
          escaped(t.shares[i].what), 100 * share, plan_colour(i), plan::seconds_text(t.shares[i].seconds),
          100 * share);
    }
    add("<p class=\"soft\">as the busiest stage spends it. MFU = {} TFLOP of the model / ({} x {} devices x "
        "{} "
        "TFLOP/s dense); HFU, which counts recompute, is {:.1f} %</p>\n",
        plan::number_text(t.model_flops / 1e12), plan::seconds_text(t.step), thousands(t.devices),
        plan::number_text(t.peak_flops / 1e12), 100 * t.hfu);
  }

  // A call of a body on the compute stream of a stage.
  struct Bar {
    double start, end;
    program::BodyKind kind;
    int chunk, micro;
  };
  std::vector<Bar> bars_of(size_t rank) const {
    const sim::World world = r_.timeline->world();
    const program::Program& p = *world.ranks[rank].program;
    const program::Expanded& e = *world.ranks[rank].expanded;
    std::vector<Bar> bars;
    int call = -1;
    for (size_t k = 0; k < e.issues.size(); ++k) {
      const program::Issue& issue = e.issues[k];
      const program::Instr& instr = program::instr_of(p, issue);
      if (instr.stream != program::kComputeStream || instr.kind == program::InstrKind::Free) continue;
      const sim::Span& span = r_.timeline->simulation.ranks[rank][k];
      const program::Body& body = p.bodies[static_cast<size_t>(issue.body)];
      if (issue.call != call)
        bars.push_back(
            {span.start, span.end, body.kind, body.chunk, e.calls[static_cast<size_t>(issue.call)].micro});
      bars.back().end = std::max(bars.back().end, span.end);
      call = issue.call;
    }
    return bars;
  }

  void pipeline() {
    if (!r_.timeline || r_.memory.ranks.size() < 2) return;
    constexpr size_t kMaxBars = 6000;
    constexpr double kWidth = 1200, kLeft = 60, kRow = 20;
    title("Pipeline timeline");
    const size_t stages = r_.memory.ranks.size();
    const double end = r_.timeline->simulation.end, scale = (kWidth - kLeft) / end;
    key({{"forward", 0}, {"backward", 1}, {"weight gradients", 2}, {"step", 3}});
    add("<div class=\"wide\"><svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"timeline of "
        "each stage's compute\">\n",
        kWidth, kRow * static_cast<double>(stages) + 4, kWidth);
    size_t drawn = 0;
    for (size_t s = 0; s < stages; ++s) {
      const double y = kRow * static_cast<double>(s);
      add("<text x=\"0\" y=\"{:.1f}\">stage {}</text><rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" "
          "height=\"{}\" "
          "fill=\"var(--track)\"/>\n",
          y + 14, s, kLeft, y, kWidth - kLeft, kRow - 2);
      for (const Bar& bar : bars_of(s)) {
        const double width = (bar.end - bar.start) * scale;
        if (width < 0.05 || ++drawn > kMaxBars) continue;
        using program::BodyKind;
        const size_t hue = bar.kind == BodyKind::Forward    ? 0
                           : bar.kind == BodyKind::Backward ? 1
                           : bar.kind == BodyKind::Weight   ? 2
                                                            : 3;
        add("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" fill-opacity=\"{}\" "
            "stroke=\"var(--paper)\" stroke-width=\".4\"><title>{}{}: {} to {}</title></rect>\n",
            kLeft + bar.start * scale, y, width, kRow - 2, plan_colour(hue), bar.chunk % 2 == 0 ? 1.0 : 0.6,
            to_string(bar.kind), bar.micro < 0 ? "" : fmt::format(" of micro-batch {}", bar.micro),
            plan::seconds_text(bar.start), plan::seconds_text(bar.end));
      }
    }
    out_ += "</svg></div>\n";
    if (r_.timeline->micro_batches < r_.recipe.batch.accumulation)
      add("<p class=\"soft\">{} of {} micro-batches are shown: the others repeat the steady state.</p>\n",
          r_.timeline->micro_batches, r_.recipe.batch.accumulation);
    if (drawn > kMaxBars) add("<p class=\"soft\">Only the first {} bars are shown.</p>\n", kMaxBars);
  }

  void links() {
    if (r_.time.links.empty()) return;
    title("Sent per device per step");
    out_ +=
        "<div class=\"wide\"><table><tr><th>axes</th><th>bytes</th><th>duration</th><th>exposed</th>"
        "<th>link</th></tr>\n";
    for (const plan::LinkBytes& l : r_.time.links)
      add("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", escaped(l.axes),
          human_bytes(std::llround(l.bytes)), plan::seconds_text(l.seconds), plan::seconds_text(l.exposed),
          escaped(l.link));
    out_ += "</table></div>\n";
  }

  void scaling() {
    if (parts_.scaling.size() < 2) return;
    constexpr double kWidth = 640, kHeight = 240, kLeft = 60, kBottom = 24;
    title("Throughput by number of devices");
    const auto log_of = [](double x) { return std::log2(std::max(x, 1e-30)); };
    double x0 = 1e300, x1 = 0, y0 = 1e300, y1 = 0;
    for (const PageParts::Point& p : parts_.scaling) {
      x0 = std::min(x0, log_of(static_cast<double>(p.devices)));
      x1 = std::max(x1, log_of(static_cast<double>(p.devices)));
      y0 = std::min({y0, log_of(p.tokens_per_s), log_of(p.ideal)});
      y1 = std::max({y1, log_of(p.tokens_per_s), log_of(p.ideal)});
    }
    const auto x_of = [&](const PageParts::Point& p) {
      return kLeft +
             (log_of(static_cast<double>(p.devices)) - x0) / std::max(x1 - x0, 1e-9) * (kWidth - kLeft - 40);
    };
    const auto y_of = [&](double v) {
      return 10 + (y1 - log_of(v)) / std::max(y1 - y0, 1e-9) * (kHeight - kBottom - 20);
    };
    std::string real, ideal, marks;
    for (const PageParts::Point& p : parts_.scaling) {
      real += fmt::format("{:.1f},{:.1f} ", x_of(p), y_of(p.tokens_per_s));
      ideal += fmt::format("{:.1f},{:.1f} ", x_of(p), y_of(p.ideal));
      marks += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"><title>{} devices: {} tokens/s{}</title>"
          "</circle><text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
          x_of(p), y_of(p.tokens_per_s), plan_colour(0), thousands(p.devices),
          base::human_count(p.tokens_per_s), p.label.empty() ? "" : "; " + escaped(p.label), x_of(p),
          kHeight - 6, thousands(p.devices));
    }
    add("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" role=\"img\" aria-label=\"tokens per second over "
        "devices\">\n"
        "<polyline points=\"{2}\" fill=\"none\" stroke=\"{3}\" stroke-dasharray=\"4 4\"/>\n<polyline "
        "points=\"{4}\" fill=\"none\" stroke=\"{5}\" stroke-width=\"2\"/>\n{6}<text x=\"0\" "
        "y=\"16\">{7}</text>"
        "<text x=\"0\" y=\"{8}\">{9}</text></svg>\n",
        kWidth, kHeight, ideal, "var(--soft)", real, plan_colour(0), marks, base::human_count(std::exp2(y1)),
        kHeight - kBottom - 10, base::human_count(std::exp2(y0)));
    add("<p class=\"soft\">tokens/s; dashed: perfect scaling. {}</p>\n", escaped(parts_.scaling_note));
  }

  void cost() {
    if (parts_.cost.empty()) return;
    title("Cost");
    out_ += "<table>\n";
    for (const auto& [what, value] : parts_.cost)
      add("<tr><td>{}</td><td>{}</td></tr>\n", escaped(what), escaped(value));
    out_ += "</table>\n";
  }

  void notes() {
    if (r_.notes.empty() && r_.warnings.empty()) return;
    title("Assumed");
    for (const std::string& warning : r_.warnings) add("<p>warning: {}</p>\n", escaped(warning));
    for (const std::string& note : r_.notes) add("<p class=\"soft\">{}</p>\n", escaped(note));
  }

  const plan::Report& r_;
  const PageParts& parts_;
  std::string out_;
};

}  // namespace

std::string to_html(const plan::Report& report, const PageParts& parts) { return Page(report, parts).html(); }

}  // namespace quintet::report
