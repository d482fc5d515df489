#include <fmt/format.h>
#include <sys/stat.h>

#include <functional>
#include <set>
#include <sstream>

#include "cli/support.h"
#include "config/presets.h"
#include "program/text.h"
#include "support/folders.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::quoted;
using test::SmallRun;

TEST(Tool, HelpAndVersion) {
  const Outcome help = quintet("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* verb : {"train", "check", "verify", "program", "schedule", "generate"}) {
    EXPECT_CONTAINS(help.out, verb);
    const Outcome one = quintet(std::string(verb) + " --help");
    EXPECT_EQ(one.code, 0);
    EXPECT_CONTAINS(one.out, "--json") << verb;
  }
  EXPECT_CONTAINS(help.out, "\nTrain:\n  init ");
  EXPECT_CONTAINS(help.out, "\nReference:\n  explain ");
  // Without arguments the tool prints its help.
  const Outcome bare = quintet("");
  EXPECT_EQ(bare.code, 0);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_EQ(bare.err, "");
}

TEST(Tool, VersionSaysHowItWasBuilt) {
  const Outcome o = quintet("--version");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.substr(0, 8), "quintet ");
  for (const char* part :
       {"\n  build ", "\n  libraries   fmt ", "\n  MPI ", "\n  CPU kernels ", "\n  GPU kernels "})
    EXPECT_CONTAINS(o.out, part);
}

// The commit that a build names is the same exactly for the same sources.
TEST(Tool, ACommitNamesItsChanges) {
  if (test::shell("git --version && cmake --version").code != 0) GTEST_SKIP() << "needs git and cmake";
  const test::TempFolder folder;
  const auto git = [&](const std::string& command) {
    const Outcome o =
        test::shell("cd " + quoted(folder.path().string()) +
                    " && git -c user.name=a -c user.email=a@b -c init.defaultBranch=main " + command);
    ASSERT_EQ(o.code, 0) << o.err;
  };
  const auto commit = [&] {
    const std::string output = (folder / ".git" / "commit.cc").string();
    const Outcome o =
        test::shell("cmake -DSOURCE=" + quoted(folder.path().string()) + " -DOUTPUT=" + quoted(output) +
                    " -P " + test::source_dir() + "/cmake/commit.cmake");
    EXPECT_EQ(o.code, 0) << o.err;
    const std::string text = base::read_file(output);
    const size_t begin = text.find('"', text.find("return")) + 1;
    return text.substr(begin, text.find('"', begin) - begin);
  };
  const auto write = [&](const char* text) { base::write_file_atomically(folder / "a.cc", text); };
  write("1\n");
  git("init -q");
  git("add a.cc");
  git("commit -q -m one");
  const std::string clean = commit();
  EXPECT_EQ(clean.size(), 40u) << clean;
  write("2;\n");
  const std::string second = commit();
  EXPECT_EQ(second.substr(0, 49), clean + "-changed.");
  EXPECT_EQ(second.size(), 49u + 12u) << second;
  EXPECT_EQ(commit(), second);
  write("3;\n");
  EXPECT_NE(commit(), second);
  git("add a.cc");  // staged ones count too
  EXPECT_NE(commit(), second);
  EXPECT_EQ(commit().size(), second.size());
  write("1\n");
  git("add a.cc");
  EXPECT_EQ(commit(), clean);
}

// A table without a row that can be compared proves nothing: no error is computed, and the exit code says so.
TEST(Tool, APublishedTableWithoutAUsableRowFails) {
  const test::TempFolder folder;
  const std::string table = (folder / "table.csv").string();
  const std::string published = base::read_file(test::source_dir() + "/docs/reference/published_runs.csv");
  base::write_file_atomically(table,
                              published.substr(0, published.find('\n') + 1) +
                                  "OFF-002,https://example.org,GPT-1T,,,,,,,,V100-32GB (DGX-2),512,fp16,512,"
                                  "ZeRO-3 + CPU offload,1,,1,,,,,,,,,48.9,,,yes;geometry not given\n");
  const Outcome text = quintet("bench reference " + table);
  EXPECT_EQ(text.code, 1) << text.err;
  EXPECT_CONTAINS(text.out, "no row could be compared");
  EXPECT_EQ(text.out.find("0.0 %"), std::string::npos) << text.out;
  const Outcome json = quintet("bench reference --json " + table);
  EXPECT_EQ(json.code, 1) << json.err;
  EXPECT_TRUE(nlohmann::json::parse(json.out).at("summary").at("median_error").is_null());
}

