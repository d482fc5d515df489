#include "report/run_page.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temp_folder.h"
#include "report/html_checks.h"

namespace quintet::report {
namespace {

const std::string kNasty = "<script>alert(1)</script> & \"q\" \x01 \xff";

// A run folder of 60 steps on 2 x 2 ranks; `odd` goes wherever a user's text goes.
class FakeRun {
 public:
  explicit FakeRun(const std::string& name, double from = 5, const std::string& odd = "plain") {
    const std::string text =
        nlohmann::json(odd).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
    write("recipe.toml",
          "name = \"" + name + "\"\n# " + odd + "\n[optimizer]\nlr = " + std::to_string(from) + "\n");
    std::string lines;
    for (int step = 1; step <= 60; ++step) {
      lines +=
          fmt::format(R"({{"step":{},"loss":{},"grad_norm":1.5,"lr":0.001,"tokens":64,"tokens_per_s":900)",
                      step, from - 0.01 * step);
      if (step % 20 == 0) lines += fmt::format(R"(,"eval_loss":{})", from + 0.1 - 0.01 * step);
      if (step == 7) lines += R"(,"skipped":true)";
      lines += "}\n";
    }
    write("metrics.jsonl", lines);
    write("run.json",
          fmt::format(R"({{"name":{0},"version":"9.9.9","command":{1},"machine":{1},"device":"CPU",
      "backend":"threads","threads":1,"started":"2026-01-02 03:04:05","model":"m","parameters":803968,"steps":60,"ranks":4,
      "data":{{"paths":[{1}],"reading":"3 files","tokens":9,"documents":1,"seq_len":8,"train_sequences":1,"validation_sequences":0}},
      "mesh":[{{"axis":"dp_shard","size":2}},{{"axis":"tp","size":2}}]}})",
                      nlohmann::json(name).dump(), text));
    write("summary.json",
          R"({"ended":"finished","seconds":9,"tokens":3840,"tokens_per_s":900,"planned_peak":"exact","ranks":[
      {"rank":0,"planned_peak_bytes":3072,"measured_peak_bytes":3072,"planned":{"parameters":1024,"activations":2048,"gaps":0}},
      {"rank":1,"planned_peak_bytes":3072,"measured_peak_bytes":3072,"planned":{"parameters":1024,"activations":2048,"gaps":0}}]})");
    write("timeline.json", fmt::format(R"({{"step":5,"ranks":[{{"rank":0,"begin_ns":0,"streams":[
      {{"name":"compute","spans":[[0,500,"forward",0],[600,700,"backward",0]]}},
      {{"name":"tp","spans":[[500,100,{},0]]}}]}}]}})",
                                       text));
  }
  void write(const std::string& file, const std::string& text) const {
    base::write_file_atomically(folder_ / file, text);
  }
  void remove(const std::string& file) const { base::remove_file(folder_ / file); }
  base::Path path() const { return folder_.path(); }
  RunFiles read() const { return read_run(path()); }

 private:
  test::TempFolder folder_;
};

