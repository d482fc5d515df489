// quintet plan, run as a user would.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/support.h"
#include "observe/trace.h"
#include "support/folders.h"

namespace quintet::test {
namespace {

const std::string kRecipe = R"(
name = "planned"
[model]
preset = "llama-tiny"
[data]
seq_len = 64
[batch]
micro = 1
accumulation = 3
[parallel]
pp = 2
tp = 2
[optimizer]
lr = 1e-3
[run]
steps = 1
)";

TEST(PlanVerb, WithoutAFile) {
  const Outcome good = quintet("plan --model llama3-8b --cluster '1x8 h100'");
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find("filled in parallel.dp_shard = 8"), std::string::npos) << good.out;
  const Outcome full = quintet("plan --model llama3-70b --cluster '1x8 h100'");
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.out.find("DOES NOT FIT"), std::string::npos) << full.out;
  for (const char* bad : {"plan", "plan --model llama3-8b", "plan --model llama3-8b --cluster '1x8 h1000'",
                          "plan --model llama3-8b --cluster '1x8 h100' --matmul fp7",
                          "plan --model llama3-8b --cluster '1x8 h100' --top 3",
                          "plan --model llama3-8b --cluster '1x8 h100' --imbalance 2",
                          "plan --model llama3-8b --cluster '1x8 h100' --documents 0",
                          "plan --model llama3-8b --cluster '1x8 h100' --documents nowhere.txt",
                          "plan --model llama3-8b --cluster '1x8 h100' --documents 500 --set data.pack=false",
                          "plan --model llama3-8b --cluster '1x8 h100' --seq-len -3",
                          "plan --model llama3-8b --cluster '1x8 h100' --global-batch 0"})
    EXPECT_EQ(quintet(bad).code, 2) << bad;
}

