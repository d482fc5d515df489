// Runs that are killed at random moments and started again.
#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "checkpoint/reader.h"
#include "checkpoint/store.h"
#include "cli/support.h"

namespace quintet {
namespace {

using test::SmallRun;

std::vector<std::string> arguments(const SmallRun& small, const std::string& steps = "12", int every = 1) {
  std::vector<std::string> out = {"train", small.recipe_file().string(), "--sample", "0", "--steps", steps};
  out.insert(out.end(), {"--set", fmt::format("checkpoint.every={}", every)});
  for (const char* set :
       {"eval.every=5", "eval.batches=1", "parallel.tp=1", "parallel.sequence_parallel=false"})
    out.insert(out.end(), {"--set", set});
  return out;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += " " + test::quoted(word);
  return text;
}

std::map<std::string, std::string> state_of(const SmallRun& small) {
  return test::tensors_of(small.run_dir());
}

// SIGKILL at random moments, also inside saves, evaluation and loading: whatever is left can be loaded, and
// the run that is continued ends as one that was never killed. `make crash` kills 200 times.
TEST(Crash, KilledRunsContinueToTheSameEnd) {
  const char* const asked = std::getenv("QUINTET_CRASH_KILLS");
  const int kills = asked == nullptr ? 10 : std::atoi(asked);
  const SmallRun whole;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(test::Background(arguments(whole)).wait(), 0);
  const auto took = std::chrono::steady_clock::now() - begin;
  const auto longest = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();

  std::mt19937 random(static_cast<unsigned>(kills));
  std::optional<SmallRun> small;
  small.emplace();
  int64_t last = 0;
  for (int killed = 0; killed < kills;) {
    test::Background run(arguments(*small, "12", 1 + killed % 3));  // with more than 1, steps are repeated
    std::this_thread::sleep_for(std::chrono::milliseconds(
        std::uniform_int_distribution<int64_t>(0, std::max<int64_t>(1, longest))(random)));
    if (run.ended()) {
      ASSERT_EQ(run.wait(), 0) << test::quintet(joined(arguments(*small))).err;
      EXPECT_TRUE(state_of(*small) == state_of(whole));
      small.emplace();
      last = 0;
      continue;
    }
    run.send(SIGKILL);
    run.wait();
    ++killed;
    const auto newest = checkpoint::Store(small->run_dir() / "checkpoints").newest();
    const int64_t step = newest ? newest->step : 0;
    EXPECT_GE(step, last) << "the newest complete checkpoint is never lost";
    last = step;
    if (newest) checkpoint::Reader(newest->folder).verify();
  }
  const test::Outcome end = test::quintet(joined(arguments(*small)));
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_TRUE(state_of(*small) == state_of(whole));
  const auto a = test::read_metrics(whole.run_folder().metrics()),
             b = test::read_metrics(small->run_folder().metrics());
  ASSERT_EQ(a.size(), 12u);
  ASSERT_EQ(b.size(), 12u);
  for (size_t i = 0; i < a.size(); ++i)
    for (const char* key : {"step", "loss", "grad_norm", "eval_loss"}) {
      ASSERT_EQ(a[i].contains(key), b[i].contains(key)) << key << " of step " << i + 1;
      if (a[i].contains(key)) {
        EXPECT_EQ(a[i].at(key), b[i].at(key)) << key << " of step " << i + 1;
      }
    }
  EXPECT_TRUE(a[4].contains("eval_loss"));
  // Nor do files remain that a kill has left half written. A report is written without the folder's lock.
  for (const base::Path& folder : {small->run_dir(), small->run_dir() / "checkpoints"})
    for (const base::Path& name : base::list_folder(folder)) {
      const std::string text = name.string();
      EXPECT_FALSE(text.starts_with(".seen-") || (text.ends_with(".partial") && !text.starts_with("report.")))
          << folder / name;
    }
}

TEST(Crash, ASignalSavesAndTheSameCommandContinues) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const SmallRun small;
    std::vector<std::string> command = arguments(small, "100000");
    command.insert(command.end(), {"--set", "checkpoint.every=0"});
    test::Background run(command);
    while (!base::file_exists(small.run_folder().metrics()) ||
           base::size_of_file(small.run_folder().metrics()) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    run.send(signal);
    ASSERT_EQ(run.wait(), 128 + signal);
    const auto newest = checkpoint::Store(small.run_dir() / "checkpoints").newest();
    ASSERT_TRUE(newest);
    EXPECT_EQ(static_cast<int64_t>(test::read_metrics(small.run_folder().metrics()).size()), newest->step);
    const std::string steps = std::to_string(newest->step + 2);
    const test::Outcome again = test::quintet(joined(arguments(small, steps)));
    EXPECT_EQ(again.code, 0) << again.out << again.err;
    EXPECT_NE(again.out.find("continues from"), std::string::npos) << again.out;
    EXPECT_EQ(std::to_string(test::read_metrics(small.run_folder().metrics()).size()), steps);
  }
}

// A run that was killed after it had saved checkpoints does not start again when they were moved away.
TEST(Crash, MovedCheckpointsAreMissed) {
  const SmallRun small;
  {
    test::Background run(arguments(small, "100000"));
    while (!run.ended() && !train::RunFolder(small.run_dir()).has_saved())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    run.send(SIGKILL);
    run.wait();
  }
  const base::Path here = small.run_dir() / "checkpoints", there = small / "moved";
  const int64_t step = checkpoint::Store(here).newest().value().step;
  const std::string command = joined(arguments(small, std::to_string(step + 1)));
  std::filesystem::rename(here, there);
  const std::string metrics = base::read_file(small.run_folder().metrics());
  const test::Outcome refused = test::quintet(command);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_CONTAINS(refused.err, "has saved checkpoints, and none is in '" + here.string() + "' any more");
  EXPECT_EQ(base::read_file(small.run_folder().metrics()), metrics);
  std::filesystem::rename(there, here);
  EXPECT_EQ(test::quintet(command).code, 0);
}

// The last save of a run takes days at a byte per second, unless the process is to end.
TEST(Crash, ASignalInTheLastSaveEndsTheBandwidthLimit) {
  const SmallRun small;
  std::vector<std::string> command = arguments(small, "3", 0);
  command.insert(command.end(), {"--set", "checkpoint.bandwidth=1B"});
  const std::string err_file = (small / "err").string();
  test::Background run(command, err_file);
  while (!run.ended() && checkpoint::Store(small.run_dir() / "checkpoints").list().empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 0) << "all steps are done";
  EXPECT_CONTAINS(base::read_file(err_file),
                  "the run has ended; saving its last checkpoint takes about 1 s\n");
  checkpoint::Reader(checkpoint::Store(small.run_dir() / "checkpoints").folder_of(3)).verify();
}

// A manifest may come from anywhere: its text neither controls a terminal nor forges a line, in a pipe too.
TEST(Checkpoint, TextOfAManifestIsShownAsText) {
  const SmallRun small;
  ASSERT_EQ(
      test::quintet("train " + test::quoted(small.recipe_file().string()) + " --sample 0 --steps 1").code, 0);
  const base::Path file = small.run_dir() / "checkpoints/step-00000001/manifest.json";
  const std::string show = "checkpoint show " + test::quoted(small.run_dir().string());
  const auto lines = [&] { return std::ranges::count(test::quintet(show).out, '\n'); };
  const auto before = lines();
  checkpoint::Manifest m = checkpoint::parse_manifest(base::read_file(file), "test");
  m.run["version"] = "1\x1b[2J\nloss        0.0001\x7f";
  m.run["environment"]["commit"] = "\xc2\x9b[31m";
  base::write_file_atomically(file, to_text(m));
  EXPECT_EQ(lines(), before);
  for (const char* json : {"", " --json"}) {
    const test::Outcome o = test::quintet(show + json);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out.find_first_of("\x1b\x7f"), std::string::npos) << o.out;
    EXPECT_EQ(o.out.find("\xc2\x9b"), std::string::npos) << o.out;
    if (*json != '\0') {
      EXPECT_EQ(nlohmann::json::parse(o.out).at("run").at("environment").at("commit"), "\xc2\x9b[31m");
    }
  }
}

