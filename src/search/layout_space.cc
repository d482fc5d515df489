#include "search/layout_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "config/names.h"
#include "config/schedule_traits.h"
#include "config/validate.h"

namespace quintet::search {
namespace {

constexpr int64_t kMinChunkRows = 512;  // per sequence chunk; a context rank has two chunks

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> list;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    if (d <= most) list.push_back(d);
    if (n / d != d && n / d <= most) list.push_back(n / d);
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

LayoutSpace usual_space(const config::Recipe& r, const hardware::Cluster& cluster) {
  const int64_t world = cluster.world(), near = std::max(cluster.domain, 1);
  LayoutSpace s;
  s.pp = divisors(world, r.model.layers);
  s.tp = divisors(world, near);
  s.cp = divisors(world, std::max<int64_t>(1, r.data.seq_len / (2 * kMinChunkRows)));
  s.ep = r.model.moe.experts > 0 ? divisors(r.model.moe.experts, world) : std::vector<int64_t>{1};
  s.etp = {1};  // splitting experts that ep can spread only makes their GEMMs smaller
  s.sequence_parallel = {1, 0};
  s.methods = {config::ContextMethod::Gather, config::ContextMethod::Ring, config::ContextMethod::Ulysses,
               config::ContextMethod::UlyssesRing};
  for (const int64_t micro : {1, 2, 4, 8})
    if (micro <= r.batch.global) s.micro.push_back(micro);
  s.zero = {0, 1, 2, 3};
  s.recompute = {config::RecomputeKind::None, config::RecomputeKind::Selective, config::RecomputeKind::Full};
  for (const std::string_view name : config::pipeline_schedules())
    if (config::traits_of(name).kind != config::PipelineSchedule::GPipe) s.schedules.emplace_back(name);
  s.chunks = {2, 4, 8};
  return s;
}

bool sets_layout(const std::string& set) {
  return set.starts_with("parallel.") || set.starts_with("batch.micro=") ||
         set.starts_with("batch.accumulation=") || set.starts_with("memory.recompute=");
}

LayoutSpace fixed(LayoutSpace s, const std::vector<std::string>& sets) {
  for (const std::string& set : sets) {
    if (!sets_layout(set)) continue;
    const size_t at = set.find('=');
    const std::string key = set.substr(0, at);
    std::string value = at == std::string::npos ? "" : set.substr(at + 1);
    std::erase(value, '"');
    const auto number = [&] {
      int64_t n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      if (error != std::errc() || end != value.data() + value.size() || n < (key == "parallel.zero" ? 0 : 1))
        base::fail_user("--set {}: expected an integer", set);
      return n;
    };
    const auto known = [&](const auto& found) {
      if (!found) base::fail_user("--set {}: '{}' is not an accepted value", set, value);
      return *found;
    };
    if (key == "parallel.pp")
      s.pp = {number()};
    else if (key == "parallel.cp")
      s.cp = {number()};
    else if (key == "parallel.tp")
      s.tp = {number()};
    else if (key == "parallel.ep")
      s.ep = {number()};
    else if (key == "parallel.etp")
      s.etp = {number()};
    else if (key == "parallel.zero")
      s.zero = {number()};
    else if (key == "parallel.dp_replicate")
      s.dp_replicate = {number()};
    else if (key == "parallel.chunks")
      s.chunks = {number()};
    else if (key == "batch.micro")
      s.micro = {number()};
    else if (key == "parallel.sequence_parallel" && (value == "true" || value == "false"))
      s.sequence_parallel = {value == "true" ? 1 : 0};
    else if (key == "parallel.cp_method")
      s.methods = {known(config::value_of<config::ContextMethod>(value))};
    else if (key == "memory.recompute")
      s.recompute = {known(config::value_of<config::RecomputeKind>(value))};
    else if (key == "parallel.schedule")
      s.schedules = {value};
    else
      base::fail_user(
          "--search chooses {} itself: remove --set {}, or fix a key that it can hold: parallel.tp, pp, cp, "
          "ep, etp, dp_replicate, zero, sequence_parallel, cp_method, schedule, chunks, batch.micro, "
          "memory.recompute",
          key, set);
  }
  // Without tp there is no sequence parallelism to request.
  if (s.sequence_parallel == std::vector<int64_t>{1}) s.sequence_parallel = {1, 0};
  return s;
}

config::Recipe with_capacity(const config::Recipe& recipe, double factor) {
  if (recipe.model.moe.experts == 0)
    base::fail_user("--allow-drops requires a model with experts; this model has none");
  config::Recipe r = recipe;
  r.model.moe.capacity_factor = factor;
  r.model.moe.pad = true;
  return r;
}

std::vector<Family> ways(const LayoutSpace& space, int64_t world) {
  std::vector<Family> list;
  for (const int64_t tp : space.tp)
    for (const int64_t sp : space.sequence_parallel)
      for (const int64_t cp : space.cp)
        for (const config::ContextMethod method : space.methods)
          for (const int64_t ep : space.ep)
            for (const int64_t etp : space.etp) {
              if (tp == 1 && sp != 0) continue;
              if (cp == 1 && method != space.methods.front()) continue;
              if (world % (tp * cp) != 0) continue;
              list.push_back({.cp = cp,
                              .tp = tp,
                              .ep = ep,
                              .etp = etp,
                              .sequence_parallel = sp != 0,
                              .method = cp == 1 ? config::ContextMethod::Auto : method});
            }
  return list;
}

std::vector<Family> families_of(const Family& way, const config::Recipe& r, const LayoutSpace& space,
                                int64_t world) {
  std::vector<Family> list;
  Family f = way;
  const auto add = [&] {
    if (r.batch.global % (f.micro * f.dp_replicate * f.dp_shard) == 0) list.push_back(f);
  };
  for (const int64_t pp : space.pp) {
    if (world % (way.tp * way.cp * pp) != 0) continue;
    f.pp = pp;
    const int64_t dp = world / (way.tp * way.cp * pp);
    for (const int64_t zero : space.zero) {
      f.zero = zero;
      if (zero == 0) {
        f.dp_replicate = dp, f.dp_shard = 1;
        add();
        continue;
      }
      for (const int64_t replicas : divisors(dp, dp)) {
        const std::vector<int64_t>& wanted = space.dp_replicate;
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), replicas) == wanted.end()) continue;
        f.dp_replicate = replicas, f.dp_shard = dp / replicas;
        if (f.dp_shard * f.cp > 1) add();
      }
    }
  }
  return list;
}

