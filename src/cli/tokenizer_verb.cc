#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/plural.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/tokenize.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

struct TokenizerVerbOptions {
  std::string tokenizer = "bytes", file;
  std::vector<std::string> paths;
  tools::TrainTokenizerOptions train;
  std::string out;
  bool lines = false, no_special = false, skip_special = false, json = false;
};

using Action = std::function<int(const TokenizerVerbOptions&)>;

int train_action(const TokenizerVerbOptions& o) {
  tools::TrainTokenizerOptions options = o.train;
  options.paths = o.paths;
  options.out = o.out;
  options.threads = train::kernel_threads({}, 1);
  const auto trained = tools::train_tokenizer(options);
  print(fmt::format("read     {}, {}, {}\nwrote    {}: {}\n", base::counted(trained.files, "file"),
                    base::counted(trained.bytes, "byte"), base::counted(trained.words, "different word"),
                    o.out, base::counted(trained.vocab, "token")));
  if (trained.vocab < options.vocab)
    print(fmt::format("         fewer than the {} asked for: no pair is left to join\n", options.vocab));
  return kExitGood;
}

int encode_action(const TokenizerVerbOptions& o) {
  const auto tokenizer = tokenizer::load_tokenizer(o.tokenizer);
  print(tools::encode_text(*tokenizer, base::read_file(o.file), o.lines, !o.no_special));
  return kExitGood;
}

int decode_action(const TokenizerVerbOptions& o) {
  const auto tokenizer = tokenizer::load_tokenizer(o.tokenizer);
  print(tokenizer->decode(tools::parse_ids(base::read_file(o.file)), o.skip_special));
  return kExitGood;
}

int count_action(const TokenizerVerbOptions& o) {
  const auto tokenizer = tokenizer::load_tokenizer(o.tokenizer);
  const auto count = tools::count_tokens(*tokenizer, o.paths, train::kernel_threads({}, 1));
  const double ratio =
      count.tokens > 0 ? static_cast<double>(count.bytes) / static_cast<double>(count.tokens) : 0;
  if (o.json) {
    print(base::json_text(nlohmann::ordered_json{{"files", count.files},
                                                 {"documents", count.documents},
                                                 {"bytes", count.bytes},
                                                 {"tokens", count.tokens},
                                                 {"bytes_per_token", ratio}}) +
          "\n");
  } else {
    print(fmt::format("{} in {} ({}, {}): {:.2f} bytes per token\n", base::counted(count.tokens, "token"),
                      base::counted(count.documents, "document"), base::counted(count.files, "file"),
                      base::counted(count.bytes, "byte"), ratio));
  }
  return kExitGood;
}

int show_action(const TokenizerVerbOptions& o) {
  const auto description = tools::describe_tokenizer(*tokenizer::load_tokenizer(o.tokenizer));
  if (o.json) {
    print(base::json_text(description, 2) + "\n");
    return kExitGood;
  }
  print(fmt::format("type     {}\nvocab    {}\nspecial  {}\n", description["type"].get<std::string>(),
                    description["vocab"].get<int64_t>(), description["special"].size()));
  for (const auto& token : description["special"])
    print(fmt::format("  {:>7}  {}\n", token["id"].get<int64_t>(),
                      base::printable(token["token"].get<std::string>())));
  return kExitGood;
}

void add_tokenizer_option(CLI::App& command, TokenizerVerbOptions& o) {
  command
      .add_option("--tokenizer", o.tokenizer,
                  "tokenizer.json, SentencePiece model, tiktoken file, a folder with one, or \"bytes\"")
      ->type_name("T")
      ->required();
}

}  // namespace

Verb add_tokenizer(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tokenizer", "train a tokenizer, or apply one: text to token ids and back");
  command->require_subcommand(1);
  auto o = std::make_shared<TokenizerVerbOptions>();
  auto actions = std::make_shared<std::vector<std::pair<CLI::App*, Action>>>();

  CLI::App* train =
      command->add_subcommand("train", "train a byte-level BPE tokenizer and write a tokenizer.json");
  train->add_option("PATH", o->paths, "text files, .jsonl files, folders of them")->required();
  train->add_option("--vocab", o->train.vocab, "number of tokens, 256 bytes and special tokens included")
      ->type_name("N")
      ->required()
      ->check(integer_in(256, 1 << 24));
  train->add_option("--out", o->out, "file to write")->type_name("FILE")->required();
  train->add_flag("--overwrite", o->train.overwrite, "replace an existing file");
  o->train.pattern = "llama3";
  train
      ->add_option("--pattern", o->train.pattern,
                   "how text is split into words, named after the model that does so")
      ->capture_default_str()
      ->check(CLI::IsMember(tools::tokenizer_patterns()));
  o->train.special = {"<|endoftext|>"};
  train->add_option("--special", o->train.special, "special tokens; they get the first ids")
      ->type_name("TOKEN")
      ->capture_default_str();
  actions->emplace_back(train, train_action);

  CLI::App* encode = command->add_subcommand("encode", "print the token ids of a file");
  add_tokenizer_option(*encode, *o);
  encode->add_option("FILE", o->file, "text file; all of it is one text")->required();
  encode->add_flag("--lines", o->lines, "each line is a text of its own");
  encode->add_flag("--no-special", o->no_special,
                   "without the special tokens that the tokenizer puts around a text");
  actions->emplace_back(encode, encode_action);

  CLI::App* decode = command->add_subcommand("decode", "print the text of token ids");
  add_tokenizer_option(*decode, *o);
  decode->add_option("FILE", o->file, "ids separated by white space")->required();
  decode->add_flag("--skip-special", o->skip_special, "leave out special tokens");
  actions->emplace_back(decode, decode_action);

  CLI::App* count = command->add_subcommand("count", "count the tokens of files and folders");
  add_tokenizer_option(*count, *o);
  count->add_option("PATH", o->paths, "text files, .jsonl files, folders of them")->required();
  count->add_flag("--json", o->json, "print JSON");
  actions->emplace_back(count, count_action);

  CLI::App* show = command->add_subcommand("show", "describe a tokenizer");
  show->add_option("TOKENIZER", o->tokenizer, "as --tokenizer of the others")->required();
  show->add_flag("--json", o->json, "print JSON");
  actions->emplace_back(show, show_action);

  return {command, [o, actions] {
            for (const auto& [sub, action] : *actions)
              if (sub->parsed()) return action(*o);
            return kExitUser;
          }};
}

}  // namespace quintet::cli
