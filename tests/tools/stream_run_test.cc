// Runs on text that is tokenised while they train: the same data in every layout, exactly continued, held
// out, listed.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <map>
#include <set>

#include "base/philox.h"
#include "data/token_file.h"
#include "support/compressed.h"
#include "support/folders.h"
#include "support/small_recipe.h"
#include "text/record_reader.h"
#include "tools/ledger.h"
#include "tools/run_layout.h"
#include "tools/run_support.h"
#include "train/run_data.h"
#include "train/stream_places.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

const Sets kOther = {"parallel.dp_shard=4", "parallel.tp=1", "batch.micro=1",
                     "parallel.sequence_parallel=false", "parallel.zero=2"};

// Shards of documents that name themselves: "<shard.document words>".
class StreamRun : public SmallRun {
 public:
  StreamRun() {
    base::make_directories(*this / "shards");
    for (int shard = 0; shard < 4; ++shard) {
      std::string lines;
      for (int d = 0; d < 400; ++d) {
        std::string text = "<" + std::to_string(shard) + "." + std::to_string(d);
        for (uint64_t w = 0; w < base::philox(9, static_cast<uint64_t>(400 * shard + d))[0] % 8; ++w)
          text += " w" + std::to_string((static_cast<uint64_t>(d) + w) % 10);
        lines += "{\"text\": \"" + text + ">\"}\n";
        documents.insert(text + ">");
      }
      base::write_file_atomically(shard_file(shard), lines);
    }
  }
  base::Path shard_file(int shard) const { return *this / ("shards/s" + std::to_string(shard) + ".jsonl"); }
  Sets sets(const Sets& more = {}) const {
    return Sets{"precision.compute=\"f64\"",  "checkpoint.every=100",
                "data.validation_fraction=0", "data.stream=true",
                "data.stream_window=16",      "data.path=\"" + (*this / "shards").string() + "\""} +
           more;
  }
  std::set<std::string> documents;
};

// The ids of all sequences of a step, by their number.
std::vector<std::vector<int32_t>> ids_by_sequence(const data::Batches& batches, int64_t step) {
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(batches.layout().global));
  for (int64_t m = 0; m < batches.accumulation(step); ++m)
    for (int64_t rank = 0; rank < batches.layout().dp; ++rank) {
      std::vector<int32_t> ids(static_cast<size_t>(batches.micro_tokens()));
      batches.fill(step, m, rank, {.ids = ids});
      for (int64_t i = 0; i < batches.layout().micro; ++i) {
        const int64_t g = batches.sequence_at(step, batches.place_of(m, rank, i)),
                      n = ids.size() / static_cast<size_t>(batches.layout().micro);
        out[static_cast<size_t>(g)].assign(ids.begin() + i * n, ids.begin() + (i + 1) * n);
      }
    }
  return out;
}

TEST(StreamRun, EveryLayoutReadsTheSameSequences) {
  const StreamRun run;
  for (const Sets& more : std::vector<Sets>{{}, {"data.stream_parts=3"}, {"data.balance=true"}}) {
    const train::RunData a = train::load_data(run.recipe(run.sets(more))),
                         b = train::load_data(run.recipe(run.sets(more + kOther))),
                         other = train::load_data(run.recipe(run.sets(more + Sets{"run.seed=7"})));
    std::set<std::vector<int32_t>> seen;
    for (int64_t step = 0; step < 12; ++step) {
      const auto here = ids_by_sequence(a.train, step);
      EXPECT_EQ(here, ids_by_sequence(b.train, step)) << step;
      EXPECT_NE(here, ids_by_sequence(other.train, step)) << step;
      seen.insert(here.begin(), here.end());
    }
    EXPECT_EQ(seen.size(), 96U);  // no sequence twice
  }
}

