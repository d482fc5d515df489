// Data of whole runs: blends, packing, evaluation sets, and the ledger. Numbers are compared across layouts
// in f64.
#include "train/run_data.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>

#include "base/philox.h"
#include "config/codes.h"
#include "data/foreign_file.h"
#include "support/small_recipe.h"
#include "tools/ledger.h"
#include "tools/run_layout.h"
#include "tools/run_support.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

const Sets kF64 = {"precision.compute=\"f64\"", "checkpoint.every=100"};

// Two sets of text and one for evaluation, of different words.
class BlendRun : public SmallRun {
 public:
  BlendRun() {
    for (int i = 0; i < 3; ++i) {
      std::string lines;
      for (uint64_t d = 0; d < 200; ++d) {
        std::string text;
        for (uint64_t w = 0; w < 3 + base::philox(1, d)[0] % 20; ++w)
          text +=
              std::string(1 + (d + w) % 3, static_cast<char>('a' + 7 * i + static_cast<int>(w % 7))) + " ";
        lines += "{\"text\": \"" + text + "\"}\n";
      }
      base::write_file_atomically(*this / (std::string(1, static_cast<char>('x' + i)) + ".jsonl"), lines);
    }
  }
  // Without data.path, which a blend replaces.
  Sets blend(const std::string& weights = "weight") const {
    const auto set = [&](const char* name, const char* value) {
      return "{path=\"" + (*this / (std::string(name) + ".jsonl")).string() + "\", " + weights + "=" + value +
             "}";
    };
    return {"data.path=[]", "data.blend=[" + set("x", weights == "tokens" ? "7000" : "0.7") + ", " +
                                set("y", weights == "tokens" ? "3000" : "0.3") + "]"};
  }
};

// The order of samples is a pure function of recipe and seed: not of the layout, not of where the run began.
TEST(RunData, SamplesDependOnRecipeAndSeedOnly) {
  const BlendRun run;
  const auto order = [&](const Sets& sets) {
    const config::Recipe r = run.recipe(run.blend() + sets);
    const train::RunData data = train::load_data(r);
    std::vector<std::array<int64_t, 3>> picks;
    for (int64_t step = 0; step < 40; ++step)
      for (int64_t g = 0; g < 8; ++g) {
        const auto pick = data.train.pick(step, g);
        picks.push_back({pick->set, pick->sample, pick->epoch});
      }
    return picks;
  };
  for (const Sets& sets : std::vector<Sets>{{},
                                            {"data.packing=\"best-fit\""},
                                            {"data.curriculum.by=\"length\"", "data.packing=\"best-fit\""},
                                            {"data.balance=true"}}) {
    const auto one = order(sets + test::kOneRank);
    EXPECT_EQ(order(sets), one);
    EXPECT_EQ(order(sets + Sets{"parallel.dp_shard=4", "parallel.tp=1", "parallel.sequence_parallel=false",
                                "batch.micro=1"}),
              one);
    EXPECT_EQ(order(sets + Sets{"parallel.cp=2", "parallel.tp=1", "parallel.sequence_parallel=false"}), one);
    EXPECT_NE(order(sets + Sets{"run.seed=9"}), one);
    int64_t first = 0;
    for (const auto& pick : one) first += pick[0] == 0;
    EXPECT_EQ(first, 224);  // 0.7 of 320
  }
}

TEST(RunData, CurriculumVisitsShortSequencesFirst) {
  const BlendRun run;
  const train::RunData data = train::load_data(
      run.recipe(run.blend() + Sets{"data.curriculum.by=\"length\"", "data.packing=\"best-fit\""}));
  const data::Mixture& mixture = data.train.mixture();
  std::vector<int64_t> first(2, -1), last(2, 0), taken(2, 0);
  for (int64_t p = 0; taken[0] < mixture.dataset(0).size() && taken[1] < mixture.dataset(1).size(); ++p) {
    const auto pick = mixture.at(p);
    const int64_t labels = mixture.dataset(pick->set).valid_labels(pick->sample);
    const auto set = static_cast<size_t>(pick->set);
    EXPECT_GE(labels, last[set]);
    if (first[set] < 0) first[set] = labels;
    last[set] = labels, ++taken[set];
  }
  // Lengths differ, so the order means something.
  EXPECT_LT(first[0], last[0]);
}