TEST(Checkpoint, VerbsListShowVerifyAndPrune) {
  const SmallRun small;
  const std::string recipe = test::quoted(small.recipe_file().string()),
                    folder = test::quoted(small.run_dir().string());
  ASSERT_EQ(
      test::quintet("train " + recipe + " --sample 0 --set checkpoint.every=2 --set checkpoint.keep=5").code,
      0);
  const test::Outcome list = test::quintet("checkpoint ls " + folder);
  EXPECT_EQ(list.code, 0) << list.err;
  for (const char* step : {"step-00000002", "step-00000004", "step-00000006"})
    EXPECT_NE(list.out.find(step), std::string::npos) << list.out;
  EXPECT_EQ(nlohmann::json::parse(test::quintet("checkpoint ls --json " + folder).out).size(), 3u);
  const test::Outcome show = test::quintet("checkpoint show --tensors " + folder);
  EXPECT_NE(show.out.find("after step 6 of 6"), std::string::npos) << show.out << show.err;
  EXPECT_NE(show.out.find("embed.weight/adamw.m"), std::string::npos) << show.out;
  EXPECT_NE(test::quintet("checkpoint verify " + folder).out.find("good: "), std::string::npos);
  const test::Outcome generated = test::quintet(
      "generate " + test::quoted((small.run_dir() / "checkpoints/step-00000006").string()) + " --tokens 8");
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.out, test::quintet("generate " + folder + " --tokens 8").out);
  // Those that are set aside are listed, and pruned when asked.
  ASSERT_EQ(test::quintet("train " + recipe +
                          " --sample 0 --set checkpoint.every=2 --set checkpoint.keep=5 --from " +
                          test::quoted((small.run_dir() / "checkpoints/step-00000004").string()))
                .code,
            0);
  EXPECT_NE(test::quintet("checkpoint ls " + folder).out.find("abandoned-1-step-00000006  (set aside)"),
            std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(test::quintet("checkpoint ls --json " + folder).out).back().at("set_aside"),
            true);
  const test::Outcome dry = test::quintet("checkpoint prune " + folder + " --keep 1 --dry-run");
  EXPECT_NE(dry.out.find("abandoned-1-step-00000006"), std::string::npos) << dry.out;
  EXPECT_EQ(nlohmann::json::parse(test::quintet("checkpoint ls --json " + folder).out).size(), 4u);
  EXPECT_EQ(test::quintet("checkpoint prune " + folder + " --keep 1").code, 0);
  EXPECT_EQ(nlohmann::json::parse(test::quintet("checkpoint ls --json " + folder).out).size(), 1u);
  const base::Path shard = small.run_dir() / "checkpoints/step-00000006/rank-00001.safetensors";
  std::string bytes = base::read_file(shard);
  bytes.back() ^= 1;
  base::write_file_atomically(shard, bytes);
  const test::Outcome damaged = test::quintet("checkpoint verify " + folder);
  EXPECT_EQ(damaged.code, 2);
  EXPECT_NE(damaged.err.find("rank-00001.safetensors' is damaged"), std::string::npos) << damaged.err;
}