TEST(Tool, CodesAreExplained) {
  const Outcome one = quintet("explain q1210");
  EXPECT_EQ(one.code, 0);
  for (const char* part :
       {"Q1210: batch.global = micro x accumulation x dp", "Refused:\n    [batch]\n    global = 12",
        "batch.global: 12 must be micro", "Accepted, with:\n    [batch]\n    global = 16"})
    EXPECT_CONTAINS(one.out, part);
  const Outcome all = quintet("explain");
  EXPECT_CONTAINS(all.out, "Q1001  the recipe is valid TOML\n");
  EXPECT_CONTAINS(quintet("explain Q2303").out, "What to do: Copy it again, or convert it");
  EXPECT_CONTAINS(quintet("explain Q9001 --json").out, "\"remedy\": \"Report it");
  EXPECT_CONTAINS(quintet("explain Q1302 --json").out, "\"rule\": \"parallel.tp divides model.heads\"");
  EXPECT_EQ(quintet("explain '[Q1210]'").out, one.out);
  const Outcome none = quintet("explain Q0000");
  EXPECT_EQ(none.code, 2);
  EXPECT_CONTAINS(none.err, "there is no code Q0000");
}

// Recipes of `quintet init` pass check, for every preset and any number of ranks.
TEST(Tool, InitWritesLegalRecipes) {
  const SmallRun small;
  const std::string data = " --data " + quoted((small / "data.txt").string());
  std::string script;
  int written = 0;
  for (const config::Model& m : config::presets()) {
    const std::string file = (small / fmt::format("{}.toml", written)).string();
    script += fmt::format("{} init {} --model {} --ranks {} --device cpu{} >/dev/null || echo {}\n",
                          test::kTool, quoted(file), m.preset, 1 + written % 8, data, m.preset);
    ++written;
  }
  const Outcome all = test::shell(script);
  EXPECT_EQ(all.out + all.err, "");
  for (int i = 0; i < written; ++i)
    EXPECT_NO_THROW(config::load((small / fmt::format("{}.toml", i)).string())) << i;
  const std::string text = base::read_file(small / "0.toml");
  EXPECT_CONTAINS(text, "# Sequences per optimizer step, over all ranks.");
  EXPECT_CONTAINS(text, "path = \"data.txt\"");  // relative to the recipe
  // The tiny one passes the whole of check, data included.
  EXPECT_EQ(quintet("check " + quoted((small / "0.toml").string())).code, 0);
  const Outcome again = quintet("init " + quoted((small / "0.toml").string()) + data);
  EXPECT_EQ(again.code, 2);
  EXPECT_CONTAINS(again.err, "--overwrite");
  EXPECT_EQ(quintet("init " + quoted((small / "x.toml").string()) + " --data /no/such/file").code, 2);
  EXPECT_EQ(quintet("init " + quoted((small / "x.toml").string())).code, 2);  // no terminal to ask on
}

TEST(Tool, KeysAreDescribed) {
  const Outcome one = quintet("recipe parallel.zero");
  EXPECT_CONTAINS(one.out, "integer, 0 to 3");
  EXPECT_CONTAINS(quintet("recipe optimizer.muon").out, "optimizer.muon.nesterov\n");
  EXPECT_CONTAINS(quintet("recipe").out, "run.log_every\n");
  EXPECT_CONTAINS(quintet("recipe precision.compute --json").out, "\"bf16\"");
  const Outcome none = quintet("recipe parallel.tpp");
  EXPECT_EQ(none.code, 2);
  EXPECT_CONTAINS(none.err, "did you mean 'parallel.tp'?");
}

// Completes as an interactive bash would.
TEST(Tool, ShellsComplete) {
  const auto complete = [](const std::string& words, int at) {
    return test::shell(
               fmt::format("bash --norc -c 'source <({} completion bash); COMP_WORDS=({}); COMP_CWORD={}; "
                           "_quintet 2>&1; printf \"%s\\n\" \"${{COMPREPLY[@]}}\"'",
                           test::kTool, words, at))
        .out;
  };
  EXPECT_EQ(complete("quintet tr", 1), "train\n");
  EXPECT_EQ(complete("quintet train --dry", 2), "--dry-run\n");
  EXPECT_EQ(complete("quintet train x.toml --dtype b", 4), "bf16\n");
  EXPECT_EQ(complete("quintet train x.toml --set parallel.zero_", 4), "parallel.zero_replicas=\n");
  EXPECT_EQ(complete("quintet train x.toml --set precision.compute = b", 6), "bf16\n");
  EXPECT_EQ(complete("quintet bench st", 2), "step\n");
  EXPECT_EQ(complete("quintet explain Q121", 2), "Q1210\nQ1211\nQ1212\nQ1213\n");
  for (const char* shell : {"zsh", "fish"}) {
    const Outcome o = quintet(std::string("completion ") + shell);
    EXPECT_EQ(o.code, 0);
    EXPECT_CONTAINS(o.out, "dry-run");
    if (::system(fmt::format("command -v {} >/dev/null 2>&1", shell).c_str()) == 0) {
      EXPECT_EQ(test::shell(fmt::format("{} completion {} | {} -n", test::kTool, shell, shell)).err, "")
          << shell;
    }
  }
  if (::system("command -v zsh >/dev/null 2>&1") == 0) {
    // With functions in place of zsh's own, which print what they are asked to offer.
    const std::string script =
        "_arguments() { print -rl -- \"$@\"; state=rest line=(train); }; compdef() { : }; "
        "source <(" +
        test::kTool + " completion zsh)";
    const Outcome o = test::shell("zsh -f -c " + quoted(script));
    EXPECT_CONTAINS(o.out, "\n--dry-run[do everything but the steps");
    EXPECT_EQ(o.err, "");
  }
  if (::system("command -v fish >/dev/null 2>&1") == 0) {
    const std::string script = "quintet completion fish | source; complete -C \"quintet train --dry\"";
    EXPECT_CONTAINS(test::shell("PATH=" + test::binary_dir() + ":$PATH fish -c " + quoted(script)).out,
                    "--dry-run\t");
  }
  EXPECT_EQ(quintet("completion tcsh").code, 2);
}