// A number per document, as numpy.save writes it: little-endian doubles after a header of 118 + 10 bytes.
void write_column(const base::Path& path, const std::vector<double>& numbers) {
  std::string header =
      "{'descr': '<f8', 'fortran_order': False, 'shape': (" + std::to_string(numbers.size()) + ",), }";
  header.resize(117, ' ');
  std::ofstream out(path, std::ios::binary);
  out << std::string_view("\x93NUMPY\1\0\x76\0", 10) << header << '\n';
  out.write(reinterpret_cast<const char*>(numbers.data()), static_cast<std::streamsize>(numbers.size() * 8));
}

TEST(RunData, CurriculumFollowsAColumn) {
  const BlendRun run;
  const Sets sets = {"data.path=\"" + (run / "x.jsonl").string() + "\"", "data.packing=\"best-fit\"",
                     "data.curriculum.by=\"" + (run / "score.npy").string() + "\"",
                     "data.validation_fraction=0"};
  std::vector<double> scores(200);
  for (size_t d = 0; d < scores.size(); ++d) scores[d] = static_cast<double>(base::philox(6, d)[0] % 1000);
  write_column(run / "score.npy", scores);
  const train::RunData data = train::load_data(run.recipe(sets));
  const data::Mixture& mixture = data.train.mixture();
  double last = -1;
  for (int64_t p = 0; p < mixture.samples(); ++p) {
    const double score =
        scores[static_cast<size_t>(mixture.dataset(0).first_document(mixture.at(p)->sample))];
    EXPECT_GE(score, last);
    last = score;
  }
  // The second epoch is shuffled.
  EXPECT_NE(mixture.at(mixture.samples())->sample, mixture.at(0)->sample);
  scores.pop_back();
  write_column(run / "score.npy", scores);
  const std::string message = user_error([&] { train::load_data(run.recipe(sets)); });
  EXPECT_CONTAINS(message, "199 numbers");
  EXPECT_CONTAINS(message, "200 documents");
}

TEST(RunData, FillInTheMiddleNeedsTokensAndNoMask) {
  const BlendRun run;
  EXPECT_CONTAINS(user_error([&] { train::load_data(run.recipe({"data.fim.rate=0.5"})); }),
                  "has no token \"<|fim_prefix|>\"");
  const Sets bytes = {"data.fim.rate=0.5", "data.fim.prefix=P", "data.fim.middle=M", "data.fim.suffix=S"};
  const train::RunData data = train::load_data(run.recipe(bytes));
  std::vector<int32_t> ids(static_cast<size_t>(data.train.micro_tokens()));
  int found = 0;
  for (int64_t step = 0; step < 6; ++step) {
    data.train.fill(step, 0, 0, {.ids = ids});
    found += static_cast<int>(std::ranges::count(ids, int32_t{77}));
  }
  EXPECT_GT(found, 0);
  data::MegatronWriter writer(run / "p", 256);
  writer.add_document(std::vector<int32_t>(500, 7), std::vector<uint8_t>(500, 1));
  writer.finish();
  EXPECT_CONTAINS(user_error([&] {
                    train::load_data(run.recipe(bytes + Sets{"data.path=\"" + (run / "p").string() + "\""}));
                  }),
                  "has a .mask");
}

TEST(RunData, BlendsResumeExactlyInAnyLayout) {
  for (const Sets& more : std::vector<Sets>{{"data.packing=\"best-fit\"", "data.balance=true"},
                                            {"data.curriculum.by=\"length\""}}) {
    const BlendRun whole, changed;
    whole.train(kF64 + whole.blend() + more);
    changed.train(kF64 + changed.blend() + more, test::stopped_after(2));
    train::RunOptions options;
    options.allow = {"data.blend"};  // the same data in another folder
    changed.train(kF64 + changed.blend() + more +
                      Sets{"parallel.dp_shard=4", "parallel.tp=1", "batch.micro=1",
                           "parallel.sequence_parallel=false", "parallel.zero=2"},
                  options);
    test::expect_equal_losses(whole, changed);
  }
}