TEST(Checkpoint, VerbsFindTheFolderThatTheRecipeNames) {
  const SmallRun small;
  const std::string run = test::quoted(small.run_dir().string());
  ASSERT_EQ(test::quintet("train " + test::quoted(small.recipe_file().string()) +
                          " --sample 0 --steps 2 --set checkpoint.every=1 --set checkpoint.dir=" +
                          test::quoted((small / "elsewhere").string()) +
                          " --set 'optimizer.groups=[{match=\"*ffn*\", update=false}]'")
                .code,
            0);
  const test::Outcome list = test::quintet("checkpoint ls " + run);
  EXPECT_NE(list.out.find("elsewhere/step-00000002"), std::string::npos) << list.err;
  EXPECT_NE(test::quintet("checkpoint show " + run).out.find("by    4 ranks,"), std::string::npos)
      << "frozen parameters are in files of their own";
  EXPECT_EQ(test::quintet("checkpoint verify " + run).code, 0);
  EXPECT_EQ(test::quintet("checkpoint prune " + run + " --keep 1").code, 0);
  EXPECT_EQ(nlohmann::json::parse(test::quintet("checkpoint ls --json " + run).out).size(), 1u);
}

TEST(Checkpoint, APastStepIsReplayedInEveryBit) {
  const SmallRun small;
  const std::string folder = test::quoted(small.run_dir().string());
  const std::string train =
      "train " + test::quoted(small.recipe_file().string()) +
      " --sample 0 --set checkpoint.every=2 --set checkpoint.keep=1 --set checkpoint.keep_every=4";
  ASSERT_EQ(test::quintet(train).code, 0);
  const test::Outcome again = test::quintet(train);  // nothing is left to do, and nothing is measured
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("bytes planned\n"), std::string::npos) << again.out;
  EXPECT_EQ(again.out.find("set-up"), std::string::npos) << again.out;
  base::make_directories(small.run_dir() / "replay-6");  // the user's
  base::write_file_atomically(small.run_dir() / "replay-6" / "notes", "mine");
  const std::vector<base::Path> before = base::list_files(small.run_dir());
  for (const auto& [step, from] :
       {std::pair{"6", "from step 4"}, std::pair{"2", "from the start of the run"}}) {
    const test::Outcome o = test::quintet("replay " + folder + " --step " + step);
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    EXPECT_NE(o.out.find(from), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("equal in every bit"), std::string::npos) << o.out;
  }
  EXPECT_EQ(test::quintet("replay " + folder + " --step 7").code, 2);
  EXPECT_EQ(base::list_files(small.run_dir()), before) << "a replay leaves the run folder as it is";
  // A record that was changed is noticed.
  std::string text = base::read_file(small.run_folder().metrics());
  const size_t at = text.rfind("\"loss\": ");
  text.replace(at, 10, "\"loss\": 9");
  base::write_file_atomically(small.run_folder().metrics(), text);
  EXPECT_EQ(test::quintet("replay " + folder + " --step 6").code, 1);
}

