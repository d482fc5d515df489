// Rules on [data]: blends, packing, fill-in-the-middle, curricula; and on the sets of [eval].
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <set>

#include "base/printable.h"
#include "base/text.h"
#include "config/batch_ramp.h"
#include "config/blend_shares.h"
#include "config/rule.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

constexpr size_t kMaxSets = 255;

void one_source(const Recipe& r, const Fail& fail) {
  if (!r.data.path.empty() && !r.data.blend.empty())
    fail("data.blend", "is given together with data.path: a run reads only one of them",
         "leave out data.path, and make its files a set of data.blend");
}

// Reports entries without a path and names that occur twice; `taken` has those of other keys.
template <class Set>
void check_names(const char* key, const std::vector<Set>& sets, std::set<std::string> taken,
                 const Fail& fail) {
  for (size_t i = 0; i < sets.size(); ++i) {
    const bool empty = sets[i].path.empty() || std::any_of(sets[i].path.begin(), sets[i].path.end(),
                                                           [](const auto& p) { return p.empty(); });
    if (empty)
      fail(key, fmt::format("entry {} has no path", i + 1), "path = \"FILE OR FOLDER\"");
    else if (!taken.insert(sets[i].name).second)
      fail(key, fmt::format("two sets are called \"{}\"", sets[i].name),
           fmt::format("name = \"{}-{}\" in entry {}", sets[i].name, i + 1, i + 1));
  }
}

void blend_is_complete(const Recipe& r, const Fail& fail) {
  const std::vector<BlendSet>& blend = r.data.blend;
  if (blend.empty()) return;
  check_names("data.blend", blend, {}, fail);
  if (blend.size() > kMaxSets)
    fail("data.blend", fmt::format("has {} sets; at most {} are supported", blend.size(), kMaxSets));
  for (size_t i = 0; i < blend.size(); ++i) {
    if ((blend[i].weight > 0) == (blend[i].tokens > 0))
      return fail("data.blend",
                  fmt::format("entry {} (\"{}\") has {}", i + 1, blend[i].name,
                              blend[i].weight > 0 ? "both weight and tokens" : "neither weight nor tokens"),
                  "weight = 1");
    if ((blend[i].tokens > 0) != (blend[0].tokens > 0))
      return fail(
          "data.blend",
          fmt::format("\"{}\" has a weight and \"{}\" a budget of tokens: all sets must have the same kind",
                      blend[0].tokens > 0 ? blend[i].name : blend[0].name,
                      blend[0].tokens > 0 ? blend[0].name : blend[i].name),
          "weight = 1 in every entry");
  }
}

void blend_is_exact(const Recipe& r, const Fail& fail) {
  for (const BlendSet& s : r.data.blend)
    if ((s.weight > 0) == (s.tokens > 0) || (s.tokens > 0) != (r.data.blend[0].tokens > 0))
      return;  // another rule's
  if (r.data.blend.empty() || whole_shares(r.data.blend)) return;
  double total = 0;
  std::vector<std::string> rounded;
  for (const BlendSet& s : r.data.blend) total += s.tokens > 0 ? static_cast<double>(s.tokens) : s.weight;
  for (const BlendSet& s : r.data.blend)
    rounded.push_back(
        s.tokens > 0 ? fmt::format("{}", std::llround(std::max(total / 1e5, 1.0)) *
                                             std::max<int64_t>(1, std::llround(static_cast<double>(s.tokens) /
                                                                               std::max(total / 1e5, 1.0))))
                     : fmt::format("{}", std::max(1.0, std::round(s.weight / total * 1e5)) / 1e5));
  fail("data.blend",
       fmt::format("as whole numbers these proportions have a sum above {}: use fewer digits",
                   base::thousands(kMaxBlendSum)),
       fmt::format("{} = {}", r.data.blend[0].tokens > 0 ? "tokens" : "weight", fmt::join(rounded, ", ")));
}