TEST(Tool, ManPagesAreWellFormed) {
  const test::TempFolder folder;
  EXPECT_EQ(quintet("man --write " + quoted(folder.path().string())).code, 0);
  for (const char* page :
       {"man1/quintet.1", "man1/quintet-train.1", "man1/quintet-bench-step.1", "man5/quintet-recipe.5"}) {
    const std::string text = base::read_file(folder / page);
    EXPECT_CONTAINS(text, ".SH NAME") << page;
    if (::system("command -v groff >/dev/null 2>&1") == 0) {
      EXPECT_EQ(test::shell("groff -man -Tascii -ww -z " + quoted((folder / page).string())).err, "") << page;
    }
  }
  EXPECT_EQ(quintet("man no-such-verb").code, 2);
}

// The code is printed with each problem, and in JSON.
TEST(Tool, ProblemsHaveCodes) {
  const SmallRun small;
  const std::string recipe = quoted(small.recipe_file().string());
  const Outcome text = quintet("check " + recipe + " --set parallel.tp=3");
  EXPECT_EQ(text.code, 2);
  EXPECT_CONTAINS(text.err, "[Q1302]");
  EXPECT_CONTAINS(text.err, "'quintet explain Q1302' says more");
  const Outcome json = quintet("check --json " + recipe + " --set parallel.tp=3");
  EXPECT_CONTAINS(json.out, "\"code\": \"Q1302\"");
  const Outcome missing = quintet("check --json " + recipe + " --set data.path=/no/such/file");
  EXPECT_CONTAINS(missing.out, "\"code\": \"Q2001\"");
}

TEST(Tool, UnknownVerbsAreNamed) {
  const Outcome o = quintet("trian recipe.toml");
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "unknown verb 'trian', did you mean 'train'?");
  for (const char* later : {"plan", "launch", "bench", "convert", "report"})
    EXPECT_EQ(quintet(later).code, 2);
  EXPECT_CONTAINS(quintet("tokenizer trian").err,
                  "unknown verb 'tokenizer trian', did you mean 'train'?; verbs: train, encode, decode");
  EXPECT_CONTAINS(quintet("data").err,
                  "'quintet data' needs one of: show, check, ledger; see 'quintet data --help'");
  EXPECT_CONTAINS(quintet("checkpoint prune x --keep 0").err, "see 'quintet checkpoint prune --help'");
}

TEST(Tool, UnknownOptionsAreNamed) {
  for (const auto& [command, part] :
       {std::pair{"train r.toml --rundir x",
                  "unknown option '--rundir', did you mean '--run-dir'?; see 'quintet "
                  "train --help'"},
        {"train r.toml --over", "unknown option '--over', did you mean '--overwrite'?"},
        {"plan -model x", "unknown option '-model', did you mean '--model'?"},
        {"bench step r.toml --warmupp=3", "unknown option '--warmupp', did you mean '--warmup'?"},
        {"--versio", "unknown option '--versio', did you mean '--version'?"},
        {"check r.toml --qqqqqqqq", "unknown option '--qqqqqqqq'; see"},
        // Keys of recipes, here and in other systems.
        {"train r.toml --tp 2", "unknown option '--tp', did you mean '--set parallel.tp=VALUE'?"},
        {"plan r.toml --tensor-model-parallel-size=2", "did you mean '--set parallel.tp=VALUE'?"},
        {"train r.toml --learning_rate 1", "did you mean '--set optimizer.lr=VALUE'?"},
        {"train r.toml --resume",
         "unknown option '--resume', leave it out: the same command continues a run"},
        {"generate run --max-tokens 2", "unknown option '--max-tokens', did you mean '--tokens'?"}}) {
    const Outcome o = quintet(command);
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_CONTAINS(o.err, part);
  }
  EXPECT_EQ(quintet("-V").out, quintet("--version").out);
}

