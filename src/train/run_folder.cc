#include "train/run_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/error_codes.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/output_path.h"
#include "base/printable.h"
#include "base/text.h"
#include "config/codes.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/validate.h"

namespace quintet::train {

void require_recipe_stays(const std::string& file, const RunFolder& folder) {
  std::error_code none;
  if (std::filesystem::equivalent(file, folder.recipe_file(), none) && !base::file_exists(folder.facts()))
    config::fail_coded(
        config::kFolderIsFree,
        "--overwrite would replace '{}', the recipe itself, by its resolved form: choose another "
        "folder with --run-dir",
        base::printable(file));
}

void require_in_place(const std::string& file, const std::string& run_dir) {
  const base::Path folder = std::filesystem::absolute(file).parent_path();
  const RunFolder here(folder);
  std::error_code none;
  if (std::filesystem::equivalent(file, here.recipe_file(), none) && base::file_exists(here.facts()) &&
      !std::filesystem::equivalent(folder, run_dir, none) && config::load(file).run.dir == run_dir)
    config::fail_coded(
        config::kFolderIsFree,
        "'{}' is the recipe of a run that was moved or copied from '{}': --run-dir {} continues it "
        "here",
        base::printable(file), run_dir, folder.string());
}

std::vector<base::Path> RunFolder::results() const {
  return {metrics(), ledger(), facts(), summary(), timeline(), schedule(), trace(), report()};
}

void RunFolder::require_free(Existing existing) const {
  if (existing != Existing::Refuse) return;
  std::string found;
  std::vector<base::Path> files = results();
  files.push_back(recipe_file());
  for (const base::Path& file : files)
    if (base::file_exists(file))
      found += fmt::format("{}{}", found.empty() ? "" : ", ", file.filename().string());
  if (found.empty()) return;
  config::fail_coded(
      config::kFolderIsFree,
      "'{}' {} that this run would replace: {}. Choose another folder with --run-dir, or replace {} with "
      "--overwrite",
      path_.string(), base::file_exists(metrics()) ? "already contains a run, with files" : "contains files",
      found, found.find(',') == std::string::npos ? "it" : "them");
}

void RunFolder::require_only_files() const {
  std::vector<base::Path> files = results();
  files.insert(files.end(), {recipe_file(), algorithms(), lock()});
  for (const base::Path& file : files)
    if (const std::string_view what = base::obstacle_at(file); !what.empty())
      config::fail_coded(config::kFolderIsFree,
                         "'{}' is {}, and this run would write a file there: move it away, or choose another "
                         "folder with --run-dir",
                         file.string(), what);
}

void RunFolder::require_room(int64_t bytes) const {
  if (const int64_t free = base::free_bytes(path_); free < bytes)
    config::fail_coded(
        config::kDiskHasRoom,
        "the run needs {} in '{}' for metrics and reports, but only {} is free: free some space or choose "
        "another folder with --run-dir",
        base::human_bytes(bytes), path_.string(), base::human_bytes(free));
}

void RunFolder::require_creatable() const {
  base::Path folder = std::filesystem::absolute(path_);
  while (!base::file_exists(folder) && !base::directory_exists(folder) && folder.has_relative_path())
    folder = folder.parent_path();
  base::require_existing_folder("run folder", folder);
}

base::FileLock RunFolder::acquire(int64_t bytes, Existing existing) const {
  require_room(bytes);
  base::require_writable_directory(path_);
  auto locked = base::FileLock::acquire(lock(), base::process_name());
  if (!locked) {
    const std::string owner = base::FileLock::owner_of(lock());
    config::fail_coded(
        config::kFolderIsNotInUse,
        "another run is writing to '{}'{}: wait for it, or choose another folder with --run-dir",
        path_.string(), owner.empty() ? "" : fmt::format(" ({})", owner));
  }
  require_free(existing);  // a run may have finished here since the first look
  // Of a run that was killed. A report may be in progress: 'quintet report' takes no lock.
  base::remove_partial_files(path_, {"probe", "recipe.toml", "run.json", "metrics.jsonl", "summary.json",
                                     "timeline.json", "trace.json", "schedule.txt", "gemm_algorithms.txt"});
  return std::move(*locked);
}

namespace {
constexpr const char* kHasSaved = ", which has saved checkpoints";
}

void RunFolder::note_saved(const base::FileLock& lock) { lock.describe(base::process_name() + kHasSaved); }

bool RunFolder::has_saved() const { return base::FileLock::owner_of(lock()).ends_with(kHasSaved); }

void RunFolder::begin(const config::Recipe& recipe, Existing existing) const {
  config::Recipe written = recipe;
  written.run.dir = std::filesystem::absolute(path_).lexically_normal().string();
  std::optional<std::string> text;  // read before removing files: it may belong to the earlier run
  if (const auto file = config::schedule_file(recipe.parallel.schedule)) {
    text = base::read_file(*file);
    written.parallel.schedule = fmt::format("file:{}", kScheduleFile);
  }
  if (existing != Existing::Continue)
    for (const base::Path& file : results()) base::remove_file(file);
  if (text) base::write_file_atomically(schedule(), *text);
  base::write_file_atomically(recipe_file(), config::to_toml(written));
}

void RunFolder::write_recipe(const config::Recipe& recipe) const {
  base::make_directories(path_);
  base::write_file_atomically(recipe_file(), config::to_toml(recipe));
}

void RunFolder::restore_if_removed(const config::Recipe& recipe, const std::string& run_json,
                                   int64_t step) const {
  if (base::file_exists(metrics())) return;
  write_recipe(recipe);
  base::write_file_atomically(facts(), run_json);
  throw base::UserError(base::with_code(
      fmt::format(
          "'{}' was removed or moved during the run: its metrics and earlier checkpoints are lost; the "
          "recipe and the state of step {} were written there again",
          path_.string(), step),
      "Q9004"));
}

std::string_view to_string(RunEnd end) {
  switch (end) {
    case RunEnd::Finished:
      return "finished";
    case RunEnd::Interrupted:
      return "interrupted";
    case RunEnd::NonFinite:
      return "non-finite";
    case RunEnd::SaveFailed:
      return "save failed";
  }
  return "";
}

namespace {

nlohmann::ordered_json planned_json(const Summary::RankMemory& m) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  int64_t gaps = m.planned_peak_bytes;
  for (size_t c = 0; c < m.planned_by_class.size(); ++c) {
    json[std::string(to_string(static_cast<program::MemoryClass>(c)))] = m.planned_by_class[c];
    gaps -= m.planned_by_class[c];
  }
  json["gaps"] = gaps;
  return json;
}

}  // namespace