void budgets_cover_the_run(const Recipe& r, const Fail& fail) {
  int64_t budget = 0;
  for (const BlendSet& s : r.data.blend) budget += s.tokens;
  if (budget == 0) return;
  const BatchRamp ramp(r);
  const int64_t needed = ramp.end().tokens;
  if (needed <= budget) return;
  int64_t steps = ramp.steps_until({Length::Unit::Tokens, static_cast<double>(budget)});
  if (ramp.after(steps).tokens > budget) --steps;
  fail("data.blend",
       fmt::format("the run takes {} tokens, but the budgets of its sets are {} in all",
                   base::thousands(needed), base::thousands(budget)),
       fmt::format("{}larger budgets", steps > 0 ? fmt::format("run.steps {}, or ", steps) : ""));
}

void packing_keys_match(const Recipe& r, const Fail& fail) {
  const Data& d = r.data;
  if (d.packing == Packing::BestFit && !d.pack)
    fail("data.packing", "\"best-fit\" separates documents, but data.pack is false", "data.pack true");
  if (d.packing == Packing::Streaming)
    idle(fail, "data.long_documents", d.long_documents, LongDocuments::Split,
         "with data.packing = \"streaming\"");
}

void stream_is_in_order(const Recipe& r, const Fail& fail) {
  const Data& d = r.data;
  if (!d.stream) {
    const std::string why = "with data.stream = false";
    idle(fail, "data.stream_window", d.stream_window, Data{}.stream_window, why);
    idle(fail, "data.stream_parts", d.stream_parts, Data{}.stream_parts, why);
    return;
  }
  const auto needs_all = [&](const char* key, const std::string& value) {
    fail("data.stream", fmt::format("reads documents in their order, but {} needs all of them at once", key),
         "false, or " + value);
  };
  if (d.packing == Packing::BestFit) needs_all("data.packing = \"best-fit\"", "data.packing \"streaming\"");
  if (!d.curriculum.by.empty()) needs_all("data.curriculum.by", "data.curriculum.by \"\"");
  for (const BlendSet& set : d.blend)
    if (!set.repeat)
      return fail("data.stream",
                  fmt::format("\"{}\" has repeat = false, but how many sequences a stream has is not known "
                              "before its end",
                              set.name),
                  "false, or repeat = true");
}