// Both sides start with the weights of the checkpoint, not with new ones.
TEST(Checkpoint, LayoutsAreComparedWithItsWeights) {
  const SmallRun small;
  const std::string recipe = test::quoted(small.recipe_file().string());
  ASSERT_EQ(test::quintet("train " + recipe + " --sample 0 --set optimizer.ema=0.5").code, 0);
  const auto first_loss = [&](const std::string& options) {
    const test::Outcome o = test::quintet("verify " + recipe + " --steps 1 --json " + options);
    EXPECT_EQ(o.code, 0) << o.out << o.err;
    const nlohmann::json result = nlohmann::json::parse(o.out);
    for (const nlohmann::json& check : result.at("checks"))
      if (check.at("what") == "loss") return check.at("layout").get<double>();
    return 0.0;
  };
  const double fresh = first_loss(""),
               trained = first_loss("--from " + test::quoted(small.run_dir().string()));
  EXPECT_LT(trained, 0.8 * fresh);
  // Averages of the weights give another text.
  const std::string generate =
      "generate " + test::quoted(small.run_dir().string()) + " --tokens 20 --temperature 2";
  const test::Outcome weights = test::quintet(generate), averages = test::quintet(generate + " --ema");
  EXPECT_EQ(averages.code, 0) << averages.err;
  EXPECT_NE(weights.out, averages.out);
}

// Counts the metadata operations of saves.
class CountedFiles : public base::FileSystem {
 public:
  std::atomic<int64_t> operations = 0;

 private:
  int create(const base::Path& p) override {
    operations += 2;  // it removes an existing file first
    return FileSystem::create(p);
  }
  void sync(int, const base::Path&) override { ++operations; }
  void close(int file, const base::Path& p) override {
    ++operations;
    FileSystem::close(file, p);
  }
  void rename(const base::Path& from, const base::Path& to) override {
    ++operations;
    FileSystem::rename(from, to);
  }
  void make_directory(const base::Path& p) override {
    ++operations;
    FileSystem::make_directory(p);
  }
  void sync_directory(const base::Path&) override { ++operations; }
};