std::string to_json(const Summary& s) {
  nlohmann::ordered_json json = {{"name", s.name},
                                 {"ended", to_string(s.end)},
                                 {"ended_at", s.ended_at},
                                 {"steps", s.steps},
                                 {"skipped_steps", s.skipped_steps},
                                 {"first_loss", s.first_loss},
                                 {"last_loss", s.last_loss},
                                 {"tokens", s.tokens},
                                 {"seconds", s.seconds},
                                 {"setup_seconds", s.setup_seconds},
                                 {"wall_seconds", s.wall_seconds},
                                 {"tokens_per_s", s.tokens_per_s},
                                 {"planned_peak", s.planned_is_bound ? "bound" : "exact"},
                                 {"evaluations", nlohmann::ordered_json::array()},
                                 {"ranks", nlohmann::ordered_json::array()}};
  if (s.auto_seconds > 0) json["checkpoint_every_seconds"] = s.auto_seconds;
  for (const Summary::Evaluation& e : s.evaluations)
    json["evaluations"].push_back({{"step", e.step}, {"loss", e.loss}, {"tokens", e.tokens}});
  for (size_t r = 0; r < s.ranks.size(); ++r)
    json["ranks"].push_back({{"rank", r},
                             {"planned_peak_bytes", s.ranks[r].planned_peak_bytes},
                             {"measured_peak_bytes", s.ranks[r].measured_peak_bytes},
                             {"planned", planned_json(s.ranks[r])}});
  json["communication"] = nlohmann::ordered_json::array();
  for (const GroupTraffic& g : s.traffic) {
    nlohmann::ordered_json row = {
        {"group", g.group}, {"call", g.call},           {"members", g.members},
        {"link", g.link},   {"transport", g.transport}, {"ranks", g.ranks},
        {"calls", g.calls}, {"bytes", g.bytes},         {"sent_bytes", g.sent_bytes}};
    if (g.seconds > 0)
      row.update({{"seconds", g.seconds},
                  {"waiting_seconds", g.waiting},
                  {"longest_wait_seconds", g.longest_wait},
                  {"longest_wait_rank", g.longest_wait_rank},
                  {"bandwidth_bytes_per_s", g.bandwidth},
                  {"bus_bandwidth_bytes_per_s", g.bus_bandwidth}});
    json["communication"].push_back(std::move(row));
  }
  return base::json_text(json, 2) + "\n";
}