bool is_date(const std::string& text) {
  static constexpr std::string_view kShape = "0000-00-00";
  if (text.size() != kShape.size()) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (kShape[i] == '-' ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  const int year = std::stoi(text.substr(0, 4)), month = std::stoi(text.substr(5, 2)),
            day = std::stoi(text.substr(8, 2));
  return std::chrono::year_month_day(std::chrono::year(year),
                                     std::chrono::month(static_cast<unsigned>(month)),
                                     std::chrono::day(static_cast<unsigned>(day)))
      .ok();
}

void chat_keys_match(const Recipe& r, const Fail& fail) {
  const Data& d = r.data;
  if (d.format == DataFormat::Text) {
    const std::string why = "with data.format = \"text\"";
    idle(fail, "data.chat.template", d.chat.chat_template, std::string(), why);
    idle(fail, "data.chat.loss", d.chat.loss, ChatLoss::Assistant, why);
    idle(fail, "data.chat.end_of_turn", d.chat.end_of_turn, std::string(), why);
    idle(fail, "data.chat.date", d.chat.date, std::string(), why);
    return;
  }
  const std::string why = "with data.format = \"chat\"";
  idle(fail, "data.template", d.text_template, std::string(), why);
  idle(fail, "data.end", d.end, std::string(), why);
  if (d.fim.rate > 0)
    fail("data.fim.rate", "rearranges documents, and those of data.format = \"chat\" have trained parts",
         "0");
  if (!d.chat.date.empty() && !is_date(d.chat.date))
    fail("data.chat.date", fmt::format("\"{}\" is not a day as YYYY-MM-DD", d.chat.date), "\"2026-01-31\"");
}

void balance_is_possible(const Recipe& r, const Fail& fail) {
  if (!r.data.balance) return;
  if (!r.data.pack)
    fail("data.balance", "has no effect with data.pack = false: all sequences cost the same", "false");
  if (r.run.noise_scale_every > 0)
    fail("data.balance",
         "orders the sequences of a step by cost, but run.noise_scale_every needs a random part of the step",
         "false, or run.noise_scale_every 0");
}

void routes_replace_routers(const Recipe& r, const Fail& fail) {
  if (r.data.routes.empty()) return;
  if (r.model.moe.experts == 0)
    fail("data.routes", "has no effect with model.moe.experts = 0: no block has a router", "\"\"");
  if (r.model.moe.force_balance)
    fail("model.moe.force_balance", "chooses experts by position, but data.routes says which are chosen",
         "false");
}

void fim_is_possible(const Recipe& r, const Fail& fail) {
  const Fim& f = r.data.fim;
  if (f.rate == 0) {
    const std::string why = "with data.fim.rate = 0";
    const Fim none;
    idle(fail, "data.fim.suffix_first", f.suffix_first, 0.0, why);
    idle(fail, "data.fim.prefix", f.prefix, none.prefix, why);
    idle(fail, "data.fim.middle", f.middle, none.middle, why);
    idle(fail, "data.fim.suffix", f.suffix, none.suffix, why);
  } else if (!r.data.pack) {
    fail("data.fim.rate", "rearranges documents, which data.pack = false does not separate",
         "data.pack true");
  }
}

void masked_tokens_are_consistent(const Recipe& r, const Fail& fail) {
  if (r.model.family != Family::Bert) return;
  const Data& d = r.data;
  if (d.mlm.random + d.mlm.keep > 1)
    fail("data.mlm.keep",
         fmt::format("{} and data.mlm.random {} are shares of the chosen tokens, and their sum exceeds 1",
                     d.mlm.keep, d.mlm.random),
         fmt::format("{}", 1 - d.mlm.random));
  if (d.format == DataFormat::Chat)
    fail("data.format",
         "\"chat\" trains parts of conversations, but family bert predicts masked tokens of text",
         "\"text\"");
  if (d.fim.rate > 0)
    fail("data.fim.rate",
         "rearranges documents to predict their middle, but family bert predicts masked tokens", "0");
  if (d.mlm.mask.empty()) fail("data.mlm.mask", "is empty", "\"[MASK]\"");
}

void curriculum_has_an_order(const Recipe& r, const Fail& fail) {
  if (r.data.curriculum.by.empty())
    idle(fail, "data.curriculum.epochs", r.data.curriculum.epochs, int64_t{1}, "without data.curriculum.by");
}

void eval_has_data(const Recipe& r, const Fail& fail) {
  if (r.eval.every > 0 && r.data.validation_fraction == 0 && r.eval.sets.empty())
    fail("eval.every",
         fmt::format("{} requires validation data, but data.validation_fraction is 0 and eval.sets is empty",
                     r.eval.every),
         "0, or data.validation_fraction 0.05");
}

void eval_sets_are_named(const Recipe& r, const Fail& fail) {
  std::set<std::string> taken;
  if (r.data.validation_fraction > 0) {
    for (const BlendSet& s : r.data.blend) taken.insert(s.name);
    if (r.data.blend.empty()) taken.insert(kValidationName);
  }
  check_names("eval.sets", r.eval.sets, taken, fail);
  if (r.eval.every == 0 && !r.eval.sets.empty())
    fail("eval.sets", "has no effect with eval.every = 0", "eval.every 100");
}

// They would be printed in messages and logs, where they move the cursor or break lines.
struct ControlCharacters {
  const Fail& fail;

  void operator()(const char* key, const std::string& text) const {
    const bool is_text =
        is_any_of(key, {"data.template", "data.end", "data.chat.end_of_turn", "data.fim.prefix",
                        "data.fim.middle", "data.fim.suffix", "data.mlm.mask"});
    const bool has_line = text.find_first_of("\n\t") != std::string::npos;
    if (!fail.report.usable(key)) return;  // reported by another rule
    if (base::printable(text) != text || (has_line && !is_text))
      fail(key, is_text ? "contains a control character, or bytes that are not UTF-8"
                        : "contains a control character, such as a line break, or bytes that are not UTF-8");
  }
  void operator()(const char* key, const std::vector<std::string>& list) const {
    for (const std::string& text : list) (*this)(key, text);
  }
  void operator()(const char* key, const std::vector<BlendSet>& sets) const { check_sets(key, sets); }
  void operator()(const char* key, const std::vector<EvalSet>& sets) const { check_sets(key, sets); }
  void operator()(const char* key, const std::vector<ParamGroup>& groups) const {
    for (const ParamGroup& g : groups) (*this)(key, g.match);
  }
  void operator()(const char* key, const std::vector<RecomputeLayers>& entries) const {
    for (const RecomputeLayers& entry : entries) (*this)(key, entry.ops);
  }
  void operator()(const char* key, const DimAxes& axes) const {
    for (const auto& [dim, axis] : axes) (*this)(key, dim);
  }
  template <class... T>
  void operator()(const char*, const T&...) const {}  // numbers, switches and words

 private:
  static bool is_any_of(std::string_view key, std::initializer_list<std::string_view> keys) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
  template <class Set>
  void check_sets(const char* key, const std::vector<Set>& sets) const {
    for (const Set& set : sets) (*this)(key, set.name), (*this)(key, set.path);
  }
};

void strings_have_no_control_characters(const Recipe& r, const Fail& fail) {
  for_each_key(r, ControlCharacters{fail});
}

}  // namespace

