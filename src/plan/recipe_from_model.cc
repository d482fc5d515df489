#include "plan/recipe_from_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "config/limits.h"
#include "config/parse.h"
#include "config/presets.h"
#include "config/schema.h"

namespace quintet::plan {
namespace {

constexpr auto kMaxAxis = static_cast<int64_t>(config::kMaxAxis);

class Filler {
 public:
  Filler(const RecipeRequest& q, const hardware::Cluster& cluster) : q_(q), cluster_(cluster), sets_(q.sets) {
    std::erase(sets_, "parallel.dp_shard=-1");  // the rest in any case
  }

  FilledRecipe answer() {
    const config::Model* preset = config::find_preset(q_.model);
    if (preset == nullptr) unknown_model();
    const bool cpu = cluster_.accelerator.is_cpu();
    const bool bf16 = cluster_.accelerator.dense(hardware::Arithmetic::BF16) > 0 && !cpu;
    fill("precision.compute", bf16 ? "bf16" : "f32",
         cpu ? "the default on a CPU" : "the default on this accelerator");
    number("data.seq_len", q_.seq_len,
           preset->max_positions > 0 ? std::min<int64_t>(8192, preset->max_positions) : 8192, "");
    const int64_t most = config::kMaxTokensPerStep / std::max<int64_t>(1, value("data.seq_len", 1));
    if (q_.search) {
      // The fewest devices per sequence that keep the step within the limit and divide the cluster.
      const int64_t world = cluster_.world();
      int64_t share = 1;
      while (share < world && (world / share > most || world % share != 0)) ++share;
      number("batch.global", q_.global_batch, world / share,
             share == 1 ? "one sequence per device" : fmt::format("one sequence per {} devices", share));
      return made();
    }
    number("batch.micro", q_.micro_batch, 1, "");

    const int64_t world = cluster_.world(), pp = value("parallel.pp", 1), tp = value("parallel.tp", 1),
                  cp = value("parallel.cp", 1), replicate = value("parallel.dp_replicate", 1);
    for (const int64_t axis : {pp, tp, cp, replicate})
      if (axis == -1)
        base::fail_user(
            "with --model, parallel.dp_shard is the rest of the cluster's devices; give the other "
            "axes as numbers");
    const int64_t others = pp * tp * cp * replicate;
    if (others <= 0 || world % others != 0)
      base::fail_user(
          "pp {} x dp_replicate {} x cp {} x tp {} = {} does not divide the {} devices of the cluster", pp,
          replicate, cp, tp, others, world);
    if (!given("parallel.dp_shard") && world / others > kMaxAxis) too_many_left(world / others, most);
    fill("parallel.dp_shard", world / others,
         fmt::format("the rest of the {} devices", base::thousands(world)));
    const int64_t shard = value("parallel.dp_shard", 1), dp = shard * replicate;
    if (shard * cp > 1)
      fill("parallel.zero", pp > 1 ? 1 : 3,
           pp > 1 ? "with a pipeline, stage 3 would gather parameters for every micro-batch" : "");
    if (tp > 1) fill("parallel.sequence_parallel", "true", "with tp");
    const int64_t micro = value("batch.micro", 1);
    int64_t per_stage = pp > 1 ? 4 : 1;
    while (per_stage > 1 && dp * micro * per_stage * pp > most) per_stage /= 2;
    if (!given("batch.accumulation"))
      number("batch.global", q_.global_batch, dp * micro * per_stage * pp,
             pp == 1          ? "one micro-batch per rank"
             : per_stage == 1 ? "one micro-batch per stage"
                              : fmt::format("{} micro-batches per stage", per_stage == 4 ? "four" : "two"));
    else if (q_.global_batch > 0)
      number("batch.global", q_.global_batch, 0, "");
    return made();
  }

 private:
  FilledRecipe made() {
    const std::string text = fmt::format(
        "name = \"{0}\"\n[model]\npreset = \"{0}\"\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n", q_.model);
    return {config::parse(text, sets_, "--model " + q_.model, nullptr,
                          {q_.search ? config::Purpose::Search : config::Purpose::Run}),
            std::move(filled_)};
  }
  bool given(const std::string& key) const {
    return std::any_of(sets_.begin(), sets_.end(),
                       [&](const std::string& s) { return s.starts_with(key + "="); });
  }
  int64_t value(const std::string& key, int64_t otherwise) const {
    for (const std::string& s : sets_)
      if (s.starts_with(key + "=")) {
        const char* begin = s.data() + key.size() + 1;
        std::from_chars(begin, s.data() + s.size(), otherwise);
      }
    return otherwise;
  }
  template <class T>
  void fill(const std::string& key, const T& what, const std::string& why) {
    if (given(key)) return;
    sets_.push_back(fmt::format("{}={}", key, what));
    filled_.push_back(fmt::format("{} = {}{}{}", key, what, why.empty() ? "" : ": ", why));
  }
  void number(const std::string& key, int64_t asked, int64_t otherwise, const std::string& why) {
    if (asked > 0)
      sets_.push_back(fmt::format("{}={}", key, asked));
    else
      fill(key, otherwise, why);
  }
  // `most`: sequences of a step at most, and so data ranks.
  [[noreturn]] static void too_many_left(int64_t devices, int64_t most) {
    int64_t copies = 2;
    while (copies <= kMaxAxis && (devices % copies != 0 || devices / copies > kMaxAxis)) ++copies;
    const std::string such = devices > most ? ", such as parallel.tp or parallel.pp"
                             : copies <= kMaxAxis
                                 ? fmt::format(", such as --set parallel.dp_replicate={}", copies)
                                 : "";
    base::fail_user(
        "{} devices would be left for parallel.dp_shard, which has at most {}; choose another axis too{}, or "
        "use --search",
        base::thousands(devices), base::thousands(kMaxAxis), such);
  }
  [[noreturn]] void unknown_model() const {
    const std::string near = config::likely_preset(q_.model);
    base::fail_user("unknown model '{}'{}; {}", q_.model,
                    near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                    config::presets_beside(near));
  }

  const RecipeRequest& q_;
  const hardware::Cluster& cluster_;
  std::vector<std::string> sets_, filled_;
};

}  // namespace

FilledRecipe recipe_from_model(const RecipeRequest& question, const hardware::Cluster& cluster) {
  return Filler(question, cluster).answer();
}

}  // namespace quintet::plan
