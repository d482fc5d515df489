#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <regex>

#include "cli/support.h"
#include "support/folders.h"

namespace quintet {
namespace {

using test::Background;
using test::kMpirun;
using test::kTool;
using test::Outcome;
using test::quintet;
using test::quoted;
using test::read_json;
using test::read_metrics;
using test::shell;
using test::SmallRun;

std::string train(const SmallRun& small, const std::string& more = {}) {
  return "train " + quoted(small.recipe_file().string()) + " " + more;
}

// A dry run does everything but the steps, and writes nothing.
TEST(DryRun, PreparesAndWritesNothing) {
  const SmallRun small;
  const std::string recipe = quoted(small.recipe_file().string());
  const Outcome o = quintet("train --dry-run " + recipe);
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* part : {"model ", "data ", "memory ", "dry run      ready for "})
    EXPECT_CONTAINS(o.out, part);
  EXPECT_EQ(o.out.find("step 1/"), std::string::npos) << o.out;
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
  const Outcome json = quintet("train --dry-run --json " + recipe);
  EXPECT_CONTAINS(json.out, "\"dry_run\": true");
  EXPECT_CONTAINS(json.out, "\"planned_peak_bytes\": ");
  // What would stop a run stops its dry run.
  EXPECT_EQ(quintet("train --dry-run " + recipe + " --set data.path=/no/such/file").code, 2);
  EXPECT_EQ(quintet("train --dry-run " + recipe + " --run-dir /proc/no/folder").code, 2);
  EXPECT_EQ(quintet("train " + recipe).code, 0);
  EXPECT_EQ(quintet("train --dry-run " + recipe).code, 0) << "a complete run has nothing left to do";
  const Outcome other = quintet("train --dry-run " + recipe + " --set optimizer.lr=0.5");
  EXPECT_EQ(other.code, 2);
  EXPECT_CONTAINS(other.err, "--allow optimizer.lr");
}

// Models that a cache does not support yet train all the same.
TEST(Train, ModelsThatCannotGenerateHaveNoSample) {
  for (const char* key : {"model.attention_sinks=true", "model.attention_chunk=8"}) {
    const SmallRun small;
    const Outcome o = quintet(train(small, std::string("--steps 1 --set ") + key));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(o.out.find("sample  "), std::string::npos) << o.out;
  }
}

TEST(Train, RunsFromRecipeToText) {
  const SmallRun small;
  const Outcome o = quintet(train(small, "--steps 12 --sample 10 --set eval.every=6"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "");
  for (const char* part : {"model        ", "step         8 sequences", "step  1/12  loss ",
                           "step 12/12  loss ", "eval at step 6: loss ", "loss         ", " in 12 steps",
                           "peak memory  ranks 0-3: ", "run folder   ", "sample       The "})
    EXPECT_CONTAINS(o.out, part);
  EXPECT_EQ(o.out.find('\r'), std::string::npos) << "a pipe gets plain lines only";
  const auto summary = read_json(small.run_folder().summary());
  EXPECT_LT(summary.at("last_loss"), summary.at("first_loss"));
  EXPECT_CONTAINS(o.out, "report       " + small.run_folder().report().string());
  const auto facts = read_json(small.run_folder().facts());
  EXPECT_EQ(facts.at("mesh").dump(), R"([{"axis":"dp_shard","size":2},{"axis":"tp","size":2}])");
  EXPECT_CONTAINS(facts.at("command").get<std::string>(), "--sample 10 --set eval.every=6");
  const auto timeline = read_json(small.run_folder().timeline());
  EXPECT_EQ(timeline.at("step"), 5);
  EXPECT_EQ(timeline.at("ranks").size(), 4u);
  const std::string page = base::read_file(small.run_folder().report());
  for (const char* part : {"<h2>Loss</h2>", "<h2>Memory</h2>", "<h2>One step</h2>", "<h2>Mesh</h2>"})
    EXPECT_CONTAINS(page, part);
}

TEST(Train, JsonSummaryAloneOnStandardOutput) {
  const SmallRun small;
  const Outcome o = quintet(train(small, "--json --steps 3 --sample 0"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(nlohmann::json::parse(o.out), read_json(small.run_folder().summary()));
  EXPECT_CONTAINS(o.err, "step 3/3");
}

TEST(Train, OptionsReachTheRecipe) {
  const SmallRun small;
  const std::string dir = (small / "else where").string();
  const Outcome o = quintet(train(small, "--dtype bf16 --steps 2 --run-dir " + quoted(dir) +
                                             " --set run.seed=5 --set batch.micro=4 --sample 0"));
  ASSERT_EQ(o.code, 0) << o.err;
  const config::Recipe r = config::load(dir + "/recipe.toml");
  EXPECT_EQ(r.precision, config::Precision::of(base::DType::BF16));
  EXPECT_EQ(r.run.steps, 2);
  EXPECT_EQ(r.run.dir, dir);
  EXPECT_EQ(r.run.seed, 5);
  EXPECT_EQ(r.batch.micro, 4);
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST(Train, GenerateContinuesAPromptRepeatably) {
  const SmallRun small;
  ASSERT_EQ(quintet(train(small, "--steps 150 --sample 0 --set run.log_every=50")).code, 0);
  const std::string folder = quoted(small.run_dir().string());
  const Outcome greedy =
      quintet("generate " + folder + " --prompt 'the rank sends ' --tokens 18 --temperature 0");
  ASSERT_EQ(greedy.code, 0) << greedy.err;
  EXPECT_EQ(greedy.out, "the rank sends its shard to all o\n") << "the corpus has few words in a fixed order";
  // Longer than the window.
  const std::string sampled = "generate " + folder + " --tokens 50 --temperature 1.5 --seed ";
  EXPECT_EQ(quintet(sampled + "3").out, quintet(sampled + "3").out);
  EXPECT_NE(quintet(sampled + "3").out, quintet(sampled + "4").out);
  EXPECT_EQ(quintet(sampled + "3").out.size(), 4u + 50u + 1u);
  const auto json =
      nlohmann::json::parse(quintet("generate " + folder + " --prompt the --tokens 2 --json").out);
  EXPECT_EQ(json.at("prompt"), "the");
}

constexpr const char* kExperts =
    " --set model.moe.experts=4 --set model.moe.top_k=2 --set model.moe.ffn=32 --set model.ffn=32";

TEST(Train, ExpertsFromRecipeToText) {
  const SmallRun small;
  const Outcome o = quintet(
      train(small, std::string("-v --steps 150 --sample 0 --set run.log_every=50 --set parallel.ep=4 --set "
                               "model.moe.bias_rate=0.01 --set model.moe.balance_loss=0.01") +
                       kExperts));
  ASSERT_EQ(o.code, 0) << o.err;
  for (const char* part :
       {"experts      4 in each of 2 blocks, 2 per token", "ep           ep 4: 1 expert of 4 per rank",
        "  load ", " bytes planned at most, ", " measured in the first two steps"})
    EXPECT_CONTAINS(o.out, part);
  const auto last = read_metrics(small.run_folder().metrics()).back();
  ASSERT_EQ(last.at("experts").size(), 2u);
  EXPECT_EQ(last.at("experts")[1].at("drop_rate"), 0.0);
  double most = 0;  // of any expert of any block, over the mean of its block
  for (const auto& block : last.at("experts")) {
    const auto load = block.at("load").get<std::vector<double>>();
    ASSERT_EQ(load.size(), 4u);
    const double mean = std::accumulate(load.begin(), load.end(), 0.0) / 4;
    most = std::max(most, *std::max_element(load.begin(), load.end()) / mean);
  }
  EXPECT_DOUBLE_EQ(last.at("load_max_over_mean"), most);
  const auto summary = read_json(small.run_folder().summary());
  EXPECT_EQ(summary.at("planned_peak"), "bound");
  // Rows of experts are a part of the activations; state is touched to the byte.
  for (const auto& rank : summary.at("ranks")) {
    const auto& classes = rank.at("planned");
    const int64_t planned = rank.at("planned_peak_bytes"), measured = rank.at("measured_peak_bytes"),
                  activations = classes.at("activations");
    EXPECT_LE(measured, planned);
    EXPECT_GT(measured, planned - activations / 2);
  }
  const Outcome greedy = quintet("generate " + quoted(small.run_dir().string()) +
                                 " --prompt 'the rank sends ' --tokens 18 --temperature 0");
  ASSERT_EQ(greedy.code, 0) << greedy.err;
  EXPECT_EQ(greedy.out, "the rank sends its shard to all o\n");
}

TEST(Train, ContextRanksWithDroppingExperts) {
  const SmallRun small;
  const std::string sets =
      std::string(kExperts) +
      " --set parallel.cp=2 --set parallel.cp_method=ring --set parallel.tp=1 --set "
      "parallel.sequence_parallel=false --set parallel.ep=2 --set "
      "model.moe.capacity_factor=0.5 --set eval.every=2 --set memory.recompute=full --steps 4 -v";
  const Outcome o = quintet(train(small, sets));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_CONTAINS(o.out, "cp           cp 2, ring: ");
  EXPECT_CONTAINS(o.out, "sample       The ");
  for (const auto& record : read_metrics(small.run_folder().metrics()))
    EXPECT_GE(record.at("experts")[0].at("drop_rate"), 0.5) << "capacity for half of the assignments";
}

TEST(Train, PaddedExpertsTouchWhatIsPlanned) {
  const SmallRun small;
  const Outcome o = quintet(train(
      small, std::string(kExperts) + " --set model.moe.capacity_factor=1 --set model.moe.pad=true --set "
                                     "parallel.ep=2 --steps 3 --sample 0"));
  ASSERT_EQ(o.code, 0) << o.err;
  const auto summary = read_json(small.run_folder().summary());
  EXPECT_EQ(summary.at("planned_peak"), "exact");
  for (const auto& rank : summary.at("ranks"))
    EXPECT_EQ(rank.at("measured_peak_bytes"), rank.at("planned_peak_bytes"));
}

void stops_cleanly(int signal) {
  const SmallRun small;
  Background run({"train", small.recipe_file().string(), "--steps", "1000000"});
  const base::Path metrics = small.run_folder().metrics();
  // Whole lines only: the first one shows that steps are running.
  while (!run.ended() &&
         (!base::file_exists(metrics) || base::read_file(metrics).find('\n') == std::string::npos))
    ::usleep(2000);
  run.send(signal);
  if (signal == SIGHUP) run.send(signal);  // a closing terminal sends several
  EXPECT_EQ(run.wait(), 128 + signal);
  const auto summary = read_json(small.run_folder().summary());
  EXPECT_EQ(summary.at("ended"), "interrupted");
  EXPECT_EQ(summary.at("steps"), read_metrics(metrics).size());
  EXPECT_EQ(quintet("generate " + quoted(small.run_dir().string()) + " --tokens 1").code, 0);
}

TEST(Train, CtrlCFinishesTheStepAndSaves) { stops_cleanly(SIGINT); }

TEST(Train, AHangUpFinishesTheStepAndSaves) { stops_cleanly(SIGHUP); }

// Thousands of micro-batches: the first step is abandoned, and the run continues from its start.
TEST(Train, ASignalAbandonsALongStep) {
  const SmallRun small;
  Background run({"train", small.recipe_file().string(), "--set", "batch.global=20000"});
  while (!run.ended() && !base::file_exists(small.run_folder().metrics())) ::usleep(2000);
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM);
  const auto summary = read_json(small.run_folder().summary());
  EXPECT_EQ(summary.at("ended"), "interrupted");
  EXPECT_EQ(summary.at("steps"), 0);
  EXPECT_EQ(quintet("report " + quoted(small.run_dir().string())).code, 0);
  EXPECT_CONTAINS(quintet(train(small, "--set batch.global=20000 --dry-run")).out, "after step 0 of 6");
}

// A step of a pipeline is finished, and the first one too says how long that takes: from its micro-batches so
// far.
TEST(Train, ASignalInALongFirstStepSaysHowLongItTakes) {
  const SmallRun small;
  const std::string err_file = (small / "err").string();
  const std::vector<std::string> command = {
      "train", small.recipe_file().string(), "--set", "parallel.pp=2", "--set", "parallel.tp=1",
      "--set", "parallel.dp_shard=1",        "--set", "batch.micro=1", "--set", "batch.global=2000"};
  // When the first step begins cannot be seen from outside: a signal before it, or in its first pass,
  // is tried again, later.
  for (int wait_ms = 20; wait_ms < 5000; wait_ms *= 2) {
    std::filesystem::remove_all(small.run_dir());
    Background run(command, err_file);
    while (!run.ended() && !base::file_exists(small.run_folder().metrics())) ::usleep(2000);
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    run.send(SIGTERM);
    const int code = run.wait();
    const std::string err = base::read_file(err_file);
    ASSERT_EQ(code, 128 + SIGTERM) << err;
    const int64_t steps = read_json(small.run_folder().summary()).at("steps");
    if (steps == 0) {
      EXPECT_CONTAINS(err, "stopping before the next step\na second signal stops");
    }
    static const std::regex kNote("after the step in progress, in about \\d+ s\na second signal stops");
    if (steps == 1 && std::regex_search(err, kNote)) return;
  }
  FAIL() << "no signal came during the first step";
}

// timeout(1) signals its child and then the group that it is in: that is one request. Two signals of
// different kinds are delivered one after the other, nearly always less than half a second apart.
TEST(Train, ASecondSignalWithTheFirstIsTheSameRequest) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    const SmallRun small;
    Background run({"train", small.recipe_file().string(), "--steps", "1000000"});
    while (!run.ended() && !base::file_exists(small.run_folder().metrics())) ::usleep(2000);
    run.send(SIGTERM);
    run.send(SIGUSR1);
    const int code = run.wait();
    EXPECT_TRUE(code == 128 + SIGTERM || code == 128 + SIGUSR1) << code;
    if (checkpoint::Store(small.run_dir() / "checkpoints").newest()) return;
  }
  FAIL() << "no state was saved";
}

// A later one ends the process in the middle of a step: here of a pipeline, which is not abandoned, and long.
TEST(Train, ALaterSecondSignalStopsAtOnce) {
  for (int wait_ms = 20; wait_ms < 5000; wait_ms *= 2) {
    const SmallRun small;
    const std::string err_file = (small / "err").string();
    std::vector<std::string> command = {"train", small.recipe_file().string()};
    for (const char* set : {"parallel.pp=2", "parallel.tp=1", "parallel.dp_shard=1", "batch.micro=1",
                            "batch.global=2000", "model.embed=256", "model.ffn=256"})
      command.insert(command.end(), {"--set", set});
    Background run(command, err_file);
    while (!run.ended() && !base::file_exists(small.run_folder().metrics())) ::usleep(2000);
    ::usleep(static_cast<useconds_t>(wait_ms) * 1000);
    run.send(SIGTERM);
    while (!run.ended() && base::read_file(err_file).find("stops immediately") == std::string::npos)
      ::usleep(1000);
    // When the first step begins cannot be seen from outside: a signal before it is tried again, later.
    if (base::read_file(err_file).find("before the next step") != std::string::npos) continue;
    ::usleep(600'000);
    run.send(SIGTERM);
    EXPECT_EQ(run.wait(), 128 + SIGTERM);
    EXPECT_FALSE(checkpoint::Store(small.run_dir() / "checkpoints").newest());
    return;
  }
  FAIL() << "no signal came during the first step";
}

// Two processes, one folder: the second is refused, and the first is not disturbed.
TEST(Train, ASecondProcessInTheFolderIsRefused) {
  const SmallRun small;
  Background run({"train", small.recipe_file().string(), "--steps", "1000000"});
  while (!run.ended() && !base::file_exists(small.run_folder().metrics())) ::usleep(2000);
  EXPECT_EQ(quintet(train(small)).code, 2) << "the folder has files";
  const Outcome second = quintet(train(small, "--overwrite"));
  EXPECT_EQ(second.code, 2) << second.out;
  EXPECT_CONTAINS(second.err, "[Q2011]");
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 128 + SIGTERM);
  EXPECT_EQ(read_json(small.run_folder().summary()).at("steps"),
            read_metrics(small.run_folder().metrics()).size());
}

// What was read and what was not is in the header, short and long.
TEST(Train, TheHeaderSaysWhatWasReadAndSkipped) {
  const SmallRun small;
  base::make_directories(small / "text/build");
  base::write_file_atomically(small / "text/a.md", test::sample_text(4000));
  base::write_file_atomically(small / "text/image.txt", std::string("\x7f"
                                                                    "ELF\0\0",
                                                                    6));
  base::write_file_atomically(small / "text/build/b.md", test::sample_text(4000));
  for (const char* more : {"", " -v"}) {
    const Outcome o =
        quintet(train(small, "--set data.path=" + (small / "text").string() + " --dry-run" + more));
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(std::regex_search(o.out, std::regex("\nread +1 file; skipped 1 "))) << o.out;
  }
}

// The demo's recipe on the project's own text, made short: both curves fall, and stay close.
TEST(Train, TheDemoLearnsWhatItIsEvaluatedOn) {
  const test::TempFolder folder;
  const std::string run = (folder / "run").string();
  const Outcome o =
      quintet("train " + test::source_dir() + "/recipes/tiny.toml --sample 0 --steps 40 --run-dir " + run +
              " --set data.seq_len=64 --set eval.every=10 --set optimizer.schedule.warmup=5");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto summary = read_json(base::Path(run) / "summary.json");
  std::vector<double> evaluations;
  for (const auto& e : summary.at("evaluations")) evaluations.push_back(e.at("loss"));
  ASSERT_EQ(evaluations.size(), 4u) << o.out;
  for (size_t i = 1; i < evaluations.size(); ++i)  // the last falls by 0.07
    EXPECT_LT(evaluations[i], evaluations[i - 1] + 0.03) << o.out;
  EXPECT_LT(evaluations.back(), evaluations.front() - 0.2) << o.out;
  const auto metrics = read_metrics(base::Path(run) / "metrics.jsonl");
  double trained = 0;  // over the last steps: one step's loss depends on its sequences
  for (size_t i = metrics.size() - 8; i < metrics.size(); ++i)
    trained += metrics[i].at("loss").get<double>() / 8;
  EXPECT_LT(std::abs(evaluations.back() - trained), 0.3) << o.out;
}

// A file size limit stands for a full disk: every file beyond it fails.
TEST(Train, AFullDiskIsNotTheUsersInput) {
  const SmallRun small;
  const Outcome o =
      shell("ulimit -f 12; " + kTool + " " + train(small, "--steps 60 --set run.log_every=100"));
  EXPECT_EQ(o.code, 1) << o.out << o.err;
  EXPECT_CONTAINS(o.out, "training continues without this record");
  EXPECT_CONTAINS(o.out, "step 60/60");
  EXPECT_CONTAINS(o.err, "the checkpoint of step 60 could not be written: cannot write");
  EXPECT_CONTAINS(o.err, "there is no earlier one");
  EXPECT_EQ(o.err.find("File too large"), o.err.rfind("File too large"))
      << "one cause is stated once: " << o.err;
}

// A stopped run whose state could be saved nowhere has failed. Nothing of it is worth keeping, so the same
// command starts again once there is room.
TEST(Train, ASignalWithoutACompleteSaveIsAFailure) {
  const SmallRun small;
  const std::vector<std::string> command = {
      "train", small.recipe_file().string(), "--sample", "0", "--steps", "1000000"};
  {
    Background run(command, "/dev/null", 12 * 512);
    const base::Path metrics = small.run_folder().metrics();
    while (!run.ended() && (!base::file_exists(metrics) || base::size_of_file(metrics) == 0)) ::usleep(2000);
    run.send(SIGTERM);
    EXPECT_EQ(run.wait(), 1);
  }
  EXPECT_FALSE(base::file_exists(small.run_folder().summary()));
  const Outcome another = quintet(train(small, "--steps 4 --sample 0"));
  EXPECT_EQ(another.code, 2) << another.out;
  EXPECT_CONTAINS(another.err, "run.steps is 4, 1000000 in that run");
  EXPECT_CONTAINS(quintet(train(small, "--steps 1000000 --dry-run")).out, "it starts again");
}

// The state went elsewhere: the folder that the same command would continue is not complete.
TEST(Train, ASignalWithItsSaveElsewhereIsAFailure) {
  const SmallRun small;
  const std::string name = fmt::format("elsewhere-{}", ::getpid());
  Background run({"train", small.recipe_file().string(), "--steps", "1000000", "--set", "name=" + name});
  const base::Path metrics = small.run_folder().metrics(), store = small.run_dir() / "checkpoints";
  while (!run.ended() && (!base::file_exists(metrics) || base::size_of_file(metrics) == 0)) ::usleep(2000);
  std::filesystem::remove_all(store);
  base::write_file_atomically(store, "not a folder");
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(), 1);
  int found = 0;
  for (const char* folder : {"/var/tmp", "/tmp", "/dev/shm"})
    for (const base::Path& entry : base::list_folder(folder))
      if (entry.string().starts_with("quintet-" + name)) {
        ++found;
        std::filesystem::remove_all(base::Path(folder) / entry);
      }
  EXPECT_EQ(found, 1);
}

TEST(Train, AFolderThatCannotBeMadeIsNotAFullDisk) {
  const SmallRun small;
  const Outcome o = quintet(train(small, "--run-dir /proc/no/folder"));
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "cannot create folder '/proc/no/folder'");
}