TEST(RunData, EvaluationSetsAreReportedByName) {
  const BlendRun run;
  const Sets sets = kF64 + run.blend() +
                    Sets{"eval.every=3", "eval.batches=1",
                         "eval.sets=[{name=\"other\", path=\"" + (run / "z.jsonl").string() + "\"}]"};
  run.train(sets);
  const auto records = test::read_metrics(run.run_folder().metrics());
  const auto& record = records.at(2);
  double weighted = 0;
  for (const char* key : {"eval_loss.x", "eval_loss.y", "eval_loss.other"})
    weighted += record.at(key).get<double>();
  EXPECT_NEAR(record.at("eval_loss").get<double>(), weighted / 3, 0.5);
  EXPECT_FALSE(records.at(0).contains("eval_loss.x"));
  // Words that the run never sees are harder.
  EXPECT_GT(records.at(5).at("eval_loss.other").get<double>(), records.at(5).at("eval_loss.x").get<double>());
  // The same losses on one rank.
  const BlendRun one;
  one.train(kF64 + one.blend() + test::kOneRank +
            Sets{"eval.every=3", "eval.batches=1",
                 "eval.sets=[{name=\"other\", path=\"" + (one / "z.jsonl").string() + "\"}]"});
  const auto same = test::read_metrics(one.run_folder().metrics());
  for (const char* key : {"eval_loss", "eval_loss.x", "eval_loss.y", "eval_loss.other"})
    EXPECT_NEAR(same.at(5).at(key).get<double>(), records.at(5).at(key).get<double>(), 1e-10) << key;
}

TEST(RunData, ASetThatMayNotRepeatMustLast) {
  const BlendRun run;
  Sets sets = run.blend();
  sets[1].replace(sets[1].find("weight=0.3"), 10, "weight=0.3, repeat=false");
  EXPECT_EQ(train::load_data(run.recipe(sets)).train.mixture().sets(), 2);
  const std::string message =
      user_error([&] { train::load_data(run.recipe(sets + Sets{"run.steps=10000"})); });
  EXPECT_CONTAINS(message, "\"y\" has");
  EXPECT_CONTAINS(message, "Q2004");
  // A budget ends with the run, or the recipe is refused.
  EXPECT_EQ(train::load_data(run.recipe(run.blend("tokens"))).train.mixture().sets(), 2);
  EXPECT_CONTAINS(user_error([&] { run.recipe(run.blend("tokens") + Sets{"run.steps=40"}); }),
                  "run.steps 39");
}

TEST(RunData, BadFilesAreRefusedWithACodeBeforeTraining) {
  const BlendRun run;
  const auto refused = [&](const std::string& name) {
    return user_error([&] { train::load_data(run.recipe({"data.path=\"" + (run / name).string() + "\""})); });
  };
  {
    data::MegatronWriter writer(run / "p", 256);
    writer.add_document(std::vector<int32_t>(500, 7), std::vector<uint8_t>(500, 1));
    writer.finish();
  }
  const auto write = [&](const std::string& name, std::string_view bytes) {
    std::ofstream(run / name, std::ios::binary) << bytes;
  };
  const std::string bin = base::read_file(run / "p.bin"), idx = base::read_file(run / "p.idx");
  EXPECT_EQ(
      train::load_data(run.recipe({"data.path=\"" + (run / "p").string() + "\""})).train.mixture().tokens(),
      500);
  write("p.bin", bin.substr(0, 900));
  EXPECT_CONTAINS(refused("p"), "Q2201");
  write("p.bin", bin);
  write("p.idx", idx.substr(0, idx.size() - 8));
  EXPECT_CONTAINS(refused("p"), "Q2201");
  write("p.idx", idx);
  write("p.mask", std::string(499, '\1'));
  EXPECT_CONTAINS(refused("p"), "499 trained flags");
  write("p.mask", std::string(500, '\0'));
  EXPECT_CONTAINS(refused("p"), "trains no token");
  write("p.mask", std::string(500, '\1'));
  write("p.bin", std::string(1000, '\xff'));
  EXPECT_CONTAINS(refused("p"), "token 65535 at position 0");
  write("empty.jsonl", "");
  EXPECT_CONTAINS(refused("empty.jsonl"), "no text");
  write("odd.bin", "abc");
  EXPECT_CONTAINS(refused("odd.bin"), "Q2201");
}