// Attention with packed documents costs what is visible. Measured on an H200: 14.6 and 9.7 ms of a step of
// 1b with documents of 508 and 96 tokens, 41.4 with one document a sequence
// (docs/benchmarks/training-gpu.md).
TEST(PlanVerb, DocumentsMakeAttentionCheaper) {
  const auto attention_ms = [](const std::string& more) {
    const Outcome r = quintet("plan " + test::source_dir() +
                              "/bench/gpu/1b.toml --cluster '1x1 h200' --set data.pack=true --json " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    const nlohmann::json plan = nlohmann::json::parse(r.out);
    for (const nlohmann::json& share : plan["time"]["shares"])
      if (share["what"] == "attention") return 1e3 * share["seconds"].get<double>();
    return 0.0;
  };
  EXPECT_NEAR(attention_ms("") / 41.4, 1.1, 0.2);
  EXPECT_NEAR(attention_ms("--documents 508") / 14.6, 1.1, 0.2);
  EXPECT_NEAR(attention_ms("--documents 96") / 9.7, 1.1, 0.2);
  EXPECT_NEAR(attention_ms("--documents 100000"), attention_ms(""), 1e-6);
}

// Slow configurations are reported before anything runs, with the key that helps; other stacks get no such
// remarks.
TEST(PlanVerb, AttentionWithoutTensorCoresIsNoted) {
  const auto note_of = [](const std::string& more) {
    const Outcome r = quintet("plan " + test::source_dir() +
                              "/bench/gpu/1b.toml --cluster '1x1 h200' --set model.layers=2 " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    const size_t at = r.out.find("without tensor cores");
    return at == std::string::npos ? std::string() : r.out.substr(at, r.out.find('\n', at) - at);
  };
  EXPECT_EQ(note_of(""), "");
  EXPECT_EQ(note_of("--set run.deterministic=true"), "");
  EXPECT_EQ(note_of("--set data.pack=true"), "");
  EXPECT_EQ(note_of("--set data.pack=true --set run.deterministic=true"), "");
  const std::string wide =
      "--set precision.compute=f32 --set precision.master=f32 --set precision.gradients=f32";
  EXPECT_NE(note_of(wide).find("precision.compute"), std::string::npos);
  EXPECT_EQ(note_of(wide + " --stack megatron"), "");
}

TEST(PlanVerb, AttentionWithoutTensorCoresIsCounted) {
  const auto seconds_of = [](const std::string& more) {
    const Outcome r = quintet("plan " + test::source_dir() +
                              "/bench/gpu/1b.toml --cluster '1x1 h200' --json --set model.layers=2 " + more);
    EXPECT_EQ(r.code, 0) << r.err;
    const auto report = nlohmann::json::parse(r.out);
    for (const auto& share : report.at("time").at("shares"))
      if (share.at("what") == "attention") return share.at("seconds").get<double>();
    ADD_FAILURE() << r.out;
    return 0.0;
  };
  const double fast = seconds_of("--set data.pack=true");
  EXPECT_GT(
      seconds_of("--set precision.compute=f32 --set precision.master=f32 --set precision.gradients=f32"),
      10 * fast);
  EXPECT_LT(seconds_of("--set data.pack=true --set run.deterministic=true"), 2 * fast);
}

// Packed documents run on tensor cores under every method of context parallelism: no search avoids any.
TEST(PlanVerb, SearchTakesAnyContextForPackedDocuments) {
  const auto context_of = [](const std::string& more) {
    const Outcome r = quintet(
        "plan --model llama3-8b --cluster '1x8 h100' --seq-len 8192 --global-batch 64 --search --top 1 " +
        more);
    EXPECT_EQ(r.code, 0) << r.err;
    const size_t at = r.out.find("\n   context ");
    EXPECT_NE(at, std::string::npos) << r.out;
    return r.out.substr(at + 1, r.out.find('\n', at + 1) - at - 1);
  };
  const std::string packed = context_of("--set data.pack=true"), whole = context_of("--set data.pack=false");
  EXPECT_EQ(packed.find("(ulysses)"), std::string::npos) << packed;
  EXPECT_EQ(whole.find("(ulysses)"), std::string::npos) << whole;
}

// Without --cluster and without GPUs, a recipe for GPUs is not planned for the CPU.
TEST(PlanVerb, ARecipeForGpusNeedsGpus) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // each test runs in its own process
  const TempFolder folder;
  const std::string recipe = (folder / "r.toml").string();
  base::write_file_atomically(recipe, kRecipe);
  const std::string cuda = "plan " + recipe + " --set run.device=cuda";
  for (const std::string& wrong : {cuda, cuda + " --json", cuda + " --search --plans 2"}) {
    const Outcome r = quintet(wrong);
    EXPECT_EQ(r.code, 2) << wrong;
    const bool json = wrong.ends_with("--json");  // errors are JSON then, on stdout
    EXPECT_EQ(r.out.empty(), !json) << wrong;
    const std::string message =
        json ? std::string(nlohmann::json::parse(r.out)["problems"][0]["rule"]) : r.err;
    EXPECT_NE(message.find("e.g. --cluster \"1x4 "), std::string::npos) << message;
  }
  // Sixteen devices are two machines of eight.
  EXPECT_NE(quintet(cuda + " --set parallel.dp_shard=4").err.find("--cluster \"2x8 "), std::string::npos);
  for (const std::string& good :
       {"plan " + recipe, cuda + " --cluster '1x4 h200'", cuda + " --cluster '1x4 cpu'"})
    EXPECT_EQ(quintet(good).code, 0) << good;
}

// Plain plans, checks and runs warn alike.
TEST(PlanVerb, TensorGroupsAcrossTheSlowLinkAreWarnedOf) {
  const TempFolder folder;
  const std::string recipe = (folder / "r.toml").string();
  base::write_file_atomically(recipe, kRecipe);
  const std::string words = "warning: parallel.tp = 2 crosses the slow link (";
  const Outcome plan = quintet("plan " + recipe + " --cluster '4x1 h100'");
  EXPECT_NE(plan.out.find(words), std::string::npos) << plan.out << plan.err;
  EXPECT_EQ(quintet("plan " + recipe + " --cluster '1x4 h100'").out.find("warning: "), std::string::npos);
  EXPECT_EQ(quintet("plan " + recipe).out.find("warning: "), std::string::npos);
  const std::string text = (folder / "text.txt").string();
  base::write_file_atomically(text, std::string(1000, 'a'));
  const std::string with_data = "check " + recipe + " --set " + quoted("data.path=[\"" + text + "\"]");
  const Outcome check = quintet(with_data + " --cluster '4x1 h100'");
  EXPECT_EQ(check.code, 0) << check.err;
  EXPECT_NE(check.out.find("# " + words), std::string::npos) << check.out;
  const auto json = nlohmann::json::parse(quintet(with_data + " --json --cluster '4x1 h100'").out);
  EXPECT_EQ(json.at("warnings").size(), 1u);
  const Outcome other = quintet(with_data + " --cluster '1x8 h100'");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("it has 8 devices, but the recipe has 4 ranks (pp 2 x tp 2)"), std::string::npos)
      << other.err;
}