// Every document is in exactly one part, and an epoch has each of them once.
TEST(StreamRun, PartsDivideTheDocuments) {
  const StreamRun run;
  const train::RunData data = train::load_data(run.recipe(run.sets({"data.stream_parts=4"})));
  const auto& streams = data.train.mixture().set(0).streams();
  ASSERT_EQ(streams.size(), 4U);
  std::map<std::string, int> count;
  for (const auto& stream : streams) {
    std::string text;
    bool next_epoch = false;
    for (int64_t w = 0; !next_epoch; ++w) {
      const auto window = stream->find(w * 16).window;
      const data::Corpus& corpus = window->dataset.corpus();
      for (size_t d = 0; d < window->origins.size(); ++d) {
        next_epoch = next_epoch || window->origins[d].epoch > 0;
        if (next_epoch) break;
        std::vector<int32_t> ids(corpus.offsets()[d + 1] - corpus.offsets()[d]);
        corpus.read(static_cast<int64_t>(corpus.offsets()[d]), ids);
        // The last token of a window is the first of the next one.
        if (d + 1 == window->origins.size()) ids.pop_back();
        for (const int32_t id : ids) text.push_back(static_cast<char>(id));
      }
    }
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('>', at) + 1;
      ++count[text.substr(at, end - at)];
      at = end;
    }
  }
  EXPECT_EQ(count.size(), run.documents.size());
  for (const std::string& document : run.documents) EXPECT_EQ(count[document], 1) << document;
}

TEST(StreamRun, ContinuesAtTheSampleInAnyLayout) {
  for (const Sets& more : std::vector<Sets>{{}, {"data.stream_parts=2", "data.balance=true"}}) {
    const StreamRun whole, changed;
    whole.train(whole.sets(more));
    changed.train(changed.sets(more), test::stopped_after(3));
    changed.train(changed.sets(more + kOther));
    test::expect_equal_losses(whole, changed);
  }
}

// The same documents in other kinds of files are the same run.
TEST(StreamRun, ReadsAndContinuesInEveryKindOfFile) {
  const StreamRun whole, changed;
  whole.train(whole.sets());
  for (int shard = 0; shard < 4; ++shard) {
    const std::string lines = base::read_file(changed.shard_file(shard));
    std::string array = "[" + lines.substr(0, lines.size() - 1) + "]";
    for (size_t at = 0; (at = array.find("}\n{", at)) != std::string::npos;) array.replace(at, 2, "},");
    const std::string name = (changed / ("shards/s" + std::to_string(shard))).string();
    const auto [extension, bytes] = std::array<std::pair<const char*, std::string>, 4>{
        {{".jsonl.gz", test::gzipped(lines)},
         {".jsonl.zst", test::zstd(lines)},
         {".json", array},
         {".json.gz", test::gzipped(array)}}}[static_cast<size_t>(shard)];
    base::remove_file(changed.shard_file(shard));
    base::write_file_atomically(name + extension, bytes);
  }
  changed.train(changed.sets(), test::stopped_after(3));
  changed.train(changed.sets(kOther));
  test::expect_equal_losses(whole, changed);
}

// tests/golden/make_parquet.py writes the file. Its rows are what the same objects in JSON lines are.
TEST(StreamRun, ReadsParquet) {
  if (!text::reads_parquet()) GTEST_SKIP() << "this build has no Arrow; `make test-parquet` builds one";
  const StreamRun rows, lines;
  const base::Path file = base::Path(test::source_dir()) / "tests/golden/rows.parquet";
  text::RecordReader reader({file}, {"title", "year"});
  std::string text;
  for (text::Record record; reader.next(record);) text += record.bytes + "\n";
  base::write_file_atomically(lines / "rows.jsonl", text);
  const auto sets = [](const StreamRun& run, const base::Path& path) {
    return run.sets({"data.path=\"" + path.string() + "\"", "data.template=\"{title} of {year}, \""});
  };
  rows.train(sets(rows, file), test::stopped_after(3));
  rows.train(sets(rows, file) + kOther);
  lines.train(sets(lines, lines / "rows.jsonl"));
  test::expect_equal_losses(rows, lines);
}