// Another layout continues, and says what that changes.
TEST(Train, AnotherLayoutIsNamedWhereItContinues) {
  const SmallRun small;
  const Outcome first = quintet(train(small, "--sample 0 --set checkpoint.every=3"));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_CONTAINS(first.out, "host memory  ");
  const Outcome same = quintet(train(small, "--sample 0 --steps 8"));
  EXPECT_EQ(same.out.find("not in every bit"), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("host memory"), std::string::npos) << "nothing is copied";
  EXPECT_CONTAINS(quintet(train(small, "--sample 0 --steps 10 --set parallel.zero=1")).out,
                  "perhaps not in every bit: parallel.zero is 1, 3 when the checkpoint was saved");
}

TEST(Train, TheRecipeItselfIsNotReplacedEvenIfAsked) {
  const SmallRun small;
  const std::string mine = "# mine\n" + base::read_file(small.recipe_file());
  base::make_directories(small / "experiment");
  base::write_file_atomically(small / "experiment/recipe.toml", mine);
  const std::string train = "cd " + quoted((small / "experiment").string()) + " && " + kTool + " train ";
  const Outcome o = shell(train + "recipe.toml --run-dir . --overwrite --set data.path=../data.txt");
  EXPECT_EQ(o.code, 2) << o.out;
  EXPECT_CONTAINS(o.err, "--overwrite would replace 'recipe.toml', the recipe itself");
  EXPECT_EQ(base::read_file(small / "experiment/recipe.toml"), mine);
  // The resolved recipe of a run may be trained again in its folder.
  EXPECT_EQ(shell(train + "recipe.toml --run-dir run --set data.path=../data.txt").code, 0);
  EXPECT_EQ(shell(train + "run/recipe.toml --run-dir run --overwrite").code, 0);
}

