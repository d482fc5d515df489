#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "report/figures.h"
#include "report/markup.h"

namespace quintet::report {
namespace {

class PlanPage {
 public:
  PlanPage(const plan::Report& report, const PageParts& parts) : r_(report), parts_(parts) {}

  std::string html() {
    head();
    facts_of_plan();
    out_ += "<div class=\"cards\">\n";
    advice();
    ranking();
    strategies();
    memory();
    time();
    memory_over_time();
    pipeline();
    links();
    scaling();
    cost();
    assumptions();
    provenance();
    return page(title_, out_ + "</div>\n");
  }

 private:
  void head() {
    const config::Recipe& r = r_.recipe;
    const hardware::Cluster& c = r_.assumptions.cluster;
    const std::string machine = c.accelerator.title.empty() ? c.accelerator.name : c.accelerator.title;
    title_ = fmt::format("{} on {} \xC3\x97 {}", r.model.preset.empty() ? r.name : r.model.preset,
                         base::thousands(c.world()), machine);
    const bool fits = r_.memory.fits();
    out_ += fmt::format(
        "<header><h1>{}<span class=\"chip {}\">{}</span></h1>\n<p class=\"soft\">{}; {} sequences of {} "
        "tokens per step, {} micro-batch{} of {}</p></header>\n",
        escaped(title_), fits ? "good" : "bad", fits ? "fits" : "does not fit", escaped(plan::layout_text(r)),
        base::thousands(r.batch.global), base::thousands(r.data.seq_len),
        base::thousands(r.batch.accumulation), r.batch.accumulation == 1 ? "" : "es", r.batch.micro);
    if (!r_.memory.fits_host())
      out_ += fmt::format("<p class=\"bad\">{}</p>\n", escaped(plan::misfit_text(r_)));
    for (const std::string& w : r_.warnings) out_ += fmt::format("<p class=\"bad\">{}</p>\n", escaped(w));
    for (const std::string& w : parts_.warnings)
      if (std::find(r_.warnings.begin(), r_.warnings.end(), w) == r_.warnings.end())
        out_ += fmt::format("<p class=\"bad\">{}</p>\n", escaped(w));
  }

  void facts_of_plan() {
    const plan::RankMemory& most = r_.memory.ranks[r_.memory.most_loaded];
    const plan::Time& t = r_.time;
    out_ +=
        tiles({{"memory per device", base::human_bytes(most.total()),
                "of " + base::human_bytes(r_.memory.limit), r_.memory.fits_device() ? "good" : "bad"},
               {"time per step", plan::seconds_text(t.step), "simulated", ""},
               {"tokens per second", base::human_count(t.tokens_per_s),
                plan::number_text(t.tokens_per_s_per_device) + " per device", ""},
               {"MFU", fmt::format("{:.1f} %", 100 * t.mfu), fmt::format("HFU {:.1f} %", 100 * t.hfu), ""},
               {"TFLOP/s per device", plan::number_text(t.model_flops_per_device() / 1e12),
                fmt::format("of {} dense", plan::number_text(t.peak_flops / 1e12)), ""},
               {"parameters", base::human_count(static_cast<double>(r_.parameters)),
                r_.active_parameters == r_.parameters
                    ? ""
                    : base::human_count(static_cast<double>(r_.active_parameters)) + " active",
                ""}});
  }

  void advice() {
    if (parts_.advice.empty()) return;
    std::vector<PageParts::Row> rows;
    for (const PageParts::Change& c : parts_.advice) rows.push_back({c.what, c.needs, c.time, c.how});
    out_ += card("Any one of these makes it fit", "each planned in full; least added time first",
                 table({"change", "needs", "time", "how"}, rows, {3}));
  }

  void ranking() {
    if (parts_.ranking.empty()) return;
    std::string body = table(kRankingHead, parts_.ranking, {1}, 0);
    if (!parts_.reasons.empty()) {
      body += "<h3>Why the first is the way it is</h3>\n";
      for (const std::string& reason : parts_.reasons) body += paragraph(reason);
    }
    out_ += card("The fastest layouts found", "this page describes the first of them",
                 body + paragraph(parts_.search_note));
  }

  void strategies() {
    if (parts_.strategies.empty()) return;
    out_ += card("By strategy", "the fastest layout of each, from the simplest up",
                 table({"strategy", "result"}, parts_.strategies, {1}) + paragraph(parts_.strategy_note));
  }

  static std::string paragraph(const std::string& text) {
    return text.empty() ? "" : fmt::format("<p class=\"soft small\">{}</p>\n", escaped(text));
  }

