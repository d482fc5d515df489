#include <fmt/format.h>

#include "base/output_path.h"
#include "cli/verbs.h"
#include "report/run_page.h"
#include "train/run_folder.h"

namespace quintet::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
};

int report_action(const ReportOptions& o) {
  const train::RunFolder first(o.runs[0]);
  const base::Path file = !o.out.empty()       ? base::Path(o.out)
                          : o.runs.size() == 1 ? first.report()
                                               : first.path() / "comparison.html";
  if (!o.out.empty() || base::file_exists(file))
    base::require_page_file(o.out.empty() ? "the page" : "--out", file);
  report::write_run_page({o.runs.begin(), o.runs.end()}, file);
  print(fmt::format("report: {}\n", file.string()));
  return kExitGood;
}

}  // namespace

Verb add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "draw a run, or two runs side by side, as an HTML page");
  auto o = std::make_shared<ReportOptions>();
  command->add_option("RUN", o->runs, "a run folder, or two to compare")
      ->required()
      ->expected(1, 2)
      ->type_name("FOLDER");
  command->add_option("--out", o->out, "the page; default: report.html in RUN, comparison.html for two runs")
      ->type_name("FILE");
  command->footer(
      "The page is one file that needs no network. It works on a run that is still going or was killed: it "
      "shows the steps so far. `quintet train` writes it at the end of every run.");
  return {command, [o] { return report_action(*o); }};
}

}  // namespace quintet::cli