// "s3://bucket/x" as a path would be the folder "s3:" of the working directory.
TEST(Tool, AddressesAreNoPaths) {
  const SmallRun small;
  const std::string recipe = small.recipe_file().string();
  for (const char* command : {"prepare README.md --tokenizer bytes --out s3://bucket/x",
                              "generate s3://bucket/run --prompt a", "export gs://bucket/run --to hf x",
                              "plan --model llama3-8b --cluster '1x8 h100' --html https://x/y"}) {
    const Outcome o = quintet(command);
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_CONTAINS(o.err, "is an address; remote file systems are not supported yet");
  }
  EXPECT_CONTAINS(quintet("check " + recipe + " --set run.dir=s3://bucket/x").err, "[Q1018]");
  EXPECT_CONTAINS(quintet("check " + recipe + " --set data.path=file:///data/x").err, "nearest: \"/data/x\"");
  EXPECT_CONTAINS(quintet("generate nothere --prompt https://x/y").err, "nothere") << "a prompt is a text";
}

// Names of tensors come from files. A report may reach a terminal through a pipe.
TEST(Tool, ReportsHaveNoControlCharacters) {
  const SmallRun small;
  const auto weights = [&](const std::string& name) {
    const std::string header =
        R"({"a\u001b[31m)" + name + R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    base::write_file_atomically(small / (name + ".safetensors"), file + header + std::string(4, '\0'));
    return (small / (name + ".safetensors")).string();
  };
  const Outcome o = quintet("diff " + weights("x") + " " + weights("y"));
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_CONTAINS(o.out, "a\\x1b[31mx");
  EXPECT_EQ((o.out + o.err).find('\x1b'), std::string::npos);
}

// A rate that never reaches its full value, or its floor.
TEST(Tool, ScheduleThatOutlastsTheRunIsNamed) {
  const SmallRun small;
  const auto header = [&](const std::string& sets) {
    return quintet("train " + small.recipe_file().string() + " --dry-run --steps 10 --run-dir " +
                   (small / "r").string() + " --set optimizer.schedule.kind=cosine " + sets)
        .out;
  };
  EXPECT_CONTAINS(header("--set optimizer.schedule.warmup=20"),
                  "the warm-up, 20 steps, ends after the run, which ends at lr ");
  EXPECT_CONTAINS(header("--set optimizer.schedule.warmup=2 --set optimizer.schedule.decay=30"),
                  "the decay, 30 steps, ends after the run, which ends at lr ");
  for (const char* fits : {"", "--set optimizer.schedule.warmup=2 --set optimizer.schedule.decay=8"})
    EXPECT_EQ(header(fits).find("ends after the run"), std::string::npos) << fits;
}

TEST(Tool, HelpIsAVerbToo) {
  EXPECT_EQ(quintet("help").out, quintet("--help").out);
  EXPECT_EQ(quintet("help bench step").out, quintet("bench step --help").out);
  EXPECT_CONTAINS(quintet("help trian").err, "did you mean 'train'?");
}

// 1e6 is how people write a million; options and keys that are integers say how they want it.
TEST(Tool, WholeNumbersAreSuggested) {
  const SmallRun small;
  const std::string recipe = quoted(small.recipe_file().string());
  EXPECT_CONTAINS(quintet("check " + recipe + " --set run.steps=1e6").err, "got 1000000.0; nearest: 1000000");
  EXPECT_CONTAINS(quintet("check " + recipe + " --steps 1e6").err, "got '1e6'; did you mean 1000000?");
  EXPECT_EQ(quintet("check " + recipe + " --steps 1e99").err.find("did you mean"), std::string::npos);
  EXPECT_EQ(quintet("check " + recipe + " --steps 1.5").err.find("did you mean"), std::string::npos);
}

TEST(Tool, PresetsAreFoundByOtherSpellings) {
  const SmallRun small;
  for (const auto& [name, preset] : {std::pair{"meta-llama/Llama-3-8B", "llama3-8b"},
                                     {"Qwen/Qwen2.5-7B", "qwen2.5-7b"},
                                     {"llama3", "llama3-8b"},
                                     {"mixtral8x7b", "mixtral-8x7b"}}) {
    const Outcome o =
        quintet("check " + quoted(small.recipe_file().string()) + " --set model.preset=" + name);
    EXPECT_CONTAINS(o.err, fmt::format("nearest: \"{}\"", preset));
    EXPECT_LT(o.err.size(), 700u) << "the whole catalogue";
  }
}

TEST(Tool, AClosedReaderIsNotACrash) {
  const SmallRun small;
  const Outcome o = test::shell(test::kTool + " program " + quoted(small.recipe_file().string()) +
                                " --expanded | head -n 1");
  EXPECT_EQ(o.code, 0);
  EXPECT_CONTAINS(o.out, "program rank=0");
}