  // Bytes by class, followed by gaps and the runtime.
  static std::vector<std::pair<std::string, int64_t>> classes_of(const plan::RankMemory& m) {
    std::vector<std::pair<std::string, int64_t>> list;
    for (size_t c = 0; c < m.by_class.size(); ++c)
      list.emplace_back(to_string(static_cast<program::MemoryClass>(c)), m.by_class[c]);
    list.emplace_back("gaps", m.gaps());
    list.emplace_back("runtime", m.runtime_bytes + m.device_copies);
    return list;
  }

  void memory() {
    const plan::Memory& m = r_.memory;
    std::vector<Bar> list;
    std::vector<bool> shown(program::kNumMemoryClasses + 2, false);
    for (const plan::RankMemory& r : m.ranks) {
      Bar bar{m.ranks.size() == 1 ? "device" : fmt::format("stage {}", r.stage),
              {},
              base::human_bytes(r.total()),
              false};
      const auto classes = classes_of(r);
      for (size_t i = 0; i < classes.size(); ++i) {
        if (classes[i].second <= 0) continue;
        shown[i] = true;
        bar.parts.push_back({classes[i].first, ink(i), static_cast<double>(classes[i].second),
                             base::human_bytes(classes[i].second)});
      }
      list.push_back(std::move(bar));
    }
    std::vector<KeyItem> items;
    const auto classes = classes_of(m.ranks[0]);
    for (size_t i = 0; i < shown.size(); ++i)
      if (shown[i]) items.push_back({classes[i].first, colour(ink(i))});
    items.push_back({"limit, " + base::human_bytes(m.limit), "var(--bad)", Mark::Dash});
    out_ += card("Memory per device", m.ranks.size() == 1 ? "at the peak" : "at the peak, by pipeline stage",
                 key(items) + bars(list, static_cast<double>(m.limit), base::human_bytes(m.limit)) +
                     paragraph(fmt::format(
                         "From the programs' memory plans; all ranks of a stage are equal. Peak at {}.{}",
                         m.ranks[m.most_loaded].peak_at,
                         m.ranks[m.most_loaded].device_copies > 0
                             ? " Runtime includes the copies that checkpoints are written from."
                             : "")),
                 "half");
  }

  // Gaps are grey; the runtime follows the seven classes.
  static size_t ink(size_t i) {
    return i == program::kNumMemoryClasses ? 9 : i > program::kNumMemoryClasses ? 8 : i;
  }

  void time() {
    const plan::Time& t = r_.time;
    std::vector<Bar> list;
    for (size_t i = 0; i < t.shares.size(); ++i) {
      const plan::TimeShare& s = t.shares[i];
      if (s.seconds / t.step < 0.0005) continue;
      const std::string text = plan::seconds_text(s.seconds);
      list.push_back({s.what,
                      {{s.what, i, s.seconds, text}},
                      fmt::format("{}, {:.1f} %", text, 100 * s.seconds / t.step),
                      false});
    }
    out_ += card("Time per step",
                 r_.memory.ranks.size() > 1 ? fmt::format("on stage {}, the busiest", t.busiest)
                                            : "as a device spends it",
                 bars(list) + paragraph(fmt::format(
                                  "MFU = {} model TFLOP / ({} \xC3\x97 {} devices \xC3\x97 {} TFLOP/s "
                                  "dense); HFU also counts recompute.",
                                  plan::number_text(t.model_flops / 1e12), plan::seconds_text(t.step),
                                  base::thousands(t.devices), plan::number_text(t.peak_flops / 1e12))),
                 "half");
  }

  void memory_over_time() {
    const std::vector<plan::MemoryPoint>& list = r_.memory.timeline;
    if (list.size() < 2) return;
    const plan::RankMemory& most = r_.memory.ranks[r_.memory.most_loaded];
    const int64_t limit = r_.memory.limit - most.runtime_bytes - most.device_copies;
    Areas a{.end = std::max(r_.timeline ? r_.timeline->simulation.end : 0, list.back().seconds),
            .limit = static_cast<double>(limit),
            .limit_text = "limit " + base::human_bytes(limit)};
    for (const plan::MemoryPoint& p : list) a.seconds.push_back(p.seconds);
    for (size_t c = 0; c < program::kNumMemoryClasses; ++c) {
      Areas::Class part{std::string(to_string(static_cast<program::MemoryClass>(c))), c, {}};
      for (const plan::MemoryPoint& p : list) part.bytes.push_back(static_cast<double>(p.by_class[c]));
      if (*std::max_element(part.bytes.begin(), part.bytes.end()) > 0) a.classes.push_back(std::move(part));
    }
    out_ +=
        card("Memory over the step",
             "live bytes of the most loaded device; the limit is without context and libraries", areas(a));
  }

