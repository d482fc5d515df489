#include "report/run_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "report/figures.h"
#include "report/markup.h"

namespace quintet::report {
namespace {

using base::human_bytes;
using base::thousands;

const char* const kTimes = " \xC3\x97 ";      // multiplication sign
const char* const kArrow = " \xE2\x86\x92 ";  // to the right
const char* const kDash = "\xE2\x80\x93";     // of ranges
const char* const kDot = " \xC2\xB7 ";        // between facts
const char* const kFixed = "\xC2\xA0";        // a space where a line does not break

std::string layout_text(const RunFiles& run) {
  std::string axes;
  for (const MeshAxis& a : run.mesh)
    axes += fmt::format("{}{}{}{}", axes.empty() ? "" : kTimes, a.name, kFixed, a.size);
  if (axes.empty()) return run.ranks == 1 ? "one rank" : fmt::format("{} ranks", thousands(run.ranks));
  return fmt::format("{} ranks: {}", thousands(run.ranks), axes);
}

// The last finite value of a column; nothing if there is none.
std::optional<double> last_of(const RunFiles& run, const char* name) {
  const std::vector<double>* column = run.metrics.column(name);
  for (size_t i = column == nullptr ? 0 : column->size(); i-- > 0;)
    if (std::isfinite((*column)[i])) return (*column)[i];
  return std::nullopt;
}
std::optional<double> first_of(const RunFiles& run, const char* name) {
  const std::vector<double>* column = run.metrics.column(name);
  for (size_t i = 0; column != nullptr && i < column->size(); ++i)
    if (std::isfinite((*column)[i])) return (*column)[i];
  return std::nullopt;
}
std::optional<double> least_of(const RunFiles& run, const char* name) {
  const std::vector<double>* column = run.metrics.column(name);
  std::optional<double> least;
  for (size_t i = 0; column != nullptr && i < column->size(); ++i)
    if (std::isfinite((*column)[i])) least = std::min(least.value_or((*column)[i]), (*column)[i]);
  return least;
}

std::string loss_text(std::optional<double> loss) { return loss ? fmt::format("{:.4f}", *loss) : "none"; }

// Breaks into lines only beside this text, not inside it.
std::string unbroken(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == ' ' ? std::string(kFixed) : std::string(1, c);
  return out;
}

std::string duration_text(double seconds) {
  return seconds > 0 ? base::human_duration(std::llround(seconds * 1e9)) : "";
}

// What a run comes to, as label, value, note.
std::vector<Tile> results(const RunFiles& run) {
  std::vector<Tile> list;
  const double done = run.metrics.step.empty() ? 0 : run.metrics.step.back();
  list.push_back(
      {"training loss", loss_text(last_of(run, "loss")), "from " + loss_text(first_of(run, "loss")), ""});
  if (const auto eval = last_of(run, "eval_loss"))
    list.push_back({"validation loss", loss_text(eval), "best " + loss_text(least_of(run, "eval_loss")), ""});
  list.push_back(
      {"steps", thousands(std::llround(done)),
       run.steps > 0 && done < static_cast<double>(run.steps) ? fmt::format("of {}", thousands(run.steps))
       : run.metrics.skipped.empty()
           ? "none skipped"
           : fmt::format("{} skipped", thousands(static_cast<int64_t>(run.metrics.skipped.size()))),
       ""});
  if (run.tokens_per_s > 0)
    list.push_back({"tokens per second", thousands(std::llround(run.tokens_per_s)),
                    run.ranks > 1
                        ? fmt::format("{} per rank", thousands(std::llround(run.tokens_per_s /
                                                                            static_cast<double>(run.ranks))))
                        : "",
                    ""});
  if (run.tokens > 0)
    list.push_back({"tokens trained on", base::human_count(run.tokens),
                    run.seconds > 0 ? "in " + duration_text(run.seconds) : "", ""});
  int64_t peak = 0;
  for (const RunFiles::RankMemory& m : run.memory) peak = std::max(peak, m.measured);
  if (peak > 0) list.push_back({"peak memory per rank", human_bytes(peak), "measured", ""});
  return list;
}

class RunPage {
 public:
  explicit RunPage(const std::vector<RunFiles>& runs) : runs_(runs), two_(runs.size() > 1) {
    for (const RunFiles& run : runs_) names_.push_back(run.name);
    if (two_ && names_[0] == names_[1]) name_by_folder();
  }