// A closed reader of the result gives exit code 1 without a message; diagnostics without a reader are
// dropped.
TEST(Tool, AClosedPipeEndsItQuietly) {
  using test::into_closed_pipe;
  const SmallRun small;
  const std::string recipe = small.recipe_file().string();
  const Outcome out = into_closed_pipe({"program", recipe}, {1});
  EXPECT_EQ(out.code, 1);
  EXPECT_EQ(out.err, "");
  EXPECT_EQ(into_closed_pipe({"program", recipe}, {1, 2}).code, 1);
  // Invalid input is still reported by the exit code.
  EXPECT_EQ(into_closed_pipe({"program", "/no/such/recipe.toml"}, {2}).code, 2);
  EXPECT_EQ(into_closed_pipe({"trian"}, {1, 2}).code, 2);
  EXPECT_EQ(into_closed_pipe({"program", recipe, "--no-such-option"}, {1, 2}).code, 2);
  const Outcome doctor = into_closed_pipe({"doctor", recipe, "--steps", "1"}, {2});
  EXPECT_EQ(doctor.code, 0);
  EXPECT_CONTAINS(doctor.out, "small");
  // A training run continues to its end; streamed text stops where the reader left.
  EXPECT_EQ(into_closed_pipe({"train", recipe}, {1, 2}).code, 0);
  const Outcome generate = into_closed_pipe({"generate", small.run_dir().string(), "--tokens", "2"}, {1});
  EXPECT_EQ(generate.code, 1);
  EXPECT_EQ(generate.err, "");
}

// A full disk is reported.
TEST(Tool, OutputThatCannotBeWrittenIsAnError) {
  const SmallRun small;
  const Outcome o = quintet("program " + quoted(small.recipe_file().string()) + " >/dev/full");
  EXPECT_EQ(o.code, 1);
  EXPECT_CONTAINS(o.err, "cannot write to standard output");
}

// Every option that takes a number refuses what is none, before anything else happens.
TEST(Tool, NumbersAreFiniteAndComplete) {
  const std::vector<std::string> options = {"doctor --probe --seconds",
                                            "doctor --probe --ranks",
                                            "plan --model llama-tiny --price",
                                            "plan --model llama-tiny --imbalance",
                                            "plan --model llama-tiny --seq-len",
                                            "plan --model llama-tiny --failures",
                                            "plan --search --allow-drops",
                                            "plan --model llama-tiny --checkpoint-seconds",
                                            "plan --search --top",
                                            "plan --model llama-tiny --restart-seconds",
                                            "schedule --synthesize --memory",
                                            "schedule --synthesize --freed-at-b",
                                            "schedule --name 1f1b --pp",
                                            "bench step x.toml --warm",
                                            "bench step x.toml --warmup",
                                            "bench step x.toml --floors",
                                            "bench step x.toml --peak",
                                            "bench reference x.csv --threads",
                                            "train x.toml --steps",
                                            "train x.toml --sample",
                                            "generate x --tokens",
                                            "generate x --temperature",
                                            "generate x --seed",
                                            "program x.toml --rank"};
  std::string script;  // one shell for all
  std::vector<std::string> tried;
  for (const std::string& option : options)
    for (const char* bad : {"nan", "inf", "-1", "1e999", "99999999999999999999", "0x10", "2x", "''"}) {
      tried.push_back(option + " " + bad);
      script += test::kTool + " " + tried.back() + " >/dev/null 2>&1; echo $?\n";
    }
  const Outcome o = test::shell(script);
  size_t at = 0;
  for (const std::string& command : tried) {
    EXPECT_EQ(o.out.substr(at, o.out.find('\n', at) - at), "2") << command;
    at = o.out.find('\n', at) + 1;
  }
  EXPECT_CONTAINS(quintet("doctor --probe --seconds nan").err,
                  "--seconds: must be a finite number of at least 0.001 and at most 60, got 'nan'");
}