// A run that continues does not read what it has seen: a line before its place may have become unreadable.
TEST(StreamRun, ContinuesFromItsPlaceInTheFiles) {
  const StreamRun whole, changed;
  const auto one_file = [](const StreamRun& run) {
    // Windows of 2 sequences of 32 bytes, so the run is past the 4 KiB that the fingerprint reads.
    std::string lines;
    for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"" + std::to_string(1000000 + 7 * i) + " text\"}\n";
    base::write_file_atomically(run / "one.jsonl", lines);
    return run.sets({"data.path=\"" + (run / "one.jsonl").string() + "\"", "data.stream_window=2",
                     "run.steps=30", "run.threads=1"});
  };
  whole.train(one_file(whole));
  const Sets sets = one_file(changed);
  changed.train(sets, test::stopped_after(25));
  std::string lines = base::read_file(changed / "one.jsonl");
  const size_t begin = lines.find('\n', 4200) + 1;
  lines[begin] = '!';  // a line that is not JSON any more, long before step 25
  std::ofstream(changed / "one.jsonl") << lines;
  changed.train(sets);
  test::expect_equal_losses(whole, changed);
  // From the start it is met.
  train::RunOptions over;
  over.overwrite = true;
  EXPECT_CONTAINS(user_error([&] { changed.train(sets, over); }), "one.jsonl:");
}

TEST(StreamRun, DamageIsNamedOrLeftOut) {
  const StreamRun run;
  std::string lines = base::read_file(run.shard_file(2));
  base::write_file_atomically(run.shard_file(2), "{\"text\": 5}\n" + lines);
  base::write_file_atomically(run.shard_file(1), "oops\n" + base::read_file(run.shard_file(1)));
  std::string message;
  try {
    run.train(run.sets({"run.steps=200"}));
  } catch (const std::exception& error) {
    message = error.what();
  }
  EXPECT_CONTAINS(message, ".jsonl:1: ");
  EXPECT_CONTAINS(message, "data.damaged = \"skip\"");
  const train::RunData data =
      train::load_data(run.recipe(run.sets({"data.damaged=\"skip\"", "data.stream_window=512"})));
  data.train.mixture().set(0).find(1);
  EXPECT_CONTAINS(train::stream_damage(data), "2 damaged records left out, the first: ");
}

TEST(StreamRun, HeldOutDocumentsAreEvaluatedAndNeverTrained) {
  const StreamRun run;
  const Sets sets = run.sets({"data.validation_fraction=0.2", "eval.every=3", "eval.batches=2"});
  run.train(sets);
  EXPECT_TRUE(test::read_metrics(run.run_folder().metrics()).at(2).contains("eval_loss"));
  const train::RunData data = train::load_data(run.recipe(sets));
  ASSERT_EQ(data.evals.size(), 1U);
  const data::Corpus& held = data.evals[0].batches.mixture().dataset(0).corpus();
  std::set<std::string> held_out;
  for (size_t d = 0; d + 2 < held.offsets().size(); ++d) {  // the last one may be cut
    std::vector<int32_t> ids(held.offsets()[d + 1] - held.offsets()[d]);
    held.read(static_cast<int64_t>(held.offsets()[d]), ids);
    held_out.insert(std::string(ids.begin(), ids.end()));
  }
  EXPECT_GT(held_out.size(), 10U);
  std::string trained;
  for (int64_t w = 0; w < 60; ++w) {
    const auto window = data.train.mixture().set(0).find(w * 16).window;
    for (int64_t i = 0; i < 16; ++i)
      for (const int32_t id : window->dataset.get(i).tokens) trained.push_back(static_cast<char>(id));
  }
  for (const std::string& document : held_out)
    EXPECT_EQ(trained.find(document), std::string::npos) << document;
}

TEST(StreamRun, BlendsWithTokenFiles) {
  const StreamRun run;
  const Sets sets = run.sets({"data.path=[]", "data.blend=[{path=\"" + (run / "shards").string() +
                                                  "\", weight=3}, {path=\"" + (run / "data.txt").string() +
                                                  "\", weight=1}]"});
  run.train(sets);
  const train::RunData data = train::load_data(run.recipe(sets));
  EXPECT_EQ(data.train.mixture().taken(0, 400), 300);
  // Token files have nothing to stream.
  data::TokenFileWriter writer(run / "tokens", 256);
  writer.add_document(std::vector<int32_t>(1000, 65));
  writer.finish();
  EXPECT_CONTAINS(
      user_error([&] {
        train::load_data(run.recipe(run.sets({"data.path=\"" + (run / "tokens").string() + "\""})));
      }),
      "token files, which are mapped");
  // A part without documents is an error that names the key.
  const StreamRun other;
  base::write_file_atomically(other / "single.txt", std::string(5000, 'x'));
  const std::string message = user_error([&] {
    other.train(other.sets({"data.path=\"" + (other / "single.txt").string() + "\"", "data.stream_parts=2"}));
  });
  EXPECT_CONTAINS(message, "lower data.stream_parts");
  EXPECT_CONTAINS(message, "Q2002");
}