TEST(RunPage, HasEveryFigureAndLoadsNothing) {
  const std::string html = run_page({FakeRun("alpha").read()});
  test::expect_balanced(html);
  test::expect_self_contained(html);
  for (const char* part :
       {"<h2>Loss</h2>", "<h2>Throughput</h2>", "<h2>Gradient norm</h2>", "<h2>Learning rate</h2>",
        "<h2>Memory</h2>", "Measured equals planned to the byte",
        "ranks 0\xE2\x80\x93"
        "1, planned",
        "<h2>One step</h2>", "<h2>Mesh</h2>", "data-rank=\"3\"", "<h2>Recipe</h2>", "<h2>Provenance</h2>",
        "quintet 9.9.9", "2026-01-02 03:04:05 UTC", "skipped step", "validation", "3.0 KiB"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(RunPage, NamesLanesOfAPipelineByDirectionAndStage) {
  const FakeRun run("alpha");
  run.write("timeline.json", R"({"step":5,"ranks":[{"rank":0,"begin_ns":0,"streams":[
      {"name":"compute","spans":[[0,500,"forward",0]]}, {"name":"dp","spans":[]},
      {"name":"pp.up.send1","spans":[[500,100,"send",0]]}, {"name":"pp.down.recv1","spans":[[600,100,"recv",0]]}]}]})");
  const std::string html = run_page({run.read()});
  for (const char* part : {">dp</span>", ">forward to 1</span>", ">backward from 1</span>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(RunPage, BreaksCommandsAndCellsOnlyBetweenWords) {
  const std::string one = run_page({FakeRun("alpha", 5, "quintet train --set a=b").read()});
  EXPECT_NE(one.find("<dd>quintet train <span class=\"word\">--set</span> a=b</dd>"), std::string::npos);
  const std::string two = run_page({FakeRun("alpha").read(), FakeRun("gamma").read()});
  EXPECT_NE(two.find("4.4000 (from\xC2\xA0"
                     "4.9900)"),
            std::string::npos);
}

TEST(RunPage, EscapesWhatComesFromRecipesAndFiles) {
  const std::string html = run_page({FakeRun("beta", 5, kNasty).read()});
  test::expect_balanced(html);
  test::expect_self_contained(html);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find('\x01'), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;q&quot;"), std::string::npos);
}

TEST(RunPage, TwoRunsShareChartsAndListWhatDiffers) {
  const std::string html = run_page({FakeRun("alpha", 5).read(), FakeRun("gamma", 4).read()});
  test::expect_balanced(html);
  for (const char* part : {"alpha, training", "gamma, training", "alpha, validation", "gamma, validation",
                           "Keys of the recipe that differ", "optimizer.lr", "4.000000", "5.000000"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  // Runs with the same name are labelled by what differs in the names of their folders.
  const FakeRun one("same"), two("same");
  const std::string same = run_page({one.read(), two.read()});
  EXPECT_NE(same.find(">" + one.path().filename().string() + ", training"), std::string::npos);
  EXPECT_NE(same.find(">" + two.path().filename().string() + ", training"), std::string::npos);
}

TEST(RunPage, ShowsARunThatWasKilled) {
  const FakeRun run("delta");
  for (const char* file : {"summary.json", "timeline.json", "run.json"}) run.remove(file);
  run.write("metrics.jsonl", "{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"lo");
  const std::string html = run_page({run.read()});
  test::expect_balanced(html);
  EXPECT_NE(html.find("not finished"), std::string::npos);
  EXPECT_NE(html.find("3.5000"), std::string::npos);
  EXPECT_EQ(html.find("<h2>Memory</h2>"), std::string::npos);
}

TEST(RunPage, RefusesOtherFoldersAndDamagedFiles) {
  const auto message = [](const base::Path& path) {
    try {
      read_run(path);
    } catch (const base::UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const test::TempFolder empty;
  EXPECT_NE(message(empty.path()).find("is not a run folder: it lacks recipe.toml"), std::string::npos);
  EXPECT_NE(message(empty / "none").find("there is no run folder"), std::string::npos);
  const FakeRun run("x");
  run.write("metrics.jsonl", "{\"step\":1}\nnonsense\n");
  EXPECT_NE(message(run.path()).find("line 2: expected an object with \"step\""), std::string::npos);
  const FakeRun other("y");
  other.write("summary.json", "[1,");
  EXPECT_NE(message(other.path()).find("summary.json' is not a JSON object"), std::string::npos);
}

TEST(Figures, TicksAreRoundAndInside) {
  EXPECT_EQ(round_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(log_ticks(0.5, 2000), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_TRUE(round_ticks(3, 3, 5).empty());
  EXPECT_EQ(short_number(0.00003), "3e-5");
  EXPECT_EQ(short_number(2500), "2.5k");
  EXPECT_EQ(short_number(5000), "5k");
  EXPECT_EQ(short_number(2e6), "2M");
}

TEST(Figures, ThinOutLongCurvesButKeepPeaks) {
  Chart c;
  c.curves.push_back({"loss", 0, {}, {}, Curve::Kind::Steady});
  for (int i = 0; i < 100'000; ++i) {
    c.curves[0].x.push_back(i);
    c.curves[0].y.push_back(i == 54'321 ? 777 : 1 + 1e-6 * i);
  }
  const std::string html = chart(c);
  EXPECT_LT(html.size(), 60'000u);
  EXPECT_NE(html.find(",777,"), std::string::npos) << "the peak is gone";
}

TEST(Figures, LeaveOutWhatIsNotFinite) {
  Chart c;
  c.curves.push_back({"loss", 0, {1, 2, 3}, {NAN, INFINITY, -INFINITY}, Curve::Kind::Steady});
  EXPECT_EQ(chart(c), "");
  c.curves[0].y[1] = 4;
  const std::string html = chart(c);
  EXPECT_EQ(html.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("inf"), std::string::npos);
}

TEST(Figures, MeshNumbersRanksWithTheLastAxisFastest) {
  const std::string html = mesh({{"pp", 2}, {"dp_shard", 2}, {"tp", 4}});
  EXPECT_NE(html.find("pp 1 \xC2\xB7 dp_shard 0</th><td data-rank=\"8\""), std::string::npos);
  EXPECT_NE(mesh({{"dp_shard", 4096}}).find("The first 256 of 4,096 ranks are drawn."), std::string::npos);
}

}  // namespace
}  // namespace quintet::report