// The same for whatever options there will be: the help of every verb lists them with the kind of value.
TEST(Tool, EveryOptionWithANumberIsChecked) {
  // Every kind of value is in one of the two lists, so that a new kind cannot stay unchecked.
  const std::set<std::string> numbers = {"N",     "X",      "S",     "SECONDS", "USD",  "INT",
                                         "FLOAT", "FACTOR", "STEPS", "TFLOPS",  "SIZE", "R",
                                         "K",     "P",      "ID",    "BYTES"};
  const std::set<std::string> others = {"PATH",         "PRESET",     "NAME",       "TEXT",       "KEY",
                                        "CLUSTER",      "TYPE",       "FILE",       "FOLDER",     "DIR",
                                        "TOKEN",        "COND",       "T",          "CHECKPOINT", "PATTERN",
                                        "steps",        "[SET",       "TOKENS|RUN", "[FILE]",     "N|FILE",
                                        "F,B,W[,comm]", "FILE.jsonl", "FILE.toml"};
  std::string script;
  std::vector<std::string> tried;
  const std::function<void(const std::string&)> visit = [&](const std::string& verb) {
    const std::string help = quintet(verb + " --help").out;
    bool verbs = false;
    for (size_t at = 0; at < help.size();) {
      const size_t end = std::min(help.find('\n', at), help.size());
      const std::string line = help.substr(at, end - at);
      at = end + 1;
      if (!line.starts_with("  "))  // verbs are listed under several titles
        verbs = line.ends_with(':') && line != "Options:" && line != "Positionals:";
      if (line.size() < 3 || line[2] == ' ') continue;  // the rest of a help text
      std::istringstream words(line);
      std::string name, value;
      words >> name >> value;
      if (verbs && !name.empty()) {
        visit(verb + (verb.empty() ? "" : " ") + name);
      } else if (line.starts_with("  -")) {
        name = name.substr(name.rfind(',') + 1);
        // Without a value, the help text (two spaces or the next column) or another option follows.
        const size_t after_name = line.find(name) + name.size();
        if (after_name + 1 >= line.size() || line[after_name + 1] == ' ') continue;
        const std::string kind = value.substr(0, value.find_first_of("=:"));
        const bool is_temperature = name == "--temperature";  // T stands for tokenizers and templates too
        EXPECT_TRUE(numbers.contains(kind) || others.contains(kind)) << verb << " " << line;
        if (!numbers.contains(kind) && !is_temperature) continue;
        tried.push_back(verb + " " + name + " nan");
        script += test::kTool + " " + tried.back() + " 2>&1 | head -n 1\n";
      }
    }
  };
  visit("");
  EXPECT_GE(tried.size(), 45u);
  const Outcome o = test::shell(script);
  size_t at = 0;
  for (const std::string& command : tried) {
    const size_t end = std::min(o.out.find('\n', at), o.out.size());
    const std::string line = o.out.substr(at, end - at);
    at = end + 1;
    const bool refused =
        line.find(": must be ") != std::string::npos && line.find("got 'nan'") != std::string::npos;
    // Numbers with a unit: plan --tokens 15T.
    EXPECT_TRUE(refused || line.find("'nan' is not a number of") != std::string::npos) << command << "\n"
                                                                                       << line;
  }
}

TEST(Tool, OutputPathsAreTestedBeforeTheWork) {
  const SmallRun small;
  const std::string recipe = quoted(small.recipe_file().string());
  base::write_file_atomically(small / "mine.toml", "# mine");
  const std::string mine = quoted((small / "mine.toml").string());
  base::write_file_atomically(small / "mine.safetensors", "weights");
  const std::string text = quoted((small / "data.txt").string());
  const std::pair<std::string, const char*> cases[] = {
      {"plan " + recipe + " --search --emit " + mine, "--overwrite"},
      {"plan " + recipe + " --search --emit /no/folder/x.toml", "'/no/folder' does not exist"},
      {"plan " + recipe + " --html /no/folder/x.html", "'/no/folder' does not exist"},
      {"plan " + recipe + " --trace /no/folder/x.json", "'/no/folder' does not exist"},
      {"schedule --name 1f1b --pp 2 --micro 4 --svg /no/folder/x.svg", "'/no/folder' does not exist"},
      {"doctor --probe --out " + mine, "--overwrite"},
      {"tokenizer train " + recipe + " --vocab 300 --out " + mine, "--overwrite"},
      {"convert x.pt " + quoted((small / "mine.safetensors").string()), "--overwrite"},
      {"plan " + recipe + " --html " + mine, "was not made by Quintet"},
      {"plan " + recipe + " --trace " + mine, "was not made by Quintet"},
      {"report x --out " + mine, "was not made by Quintet"},
      {"schedule --name 1f1b --pp 2 --micro 4 --svg " + text, "was not made by Quintet"},
      {"doctor --probe --disk /no/folder", "--disk /no/folder: there is no such folder"},
      {"train " + recipe + " --run-dir ''", "--run-dir: must not be empty"},
      {"bench step " + recipe + " --floors 1", "run.device is \"cpu\""}};
  for (const auto& [command, part] : cases) {
    const Outcome o = quintet(command);
    EXPECT_EQ(o.code, 2) << command;
    EXPECT_CONTAINS(o.err, part);
    EXPECT_EQ(o.out, "") << command;
  }
  EXPECT_EQ(base::read_file(small / "mine.toml"), "# mine");
  // What Quintet has written is written again.
  const std::string out = (small / "out").string();
  for (const std::string& command : {"plan " + recipe + " --html " + out + ".html --trace " + out + ".json",
                                     "schedule --name 1f1b --pp 2 --micro 4 --svg " + out + ".svg"})
    for (int i = 0; i < 2; ++i) EXPECT_NE(quintet(command).code, 2) << command;
}

