// The band around a plan's speed: its errors are those of the page about published runs, and it covers them.
#include "plan/confidence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "hardware/catalogue.h"
#include "plan/text.h"
#include "support/folders.h"

namespace quintet::plan {
namespace {

// A row of the table of errors: name, rows, then median and nine in ten of each column.
std::vector<std::string> cells_of(const std::string& page, const std::string& name) {
  const size_t at = page.find("\n| " + name + " | ");
  if (at == std::string::npos) return {};
  std::vector<std::string> cells;
  std::string line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
  while (!line.empty()) {
    const size_t end = std::min(line.find('|'), line.size());
    cells.push_back(line.substr(0, end));
    line.erase(0, std::min(line.size(), end + 1));
  }
  return cells;
}

TEST(Confidence, IsThatOfThePageAboutPublishedRuns) {
  const std::string page = base::read_file(test::source_dir() + "/docs/benchmarks/reference-runs.md");
  const auto expect = [&](const Confidence& c, const std::string& name, size_t column) {
    const std::vector<std::string> cells = cells_of(page, name);
    ASSERT_GT(cells.size(), column) << name;
    EXPECT_EQ(cells[2], fmt::format(" {} ", c.rows)) << c.basis;
    EXPECT_EQ(cells[column], fmt::format(" {:.1f} / {:.1f} % ", 100 * c.median, 100 * c.nine_in_ten))
        << c.basis;
  };
  const std::span<const Confidence> all = confidences();
  ASSERT_EQ(all.size(), 4u);
  constexpr size_t kConfigurations = 4, kSoftware = 6;
  expect(all[0], "dense", kConfigurations);
  expect(all[1], "with experts", kConfigurations);
  expect(all[2], "dense", kSoftware);
  expect(all[3], "with experts", kSoftware);
}

TEST(Confidence, SoftwareWithoutFittedTermsIsLessCertain) {
  config::Recipe dense, experts;
  experts.model.moe.experts = 8;
  hardware::Stack known, engine;
  known.name = "megatron-core";
  const auto& fitted = hardware::catalogue().fitted_stacks;
  EXPECT_NE(std::find(fitted.begin(), fitted.end(), known.name), fitted.end());
  EXPECT_EQ(std::find(fitted.begin(), fitted.end(), engine.name), fitted.end());
  EXPECT_LT(confidence(dense, known).nine_in_ten, confidence(dense, engine).nine_in_ten);
  EXPECT_LT(confidence(dense, known).nine_in_ten, confidence(experts, known).nine_in_ten);
}

TEST(Confidence, ABandEndsAtThePeak) {
  Report r;
  r.recipe.model.moe.experts = 8;
  r.time.hfu = 0.2;
  const double error = confidence(r.recipe, r.assumptions.stack).nine_in_ten;
  EXPECT_DOUBLE_EQ(band_of(r).least, 1 / (1 + error));
  EXPECT_DOUBLE_EQ(band_of(r).most, 1 / (1 - error));
  r.time.hfu = 0.8;
  EXPECT_DOUBLE_EQ(band_of(r).most, 1.25);
}

}  // namespace
}  // namespace quintet::plan