  std::string html() {
    head();
    out_ += two_ ? "" : tiles(results(runs_[0]));
    out_ += "<div class=\"cards\">\n";
    if (two_) comparison();
    curves();
    memory();
    traffic();
    timelines();
    meshes();
    provenance();
    recipes();
    out_ += "</div>\n";
    return page(two_ ? fmt::format("{} and {}", names_[0], names_[1]) : names_[0], out_);
  }

 private:
  // Two runs of the same recipe are labelled by their folders, from where those differ on.
  void name_by_folder() {
    std::vector<base::Path> rest;
    for (const RunFiles& run : runs_) {
      const base::Path folder = std::filesystem::absolute(run.folder).lexically_normal();
      rest.push_back(folder.has_filename() ? folder : folder.parent_path());
    }
    const base::Path first = rest[0];
    auto [a, b] = std::mismatch(first.begin(), first.end(), rest[1].begin(), rest[1].end());
    if (a == first.end() || b == rest[1].end()) {  // one is inside the other, or the same
      for (size_t i = 0; i < 2; ++i) names_[i] = rest[i].string();
      return;
    }
    names_ = {"", ""};
    for (; a != first.end(); ++a) names_[0] += (names_[0].empty() ? "" : "/") + a->string();
    for (; b != rest[1].end(); ++b) names_[1] += (names_[1].empty() ? "" : "/") + b->string();
  }

  static std::string status(const RunFiles& run) {
    const bool good = run.ended == "finished";
    const bool bad = run.ended == "non-finite";
    return fmt::format("<span class=\"chip {}\">{}</span>",
                       good  ? "good"
                       : bad ? "bad"
                             : "soft",
                       run.ended.empty() ? "not finished" : escaped(run.ended));
  }

  void head() {
    out_ += "<header>\n";
    if (!two_) {
      const RunFiles& run = runs_[0];
      out_ += fmt::format("<h1>{}{}</h1>\n", escaped(names_[0]), status(run));
      std::vector<std::string> facts = {run.model};
      if (run.parameters > 0) facts.back() += fmt::format(", {} parameters", thousands(run.parameters));
      facts.push_back(layout_text(run));
      facts.push_back(run.device);
      facts.push_back(run.started.empty() ? "" : run.started + " UTC");
      std::string line;
      for (const std::string& fact : facts)
        if (!fact.empty()) line += (line.empty() ? "" : kDot) + fact;
      out_ += fmt::format("<p class=\"soft\">{}</p>\n", escaped(line));
    } else {
      out_ += "<h1>Two runs side by side</h1>\n<div class=\"runs\">";
      for (size_t i = 0; i < 2; ++i)
        out_ += fmt::format("<span>{}{}{}</span>", swatch(i), escaped(names_[i]), status(runs_[i]));
      out_ += "</div>\n";
    }
    out_ += "</header>\n";
  }

  static std::string swatch(size_t run) {
    return fmt::format("<i class=\"swatch\" style=\"background:{}\"></i>", colour(run));
  }

  // A heading for one of two runs.
  std::string run_title(size_t i) const {
    return two_ ? fmt::format("<h3>{}{}</h3>\n", swatch(i), escaped(names_[i])) : std::string();
  }

