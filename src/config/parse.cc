#include "config/parse.h"

#include <map>
#include <optional>
#include <set>
#include <type_traits>

#include "base/error_codes.h"
#include "base/file.h"
#include "base/text.h"
#include "config/axis_order.h"
#include "config/codes.h"
#include "config/key_reader.h"
#include "config/leaves.h"
#include "config/limits.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/not_toml.h"
#include "config/overrides.h"
#include "config/place_paths.h"
#include "config/resolve.h"
#include "config/schema.h"
#include "config/sound_advice.h"
#include "config/starting_model.h"
#include "config/unsupported.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

using Places = std::map<std::string, toml::source_region>;  // of values and of unknown keys

constexpr const char* kFreezeKey = "optimizer.freeze";  // replaced by optimizer.groups

// ---- the TOML tree

void set_place(Problem& problem, const toml::source_region& at, std::string_view text) {
  problem.line = static_cast<int>(at.begin.line);
  problem.column = static_cast<int>(at.begin.column);
  problem.columns = at.end.line == at.begin.line ? static_cast<int>(at.end.column - at.begin.column) : 1;
  for (int n = 1; n < problem.line; ++n) text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  problem.source = text.substr(0, text.find_first_of("\r\n"));
}

constexpr int kMaxKeyParts = 32;  // the deepest key has 4

toml::table parse_tree(std::string_view text, const std::string& source) {
  if (const int parts = most_key_parts(text); parts > kMaxKeyParts)
    fail_coded(kIsToml, "{}: a key has {} parts; a recipe has keys of at most {}", source, parts,
               kMaxKeyParts);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    Problem problem;
    set_place(problem, error.source(), text);
    std::string lines = excerpt(problem);
    if (!lines.empty()) lines = "\n" + lines.substr(0, lines.size() - 1);
    const std::string likely = likely_cause(text, error.description());
    fail_coded(kIsToml, "{}:{}:{}: invalid TOML: {}{}", source, at.line, at.column,
               likely.empty() ? std::string(error.description()) : likely, lines);
  }
}

// ---- known keys

struct KnownKeys {
  std::vector<std::string> keys;   // supported
  std::set<std::string> all;       // including unsupported ones
  std::set<std::string> sections;  // every proper prefix of a key
  std::set<std::string> tables;    // keys whose names below them are the user's

  KnownKeys() {
    const Recipe recipe;
    for_each_key(recipe, [&]<class T>(const char* key, const T&, const auto&...) {
      keys.emplace_back(key);
      if constexpr (std::is_same_v<T, DimAxes>) tables.insert(key);
    });
    all.insert(keys.begin(), keys.end());
    for (const UnsupportedKey& later : unsupported_keys()) all.insert(later.key);
    all.insert(kFreezeKey);
    for (const std::string& key : all)
      for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1))
        sections.insert(key.substr(0, dot));
  }
};

const KnownKeys& known_keys() {
  static const KnownKeys kKnown;
  return kKnown;
}

// "[model]" for "modell"; empty when no section is near.
std::string nearest_section(const std::string& key) {
  const std::set<std::string>& sections = known_keys().sections;
  const auto near = base::nearest_word(key, std::vector<std::string>{sections.begin(), sections.end()});
  return near ? fmt::format("[{}]", *near) : std::string();
}

void add_unknown(Report& report, const std::string& key) {
  std::string near;
  if (report.problems().size() < kMaxProblems) {  // the others are only counted
    near = key_elsewhere(key);
    if (near.empty()) near = answer_elsewhere(key);
    if (near.empty()) near = nearest_key(key, known_keys().keys);
    if (near.empty()) near = nearest_section(key);
  }
  report.add("every key is known", key, "is not a recipe key", near);
}

// Collects the values of known keys and reports everything else.
void flatten(const toml::table& table, const std::string& prefix, Leaves& leaves, Report& report,
             Places& places) {
  const KnownKeys& known = known_keys();
  for (const auto& [name, node] : table) {
    const std::string key = prefix.empty() ? std::string(name.str()) : prefix + "." + std::string(name.str());
    places[key] = node.source();
    const toml::table* inner = node.as_table();
    if (known.all.contains(key)) {
      if (inner != nullptr && !known.tables.contains(key))
        report.add("values have the type of their key", key, "must be a value, not a section");
      else
        leaves[key] = &node;
    } else if (known.sections.contains(key)) {
      if (inner != nullptr)
        flatten(*inner, key, leaves, report, places);
      else
        report.add("values have the type of their key", key,
                   fmt::format("must be a section, not a value; got {}", text_of(node)),
                   fmt::format("[{}]", key));
    } else if (inner != nullptr && !inner->empty()) {
      flatten(*inner, key, leaves, report, places);
    } else {
      places[key] = name.source();
      add_unknown(report, key);
    }
  }
}