// What ends a run is in its JSON: a failure that is not the input's, and any under mpirun, once.
TEST(Train, JsonErrorsOfFailuresAndOfMpi) {
  const SmallRun small;
  const Outcome full =
      shell("ulimit -f 12; " + kTool + " " + train(small, "--json --steps 4 --set run.log_every=100"));
  EXPECT_EQ(full.code, 1) << full.out << full.err;
  EXPECT_CONTAINS(nlohmann::json::parse(full.out).at("problems").dump(), "could not be written");
  const Outcome memory = shell("ulimit -v 300000; " + kTool + " " +
                               train(small, "--json --run-dir " + (small / "b").string() +
                                                " --set model.vocab=1000000 --set parallel.tp=1"));
  if (memory.code == 1) {
    EXPECT_EQ(nlohmann::json::parse(memory.out).at("problems").at(0).at("code"), "Q9003") << memory.out;
  }
  if (!test::has_mpirun()) GTEST_SKIP() << test::kNoMpirun;
  const Outcome world = shell(kMpirun + "-np 3 " + kTool + " " + train(small, "--json"));
  EXPECT_EQ(world.code, 2);
  EXPECT_EQ(nlohmann::json::parse(world.out).at("good"), false) << world.out;
  const Outcome data = shell(kMpirun + "-np 4 " + kTool + " " +
                             train(small, "--json --overwrite --set data.path=/no/such/data"));
  EXPECT_EQ(data.code, 2);
  EXPECT_EQ(nlohmann::json::parse(data.out).at("problems").at(0).at("code"), "Q2001") << data.out;
}

