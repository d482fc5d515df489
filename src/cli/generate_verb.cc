#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/model_source.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "cli/without_effect.h"
#include "observe/console.h"
#include "tools/generate.h"

namespace quintet::cli {
namespace {

struct GenerateVerbOptions {
  ModelSourceOptions model;
  tools::GenerateOptions generate;
  std::string prompt_file, score;
  bool json = false;
};

std::vector<std::string> lines_of(const std::string& file) {
  std::vector<std::string> lines;
  const std::string text = base::read_file(file);
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    const size_t next = end + 1;
    if (end > begin && text[end - 1] == '\r') --end;
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = next;
  }
  if (lines.empty()) base::fail_user("{} has no lines", file);
  return lines;
}

int generate_action(const GenerateVerbOptions& o) {
  if (!o.score.empty()) {
    for (const std::string& line : tools::score_file(o.model.folder, o.score, o.model.options()))
      print(line + "\n");
    return kExitGood;
  }
  tools::GenerateOptions options = o.generate;
  options.source = o.model.options();
  if (!o.prompt_file.empty()) {
    const std::vector<std::string> more = lines_of(o.prompt_file);
    options.prompts.insert(options.prompts.end(), more.begin(), more.end());
  }
  if (options.prompts.empty()) options.prompts.push_back("The ");
  const bool one = options.prompts.size() == 1;
  bool begun = false;
  // A file or pipe gets the bytes as they are. On a terminal, print would escape pieces of characters.
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  base::PrintableStream safe;
  const auto shown = [&](std::string_view text) { print(terminal ? safe.add(text) : std::string(text)); };
  if (!o.json && one)
    options.on_text = [&](size_t, std::string_view piece) {
      if (!begun) shown(options.prompts[0]);
      begun = true;
      shown(piece);
    };
  const std::vector<tools::Generated> texts = tools::generate_texts(o.model.folder, options);
  if (!o.json && one) {
    if (!begun) shown(options.prompts[0]);
    print(safe.finish() + "\n");
    return kExitGood;
  }
  for (const tools::Generated& g : texts) {
    if (o.json)
      print(tools::to_json(g) + "\n");
    else
      print(g.prompt + g.text + "\n\n");
  }
  return kExitGood;
}

}  // namespace

Verb add_generate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "generate text from a run, a checkpoint or a Hugging Face folder");
  auto o = std::make_shared<GenerateVerbOptions>();
  o->model.add_to(*command);
  command
      ->add_option("--prompt", o->generate.prompts, "text to continue; may be repeated (default: \"The \")")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command->add_option("--prompts", o->prompt_file, "file with a prompt per line")->type_name("FILE");
  command->add_option("--tokens", o->generate.tokens, "most tokens to generate")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(1, 1'000'000));
  graph::Sampling& s = o->generate.sampling;
  command->add_option("--temperature", s.temperature, "sampling temperature; 0 selects the most likely token")
      ->type_name("T")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
  command->add_option("--top-k", s.top_k, "only the K most likely tokens; 0: all")
      ->type_name("K")
      ->capture_default_str()
      ->check(integer_in(0, int64_t{1} << 31));
  command->add_option("--top-p", s.top_p, "only the most likely tokens that together have probability P")
      ->type_name("P")
      ->capture_default_str()
      ->check(number_in(0, 1));
  command->add_option("--min-p", s.min_p, "only tokens at least P times as likely as the most likely one")
      ->type_name("P")
      ->capture_default_str()
      ->check(number_in(0, 1));
  command
      ->add_option("--repetition-penalty", s.repetition_penalty,
                   "divides the logits of tokens that have occurred (multiplies negative ones)")
      ->type_name("X")
      ->capture_default_str()
      ->check(number_in(1e-6, 1e6));
  command->add_option("--stop", o->generate.stops, "end a text before this string; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command->add_flag("--ignore-eos", o->generate.ignore_ends, "go on after a token that ends texts");
  command->add_option("--batch", o->generate.batch, "prompts generated at once, at most")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(1, 4096));
  command
      ->add_option("--seed", o->generate.seed,
                   "seed; the same seed gives the same text for a prompt, whatever the other prompts")
      ->type_name("S")
      ->capture_default_str()
      ->check(integer_in(0, int64_t{1} << 53));
  command
      ->add_option("--score", o->score,
                   "print log-probabilities of the texts in this file, lines of {\"text\": ...}, instead")
      ->type_name("FILE.jsonl");
  command->add_flag("--json", o->json, "print a line of JSON per prompt");
  return {command, [o, command] {
            if (!o->score.empty())
              refuse_without_effect(
                  *command,
                  {"--prompt", "--prompts", "--tokens", "--temperature", "--top-k", "--top-p", "--min-p",
                   "--repetition-penalty", "--stop", "--ignore-eos", "--batch", "--seed"},
                  "--score generates nothing, it reads the texts of its file");
            if (o->generate.sampling.temperature == 0)
              note_without_effect(*command, {"--top-k", "--top-p", "--min-p", "--seed"},
                                  "--temperature 0 always takes the most likely token");
            return generate_action(*o);
          }};
}

}  // namespace quintet::cli