// The operations of a save that the plan counts are those of a save: the difference between runs of two saves
// and of one. Looking something up and reading it back is not counted here: every rank looks for a manifest
// and twice for a folder, rank 0 reads every header in 4 operations and lists the folder.
TEST(Checkpoint, PlannedOperationsAreThoseOfASave) {
  const auto operations = [](const std::vector<std::string>& sets) {
    const SmallRun small;
    CountedFiles files;
    train::RunOptions options;
    options.files = &files;
    small.train(sets, options);
    return files.operations.load();
  };
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{}, {"parallel.tp=1", "parallel.sequence_parallel=false"}}) {
    const auto with = [&](const char* every) {
      std::vector<std::string> all = sets;
      all.emplace_back(every);
      return all;
    };
    const int64_t counted = operations(with("checkpoint.every=3")) - operations(with("checkpoint.every=100"));
    const SmallRun small;
    std::string command = "plan " + test::quoted(small.recipe_file().string()) + " --json";
    for (const std::string& set : with("checkpoint.every=3")) command += " --set " + test::quoted(set);
    const auto plan = nlohmann::json::parse(test::quintet(command).out);
    const int64_t ranks = plan.at("world"), files = plan.at("checkpoint").at("files").get<int64_t>() - 2;
    EXPECT_EQ(files, ranks);
    EXPECT_EQ(plan.at("checkpoint").at("metadata_operations"), counted + 3 * ranks + 4 * files + 1);
  }
}

TEST(Checkpoint, PlansShowWhatASaveNeeds) {
  const SmallRun small;
  const std::string recipe = test::quoted(small.recipe_file().string());
  const test::Outcome plan =
      test::quintet("plan " + recipe + " --set checkpoint.every=2 --write-rate 1MB --read-rate 2MB --json");
  ASSERT_EQ(plan.code, 0) << plan.err;
  const auto planned = nlohmann::json::parse(plan.out).at("checkpoint");
  ASSERT_EQ(test::quintet("train " + recipe + " --sample 0 --set checkpoint.every=2").code, 0);
  const checkpoint::Reader reader(small.run_dir() / "checkpoints/step-00000006");
  EXPECT_EQ(planned.at("bytes"), reader.manifest().tensor_bytes());
  EXPECT_EQ(planned.at("files"), reader.manifest().files.size() + 2);
  // The copy that it is written from, of the rank that saves most (SavedState.StagingMemoryIsPlannedExactly).
  EXPECT_GE(4 * planned.at("host_staging_bytes").get<int64_t>(), reader.manifest().tensor_bytes());
  EXPECT_LT(planned.at("host_staging_bytes").get<int64_t>(), reader.manifest().tensor_bytes());
  // A limit for writing says nothing of reading.
  const auto limited = nlohmann::json::parse(test::quintet("plan " + recipe +
                                                           " --set checkpoint.every=2 --write-rate 1MB --set "
                                                           "checkpoint.bandwidth=250kB --json")
                                                 .out)
                           .at("checkpoint");
  EXPECT_EQ(limited.at("write_rate"), 250e3);
  EXPECT_EQ(limited.at("load_seconds"), 0);
  EXPECT_GT(limited.at("save_seconds").get<double>(), 3 * planned.at("save_seconds").get<double>());
  EXPECT_EQ(planned.at("host_peer_bytes"), 0);
  // Every metadata operation takes its time.
  const auto slow =
      nlohmann::json::parse(test::quintet("plan " + recipe +
                                          " --set checkpoint.every=2 --write-rate 1MB --read-rate 2MB "
                                          "--metadata-rate 2 --json")
                                .out)
          .at("checkpoint");
  for (const auto& [operations, seconds] :
       {std::pair{"metadata_operations", "save_seconds"}, std::pair{"load_operations", "load_seconds"}}) {
    const double count = planned.at(operations).get<double>();
    EXPECT_GT(count, 20);
    EXPECT_NEAR(slow.at(seconds).get<double>() - planned.at(seconds).get<double>(),
                count / 2 - count / planned.at("metadata_rate").get<double>(), 1e-6);
  }
  EXPECT_NE(test::quintet("plan " + recipe + " --set checkpoint.every=2").out.find("metadata operations"),
            std::string::npos);
}

}  // namespace
}  // namespace quintet