TEST(Train, JsonErrors) {
  const SmallRun small;
  for (const char* verb : {"train ", "plan ", "check ", "verify ", "program "}) {
    const Outcome o =
        quintet(verb + quoted(small.recipe_file().string()) + " --json --set model.heads=5 --set no.key=1");
    EXPECT_EQ(o.code, 2);
    const auto json = nlohmann::json::parse(o.out);
    EXPECT_EQ(json.at("good"), false);
    EXPECT_GE(json.at("problems").size(), 2u) << verb;
    EXPECT_EQ(json.at("problems")[0].at("key"), "no.key") << verb;
  }
  EXPECT_EQ(nlohmann::json::parse(quintet("train nowhere.toml --json").out).at("good"), false);
}

TEST(Train, NonFiniteStepsEndWithExitCodeOne) {
  const SmallRun small;
  const Outcome o = quintet(train(small,
                                  "--steps 50 --set optimizer.lr=1e38 --set optimizer.clip_norm=0 --set "
                                  "optimizer.weight_decay=0 --set run.max_skipped_steps=2"));
  EXPECT_EQ(o.code, 1);
  EXPECT_CONTAINS(o.err, "2 consecutive steps");
  EXPECT_CONTAINS(o.err, "optimizer.lr");
  EXPECT_EQ(read_json(small.run_folder().summary()).at("ended"), "non-finite");
}