// Simulator and executor run the same instructions in the same order on every stream of every stage.
TEST(PlanVerb, TraceHasTheOrderOfARealRun) {
  const TempFolder folder;
  const std::string recipe = (folder / "r.toml").string(), text = (folder / "text.txt").string(),
                    planned = (folder / "planned.json").string(), run = (folder / "run").string();
  base::write_file_atomically(recipe, kRecipe);
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "hello world ";
  base::write_file_atomically(text, words);
  const Outcome plan = quintet("plan " + recipe + " --trace " + planned);
  ASSERT_EQ(plan.code, 0) << plan.err;
  const Outcome train = quintet("train " + recipe + " --cluster '4x1 h100' --trace steps=1-1 --run-dir " +
                                run + " --set " + quoted("data.path=[\"" + text + "\"]"));
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_NE(train.out.find("warning: parallel.tp = 2 crosses the slow link ("), std::string::npos)
      << train.out;

  using Event = std::tuple<std::string, int64_t, int64_t, int64_t>;
  using Order = std::map<std::pair<int, std::string>, std::vector<Event>>;
  const auto order = [](const std::string& path) {
    Order out;
    for (const observe::TraceRecord& r : observe::read_trace(path))
      out[{r.rank, r.stream}].push_back(
          {r.name, r.args.at("block"), r.args.at("micro_batch"), r.args.at("bytes")});
    return out;
  };
  const Order simulated = order(planned), executed = order(run + "/trace.json");
  EXPECT_GT(simulated.size(), 6u);
  for (const auto& [stream, events] : simulated) {
    SCOPED_TRACE(stream.second);
    ASSERT_TRUE(executed.contains(stream));
    EXPECT_EQ(events, executed.at(stream));
  }
}

// A small model with an open layout, and eight devices in two nodes, as a cluster file that gives their
// memory.
const std::string kSmall = R"(
name = "small"
[model]
family = "llama"
layers = 4
embed = 256
ffn = 512
heads = 8
kv_heads = 4
vocab = 1024
[data]
seq_len = 256
[batch]
global = 32
[precision]
compute = "bf16"
[optimizer]
lr = 1e-3
[run]
steps = 1
)";

std::string devices_of(int mib) {
  return "inner = \"nvlink-4\"\nouter = \"ib-ndr\"\n[cluster]\naccelerator = \"mine\"\nnodes = 2\nper_node = "
         "4\n[accelerator]\nmemory_gb_per_s = 1000\ndense_tflops = { bf16 = 100, f32 = 50 }\n"
         "memory_mib = " +
         std::to_string(mib) + "\n";
}

struct Files {
  TempFolder folder;
  std::string recipe = (folder / "small.toml").string(), cluster = (folder / "mine.toml").string(),
              best = (folder / "best.toml").string(), page = (folder / "page.html").string();
  explicit Files(int mib) {
    base::write_file_atomically(recipe, kSmall);
    base::write_file_atomically(cluster, devices_of(mib));
  }
  std::string plan() const { return "plan " + recipe + " --cluster " + cluster; }
};

