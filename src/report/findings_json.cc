#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/print.h"
#include "observe/metrics.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "report/findings.h"
#include "search/layout_space.h"

namespace quintet::report {

using observe::json_number;
using observe::json_string;

namespace {

// Fields of an object, in order.
class Object {
 public:
  Object& raw(std::string_view key, std::string_view value) {
    out_ += fmt::format("{}{}: {}", out_.empty() ? "" : ", ", json_string(key), value);
    return *this;
  }
  Object& set(std::string_view key, std::string_view value) { return raw(key, json_string(value)); }
  Object& set(std::string_view key, double value) { return raw(key, json_number(value)); }
  Object& set(std::string_view key, int64_t value) { return raw(key, fmt::format("{}", value)); }
  Object& set(std::string_view key, int value) { return set(key, static_cast<int64_t>(value)); }
  Object& set(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
  Object& set(std::string_view key, const char* value) { return set(key, std::string_view(value)); }
  std::string json() const { return "{" + out_ + "}"; }

 private:
  std::string out_;
};

template <class List, class Fn>
std::string array_of(const List& list, Fn&& item) {
  std::vector<std::string> parts;
  for (const auto& x : list) parts.push_back(item(x));
  return fmt::format("[{}]", fmt::join(parts, ",\n  "));
}
std::string strings(const std::vector<std::string>& list) {
  return array_of(list, [](const std::string& s) { return json_string(s); });
}

// A layout among others: what it needs and does.
Object layout(const plan::Report& r) {
  Object o;
  o.set("layout", search::layout_words(r.recipe)).set("fits", r.memory.fits());
  o.set("bytes", plan::needs(r)).set("limit_bytes", r.memory.limit);
  o.set("step_seconds", r.time.step).set("tokens_per_s", r.time.tokens_per_s);
  o.set("tokens_per_s_per_device", r.time.tokens_per_s_per_device);
  o.set("mfu", r.time.mfu).set("hfu", r.time.hfu);
  return o;
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

std::string json_of(const advice::Verdict& v) {
  const std::string rungs = array_of(v.rungs, [](const advice::Rung& r) {
    Object o;
    o.set("name", r.name).set("state", word(r.state)).set("text", r.text);
    if (r.report) o.raw("plan", layout(*r.report).json());
    return o.json();
  });
  Object o;
  o.set("text", v.text)
      .raw("answer", v.answer < 0 ? "null" : json_string(v.rungs[static_cast<size_t>(v.answer)].name));
  return o.raw("rungs", rungs).raw("warnings", strings(v.warnings)).json();
}

std::string json_of(const search::SearchResult& s) {
  Object o;
  o.set("families", s.families).set("illegal", s.illegal).set("too_large", s.too_large);
  o.set("too_slow", s.too_slow).set("planned", s.planned).set("did_not_fit", s.did_not_fit);
  o.set("bound_seconds", s.bound_seconds).set("proven", s.proven);
  o.raw("best", array_of(s.best, [](const search::Found& f) {
          return layout(f.report)
              .raw("reasons", strings(f.reasons))
              .raw("recipe", config::to_json(f.report.recipe))
              .json();
        }));
  if (s.smallest) o.raw("smallest", layout(*s.smallest).json());
  return o.json();
}

std::string json_of(const std::vector<advice::Advice>& list) {
  return array_of(list, [](const advice::Advice& a) {
    Object o;
    o.set("what", a.what).set("runs", a.runs).raw("sets", strings(a.sets)).set("bytes", a.bytes);
    return o.set("saved_bytes", a.saved).set("step_seconds", a.step).set("lost_seconds", a.lost).json();
  });
}

std::string json_of(const search::Scaling& s) {
  const auto curve = [](const std::vector<search::ScalePoint>& points) {
    return array_of(points, [](const search::ScalePoint& p) {
      Object o;
      o.set("devices", p.devices).set("global_batch", p.global_batch).set("fits", p.best.has_value());
      if (p.best)
        o.set("speedup", p.speedup).set("efficiency", p.efficiency).raw("plan", layout(*p.best).json());
      return o.json();
    });
  };
  Object o;
  o.raw("strong", curve(s.strong)).raw("weak", curve(s.weak)).set("worthwhile_devices", s.worthwhile);
  return o.json();
}

std::string json_of(const EconomyReport& e) {
  const auto cost = [](const hardware::RunCost& c) {
    Object o;
    o.set("seconds", c.seconds).set("device_hours", c.device_hours).set("kwh", c.kwh).set("co2_kg", c.co2_kg);
    // A cluster without a price costs nothing that is known.
    return o.raw("usd", c.usd > 0 ? json_number(c.usd) : "null").json();
  };
  const hardware::Goodput& g = e.goodput;
  Object goodput;
  goodput.set("share", g.share).set("checkpoint_interval_seconds", g.interval_seconds);
  goodput.set("mean_between_failures_seconds", g.mean_between_failures_seconds);
  goodput.set("failures_per_day", g.failures_per_day).set("checkpoint_share", g.checkpoint_share);
  goodput.set("lost_share", g.lost_share);
  Object o;
  o.set("tokens", e.tokens).raw("ideal", cost(e.ideal)).raw("with_losses", cost(e.with_losses));
  return o.raw("goodput", goodput.json()).json();
}

}  // namespace

std::string to_json(const plan::Report* report, const Findings& b) {
  std::string out =
      "{\n" + (report != nullptr
                   ? plan::json_fields(*report)
                   : "\"fits\": false,\n\"notes\": " +
                         array_of(b.notes, [](const std::string& n) { return json_string(n); }));
  const auto add = [&](std::string_view key, const std::string& value) {
    out += fmt::format(",\n{}: {}", json_string(key), value);
  };
  if (b.verdict) add("verdict", json_of(*b.verdict));
  if (b.search) add("search", json_of(*b.search));
  if (b.advice) add("advice", json_of(*b.advice));
  if (b.scaling) add("scaling", json_of(*b.scaling));
  if (b.economy) add("economy", json_of(*b.economy));
  return out + "\n}\n";
}

}  // namespace quintet::report