std::string dry_run_json(const config::Recipe& recipe, const Summary& s) {
  nlohmann::ordered_json json = {{"name", s.name},
                                 {"dry_run", true},
                                 {"steps", recipe.run.steps},
                                 {"world", recipe.parallel.world()},
                                 {"tokens_per_step", recipe.batch.global * recipe.data.seq_len},
                                 {"run_dir", recipe.run.dir},
                                 {"planned_peak", s.planned_is_bound ? "bound" : "exact"},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (size_t r = 0; r < s.ranks.size(); ++r)
    json["ranks"].push_back({{"rank", r}, {"planned_peak_bytes", s.ranks[r].planned_peak_bytes}});
  return base::json_text(json, 2) + "\n";
}

std::vector<std::string> summary_lines(const Summary& s, const RunFolder& folder) {
  std::vector<std::string> lines;
  const auto line = [&](std::string_view label, const std::string& text) {
    lines.push_back(fmt::format("{:<13}{}", label, text));
  };
  if (s.steps > 0)
    line("loss", fmt::format("{:.4f} -> {:.4f} in {} step{}{}", s.first_loss, s.last_loss,
                             base::thousands(s.steps), s.steps == 1 ? "" : "s",
                             s.skipped_steps > 0 ? fmt::format(", {} skipped", s.skipped_steps) : ""));
  if (!s.evaluations.empty()) line("validation", fmt::format("{:.4f}", s.evaluations.back().loss));
  const auto time = [](double seconds) { return base::human_duration(static_cast<int64_t>(seconds * 1e9)); };
  if (s.tokens_per_s > 0)  // the first steps, which measure memory, are not timed
    line("speed", fmt::format("{} tokens/s", base::thousands(static_cast<int64_t>(s.tokens_per_s))));
  // Neither set-up nor measurements where a finished run was started again.
  line("time", time(s.wall_seconds) +
                   (s.setup_seconds > 0 ? fmt::format(", of which {} set-up", time(s.setup_seconds)) : ""));
  const std::vector<std::string> traffic = traffic_lines(s.traffic);
  for (size_t i = 0; i < traffic.size(); ++i) line(i == 0 ? "traffic" : "", traffic[i]);
  if (s.auto_seconds > 0)
    line("checkpoints", fmt::format("every {} (checkpoint.every = \"auto\")", time(s.auto_seconds)));
  for (size_t begin = 0; begin < s.ranks.size();) {
    size_t end = begin + 1;
    const Summary::RankMemory& m = s.ranks[begin];
    while (end < s.ranks.size() && s.ranks[end].planned_peak_bytes == m.planned_peak_bytes &&
           s.ranks[end].measured_peak_bytes == m.measured_peak_bytes)
      ++end;
    line(begin == 0 ? "peak memory" : "",
         fmt::format(
             "{}: {} bytes planned{}{}",
             end - begin == 1 ? fmt::format("rank {}", begin) : fmt::format("ranks {}-{}", begin, end - 1),
             base::thousands(m.planned_peak_bytes), s.planned_is_bound ? " at most" : "",
             m.measured_peak_bytes == 0
                 ? std::string()
                 : fmt::format(", {} measured{}", base::thousands(m.measured_peak_bytes),
                               s.planned_is_bound ? " in the first two steps" : "")));
    begin = end;
  }
  line("run folder", folder.path().string());
  return lines;
}

}  // namespace quintet::train