// A key that is given under another name, or in what should be a section, is not missing as well.
void spare_meant_keys(const Leaves& leaves, Report& report) {
  const KnownKeys& known = known_keys();
  std::vector<std::string> meant;
  for (const Problem& p : report.problems()) {
    if (known.all.contains(p.nearest) && !leaves.contains(p.nearest)) meant.push_back(p.nearest);
    if (!known.sections.contains(p.key)) continue;
    for (const std::string& key : known.keys)
      if (key.starts_with(p.key + ".")) meant.push_back(key);
  }
  for (std::string& key : meant) report.spoil(std::move(key));
}

// optimizer.freeze = ["a*", "b"] became groups without updates: the message spells the same patterns out.
void refuse_replaced_keys(const Leaves& leaves, Report& report) {
  const auto leaf = leaves.find(kFreezeKey);
  if (leaf == leaves.end()) return;
  std::string groups;
  const auto add = [&](const toml::node& pattern) {
    groups += fmt::format("{}{{ match = {}, update = false }}", groups.empty() ? "" : ", ", text_of(pattern));
  };
  if (const toml::array* list = leaf->second->as_array())
    for (const toml::node& item : *list) add(item);
  else
    add(*leaf->second);
  report.add("this version supports the key", kFreezeKey,
             "is no longer a key: parameters are frozen by optimizer.groups, whose first match applies",
             fmt::format("optimizer.groups = [{}]", groups));
}

void refuse_unsupported_keys(const Leaves& leaves, Report& report) {
  refuse_replaced_keys(leaves, report);
  for (const UnsupportedKey& later : unsupported_keys()) {
    const auto leaf = leaves.find(later.key);
    if (leaf == leaves.end()) continue;
    const std::string text = text_of(*leaf->second);
    if (later.neutral.empty() || text != later.neutral)
      report.add("this version supports the key", later.key, fmt::format("{} is not supported yet", text),
                 later.neutral.empty() ? std::string("leave it out") : std::string(later.neutral));
  }
}

// ---- defaults that depend on other keys

// master, moments, gradients and loss_scale default to what compute implies, reduce to gradients.
void default_precision(Precision& p, const Leaves& leaves) {
  const Precision wide = Precision::of(p.compute);
  if (!leaves.contains("precision.master")) p.master = wide.master;
  if (!leaves.contains("precision.moments")) p.moments = wide.moments;
  if (!leaves.contains("precision.gradients")) p.gradients = wide.gradients;
  if (!leaves.contains("precision.reduce")) p.reduce = p.gradients;
  if (!leaves.contains("precision.loss_scale")) p.loss_scale = wide.loss_scale;
}

// The largest file that is read as a recipe.
constexpr int64_t kMaxRecipeBytes = int64_t{4} << 20;