// The result of --search is printed, explained, written as a recipe that checks and plans alike, and drawn.
TEST(PlanVerb, SearchScalingAndCost) {
  const Files f(4096);
  const std::string asked =
      f.plan() + " --search --plans 6 --top 2 --scaling --tokens 1B --emit " + f.best + " --html " + f.page;
  const Outcome text = quintet(asked);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.err, "");  // no progress bar without a terminal
  for (const char* part : {"strategies, from the simplest up", "fastest layouts; the first is planned below",
                           " 1. ", " 2. ", "memory per device", "peak at ", "strong scaling", "weak scaling",
                           "device-hours", "the best checkpoint interval"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  const std::string page = base::read_file(f.page);
  for (const char* part : {"The fastest layouts found", "By strategy", "over the step", "<h2>Scaling",
                           "<h2>Cost", "<h2>Provenance"})
    EXPECT_NE(page.find(part), std::string::npos) << part;

  const Outcome checked = quintet("check " + f.best);
  EXPECT_EQ(checked.code, 0) << checked.err;
  const Outcome again = quintet(asked + " --json --overwrite");
  ASSERT_EQ(again.code, 0) << again.err;
  const auto found = nlohmann::json::parse(again.out);
  EXPECT_EQ(found["search"]["best"].size(), 2u);
  EXPECT_EQ(found["search"]["best"][0]["step_seconds"], found["time"]["step_seconds"]);
  EXPECT_EQ(found["scaling"]["strong"].size(), 6u);
  EXPECT_EQ(found["economy"]["tokens"], 1e9);
  EXPECT_GE(found["verdict"]["rungs"].size(), 9u);
  const Outcome emitted = quintet("plan " + f.best + " --cluster " + f.cluster + " --json");
  ASSERT_EQ(emitted.code, 0) << emitted.err;
  auto planned = nlohmann::json::parse(emitted.out);
  // The run folder is relative to the recipe that names it, and only the emitted one does.
  EXPECT_EQ(planned["recipe"]["run"]["dir"],
            (std::filesystem::path(f.best).parent_path() / "runs/small").string());
  planned["recipe"]["run"]["dir"] = found["recipe"]["run"]["dir"];
  EXPECT_EQ(planned["recipe"], found["recipe"]);
  EXPECT_EQ(planned["time"]["step_seconds"], found["time"]["step_seconds"]);
  EXPECT_EQ(planned["memory"]["peak_bytes"], found["memory"]["peak_bytes"]);
}

// Every change proposed by a plan that does not fit, applied with its --set, fits and needs what it states.
TEST(PlanVerb, AdviceAppliedFits) {
  const Files f(96);
  const std::string layout = f.plan() + " --set parallel.dp_replicate=8 --set batch.micro=4";
  const Outcome full = quintet(layout + " --json --html " + f.page);
  ASSERT_EQ(full.code, 1) << full.out << full.err;
  EXPECT_NE(base::read_file(f.page).find("Any one of these makes it fit"), std::string::npos);
  const auto report = nlohmann::json::parse(full.out);
  EXPECT_EQ(report["fits"], false);
  int applied = 0;
  for (const auto& advice : report["advice"]) {
    EXPECT_LE(advice["bytes"], report["memory"]["limit_bytes"]);
    if (!advice["runs"]) continue;
    std::string sets;
    for (const std::string set : advice["sets"]) sets += " --set " + quoted(set);
    const Outcome changed = quintet(layout + sets + " --json");
    ASSERT_EQ(changed.code, 0) << sets << changed.out << changed.err;
    const auto then = nlohmann::json::parse(changed.out);
    EXPECT_EQ(then["memory"]["peak_bytes"], advice["bytes"]) << sets;
    EXPECT_EQ(then["time"]["step_seconds"], advice["step_seconds"]) << sets;
    ++applied;
  }
  EXPECT_GE(applied, 4);
  const Outcome words = quintet(layout);
  EXPECT_EQ(words.code, 1);
  for (const char* part : {"does not fit: ", "any one of these makes it fit", "--set memory.recompute=fit"})
    EXPECT_NE(words.out.find(part), std::string::npos) << part << "\n" << words.out;
}

// A search that finds nothing reports that in JSON too.
TEST(PlanVerb, NothingFits) {
  const Files f(1);
  const Outcome none = quintet(f.plan() + " --search --plans 4 --json");
  EXPECT_EQ(none.code, 1) << none.err;
  const auto report = nlohmann::json::parse(none.out);
  EXPECT_EQ(report["fits"], false);
  EXPECT_EQ(report["search"]["best"].size(), 0u);
  EXPECT_TRUE(report["verdict"]["answer"].is_null());
  EXPECT_EQ(quintet(f.plan() + " --emit " + f.best).code, 2);
  EXPECT_EQ(quintet(f.plan() + " --tokens many").code, 2);
}

}  // namespace
}  // namespace quintet::test