TEST(StreamRun, FillInTheMiddleAppliesToStreams) {
  const StreamRun run;
  const Sets fim = {"data.fim.rate=1", "data.fim.prefix=\"@\"", "data.fim.middle=\"#\"",
                    "data.fim.suffix=\"$\""};
  const train::RunData data = train::load_data(run.recipe(run.sets(fim)));
  int64_t marks = 0;
  for (const auto& ids : ids_by_sequence(data.train, 0)) marks += std::ranges::count(ids, '#');
  EXPECT_GT(marks, 4);
}

// The ledger names the records of a streamed step, and their tokens are those that were trained on.
TEST(StreamRun, TheLedgerNamesRecords) {
  const StreamRun run;
  run.train(run.sets());
  const tools::DataLedger ledger(run.run_dir());
  const train::RunData data = train::load_data(run.recipe(run.sets()));
  for (int64_t number = 1; number <= 6; ++number) {
    const tools::StepLedger step = ledger.step(number);
    const auto ids = ids_by_sequence(data.train, number - 1);
    for (const tools::LedgerRow& row : step.rows) {
      std::string named;
      ASSERT_EQ(row.sources.size(), row.parts.size());
      for (size_t i = 0; i < row.parts.size(); ++i) {
        const size_t colon = row.sources[i].rfind(':');
        std::ifstream file(row.sources[i].substr(0, colon));
        std::string line;
        for (int n = std::stoi(row.sources[i].substr(colon + 1)); n > 0; --n) std::getline(file, line);
        const std::string text = nlohmann::json::parse(line)["text"];
        named +=
            text.substr(static_cast<size_t>(row.parts[i].begin), static_cast<size_t>(row.parts[i].tokens));
      }
      const auto& trained = ids[static_cast<size_t>(row.sequence)];
      EXPECT_EQ(named, std::string(trained.begin(), trained.end()));
    }
  }
  EXPECT_CONTAINS(to_text(ledger, ledger.step(3)), "have the hash of what the ranks loaded");
  const tools::LedgerRow wanted = ledger.step(3).rows[2];
  const auto found = ledger.find_sample(std::to_string(wanted.sample));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].position, wanted.position);

  // Finding a record inverts listing it, by its path or its name.
  for (const std::string& source :
       {wanted.sources[0], wanted.sources[0].substr(wanted.sources[0].rfind('/') + 1)}) {
    std::set<int64_t> positions;
    for (const tools::LedgerRow& row : ledger.find_document(source)) {
      EXPECT_EQ(std::ranges::count(row.sources, wanted.sources[0]), 1) << row.sequence;
      positions.insert(row.position);
    }
    std::set<int64_t> listed;
    for (int64_t number = 1; number <= 6; ++number)
      for (const tools::LedgerRow& row : ledger.step(number).rows)
        if (std::ranges::count(row.sources, wanted.sources[0]) > 0) listed.insert(row.position);
    EXPECT_EQ(positions, listed);
    EXPECT_TRUE(listed.contains(wanted.position));
  }
  EXPECT_TRUE(ledger.find_document("s0.jsonl:99999").empty());
  EXPECT_CONTAINS(user_error([&] { ledger.find_document("3"); }), "expected FILE:LINE");
  EXPECT_CONTAINS(user_error([&] { ledger.find_document("nothere.jsonl:3"); }), "names none of the 4 files");
}