std::vector<Rule> data_rules() {
  return {
      {"strings have no control characters",
       {"data.path", "data.blend", "data.tokenizer", "model.hf", "run.dir", "checkpoint.dir", "eval.sets",
        "data.curriculum.by", "data.routes", "data.chat.template", "parallel.schedule",
        "memory.recompute_layers", "optimizer.groups"},
       strings_have_no_control_characters},
      {"a run reads data.path or data.blend", {"data.path", "data.blend"}, one_source},
      {"data.blend has a path and a weight or a budget per set", {"data.blend"}, blend_is_complete},
      {"data.blend has proportions that a run can reach", {"data.blend"}, blend_is_exact},
      {"the budgets of data.blend cover the run",
       {"data.blend", "batch.global", "batch.micro", "batch.ramp", "data.seq_len", "run.steps",
        "parallel.dp_replicate", "parallel.dp_shard"},
       budgets_cover_the_run},
      {"data.packing keys match", {"data.pack", "data.packing", "data.long_documents"}, packing_keys_match},
      {"data.stream reads documents in order",
       {"data.stream", "data.stream_window", "data.stream_parts", "data.packing", "data.curriculum.by",
        "data.format", "data.blend"},
       stream_is_in_order},
      {"data.chat keys match data.format",
       {"data.format", "data.chat.template", "data.chat.loss", "data.chat.end_of_turn", "data.chat.date",
        "data.template", "data.end", "data.fim.rate"},
       chat_keys_match},
      {"data.balance has an effect",
       {"data.balance", "data.pack", "run.noise_scale_every"},
       balance_is_possible},
      {"data.routes replaces the choices of routers",
       {"data.routes", "model.moe.experts", "model.moe.force_balance"},
       routes_replace_routers},
      {"data.fim has an effect", {"data.fim.rate", "data.pack"}, fim_is_possible},
      {"masked tokens are chosen from whole text",
       {"model.family", "data.mlm.random", "data.mlm.keep", "data.mlm.mask", "data.format", "data.fim.rate"},
       masked_tokens_are_consistent},
      {"data.curriculum has an order",
       {"data.curriculum.by", "data.curriculum.epochs"},
       curriculum_has_an_order},
      {"eval.every requires validation data",
       {"eval.every", "data.validation_fraction", "eval.sets"},
       eval_has_data},
      {"eval.sets have a path and a name each",
       {"eval.sets", "eval.every", "data.blend", "data.validation_fraction"},
       eval_sets_are_named},
  };
}

}  // namespace quintet::config