  void comparison() {
    std::vector<std::string> labels;
    std::map<std::string, std::vector<std::string>> cells;
    for (size_t i = 0; i < 2; ++i) {
      std::vector<Tile> list = results(runs_[i]);
      list.insert(list.begin(), {"layout", layout_text(runs_[i]), "", ""});
      if (runs_[i].parameters > 0)
        list.push_back({"parameters", thousands(runs_[i].parameters), runs_[i].model, ""});
      list.push_back({"device", runs_[i].device, "", ""});
      for (const Tile& t : list) {
        if (!cells.contains(t.label)) labels.push_back(t.label);
        cells[t.label].resize(2);
        cells[t.label][i] = t.note.empty() ? t.value : fmt::format("{} ({})", t.value, unbroken(t.note));
      }
    }
    std::vector<std::vector<std::string>> rows;
    for (const std::string& label : labels) rows.push_back({label, cells[label][0], cells[label][1]});
    std::string body = "<div class=\"compare\">" + table({"", names_[0], names_[1]}, rows);
    const auto differing = differences();
    if (!differing.empty())
      body += "<h3>Keys of the recipe that differ</h3>\n" + table({"", names_[0], names_[1]}, differing);
    out_ += card("Results", "", body + "</div>\n");
  }

  // "section.key" -> value, of the resolved recipe, whose values take one line each.
  static std::map<std::string, std::string> keys_of(std::string_view text) {
    std::map<std::string, std::string> keys;
    std::string section;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const size_t equals = line.find(" = ");
      if (line.starts_with('[') && line.ends_with(']'))
        section = std::string(line.substr(1, line.size() - 2)) + ".";
      else if (equals != std::string_view::npos && !line.starts_with('#'))
        keys[section + std::string(line.substr(0, equals))] = line.substr(equals + 3);
    }
    return keys;
  }

  std::vector<std::vector<std::string>> differences() const {
    std::map<std::string, std::string> a = keys_of(runs_[0].recipe), b = keys_of(runs_[1].recipe);
    std::set<std::string> all;
    for (const auto& [name, value] : a) all.insert(name);
    for (const auto& [name, value] : b) all.insert(name);
    std::vector<std::vector<std::string>> rows;
    for (const std::string& name : all)
      if (a[name] != b[name] && name != "run.dir") rows.push_back({name, a[name], b[name]});
    return rows;
  }

  Chart of_metric(const char* name, Curve::Kind kind) const {
    Chart c;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const std::vector<double>* column = runs_[i].metrics.column(name))
        c.curves.push_back({two_ ? names_[i] : name, i, runs_[i].metrics.step, *column, kind});
    return c;
  }