// Sizes that would take hours or all memory are refused at once, with the number.
TEST(Tool, HugeSizesAreRefusedAtOnce) {
  const SmallRun small;
  ASSERT_EQ(::mkfifo((small / "fifo").c_str(), 0600), 0);
  const std::string recipe = quoted(small.recipe_file().string());
  std::string many;
  for (int i = 0; i < 300'000; ++i) many += fmt::format("k{}=1\n", i);
  base::write_file_atomically(small / "many.toml", many);
  const std::pair<std::string, const char*> cases[] = {
      {"check " + quoted((small / "many.toml").string()), "and 299957 more"},
      {"check " + recipe +
           " --set data.seq_len=1073741824 --set batch.global=1 --set batch.micro=1 --set "
           "parallel.dp_shard=1",
       "nearest: 4096, the length of one sequence"},
      {"check " + recipe + " --set batch.global=4194304", "batch.global counts sequences, not tokens"},
      {"train " + recipe + " --set batch.global=4194304 --set data.seq_len=4096", "17.2B tokens per step"},
      {"plan " + recipe + " --set model.layers=1000000", "the limit is 2,048"},
      {"program " + recipe + " --set model.embed=1073741824", "parameters; the limit is"},
      {"verify " + recipe + " --set data.seq_len=1073741824", "tokens per step"},
      {"schedule --name zb-v --pp 100000 --micro 100000", "forwards is too large"},
      {"schedule --synthesize --pp 100000 --micro 100000", "the limit is 16384"},
      {"generate x --tokens 99999999999", "must be an integer of at least 1 and at most 1000000"},
      {"check /dev/zero", "it is a device"},
      {"check " + quoted((small / "fifo").string()), "it is a pipe"}};
  for (const auto& [command, part] : cases) {
    const Outcome o = test::shell("ulimit -v 4000000; timeout 20 " + test::kTool + " " + command);
    EXPECT_EQ(o.code, 2) << command << "\n" << o.err;
    EXPECT_CONTAINS(o.err, part);
  }
}

// Whatever integer key has digits too many, the answer comes at once: accepted, or refused with the number.
TEST(Tool, EveryIntegerKeyIsBounded) {
  const SmallRun small;
  const std::string recipes[] = {quoted(small.recipe_file().string()),
                                 quoted(small.recipe_file().string()) +
                                     " --set model.moe.experts=4 --set model.moe.top_k=2 --set "
                                     "model.moe.ffn=64 --set model.kv_heads=4 --set model.mla.kv_rank=8 "
                                     "--set model.mla.nope_dim=8 --set model.mla.rope_dim=8 --set "
                                     "model.mla.v_dim=8 --set model.head_dim=16"};
  std::string script = "ulimit -v 4000000\n";
  std::vector<std::string> tried;
  for (const std::string& recipe : recipes) {
    ASSERT_EQ(quintet("check " + recipe).code, 0) << recipe;
    for (const auto& key : nlohmann::json::parse(quintet("recipe --json").out))
      if (key.at("type").get<std::string>().starts_with("integer")) {
        tried.push_back("check " + recipe + " --set " + key.at("key").get<std::string>() + "=1073741824");
        script += "timeout 20 " + test::kTool + " " + tried.back() + " >/dev/null 2>&1; echo $?\n";
      }
  }
  ASSERT_GE(tried.size(), 120u);
  const Outcome o = test::shell(script);
  std::istringstream codes(o.out);
  int code = -1;
  for (const std::string& command : tried) {
    codes >> code;
    EXPECT_TRUE(code == 0 || code == 2) << code << ": " << command;
  }
}

// Small data are loaded: what train would refuse, check refuses.
TEST(Check, SmallDataMustBeTrainable) {
  const SmallRun small;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\": \"a\"}\n";
  base::write_file_atomically(small / "single.jsonl", lines);
  const std::string check = "check " + quoted(small.recipe_file().string()) + " --set data.path=";
  const Outcome bad = quintet(check + (small / "single.jsonl").string());
  EXPECT_EQ(bad.code, 2) << bad.out;
  EXPECT_CONTAINS(bad.err, "has nothing to learn from");
  // Large ones are not read: a sparse file of 1 TB is checked at once.
  base::make_directories(small / "large");
  base::write_file_atomically(small / "large/a.jsonl", lines);
  ASSERT_EQ(::truncate((small / "large/a.jsonl").c_str(), int64_t{1} << 40), 0);
  EXPECT_EQ(quintet(check + (small / "large").string()).code, 0);
}

TEST(Check, DataMustExist) {
  const SmallRun small;
  const Outcome o =
      quintet("check " + quoted(small.recipe_file().string()) + " --set data.path=/no/such/text");
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "data.path: there is no file or folder '/no/such/text'");
  // Single tokens only: no label to learn from.
  base::write_file_atomically(small / "single.jsonl", [] {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "{\"text\": \"a\"}\n";
    return text;
  }());
  const Outcome single = quintet("train " + quoted(small.recipe_file().string()) +
                                 " --set data.path=" + quoted((small / "single.jsonl").string()));
  EXPECT_EQ(single.code, 2);
  EXPECT_CONTAINS(single.err, "has nothing to learn from");
}

TEST(Check, PathsMayStartAtTheHomeFolder) {
  const SmallRun small;
  base::write_file_atomically(small / "home.txt", std::string(4000, 'x'));
  const std::string check = "HOME=" + quoted((small / ".").lexically_normal().string()) + " " + test::kTool +
                            " check " + quoted(small.recipe_file().string()) + " --set data.path=";
  EXPECT_EQ(test::shell(check + "'~/home.txt'").code, 0);
  EXPECT_CONTAINS(test::shell(check + "'~/other.txt'").err, (small / "other.txt").string());
}