// Options of axes with one rank, and of a world with one.
void neutralise(Recipe& r, const Leaves& leaves, std::vector<std::string>& notes) {
  Parallel& p = r.parallel;
  const Parallel neutral;
  const auto idle = [&]<class T>(const char* key, T& value, const T& without, const std::string& why) {
    if (value == without || !leaves.contains(key)) return;
    notes.push_back(fmt::format("{} = {} has no effect with {}", key, text_of(*leaves.at(key)), why));
    value = without;
  };
  const auto alone = [](int64_t axis) { return axis == 1; };
  if (alone(p.dp_shard) && alone(p.cp)) {
    idle("parallel.zero", p.zero, neutral.zero, "parallel.dp_shard = 1 and parallel.cp = 1");
    // These follow from it.
    const std::string why = "parallel.dp_shard = 1: nothing is sharded";
    idle("parallel.reshard_after_forward", p.reshard_after_forward, neutral.reshard_after_forward, why);
    idle("parallel.reshard_experts", p.reshard_experts, neutral.reshard_experts, why);
    idle("parallel.zero_replicas", p.zero_replicas, neutral.zero_replicas, why);
    idle("parallel.gathered_limit", p.gathered_limit, neutral.gathered_limit, why);
    idle("parallel.persist_below", p.persist_below, neutral.persist_below, why);
    idle("parallel.keep_match", p.keep_match, neutral.keep_match, why);
    idle("parallel.persist_match", p.persist_match, neutral.persist_match, why);
    if (p.prefetch > 1) idle("parallel.prefetch", p.prefetch, neutral.prefetch, why);
    idle("parallel.gradient_blocks", p.gradient_blocks, neutral.gradient_blocks, why);
  }
  if (alone(p.dp_replicate)) {
    idle("parallel.zero_replicas", p.zero_replicas, neutral.zero_replicas, "parallel.dp_replicate = 1");
    if (alone(p.dp_shard) && alone(p.cp)) {
      const std::string why = "one data rank: nothing is gathered or reduced";
      idle("parallel.group", p.group, neutral.group, why);
      idle("parallel.group_match", p.group_match, neutral.group_match, why);
    }
  }
  if (alone(p.tp)) {
    idle("parallel.sequence_parallel", p.sequence_parallel, false, "parallel.tp = 1");
    idle("memory.split_saved", r.memory.split_saved, false, "parallel.tp = 1");
    idle("parallel.tp_column", p.tp_column, neutral.tp_column, "parallel.tp = 1");
    idle("parallel.tp_row", p.tp_row, neutral.tp_row, "parallel.tp = 1");
    idle("parallel.tp_replicate", p.tp_replicate, neutral.tp_replicate, "parallel.tp = 1");
  }
  if (alone(p.cp)) {
    idle("parallel.cp_method", p.cp_method, neutral.cp_method, "parallel.cp = 1");
    idle("parallel.cp_method_windowed", p.cp_method_windowed, neutral.cp_method_windowed, "parallel.cp = 1");
    idle("parallel.ulysses", p.ulysses, neutral.ulysses, "parallel.cp = 1");
  }
  if (alone(p.pp)) {
    idle("parallel.schedule", p.schedule, neutral.schedule, "parallel.pp = 1");
    if (p.chunks != 1) idle("parallel.chunks", p.chunks, neutral.chunks, "parallel.pp = 1");
    idle("parallel.stages", p.stages, neutral.stages, "parallel.pp = 1");
    idle("parallel.micro_group", p.micro_group, neutral.micro_group, "parallel.pp = 1");
  }
  if (alone(p.dp_replicate) && alone(p.dp_shard) && alone(p.cp) && alone(p.tp) && alone(p.pp))
    idle("checkpoint.peer_every", r.checkpoint.peer_every, int64_t{0},
         "one rank: there is no other whose memory could hold a copy");
}

// The same for what depends on derived sizes.
void neutralise_derived(Recipe& r, const Report& report, std::vector<std::string>& notes) {
  int64_t& every = r.run.noise_scale_every;
  for (const char* key : {"batch.global", "batch.micro", "parallel.dp_replicate", "parallel.dp_shard"})
    if (!report.usable(key)) return;
  if (every <= 0 || r.batch.accumulation != 1 || r.batch.global != r.batch.micro * r.parallel.dp()) return;
  notes.push_back(fmt::format(
      "run.noise_scale_every = {} has no effect with one micro-batch per step: the estimate compares "
      "the gradients of two batch sizes",
      every));
  every = r.run.noise_scale_batch = 0;
}

// Whether suggestions are tried, which reads the recipe again for each one; not for files larger than a
// recipe.
enum class Advise : uint8_t { Yes, No };
constexpr size_t kMaxAdvisedBytes = size_t{64} << 10;