// ---- the ledger

TEST(Ledger, ListsWhatEveryStepWasTrainedOn) {
  const BlendRun run;
  run.train(kF64 + run.blend() + Sets{"data.packing=\"best-fit\"", "data.balance=true"});
  const tools::DataLedger ledger(run.run_dir());
  ASSERT_EQ(ledger.steps(), 6);
  const train::RunData data = train::load_data(ledger.recipe());
  std::set<int64_t> positions;
  for (int64_t number = 1; number <= 6; ++number) {
    const tools::StepLedger step = ledger.step(number);
    ASSERT_EQ(step.rows.size(), 8U);
    std::set<std::array<int64_t, 2>> places;
    for (const tools::LedgerRow& row : step.rows) {
      positions.insert(row.position);
      // The tokens that the rank loaded are those of the document parts that the ledger names.
      std::vector<int32_t> ids(static_cast<size_t>(data.train.micro_tokens()));
      data.train.fill(number - 1, row.micro_batch, row.rank, {.ids = ids});
      std::vector<int32_t> named;
      const data::Corpus& corpus = ledger.mixture().dataset(row.set).corpus();
      for (const data::SamplePart& part : row.parts) {
        std::vector<int32_t> tokens(static_cast<size_t>(part.tokens));
        corpus.read(static_cast<int64_t>(corpus.offsets()[static_cast<size_t>(part.document)]) + part.begin,
                    tokens);
        named.insert(named.end(), tokens.begin(), tokens.end());
      }
      named.resize(32, 0);
      EXPECT_NE(std::search(ids.begin(), ids.end(), named.begin(), named.end()), ids.end());
    }
  }
  EXPECT_CONTAINS(to_text(ledger, ledger.step(2)),
                  "have the hash of what the ranks loaded, " + ledger.step(2).hash);
  // A run of an older version has none.
  base::remove_file(run.run_folder().ledger());
  const tools::DataLedger older(run.run_dir());
  EXPECT_CONTAINS(to_text(older, older.step(2)), "fingerprints, which cover all their bytes");
  EXPECT_EQ(positions.size(), 48U);
  EXPECT_EQ(*positions.rbegin(), 47);
  EXPECT_CONTAINS(user_error([&] { ledger.step(7); }), "step 7 is not one of the 6");

  // Finding inverts listing.
  const tools::LedgerRow wanted = ledger.step(4).rows[3];
  const std::string set = ledger.mixture().set(wanted.set).name;
  const auto by_sample = ledger.find_sample(set + ":" + std::to_string(wanted.sample));
  EXPECT_TRUE(std::ranges::any_of(by_sample, [&](const auto& r) { return r.position == wanted.position; }));
  const auto by_document = ledger.find_document(set + ":" + std::to_string(wanted.parts[0].document));
  EXPECT_TRUE(std::ranges::any_of(by_document, [&](const auto& r) { return r.position == wanted.position; }));
  EXPECT_CONTAINS(user_error([&] { ledger.find_sample("5"); }), "x, y");
  EXPECT_CONTAINS(user_error([&] { ledger.find_sample("z:5"); }), "there is no set 'z'");
  EXPECT_CONTAINS(user_error([&] { ledger.find_sample("x:five"); }), "neither a number");
  EXPECT_CONTAINS(user_error([&] { ledger.find_document("x:99999"); }), "does not exist");
}