  void pipeline() {
    if (!r_.timeline || r_.memory.ranks.size() < 2) return;
    constexpr size_t kMaxSpans = 12'000;
    using program::BodyKind;
    report::Timeline t{
        .seconds = r_.timeline->simulation.end,
        .names = {{"forward", 0}, {"backward", 1}, {"weight gradients", 2}, {"optimizer step", 3}},
        .lanes = {}};
    const sim::World world = r_.timeline->world();
    size_t drawn = 0;
    for (size_t s = 0; s < r_.memory.ranks.size(); ++s) {
      const program::Program& p = *world.ranks[s].program;
      const program::Expanded& e = *world.ranks[s].expanded;
      Lane lane{fmt::format("stage {}", s), {}, r_.memory.ranks.size() > 24, false};
      int call = -1;
      for (size_t k = 0; k < e.issues.size(); ++k) {
        const program::Issue& issue = e.issues[k];
        const program::Instr& instr = program::instr_of(p, issue);
        if (instr.stream != program::kComputeStream || instr.kind == program::InstrKind::Free) continue;
        const sim::Span& span = r_.timeline->simulation.ranks[s][k];
        const BodyKind kind = p.bodies[static_cast<size_t>(issue.body)].kind;
        if (issue.call != call)
          lane.spans.push_back({span.start, 0,
                                kind == BodyKind::Forward    ? 0u
                                : kind == BodyKind::Backward ? 1u
                                : kind == BodyKind::Weight   ? 2u
                                                             : 3u,
                                e.calls[static_cast<size_t>(issue.call)].micro});
        call = issue.call;
        lane.spans.back().seconds = std::max(lane.spans.back().seconds, span.end - lane.spans.back().start);
      }
      if (drawn + lane.spans.size() > kMaxSpans) break;
      drawn += lane.spans.size();
      t.lanes.push_back(std::move(lane));
    }
    std::string body = timeline(t);
    if (r_.timeline->micro_batches < r_.recipe.batch.accumulation)
      body +=
          paragraph(fmt::format("{} of {} micro-batches are simulated: the others repeat the steady state.",
                                r_.timeline->micro_batches, r_.recipe.batch.accumulation));
    if (t.lanes.size() < r_.memory.ranks.size())
      body += paragraph(
          fmt::format("The first {} of {} stages are drawn.", t.lanes.size(), r_.memory.ranks.size()));
    out_ += card("Pipeline timeline", "compute of each stage over one simulated step; gaps are waits", body);
  }

  void links() {
    if (r_.time.links.empty()) return;
    std::vector<PageParts::Row> rows;
    for (const plan::LinkBytes& l : r_.time.links)
      rows.push_back({l.axes, base::human_bytes(std::llround(l.bytes)), plan::seconds_text(l.seconds),
                      plan::seconds_text(l.exposed), l.link});
    out_ += card("Sent per device and step", "exposed: time that compute waits",
                 table({"axes", "bytes", "duration", "exposed", "link"}, rows, {4}));
  }

  void scaling() {
    std::string body;
    if (parts_.scaling.size() > 1) {
      Chart c{.x = "devices", .log_x = true, .log_y = true};
      Curve real{"planned", 0, {}, {}, Curve::Kind::Sparse},
          ideal{"perfect scaling", 9, {}, {}, Curve::Kind::Ideal};
      for (const PageParts::Point& p : parts_.scaling) {
        const double devices = static_cast<double>(p.devices);
        real.x.push_back(devices), real.y.push_back(p.tokens_per_s);
        ideal.x.push_back(devices), ideal.y.push_back(p.ideal);
      }
      c.ticks_x = real.x;
      c.curves = {ideal, real};
      body += chart(c) + paragraph(parts_.scaling_note);
    }
    if (!parts_.strong.empty())
      body += "<h3>The same batch on more devices</h3>\n" + table(kScalingHead, parts_.strong, {7});
    if (!parts_.weak.empty())
      body += "<h3>A batch proportional to the devices</h3>\n" + table(kScalingHead, parts_.weak, {7});
    if (!body.empty())
      out_ += card("Scaling", "tokens per second by number of devices, each with its own best layout", body);
  }

  void cost() {
    if (!parts_.cost.empty()) out_ += card("Cost", "", facts(parts_.cost), "half");
  }

  void assumptions() {
    std::string body = facts(parts_.assumptions);
    for (const std::string& note : r_.notes) body += paragraph(note);
    out_ += card("Assumptions", "", body, parts_.cost.empty() ? "" : "half");
  }

  void provenance() {
    if (parts_.date.empty()) return;
    out_ += card("Provenance", "",
                 facts({{"version", "quintet " + parts_.provenance.version},
                        {"command", parts_.provenance.command},
                        {"in", parts_.provenance.folder},
                        {"date", parts_.date + " UTC"}}));
  }

  const plan::Report& r_;
  const PageParts& parts_;
  std::string title_, out_;
};

}  // namespace

std::string to_html(const plan::Report& report, const PageParts& parts) {
  return PlanPage(report, parts).html();
}

}  // namespace quintet::report
