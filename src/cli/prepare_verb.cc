#include <fmt/format.h>

#include "base/text.h"
#include "cli/verbs.h"
#include "observe/console.h"
#include "tools/prepare.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

int prepare_action(tools::PrepareOptions options) {
  options.threads = train::kernel_threads({}, 1);
  observe::Console& console = observe::Console::standard_error();
  options.progress = [&](int64_t done, int64_t total) {
    console.set_live(fmt::format("{} of {} bytes read", base::thousands(done), base::thousands(total)));
  };
  const auto prepared = tools::prepare(options);
  console.clear_live();
  for (const std::string& line : prepared.first_damage) console.print_line("damaged: " + line);
  const auto at = [&](double share) {
    return prepared.lengths[static_cast<size_t>(share * static_cast<double>(prepared.lengths.size() - 1))];
  };
  print(fmt::format("read     {} files, {} bytes; {} empty documents, {} damaged lines\n", prepared.files,
                    base::thousands(prepared.bytes), prepared.empty, prepared.damaged));
  print(fmt::format("wrote    {}.bin, .idx, .json: {} tokens in {} documents, {:.2f} bytes per token\n",
                    options.out, base::thousands(prepared.tokens), base::thousands(prepared.documents),
                    static_cast<double>(prepared.bytes) / static_cast<double>(prepared.tokens)));
  print(fmt::format("lengths  median {}, 90 % up to {}, 99 % up to {}, longest {} tokens\n",
                    base::thousands(at(0.5)), base::thousands(at(0.9)), base::thousands(at(0.99)),
                    base::thousands(at(1))));
  return kExitGood;
}

}  // namespace

Verb add_prepare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("prepare", "tokenise text once, into a file that runs map into memory");
  auto o = std::make_shared<tools::PrepareOptions>();
  command->add_option("INPUT", o->inputs, "text files, .jsonl files, folders of them")->required();
  command
      ->add_option("--tokenizer", o->tokenizer,
                   "tokenizer.json, SentencePiece model, tiktoken file, a folder with one, or \"bytes\"")
      ->type_name("T")
      ->required();
  command->add_option("--out", o->out, "prefix of the files to write: PREFIX.bin, PREFIX.idx, PREFIX.json")
      ->type_name("PREFIX")
      ->required();
  command->add_option("--field", o->field, "field of JSON lines that holds the text")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--end", o->end, "token after each document, such as \"<|endoftext|>\"")
      ->type_name("TOKEN");
  command->add_flag("--overwrite", o->overwrite, "replace files that exist");
  auto damaged = std::make_shared<std::string>("fail");
  command->add_option("--damaged", *damaged, "what a line that is no JSON, or has no such field, does")
      ->capture_default_str()
      ->check(CLI::IsMember({"fail", "skip"}));
  return {command, [o, damaged] {
            o->skip_damaged = *damaged == "skip";
            return prepare_action(*o);
          }};
}

}  // namespace quintet::cli