TEST(Ledger, RefusesOtherDataAndOtherRecords) {
  const BlendRun run;
  run.train(kF64 + run.blend());
  const base::Path metrics = run.run_folder().metrics();
  const std::string records = base::read_file(metrics);
  std::string wrong = records;
  const size_t at = wrong.find("\"tokens\":") + 9;
  wrong[at + 1] = wrong[at + 1] == '1' ? '2' : '1';
  std::ofstream(metrics) << wrong;
  EXPECT_CONTAINS(user_error([&] { tools::DataLedger(run.run_dir()).step(1); }),
                  "labels, but its samples have");
  std::ofstream(metrics) << records;
  EXPECT_EQ(tools::DataLedger(run.run_dir()).step(1).rows.size(), 8U);
  // The hash that the ranks computed is of the step's tokens.
  const base::Path hashes = run.run_folder().ledger();
  const std::string before = base::read_file(hashes);
  std::string other = before;
  char& digit = other[other.find("\"tokens_hash\": \"") + 16];
  digit = digit == '0' ? '1' : '0';
  std::ofstream(hashes) << other;
  EXPECT_CONTAINS(user_error([&] { tools::DataLedger(run.run_dir()).step(1); }),
                  "the tokens of step 1 have changed since the run");
  EXPECT_EQ(tools::DataLedger(run.run_dir()).step(2).rows.size(), 8U);
  std::ofstream(hashes) << before << "{\"step\": \"7\"}\n[1]\n{\"st";
  EXPECT_EQ(tools::DataLedger(run.run_dir()).step(1).rows.size(), 8U);
  std::string lines = base::read_file(run / "y.jsonl");
  lines[12] = lines[12] == 'q' ? 'r' : 'q';
  std::ofstream(run / "y.jsonl") << lines;
  EXPECT_CONTAINS(user_error([&] { tools::DataLedger ledger(run.run_dir()); }), "the data have changed");
}

// Whatever rank loads which tokens: all layouts record the same hash for each step, also where a run
// continues in another one.
TEST(Ledger, HashesOfTokensDoNotDependOnTheLayout) {
  const Sets cp = {"parallel.cp=2", "parallel.dp_shard=1", "parallel.tp=1",
                   "parallel.sequence_parallel=false", "parallel.zero=0"};
  const std::vector<Sets> models = {{},
                                    {"model.mtp.layers=1"},
                                    {"data.balance=true", "data.packing=\"best-fit\""},
                                    {"model.family=\"bert\"", "model.kv_heads=4", "model.max_positions=32"}};
  for (const Sets& model : models) {
    const auto hashes = [&](const Sets& sets, const train::RunOptions& first = {}) {
      const SmallRun run;
      const Sets all = kF64 + model + Sets{"data.validation_fraction=0"};
      if (first.on_step) {
        run.train(all, first);
        run.train(all + sets);
      } else {
        run.train(all + sets);
      }
      return base::read_file(run.run_folder().ledger());
    };
    const std::string one = hashes(test::kOneRank);
    EXPECT_EQ(std::ranges::count(one, '\n'), 6) << one;
    EXPECT_EQ(hashes({}), one);
    EXPECT_EQ(hashes(cp + Sets{"parallel.pp=2"}, test::stopped_after(3)), one);
    EXPECT_EQ(hashes(cp + Sets{"parallel.cp=4", "batch.micro=4"}), one);
  }
}

// ---- packing: the same mathematics as separate documents

const std::vector<int> kLengths = {9, 17, 3, 30, 2, 12, 5, 20, 7, 31, 4};

data::Corpus documents(int changed, bool only_others_trained) {
  data::CorpusBuilder builder("documents", 256);
  for (size_t d = 0; d < kLengths.size(); ++d) {
    std::vector<int32_t> ids;
    for (int i = 0; i < kLengths[d]; ++i)
      ids.push_back(
          static_cast<int32_t>(base::philox(d == 0 ? 100 + static_cast<uint64_t>(changed) : d, i)[0] % 256));
    builder.add_document(ids, std::vector<uint8_t>(ids.size(), !(only_others_trained && d == 0)));
  }
  return builder.finish();
}