// ---- MPI

class TrainUnderMpi : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_mpirun()) GTEST_SKIP() << test::kNoMpirun;
  }
};

TEST_F(TrainUnderMpi, GivesTheBitsOfThreads) {
  const SmallRun small, threads;
  const Outcome o = shell(kMpirun + "-np 4 " + kTool + " " + train(small, "--trace steps=2 --sample 0"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_CONTAINS(o.out, "MPI processes");
  threads.train();
  auto x = read_metrics(small.run_folder().metrics()), y = read_metrics(threads.run_folder().metrics());
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i].erase("tokens_per_s"), y[i].erase("tokens_per_s");
    EXPECT_EQ(x[i], y[i]);  // both backends reduce in member order
  }
  for (const auto& rank : read_json(small.run_folder().summary()).at("ranks"))
    EXPECT_EQ(rank.at("planned_peak_bytes"), rank.at("measured_peak_bytes"));
  std::set<int> ranks;
  for (const observe::TraceRecord& r : observe::read_trace(small.run_folder().trace())) ranks.insert(r.rank);
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
}

TEST_F(TrainUnderMpi, AWorldThatDoesNotFitIsRefusedOnce) {
  const SmallRun small;
  const Outcome o = shell(kMpirun + "-np 3 " + kTool + " " + train(small));
  EXPECT_EQ(o.code, 2);
  const std::string part = "needs 4 ranks, but 3 were started";
  EXPECT_CONTAINS(o.err, part);
  EXPECT_EQ(o.err.find(part, o.err.find(part) + 1), std::string::npos)
      << "reported once, not by every rank:\n"
      << o.err;
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST_F(TrainUnderMpi, OneAxisTakesTheRestOfTheProcesses) {
  const SmallRun small, odd;
  const Outcome o = shell(kMpirun + "-np 4 " + kTool + " " +
                          train(small, "--set parallel.dp_shard=-1 --steps 1 --sample 0"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(config::load(small.run_folder().recipe_file().string()).parallel.dp_shard, 2);
  const Outcome three = shell(kMpirun + "-np 3 " + kTool + " " + train(odd, "--set parallel.dp_shard=-1"));
  EXPECT_EQ(three.code, 2);
  EXPECT_CONTAINS(three.err, "the rest of 3 ranks, but tp 2 does not divide them; 2 or 4 ranks would do");
}

// Ranks agree on the recipe before they share what they read, so a path that one of them has is named first.
TEST_F(TrainUnderMpi, ARankWithOtherDataIsNamed) {
  const SmallRun small;
  const std::string tool =
      kTool + " " + train(small, "--set parallel.tp=1 --set parallel.sequence_parallel=false");
  const Outcome o = shell(kMpirun + "-np 1 " + tool + " : -np 1 " + tool + " --set data.path=/no/such/data");
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "of 2 ends the job: ranks were started with different recipes: data.path is ");
  EXPECT_CONTAINS(o.err, "[\"/no/such/data\"] on rank 1");
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST_F(TrainUnderMpi, RanksWithDifferentRecipesAreFoundBeforeStepOne) {
  const SmallRun small;
  const std::string tool =
      kTool + " " + train(small, "--set parallel.tp=1 --set parallel.sequence_parallel=false");
  const Outcome o = shell(kMpirun + "-np 1 " + tool + " : -np 1 " + tool + " --set model.ffn=96");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_CONTAINS(o.err, "ends the job");
  EXPECT_CONTAINS(o.err, "model.ffn is 64 on rank 0 and 96 on rank 1");
  EXPECT_FALSE(base::directory_exists(small.run_dir()));
}

TEST_F(TrainUnderMpi, ASignalAbandonsALongStepOnAllRanks) {
  const SmallRun small;
  const std::string metrics = small.run_folder().metrics().string();
  const std::string tool =
      kTool + " " +
      train(small, "--set batch.global=20000 --set parallel.tp=1 --set parallel.sequence_parallel=false");
  const std::string watched = "sh -c \"" + tool + " & p=\\$!; while ! [ -e " + metrics +
                              " ]; do sleep 0.01; done; kill -TERM \\$p; wait \\$p\"";
  const Outcome o = shell(kMpirun + "-np 1 " + tool + " : -np 1 " + watched);
  EXPECT_EQ(o.code, 128 + SIGTERM) << o.err;
  // Rarely the signal comes before the first step.
  static const std::regex kEnd(
      "interrupted (in step 1; checkpoint of step 0|before step 1; checkpoint) saved");
  EXPECT_TRUE(std::regex_search(o.out, kEnd)) << o.out;
  static const std::regex kNote(
      "stopping (at the next .*; this step is not counted|before the next step)\na ");
  EXPECT_TRUE(std::regex_search(o.err, kNote)) << o.err;
  EXPECT_CONTAINS(o.err, "\na second signal stops");
  EXPECT_EQ(read_json(small.run_folder().summary()).at("steps"), 0);
}

TEST_F(TrainUnderMpi, ASignalToOneRankEndsAllCleanly) {
  const SmallRun small;
  // Rank 1 signals itself as soon as a step is finished.
  const std::string metrics = small.run_folder().metrics().string();
  const std::string tool =
      kTool + " " +
      train(small, "--steps 1000000 --set parallel.tp=1 --set parallel.sequence_parallel=false");
  const std::string watched = "sh -c \"" + tool + " & p=\\$!; while ! [ -s " + metrics +
                              " ]; do sleep 0.01; done; kill -TERM \\$p; wait \\$p\"";
  const Outcome o = shell(kMpirun + "-np 1 " + tool + " : -np 1 " + watched);
  EXPECT_EQ(o.code, 128 + SIGTERM) << o.err;
  EXPECT_EQ(read_json(small.run_folder().summary()).at("ended"), "interrupted");
  EXPECT_TRUE(checkpoint::Store(small.run_dir() / "checkpoints").newest());
}

}  // namespace
}  // namespace quintet
