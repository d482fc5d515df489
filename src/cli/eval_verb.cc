#include "cli/model_source.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/generate.h"

namespace quintet::cli {
namespace {

struct EvalVerbOptions {
  ModelSourceOptions model;
  std::string file;
  generate::EvaluateOptions evaluate;
  int64_t prefix = -1;
  bool json = false;
};

int eval_action(const EvalVerbOptions& o) {
  generate::EvaluateOptions options = o.evaluate;
  if (o.prefix >= 0) options.prefix = static_cast<int32_t>(o.prefix);
  const generate::Evaluation result =
      tools::evaluate_file(o.model.folder, o.file, options, o.model.options());
  o.json ? print(tools::to_json(result)) : print_report(tools::to_text(result));
  return kExitGood;
}

}  // namespace

Verb add_eval(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "perplexity and multiple-choice accuracy of a model on a file");
  auto o = std::make_shared<EvalVerbOptions>();
  o->model.add_to(*command);
  command
      ->add_option("FILE", o->file,
                   R"(lines of {"text": ...} or {"context": ..., "choices": [...], "answer": index from 0})")
      ->required();
  command
      ->add_option("--max-length", o->evaluate.max_length,
                   "tokens that a prediction sees, at most (default: data.seq_len of the run, or 2048)")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--delimiter", o->evaluate.delimiter, "text between a context and a choice")
      ->type_name("TEXT")
      ->capture_default_str();
  command
      ->add_option("--prefix-token", o->prefix,
                   "id of the token before a text (default: the tokenizer's beginning or end of text)")
      ->type_name("ID")
      ->check(integer_in(0, int64_t{1} << 30));
  command->add_flag("--json", o->json, "print JSON");
  command->footer("The numbers are those of lm-evaluation-harness: docs/generate.md.");
  return {command, [o] { return eval_action(*o); }};
}

}  // namespace quintet::cli