// The middle of a file is in no fingerprint of a stream, but the tokens that a step was trained on are in its
// hash.
TEST(StreamRun, TheLedgerNoticesAChangeInTheMiddleOfAFile) {
  const StreamRun run;
  for (int shard = 0; shard < 4; ++shard) {  // longer than what is in the fingerprint
    std::string lines;
    for (int d = 0; d < 300; ++d)
      lines += fmt::format("{{\"text\": \"shard {} line {:03}\", \"more\": \"{}\"}}\n", shard, d,
                           std::string(1000, 'x'));
    base::write_file_atomically(run.shard_file(shard), lines);
  }
  run.train(run.sets());
  const auto row = [&] { return tools::DataLedger(run.run_dir()).step(5).rows[4]; };
  const std::string source = row().sources[0];
  const base::Path file = source.substr(0, source.rfind(':'));
  std::string lines = base::read_file(file);
  const size_t line = static_cast<size_t>(std::stoi(source.substr(source.rfind(':') + 1)) - 1);
  const size_t at = line * (lines.size() / 300) + 12;
  ASSERT_GT(at, 4096U);
  ASSERT_LT(at, lines.size() - 4096);
  lines[at] = 'S';
  base::write_file_atomically(file, lines);
  EXPECT_CONTAINS(user_error(row), "the tokens of step 5 have changed since the run");
}

TEST(StreamPlaces, TheFurthestOfAllProcessesIsKept) {
  const std::vector<std::string> places = {"0 0 0 0 0 0 0 0", "0 1 3 0 1 2 99 4", "0 0 5 1 0 7 80 1",
                                           "0 1 0 0 0 0 0 0"};
  EXPECT_EQ(train::furthest_places(places),
            (std::vector<std::string>{"0 0 5 1 0 7 80 1", "0 1 3 0 1 2 99 4"}));
  for (const char* bad : {"", "0", "0 1", "x 0 0 0 0 0 0 0", "0 0 1 2 3"})
    EXPECT_CONTAINS(user_error([&] { train::furthest_places({bad}); }), "is not the place of a data stream");
}

// ---- one process of a host tokenises for all

TEST(HostShare, OtherProcessesMapWhatTheFirstTokenised) {
  const StreamRun run;
  const Sets sets = {"data.path=\"" + (run / "shards").string() + "\"", "eval.every=3",
                     "eval.sets=[{name=\"other\", path=\"" + (run / "data.txt").string() + "\"}]"};
  const config::Recipe recipe = run.recipe(sets);
  train::HostShare first(run / "share", train::HostShare::Role::First),
      other(run / "share", train::HostShare::Role::Other), alone(run / "none", train::HostShare::Role::Other);
  const train::RunData plain = train::load_data(recipe), a = train::load_data(recipe, &first),
                       b = train::load_data(recipe, &other), c = train::load_data(recipe, &alone);
  EXPECT_EQ(other.mapped(), 2);
  EXPECT_EQ(alone.mapped(), 0);
  first.remove();
  EXPECT_FALSE(base::directory_exists(run / "share"));
  for (const train::RunData* data : {&a, &b, &c}) {
    EXPECT_EQ(data->train.mixture().set(0).fingerprint(), plain.train.mixture().set(0).fingerprint());
    EXPECT_EQ(data->evals.size(), 2U);
    for (int64_t step = 0; step < 3; ++step)
      EXPECT_EQ(ids_by_sequence(data->train, step), ids_by_sequence(plain.train, step));
  }
}

TEST(HostShare, KeepsFlagsAndRefusesPartsOfAFile) {
  const test::TempFolder folder;
  data::CorpusBuilder builder("chat", 70000);
  builder.add_document(std::vector<int32_t>{1, 69999, 3}, std::vector<uint8_t>{0, 1, 1});
  builder.add_document(std::vector<int32_t>{5, 6}, std::vector<uint8_t>{1, 0});
  const data::Corpus corpus = builder.finish();
  train::write_shared_corpus(corpus, folder / "c");
  EXPECT_EQ(train::map_shared_corpus(folder / "c").fingerprint(), corpus.fingerprint());
  EXPECT_EQ(train::map_shared_corpus(folder / "c").name(), "chat");
  const std::string bytes = base::read_file(folder / "c");
  for (const size_t size : {size_t{0} + 1, size_t{40}, bytes.size() - 8}) {
    base::write_file_atomically(folder / "c", bytes.substr(0, size));
    EXPECT_CONTAINS(user_error([&] { train::map_shared_corpus(folder / "c"); }), "not a complete");
  }
}

}  // namespace
}  // namespace quintet