config::Recipe packing_recipe(int64_t global, const Sets& sets) {
  return test::small_recipe({"precision.compute=\"f64\"", "data.packing=\"best-fit\"", "run.seed=3",
                             "batch.global=" + std::to_string(global)},
                            sets);
}

tools::LayoutRun run_once(const config::Recipe& r, data::Mixture mixture, bool balanced = false) {
  data::Batches batches(std::move(mixture),
                        {r.batch.global, r.batch.micro, r.batch.accumulation, r.parallel.dp()});
  if (balanced) batches.set_balanced();
  return tools::run_layout(r, batches, {.steps = 1});
}

data::Mixture packed_mixture(const data::Corpus& corpus) {
  data::Dataset dataset(corpus, 32, {{0, corpus.tokens()}}, config::LongDocuments::Split);
  const data::Sampler sampler(3, dataset.size(), data::Order::Shuffled);
  return data::Mixture(std::move(dataset), sampler);
}

void expect_same_step(const tools::LayoutRun& a, const tools::LayoutRun& b, double tolerance) {
  EXPECT_EQ(a.steps[0].result.tokens, b.steps[0].result.tokens);
  EXPECT_NEAR(a.steps[0].result.loss, b.steps[0].result.loss, tolerance);
  ASSERT_EQ(a.steps[0].gradients.size(), b.steps[0].gradients.size());
  for (size_t t = 0; t < a.steps[0].gradients.size(); ++t) {
    const auto &x = a.steps[0].gradients[t], &y = b.steps[0].gradients[t];
    ASSERT_EQ(x.values.size(), y.values.size());
    for (size_t i = 0; i < x.values.size(); ++i) ASSERT_NEAR(x.values[i], y.values[i], tolerance) << x.name;
  }
}

TEST(BestFitPacking, GivesTheLossAndGradientsOfSeparateDocuments) {
  const data::Corpus corpus = documents(0, false);
  data::Mixture packed = packed_mixture(corpus);
  const int64_t sequences = packed.samples();
  ASSERT_LT(sequences, 6);
  // Every document as a set of its own, so that each is alone in its sequence.
  std::vector<data::MixtureSet> sets;
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const auto begin = static_cast<int64_t>(corpus.offsets()[static_cast<size_t>(d)]),
               end = static_cast<int64_t>(corpus.offsets()[static_cast<size_t>(d) + 1]);
    sets.push_back({std::to_string(d),
                    data::Dataset(corpus, 32, {{begin, end - begin}}, config::LongDocuments::Split),
                    data::Sampler(3, 1, data::Order::Shuffled)});
  }
  const auto alone = run_once(packing_recipe(11, {}),
                              data::Mixture(std::move(sets), data::Blend(std::vector<int64_t>(11, 1))));
  expect_same_step(run_once(packing_recipe(sequences, {}), packed), alone, 1e-12);
  // In other layouts too, balanced or not.
  const Sets layouts[] = {{"parallel.cp=2"}, {"parallel.pp=2"}, {"parallel.tp=2"}};
  for (const Sets& layout : layouts)
    expect_same_step(run_once(packing_recipe(sequences, layout), packed, true), alone, 1e-11);
}

TEST(BestFitPacking, ChangingADocumentNeverChangesAnother) {
  const auto run = [](int changed, bool masked) {
    data::Mixture mixture = packed_mixture(documents(changed, masked));
    const config::Recipe recipe = packing_recipe(mixture.samples(), {});
    return run_once(recipe, std::move(mixture));
  };
  const auto a = run(0, true), b = run(1, true);
  EXPECT_EQ(a.steps[0].result.loss, b.steps[0].result.loss);
  for (size_t t = 0; t < a.steps[0].gradients.size(); ++t)
    EXPECT_EQ(a.steps[0].gradients[t].values, b.steps[0].gradients[t].values) << a.steps[0].gradients[t].name;
  // The test can fail: a document that is trained does change the loss.
  EXPECT_NE(run(0, false).steps[0].result.loss, run(1, false).steps[0].result.loss);
}

}  // namespace
}  // namespace quintet