std::vector<Family> families(const config::Recipe& r, const LayoutSpace& space, int64_t world) {
  std::vector<Family> list;
  for (Family way : ways(space, world))
    for (const int64_t micro : space.micro)
      for (const config::RecomputeKind recompute : space.recompute) {
        way.micro = micro;
        way.recompute = recompute;
        const std::vector<Family> some = families_of(way, r, space, world);
        list.insert(list.end(), some.begin(), some.end());
      }
  return list;
}

std::vector<Schedule> schedules(const Family& f, const LayoutSpace& space) {
  if (f.pp == 1) return {{"", 1}};
  std::vector<Schedule> list;
  for (const std::string& name : space.schedules) {
    const config::ScheduleTraits traits = config::traits_of(name);
    if (traits.kind == config::PipelineSchedule::Interleaved)
      for (const int64_t chunks : space.chunks) list.push_back({name, chunks});
    else
      list.push_back({name, traits.two_chunks() ? 2 : 1});
  }
  return list;
}

config::Recipe with_layout(const config::Recipe& recipe, const Family& f, const Schedule& s) {
  config::Recipe r = recipe;
  config::Parallel p;
  p.pp = f.pp;
  p.dp_replicate = f.dp_replicate;
  p.dp_shard = f.dp_shard;
  p.cp = f.cp;
  p.tp = f.tp;
  p.ep = f.ep;
  p.etp = f.etp;
  p.zero = f.zero;
  p.sequence_parallel = f.sequence_parallel;
  p.cp_method = f.method;
  p.schedule = s.name;
  p.chunks = s.chunks;
  r.parallel = p;
  r.batch.micro = f.micro;
  r.batch.accumulation = r.batch.global / (f.micro * f.dp_replicate * f.dp_shard);
  r.memory = {.recompute = f.recompute};
  return r;
}

std::vector<config::Recipe> legal_recipes(const config::Recipe& recipe, const LayoutSpace& space,
                                          int64_t world) {
  std::vector<config::Recipe> list;
  for (const Family& f : families(recipe, space, world))
    for (const Schedule& s : schedules(f, space)) {
      const config::Recipe r = with_layout(recipe, f, s);
      if (config::problems_of(r).empty()) list.push_back(config::resolve(r));
    }
  return list;
}

std::string layout_words(const config::Recipe& r) {
  const config::Parallel& p = r.parallel;
  std::vector<std::string> words;
  if (p.tp > 1)
    words.push_back(fmt::format("tp {}{}", p.tp, p.sequence_parallel ? " with sequence parallelism" : ""));
  if (p.cp > 1) words.push_back(fmt::format("cp {} ({})", p.cp, config::name_of(p.cp_method)));
  if (p.pp > 1)
    words.push_back(fmt::format("pp {} ({}{})", p.pp, p.schedule,
                                p.chunks > 1 ? fmt::format(", {} chunks", p.chunks) : ""));
  if (p.ep > 1) words.push_back(fmt::format("ep {}", p.ep));
  if (p.etp > 1) words.push_back(fmt::format("etp {}", p.etp));
  if (p.zero == 0) {
    if (p.dp() > 1) words.push_back(fmt::format("dp {}", p.dp()));
  } else if (p.dp_replicate > 1) {
    words.push_back(
        fmt::format("dp {} x {} (zero {} over {})", p.dp_replicate, p.dp_shard, p.zero, p.dp_shard * p.cp));
  } else {
    words.push_back(fmt::format("dp {} (zero {})", p.dp_shard, p.zero));
  }
  words.push_back(fmt::format("micro {} x {}", r.batch.micro, r.batch.accumulation));
  if (r.model.moe.capacity_factor > 0)
    words.push_back(
        fmt::format("capacity {}{}", r.model.moe.capacity_factor, r.model.moe.pad ? " padded" : ""));
  if (r.memory.recompute != config::RecomputeKind::None)
    words.push_back(fmt::format("recompute {}", config::name_of(r.memory.recompute)));
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

}  // namespace quintet::search