TEST(Check, PrintsTheResolvedRecipe) {
  const SmallRun small;
  const std::string check = "check " + quoted(small.recipe_file().string());
  const Outcome o = quintet(check);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(config::parse(o.out), small.recipe());
  EXPECT_CONTAINS(o.out, "# good: 4 ranks, ");
  const auto json = nlohmann::json::parse(quintet(check + " --json").out);
  EXPECT_EQ(json.at("good"), true);
  EXPECT_EQ(json.at("world"), 4);
  EXPECT_EQ(json.at("recipe").at("batch").at("accumulation"), 2);
  EXPECT_GT(json.at("planned_peak_bytes").get<int64_t>(), 0);
}

// --dtype sets all types, --set overrides one.
TEST(Check, SetOverridesTheDtypeOption) {
  const SmallRun small;
  const std::string check = "check " + quoted(small.recipe_file().string());
  for (const char* options : {" --dtype bf16 --set precision.master=split --set precision.gradients=bf16",
                              " --set precision.master=split --set precision.gradients=bf16 --dtype bf16"}) {
    const Outcome o = quintet(check + options);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_CONTAINS(o.out, "compute = \"bf16\"\nmaster = \"split\"\nmoments = \"f32\"\n");
    EXPECT_CONTAINS(o.out, "\ngradients = \"bf16\"\n");
  }
}

TEST(Check, GivesEveryProblemAtOnce) {
  const SmallRun small;
  const std::string check =
      "check " + quoted(small.recipe_file().string()) + " --set parallel.tp=3 --set model.layers=0";
  const Outcome o = quintet(check);
  EXPECT_EQ(o.code, 2);
  EXPECT_CONTAINS(o.err, "parallel.tp");
  EXPECT_CONTAINS(o.err, "model.layers");
  const Outcome json = quintet(check + " --json");
  EXPECT_EQ(json.code, 2);
  const auto problems = nlohmann::json::parse(json.out).at("problems");
  std::set<std::string> keys;
  for (const auto& p : problems) keys.insert(p.at("key"));
  EXPECT_TRUE(keys.contains("parallel.tp"));
  EXPECT_TRUE(keys.contains("model.layers"));
}

TEST(Program, PrintsOneRank) {
  const SmallRun small;
  const std::string program = "program " + quoted(small.recipe_file().string());
  const Outcome o = quintet(program + " --rank 3");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_CONTAINS(o.out, "program rank=3 world=4");
  EXPECT_CONTAINS(o.out, "all_gather comm=dp_shard");
  EXPECT_CONTAINS(o.out, "repeat 2");
  const program::Program full = program::parse_text(quintet(program + " --rank 1 --full").out);
  EXPECT_EQ(full.rank.value, 1);
  EXPECT_EQ(full.world, 4);
  EXPECT_CONTAINS(quintet(program + " --set eval.every=2 --evaluate").out, "evaluate");
  const Outcome far = quintet(program + " --rank 4");
  EXPECT_EQ(far.code, 2);
  EXPECT_CONTAINS(far.err, "4 ranks; allowed: 0 to 3");
  const auto json = nlohmann::json::parse(quintet(program + " --rank 2 --json").out);
  EXPECT_EQ(json.at("rank"), 2);
  EXPECT_EQ(json.at("planned_peak_bytes"), full.arena_bytes);
  EXPECT_FALSE(json.at("collectives").empty());
}

TEST(Verify, BiasesOfRoutersAndPaddedExperts) {
  const SmallRun small;
  const std::string verify = "verify " + quoted(small.recipe_file().string()) +
                             " --dtype f64 --steps 2 --set model.moe.experts=4 --set model.moe.top_k=2 --set "
                             "model.moe.ffn=16 --set model.ffn=16 --set parallel.ep=2";
  for (const char* sets :
       {" --set model.moe.bias_rate=0.01 --set model.moe.score=sigmoid --set parallel.pp=2 --set "
        "batch.global=16",
        " --set model.moe.capacity_factor=0.5 --set model.moe.pad=true",
        " --set model.moe.capacity_factor=1 --set model.moe.pad=true --set model.moe.drop=position --set "
        "parallel.cp=2 --set parallel.sequence_parallel=false"}) {
    const Outcome o = quintet(verify + sets);
    EXPECT_EQ(o.code, 0) << sets << "\n" << o.out << o.err;
  }
}

TEST(Verify, ComparesTheLayoutWithOneRank) {
  const SmallRun small;
  const std::string verify = "verify " + quoted(small.recipe_file().string()) + " --dtype f64 --steps 2";
  const Outcome o = quintet(verify);
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_CONTAINS(o.out, "PASS");
  EXPECT_TRUE(nlohmann::json::parse(quintet(verify + " --json").out).is_object());
  EXPECT_FALSE(base::directory_exists(small.run_dir())) << "verify writes no run folder";
}

}  // namespace
}  // namespace quintet