  void curves() {
    Chart loss;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const RunFiles::Metrics& m = runs_[i].metrics;
      const std::string before = two_ ? names_[i] + ", " : "";
      if (const std::vector<double>* column = m.column("loss"))
        loss.curves.push_back({before + "training", two_ ? i : 0, m.step, *column, Curve::Kind::Noisy});
      if (const std::vector<double>* column = m.column("eval_loss"))
        loss.curves.push_back({before + "validation", two_ ? i : 1, m.step, *column, Curve::Kind::Sparse});
      for (const auto& [key, column] : m.columns)
        if (constexpr std::string_view kOfSet = "eval_loss."; key.starts_with(kOfSet))
          loss.curves.push_back({before + key.substr(kOfSet.size()), two_ ? i : loss.curves.size(), m.step,
                                 column, Curve::Kind::Sparse});
      if (!two_) loss.marks = m.skipped;
    }
    loss.height = 300;
    const std::string drawn = chart(loss);
    if (!drawn.empty()) out_ += card("Loss", "cross-entropy in nats per token", drawn);
    small("tokens_per_s", "Throughput", "tokens per second", Curve::Kind::Noisy, false, true);
    small("grad_norm", "Gradient norm", "before clipping, log scale", Curve::Kind::Noisy, true, false);
    small("lr", "Learning rate", "of each step", Curve::Kind::Steady, false, true);
    small("load_max_over_mean", "Load of experts", "busiest over mean, worst block", Curve::Kind::Noisy,
          false, false);
    small("loss_scale", "Loss scale", "factor on gradients, log scale", Curve::Kind::Steady, true, false);
    small("noise_scale", "Gradient noise scale", "tokens", Curve::Kind::Sparse, false, false);
  }

  void small(const char* name, const char* title, const char* unit, Curve::Kind kind, bool log, bool zero) {
    Chart c = of_metric(name, kind);
    c.height = 150;
    c.log_y = log;
    c.from_zero = zero;
    c.with_key = two_;
    const std::string drawn = chart(c);
    if (!drawn.empty()) out_ += card(title, unit, drawn, "third");
  }

  void memory() {
    int64_t most = 0;
    for (const RunFiles& run : runs_)
      for (const RunFiles::RankMemory& m : run.memory) most = std::max({most, m.planned, m.measured});
    if (most == 0) return;
    std::vector<std::pair<std::string, size_t>> classes;  // with their colours
    const auto ink = [&](const std::string& name) {
      for (const auto& [known, index] : classes)
        if (known == name) return index;
      classes.emplace_back(name, name == "gaps" ? 9 : classes.size());
      return classes.back().second;
    };
    std::string body;
    for (size_t i = 0; i < runs_.size(); ++i) body += memory_of(i, ink);
    std::vector<KeyItem> items;
    for (const auto& [name, index] : classes) items.push_back({name, colour(index)});
    items.push_back({"measured", colour(8)});
    out_ += card("Memory", "per rank at its peak: planned by class before the run, and measured in it",
                 key(items) + "<div class=\"pair\">" + body + "</div>\n");
  }

  // Rows of a few groups; a run of one rank, or of an older version, has none.
  void traffic() {
    std::string body;
    for (size_t i = 0; i < runs_.size(); ++i) {
      std::vector<std::vector<std::string>> rows;
      for (const RunFiles::Traffic& t : runs_[i].traffic) {
        const bool timed = t.seconds > 0;
        const auto rate = [&](double x) {
          return timed && x > 0 ? fmt::format("{:.2f}", x * 1e-9) : std::string();
        };
        rows.push_back(
            {t.group, t.call, fmt::format("{} ranks, {}", t.members, t.link), thousands(t.calls),
             human_bytes(std::llround(t.sent_bytes)),
             timed ? fmt::format("{:.3f}", t.seconds) : std::string(),
             timed ? fmt::format("{:.3f} (most: rank {})", t.waiting, t.longest_wait_rank) : std::string(),
             rate(t.bandwidth), rate(t.bus_bandwidth)});
      }
      if (rows.empty()) continue;
      if (runs_.size() > 1) body += "<h3>" + escaped(names_[i]) + "</h3>\n";
      body += table(
          {"axes", "call", "group", "calls", "sent by all", "s per rank", "waiting, s", "GB/s", "bus GB/s"},
          rows, {1, 2});
    }
    if (body.empty()) return;
    out_ += card("Communication",
                 "what ranks sent; waiting is time beyond the quickest call of the same size; bandwidths "
                 "exclude waiting",
                 body);
  }

  std::string memory_of(size_t index, const std::function<size_t(const std::string&)>& ink) const {
    const RunFiles& run = runs_[index];
    std::vector<Bar> list;
    bool exact = true;
    for (size_t begin = 0; begin < run.memory.size();) {
      size_t end = begin + 1;
      const RunFiles::RankMemory& m = run.memory[begin];
      while (end < run.memory.size() && run.memory[end] == m) ++end;
      exact = exact && m.planned == m.measured;
      std::vector<BarPart> parts;
      for (const auto& [name, bytes] : m.by_class)
        if (bytes > 0) parts.push_back({name, ink(name), static_cast<double>(bytes), human_bytes(bytes)});
      if (parts.empty())
        parts.push_back({"planned", ink("planned"), static_cast<double>(m.planned), human_bytes(m.planned)});
      const std::string who = end - begin == 1 ? fmt::format("rank {}", begin)
                                               : fmt::format("ranks {}{}{}", begin, kDash, end - 1);
      list.push_back({who + ", planned", parts, human_bytes(m.planned), begin > 0});
      list.push_back({"measured",
                      {{"measured", 8, static_cast<double>(m.measured), thousands(m.measured) + " bytes"}},
                      human_bytes(m.measured),
                      false});
      begin = end;
      if (list.size() >= 2 * 16) break;
    }
    const std::string note =
        exact ? "Measured equals planned to the byte."
        : run.memory_is_bound
            ? "The plan covers the most rows that experts, and the most matrices that owners "
              "can have; the measurement is that of the first two steps."
            : "Measured is what the first two steps touched.";
    return fmt::format("<div>{}{}<p class=\"soft small\">{}</p></div>\n", run_title(index), bars(list), note);
  }

  void timelines() {
    std::string body;
    int64_t step = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const std::string drawn = timeline_of(runs_[i]);
      if (!drawn.empty()) body += run_title(i) + drawn;
      step = std::max(step, runs_[i].traced_step);
    }
    if (!body.empty())
      out_ += card("One step",
                   fmt::format("step {} as every rank spent it: compute by phase, below it communication by "
                               "axis; gaps in compute are waits",
                               step),
                   body);
  }

  // The words of a key for names of programs: "all_gather" is "all-gather".
  static std::string readable(std::string what) {
    if (what == "step") return "optimizer step";
    if (what == "weight") return "weight gradients";
    if (what == "begin") return "start of the step";
    std::replace(what.begin(), what.end(), '_', '-');
    return what;
  }

  // Streams of a pipeline are named by direction and partner: "pp.up.send1" carries activations to stage 1.
  static std::string lane_name(const std::string& stream) {
    const size_t dot = stream.rfind('.');
    if (!stream.starts_with("pp.") || dot == std::string::npos) return stream;
    const char* const pass = stream.starts_with("pp.up.") ? "forward" : "backward";
    const std::string_view last = std::string_view(stream).substr(dot + 1);
    if (last.starts_with("send")) return fmt::format("{} to {}", pass, last.substr(4));
    if (last.starts_with("recv")) return fmt::format("{} from {}", pass, last.substr(4));
    return stream;
  }

  // Compute by phase, communication by stream.
  static std::string timeline_of(const RunFiles& run) {
    constexpr size_t kMaxRanks = 16;
    Timeline t;
    std::map<std::string, size_t> known;
    const auto name = [&](const std::string& what, size_t ink) {
      const auto [it, added] = known.emplace(what, t.names.size());
      if (added) t.names.emplace_back(readable(what), ink);
      return it->second;
    };
    const auto ink_of = [](const std::string& what) -> size_t {
      static const std::map<std::string, size_t> inks = {
          {"forward", 0},    {"backward", 1},       {"weight", 2},     {"step", 3},       {"begin", 9},
          {"all_gather", 5}, {"reduce_scatter", 6}, {"all_reduce", 7}, {"all_to_all", 8}, {"all_to_all_v", 8},
          {"send", 4},       {"recv", 4},           {"exchange", 2}};
      const auto it = inks.find(what);
      return it == inks.end() ? 9 : it->second;
    };
    double longest = 0;
    for (const RunFiles::RankTimeline& r : run.timelines)
      for (const auto& s : r.streams)
        for (const auto& p : s.parts) longest = std::max(longest, p.start + p.seconds);
    // Clocks of different hosts have different origins.
    bool comparable = true;
    for (const RunFiles::RankTimeline& r : run.timelines) comparable = comparable && r.begin <= longest;
    // The names of compute come first in the key.
    for (const RunFiles::RankTimeline& r : run.timelines)
      for (size_t s = 0; s < r.streams.size(); ++s)
        if (s == 0)
          for (const auto& p : r.streams[s].parts) name(p.what, ink_of(p.what));
    for (size_t i = 0; i < std::min(run.timelines.size(), kMaxRanks); ++i) {
      const RunFiles::RankTimeline& r = run.timelines[i];
      const double begin = comparable ? r.begin : 0;
      for (size_t s = 0; s < r.streams.size(); ++s) {
        Lane lane{s == 0 ? fmt::format("rank {}", r.rank) : lane_name(r.streams[s].name),
                  {},
                  s > 0,
                  s == 0 && i > 0};
        for (const auto& p : r.streams[s].parts) {
          lane.spans.push_back({begin + p.start, p.seconds, name(p.what, ink_of(p.what)), p.micro});
          t.seconds = std::max(t.seconds, begin + p.start + p.seconds);
        }
        t.lanes.push_back(std::move(lane));
      }
    }
    std::string out = timeline(t);
    if (run.timelines.size() > kMaxRanks)
      out += fmt::format("<p class=\"soft small\">The first {} of {} traced ranks are drawn.</p>\n",
                         kMaxRanks, run.timelines.size());
    if (!comparable)
      out += "<p class=\"soft small\">The ranks' clocks are not comparable: every rank starts at 0.</p>\n";
    return out;
  }

  void meshes() {
    std::string body;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const std::string drawn = mesh(runs_[i].mesh);
      if (!drawn.empty()) body += fmt::format("<div>{}{}</div>\n", run_title(i), drawn);
    }
    if (!body.empty())
      out_ += card("Mesh",
                   "ranks by their place on the axes; ranks of one colour form a group along the chosen axis",
                   "<div class=\"pair\">" + body + "</div>\n", two_ ? "" : "half");
  }

  void provenance() {
    std::string body;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const RunFiles& run = runs_[i];
      std::vector<std::pair<std::string, std::string>> list = {
          {"version", run.version.empty() ? "" : "quintet " + run.version},
          {"command", run.command},
          {"in", run.working_folder},
          {"run folder", run.folder.string()},
          {"started", run.started.empty() ? "" : run.started + " UTC"},
          {"ended", run.ended_at.empty() ? "" : run.ended_at + " UTC"},
          {"host", run.host},
          {"machine", run.machine},
          {"device", run.device},
          {"ranks", run.backend.empty() ? ""
                                        : fmt::format("{}, {} core{} each", run.backend, run.threads,
                                                      run.threads == 1 ? "" : "s")}};
      list.insert(list.end(), run.data.begin(), run.data.end());
      body += fmt::format("<div>{}{}</div>\n", run_title(i), facts(list));
    }
    out_ += card("Provenance", "", "<div class=\"pair\">" + body + "</div>\n",
                 two_ || runs_[0].mesh.empty() ? "" : "half");
  }

  void recipes() {
    std::string body;
    for (size_t i = 0; i < runs_.size(); ++i)
      body += fmt::format("<div>{}<details><summary>recipe.toml</summary>\n{}</details></div>\n",
                          run_title(i), toml(runs_[i].recipe));
    out_ += card("Recipe", "resolved: every key, with its default where the recipe has none",
                 "<div class=\"pair\">" + body + "</div>\n");
  }

  const std::vector<RunFiles>& runs_;
  const bool two_;
  std::vector<std::string> names_;
  std::string out_;
};

}  // namespace

std::string run_page(const std::vector<RunFiles>& runs) {
  QUINTET_CHECK(runs.size() == 1 || runs.size() == 2, "a page shows one run or two, not {}", runs.size());
  return RunPage(runs).html();
}

void write_run_page(const std::vector<base::Path>& folders, const base::Path& file) {
  std::vector<RunFiles> runs;
  for (const base::Path& folder : folders) runs.push_back(read_run(folder));
  base::write_file_atomically(file, run_page(runs));
}

}  // namespace quintet::report
