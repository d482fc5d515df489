// A plan and its findings as JSON.
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/print.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "report/findings.h"
#include "search/layout_space.h"

namespace quintet::report {
namespace {

using Json = nlohmann::ordered_json;

template <class List, class Fn>
Json array_of(const List& list, Fn&& item) {
  Json out = Json::array();
  for (const auto& x : list) out.push_back(item(x));
  return out;
}

// A layout among others: what it needs and does.
Json layout(const plan::Report& r) {
  return {{"layout", search::layout_words(r.recipe)},
          {"fits", r.memory.fits()},
          {"bytes", plan::needs(r)},
          {"limit_bytes", r.memory.limit},
          {"step_seconds", r.time.step},
          {"tokens_per_s", r.time.tokens_per_s},
          {"tokens_per_s_per_device", r.time.tokens_per_s_per_device},
          {"mfu", r.time.mfu},
          {"hfu", r.time.hfu}};
}

std::string_view word(advice::Rung::State state) {
  switch (state) {
    case advice::Rung::State::DoesNotApply:
      return "does not apply";
    case advice::Rung::State::DoesNotFit:
      return "does not fit";
    case advice::Rung::State::Fits:
      return "fits";
    case advice::Rung::State::PlanOnly:
      return "plan-only";
  }
  return "";
}

Json json_of(const advice::Verdict& v) {
  return {{"text", v.text},
          {"answer", v.answer < 0 ? Json() : Json(v.rungs[static_cast<size_t>(v.answer)].name)},
          {"rungs", array_of(v.rungs,
                             [](const advice::Rung& r) {
                               Json rung = {{"name", r.name}, {"state", word(r.state)}, {"text", r.text}};
                               if (r.report) rung["plan"] = layout(*r.report);
                               return rung;
                             })},
          {"warnings", v.warnings}};
}

Json json_of(const search::SearchResult& s) {
  Json json = {{"families", s.families},
               {"illegal", s.illegal},
               {"too_large", s.too_large},
               {"too_slow", s.too_slow},
               {"planned", s.planned},
               {"did_not_fit", s.did_not_fit},
               {"bound_seconds", s.bound_seconds},
               {"proven", s.proven},
               {"best", array_of(s.best, [](const search::Found& f) {
                  Json found = layout(f.report);
                  found["reasons"] = f.reasons;
                  found["recipe"] = Json::parse(config::to_json(f.report.recipe));
                  return found;
                })}};
  if (s.smallest) json["smallest"] = layout(*s.smallest);
  return json;
}

Json pareto_json(const search::SearchResult& s) {
  return {{"proven", s.pareto_proven}, {"layouts", array_of(s.pareto, [](const plan::Report& r) {
                                          Json found = layout(r);
                                          found["device_seconds"] = r.time.step * r.time.devices;
                                          found["recipe"] = Json::parse(config::to_json(r.recipe));
                                          return found;
                                        })}};
}

Json json_of(const std::vector<advice::Advice>& list) {
  return array_of(list, [](const advice::Advice& a) {
    return Json{{"what", a.what},        {"runs", a.runs},         {"sets", a.sets},
                {"bytes", a.bytes},      {"saved_bytes", a.saved}, {"step_seconds", a.step},
                {"lost_seconds", a.lost}};
  });
}

Json json_of(const search::Scaling& s) {
  const auto curve = [](const std::vector<search::ScalePoint>& points) {
    return array_of(points, [](const search::ScalePoint& p) {
      Json point = {{"devices", p.devices}, {"global_batch", p.global_batch}, {"fits", p.best.has_value()}};
      if (p.best) {
        point["speedup"] = p.speedup;
        point["efficiency"] = p.efficiency;
        point["device_seconds"] = p.best->time.step * p.devices;
        if (p.useful_speedup > 0) point["useful"] = p.useful, point["useful_speedup"] = p.useful_speedup;
        point["plan"] = layout(*p.best);
      }
      return point;
    });
  };
  Json json = {{"strong", curve(s.strong)}, {"weak", curve(s.weak)}, {"worthwhile_devices", s.worthwhile}};
  if (s.noise_tokens > 0) {
    json["critical_batch_tokens"] = s.noise_tokens;
    json["worthwhile_devices_growing_batch"] = s.worthwhile_weak;
  }
  return json;
}

Json json_of(const hardware::RunCost& c) {
  return {{"seconds", c.seconds},
          {"device_hours", c.device_hours},
          {"kwh", c.kwh},
          {"co2_kg", c.co2_kg},
          // A cluster without a price costs nothing that is known.
          {"usd", c.usd > 0 ? Json(c.usd) : Json()}};
}

Json json_of(const EconomyReport& e) {
  const hardware::Goodput& g = e.goodput;
  return {{"tokens", e.tokens},
          {"ideal", json_of(e.ideal)},
          {"with_losses", json_of(e.with_losses)},
          {"least", json_of(e.least)},
          {"most", json_of(e.most)},
          {"goodput",
           {{"share", g.share},
            {"checkpoint_interval_seconds", g.interval_seconds},
            {"mean_between_failures_seconds", g.mean_between_failures_seconds},
            {"failures_per_day", g.failures_per_day},
            {"checkpoint_share", g.checkpoint_share},
            {"lost_share", g.lost_share}}}};
}

}  // namespace

std::string to_json(const plan::Report* report, const Findings& b) {
  Json json = report != nullptr ? plan::json_of(*report) : Json{{"fits", false}, {"notes", b.notes}};
  if (b.verdict) json["verdict"] = json_of(*b.verdict);
  if (b.search) json["search"] = json_of(*b.search);
  if (b.search && b.pareto) json["pareto"] = pareto_json(*b.search);
  if (b.advice) json["advice"] = json_of(*b.advice);
  if (b.scaling) json["scaling"] = json_of(*b.scaling);
  if (b.economy) json["economy"] = json_of(*b.economy);
  return base::json_text(json, plan::kJsonLevels) + "\n";
}

}  // namespace quintet::report
