#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/bench_step_verb.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "exec/executor.h"
#include "published/compare_terms.h"

namespace quintet::cli {
namespace {

struct ReferenceVerbOptions {
  std::string path, source, row, terms;
  bool json = false;
  int threads = 2;
};

int reference(const ReferenceVerbOptions& o) {
  const auto runs = published::read_published_runs(base::read_file(o.path), o.path);
  published::CompareOptions options{.threads = o.threads,
                                    .collection = o.source,
                                    .id = o.row,
                                    .workspace_bytes = exec::workspace_of(exec::Device::Cuda, 1)};
  if (!o.terms.empty()) {
    options.max_instructions = 3e5;  // many term sets: sample long steps
    const auto sets = hardware::read_terms(base::read_file(o.terms), o.terms);
    const auto compared = published::compare_terms(runs, sets, options);
    print(published::to_json(compared));
    return compared.rows.empty() ? kExitFailure : kExitGood;
  }
  const published::Comparison report = published::compare(runs, options);
  if (report.rows.empty())
    base::fail_user("{} has no row{}{}; ids have the form {}", o.path,
                    o.source.empty() ? "" : fmt::format(" from source '{}'", o.source),
                    o.row.empty() ? "" : fmt::format(" with id '{}'", o.row),
                    runs.empty() ? "'TT-001'" : fmt::format("'{}'", runs.front().id));
  o.json ? print(published::to_json(report)) : print_report(published::to_text(report));
  return report.all.rows + report.memory.rows > 0 ? kExitGood : kExitFailure;
}

Verb add_bench_reference(CLI::App& bench) {
  auto options = std::make_shared<ReferenceVerbOptions>();
  CLI::App* command =
      bench.add_subcommand("reference", "plan published runs and compare with the published measurements");
  command->add_option("FILE", options->path, "table in the format of docs/reference/published_runs.csv")
      ->required();
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--source", options->source, "only rows whose id starts with this prefix, such as TT");
  command->add_option("--row", options->row, "only the row with this id");
  command->add_option("--terms", options->terms,
                      "plan with these sets of terms instead of the catalogue's and print JSON (for "
                      "tools/fit_stacks.py)");
  command->add_option("--threads", options->threads, "number of rows planned concurrently")
      ->check(integer_in(1, 256));
  return {command, [options] { return reference(*options); }};
}

}  // namespace

Verb add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand(
      "bench",
      "measure a recipe's step or its checkpoints, or collectives, or compare plans with published runs");
  bench->require_subcommand(1);
  const std::vector<Verb> benches = {add_bench_reference(*bench), add_bench_step(*bench),
                                     add_bench_checkpoint(*bench), add_bench_comm(*bench),
                                     add_bench_generate(*bench)};
  return {bench, [benches] {
            for (const Verb& verb : benches)
              if (verb.command->parsed()) return verb.action();
            return kExitUser;
          }};
}

}  // namespace quintet::cli
