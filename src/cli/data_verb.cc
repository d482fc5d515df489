// `quintet data`: questions about data. Each subcommand adds itself to the group and gives its action.
#include "base/error.h"
#include "cli/data_check_verb.h"
#include "cli/data_show_verb.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/ledger.h"

namespace quintet::cli {
namespace {

struct LedgerVerbOptions {
  std::string run, sample, document;
  int64_t step = 0;
  bool json = false;
};

int ledger_action(const LedgerVerbOptions& o) {
  if (o.step == 0 && o.sample.empty() && o.document.empty())
    base::fail_user("give --step N, --find [SET:]SAMPLE, or --document [SET:]N (of a stream, FILE:LINE)");
  const tools::DataLedger ledger(o.run);
  if (o.step > 0) {
    const tools::StepLedger step = ledger.step(o.step);
    o.json ? print(to_json(ledger, step)) : print_report(to_text(ledger, step));
    return kExitGood;
  }
  const std::vector<tools::LedgerRow> rows =
      o.document.empty() ? ledger.find_sample(o.sample) : ledger.find_document(o.document);
  o.json ? print(to_json(ledger, rows)) : print_report(to_text(ledger, rows));
  return kExitGood;
}

Verb add_ledger(CLI::App& data) {
  CLI::App* command =
      data.add_subcommand("ledger", "list the samples that shaped a step of a run, or find one");
  auto o = std::make_shared<LedgerVerbOptions>();
  command->add_option("RUN", o->run, "run folder")->required();
  CLI::Option* step = command->add_option("--step", o->step, "list the samples of this step, 1-based")
                          ->type_name("N")
                          ->check(integer_in(1));
  CLI::Option* sample =
      command->add_option("--find", o->sample, "list the steps that have this sample of a set")
          ->type_name("[SET:]SAMPLE")
          ->excludes(step);
  command
      ->add_option("--document", o->document,
                   "list the steps that have a part of this document; of a stream, of this record")
      ->type_name("[SET:]N|FILE:LINE")
      ->excludes(step)
      ->excludes(sample);
  command->add_flag("--json", o->json, "print JSON");
  return {command, [o] { return ledger_action(*o); }};
}

}  // namespace

Verb add_data(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("data", "look at training data, and at which data shaped which step");
  command->require_subcommand(1);
  auto verbs = std::make_shared<std::vector<Verb>>(
      std::vector<Verb>{add_data_show(*command), add_data_check(*command), add_ledger(*command)});
  return {command, [verbs] {
            for (const Verb& verb : *verbs)
              if (verb.command->parsed()) return verb.action();
            return kExitUser;
          }};
}

}  // namespace quintet::cli