Recipe read(std::string_view text, const std::vector<std::string>& overrides, const std::string& source,
            const std::optional<base::Path>& folder, std::vector<std::string>* notes, const Use& use,
            Advise advise) {
  toml::table tree = parse_tree(text, source);  // a copy of a tree has no lines
  for (const std::string& override : overrides) apply_override(tree, override);

  Report report;
  Leaves leaves;
  Places places;
  flatten(tree, "", leaves, report, places);
  spare_meant_keys(leaves, report);
  refuse_unsupported_keys(leaves, report);

  Recipe recipe;
  start_from_preset(recipe, leaves, report);
  start_from_hf(recipe, leaves, folder, report);
  const Recipe before = recipe;
  read_keys(recipe, leaves, report);
  recipe.model.hf = before.model.hf;  // absolute
  check_agreement_with_hf(before, recipe, leaves, report);
  fill_in_rest(recipe.parallel, use.ranks, report);
  const Given given = [&](const std::string& key) { return leaves.contains(key); };
  // Before anything is derived: an explicit 0 is not the same as a missing value.
  check_limits(recipe, given, Keys::Given, report);
  check_family_of_preset(recipe, report);
  drop_dense_width(recipe, leaves);
  default_precision(recipe.precision, leaves);
  // As every published BERT; a preset and a folder say so themselves.
  if (recipe.model.family == Family::Bert && !leaves.contains("model.tied")) recipe.model.tied = true;
  std::vector<std::string> idle;
  neutralise(recipe, leaves, idle);

  if (folder) {
    const auto in_file = [&](const char* key) {  // values of overrides have no line (apply_override)
      const auto leaf = leaves.find(key);
      return leaf != leaves.end() && leaf->second->source().begin.line > 0;
    };
    const auto in_override = [&](const char* key) { return leaves.contains(key) && !in_file(key); };
    place_paths(recipe, *folder, in_file, in_override, report);
  }
  fill_in(recipe, report);
  neutralise_derived(recipe, report, idle);
  check_limits(recipe, given, Keys::All, report);
  check_rules(recipe, report);

  std::vector<Problem>& problems = report.problems();
  if (use.purpose == Purpose::Search && !given("batch.micro"))
    std::erase_if(problems, [](const Problem& p) { return p.name == kMicroBatchIsSane; });
  if (problems.empty()) {
    if (notes != nullptr) notes->insert(notes->end(), idle.begin(), idle.end());
    return recipe;
  }
  if (advise == Advise::Yes && problems.size() <= kMaxProblems && text.size() <= kMaxAdvisedBytes)
    make_advice_sound(problems, [&](const std::vector<std::string>& changes) {
      std::vector<std::string> all = overrides;
      all.insert(all.end(), changes.begin(), changes.end());
      try {
        read(text, all, source, folder, nullptr, use, Advise::No);
      } catch (const RecipeError& e) {
        return e.problems();
      } catch (const base::UserError& e) {  // the change does not apply to this recipe
        return std::vector<Problem>(1, {.key = changes[0], .rule = e.what()});
      }
      return std::vector<Problem>();
    });
  for (size_t i = 0; i < std::min(problems.size(), kMaxProblems); ++i) {
    auto place = places.find(problems[i].key);
    // A key of an entry, such as optimizer.groups.lr, is shown at the list.
    if (const size_t dot = problems[i].key.rfind('.'); place == places.end() && dot != std::string::npos)
      if (const std::string list = problems[i].key.substr(0, dot); leaves.contains(list))
        place = places.find(list);
    if (place != places.end() && place->second.begin.line > 0) set_place(problems[i], place->second, text);
  }
  throw RecipeError(source, std::move(problems));
}

}  // namespace

Recipe parse(std::string_view text, const std::vector<std::string>& overrides, const std::string& source,
             std::vector<std::string>* notes, const Use& use) {
  return read(text, overrides, source, std::nullopt, notes, use, Advise::Yes);
}

Recipe load(const std::string& path, const std::vector<std::string>& overrides,
            std::vector<std::string>* notes, const Use& use) {
  if (base::directory_exists(path)) {
    const base::Path inside = base::Path(path) / "recipe.toml";
    throw base::UserError(
        fmt::format("'{}' is a folder, and a recipe is a file{}", path,
                    base::file_exists(inside) ? fmt::format(": did you mean '{}'?", inside.string()) : ""),
        base::code_of_origin("base/file"));
  }
  if (base::file_exists(path))
    if (const int64_t bytes = base::size_of_file(path); bytes > kMaxRecipeBytes)
      base::fail_user("'{}' has {}; a recipe has at most {}", path, base::human_bytes(bytes),
                      base::human_bytes(kMaxRecipeBytes));
  return read(base::read_file(path), overrides, path, base::Path(path).parent_path(), notes, use,
              Advise::Yes);
}

}  // namespace quintet::config
