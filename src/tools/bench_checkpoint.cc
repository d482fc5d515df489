#include "tools/bench_checkpoint.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "comm/local.h"
#include "train/checkpointer.h"
#include "train/loop.h"
#include "train/run_state.h"
#include "train/saved_state.h"

namespace quintet::tools {
namespace {

using Round = CheckpointBench::Round;

constexpr double kLinkSeconds = 1;

double seconds_since(int64_t begin) { return static_cast<double>(base::now_ns() - begin) / 1e9; }

// Of all threads of this process.
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Repeats the copy of one piece for about a second; the first round is not timed.
double link_rate(train::Rank& rank) {
  const std::vector<train::StatePiece> pieces = state_pieces(rank, train::Holding::Own);
  const auto largest = std::max_element(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return a.range.bytes < b.range.bytes;
  });
  if (largest == pieces.end()) return 0;
  const exec::Executor::Staged copy{.from = largest->range, .to = 0};
  const auto once = [&] {
    rank.executor().stage(std::span(&copy, 1));
    rank.executor().wait_staged();
  };
  once();
  const int64_t begin = base::now_ns();
  double best = 0;
  while (seconds_since(begin) < kLinkSeconds) {
    const int64_t start = base::now_ns();
    once();
    best = std::max(best, static_cast<double>(copy.from.bytes) / seconds_since(start));
  }
  return best;
}

// What a copy of the rank's staged bytes takes at least, where they are in host memory; all ranks at once.
class PlainCopy {
 public:
  explicit PlainCopy(int64_t bytes) : from_(bytes), to_(bytes) {
    std::memset(from_.data(), 1, static_cast<size_t>(bytes));
    std::memset(to_.data(), 2, static_cast<size_t>(bytes));
  }
  double seconds(comm::World& world) {
    world.world().barrier();
    const int64_t begin = base::now_ns();
    std::memcpy(to_.data(), from_.data(), static_cast<size_t>(from_.size()));
    return seconds_since(begin);
  }

 private:
  base::DirectBuffer from_, to_;  // huge pages, as the staging memory
};

}  // namespace

double CheckpointBench::median(double Round::*what) const {
  std::vector<double> values;
  for (const Round& r : rounds) values.push_back(r.*what);
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

CheckpointBench bench_checkpoint(config::Recipe recipe, const CheckpointBenchOptions& options) {
  if (!options.copy_only && base::directory_exists(options.folder) &&
      !base::list_folder(options.folder).empty())
    base::fail_user("'{}' is not empty: choose a new or empty folder with --dir", options.folder.string());
  recipe.checkpoint.dir = options.folder.string();
  recipe.checkpoint.every = {.unit = config::SaveInterval::Unit::Steps, .value = 1};
  recipe.checkpoint.keep = 1;
  recipe.checkpoint.keep_every = 0;
  const int64_t world_size = recipe.parallel.world();
  exec::require_device(train::device_of(recipe));
  const int threads = train::kernel_threads(recipe, world_size);
  CheckpointBench bench{.files = world_size, .rounds = {}};
  comm::run_local_world(static_cast<int>(world_size), [&](comm::World& world) {
    const bool first = world.rank().value == 0;
    train::Rank rank(recipe, world, {.threads = threads, .local_rank = world.rank().value, .tune = false});
    train::Checkpointer checkpoints(
        rank, world, recipe,
        [&] {
          return to_json(train::RunState{.recipe = "", .program = "", .version = "", .algorithms = ""});
        },
        [](const std::string&) {});
    if (first && !options.copy_only) checkpoints.require_space();
    if (first) {
      for (const checkpoint::TensorInfo& t : train::state_tensors(rank)) bench.bytes += t.bytes();
      bench.bytes_first = checkpoints.staging_bytes();
      bench.link_rate = link_rate(rank);
    }
    std::optional<PlainCopy> plain;
    if (!rank.executor().stages_by_itself()) plain.emplace(std::max<int64_t>(1, checkpoints.staging_bytes()));
    for (int64_t n = 1; n <= options.rounds; ++n) {
      Round round;
      if (plain) round.memcpy = plain->seconds(world);
      world.world().barrier();
      const int64_t begin = base::now_ns();
      const double cpu = cpu_seconds();
      if (options.copy_only) {
        checkpoints.copy();
        round.stop = seconds_since(begin);
        rank.executor().wait_staged();
        round.copy = seconds_since(begin);
      } else {
        checkpoints.save(n);
        round.stop = seconds_since(begin);
        checkpoints.finish();
        round.save = seconds_since(begin);
        round.save_cpu = cpu_seconds() - cpu;
        round.copy = static_cast<double>(checkpoints.copied_ns()) / 1e9;
        const base::Path folder = checkpoint::Store(options.folder).folder_of(n);
        if (first)
          for (const base::Path& file : base::list_files(folder)) base::forget_cached(file);
        world.world().barrier();
        const auto load = [&] {
          const int64_t loading = base::now_ns();
          checkpoint::Reader reader(folder);
          train::load_state(rank, reader, train::LoadOptions{});
          world.world().barrier();
          return seconds_since(loading);
        };
        const double cpu_before = cpu_seconds();
        round.load = load();
        round.load_cpu = cpu_seconds() - cpu_before;
        if (first)
          for (const base::Path& file : base::list_files(folder)) (void)base::read_file(file);
        world.world().barrier();
        round.load_cached = load();
        // Every round begins with the same part of the page cache in use.
        if (first) checkpoint::Store(options.folder).remove({.step = n, .folder = folder, .complete = true});
      }
      if (first) bench.rounds.push_back(round);
    }
    world.world().barrier();
  });
  if (!options.copy_only) base::remove_file(options.folder / checkpoint::kLatestFile);
  return bench;
}

std::string to_table(const CheckpointBench& b) {
  std::string text = fmt::format("state    {} in {}, {} of rank 0\n", base::human_bytes(b.bytes),
                                 base::counted(b.files, "file"), base::human_bytes(b.bytes_first));
  const auto line = [&](const char* what, double seconds, int64_t bytes) {
    if (seconds <= 0) return;
    text += fmt::format(
        "{:<8} {:>8.3f} s{}\n", what, seconds,
        bytes == 0 ? "" : fmt::format("  {:7.2f} GB/s", static_cast<double>(bytes) / seconds / 1e9));
  };
  line("stop", b.median(&Round::stop), 0);
  line("memcpy", b.median(&Round::memcpy), b.bytes_first);
  line("copy", b.median(&Round::copy), b.bytes_first);
  line("save", b.median(&Round::save), b.bytes);
  line("load", b.median(&Round::load), b.bytes);
  line("cached", b.median(&Round::load_cached), b.bytes);
  return text + fmt::format("link     {:.2f} GB/s, the largest piece alone\nmedians of {} rounds\n",
                            b.link_rate / 1e9, b.rounds.size());
}

std::string to_json(const CheckpointBench& b) {
  nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
  for (const Round& r : b.rounds)
    rounds.push_back({{"stop", r.stop},
                      {"memcpy", r.memcpy},
                      {"copy", r.copy},
                      {"save", r.save},
                      {"load", r.load},
                      {"load_cached", r.load_cached},
                      {"save_cpu", r.save_cpu},
                      {"load_cpu", r.load_cpu}});
  return base::json_text(nlohmann::ordered_json{{"bytes", b.bytes},
                                                {"bytes_of_rank_0", b.bytes_first},
                                                {"files", b.files},
                                                {"link_bytes_per_s", b.link_rate},
                                                {"rounds", std::move(rounds)}}) +
         "\n";
}

}  // namespace quintet::tools
