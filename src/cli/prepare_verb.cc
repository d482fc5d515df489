#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "cli/chat_options.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "cli/without_effect.h"
#include "observe/console.h"
#include "prepare/length_counts.h"
#include "prepare/prepare.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

// "reading [########------------] 40 %, 1.2 GiB of 3.0 GiB, 45 MB/s, 41 s left"
std::string bar_of(prepare::Stage stage, int64_t done, int64_t total, int64_t first, double seconds) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  const auto full = static_cast<size_t>(share * 20);
  const bool reading = stage == prepare::Stage::Reading;
  std::string line =
      fmt::format("{} [{}{}] {:.0f} %", reading ? "reading" : "joining", std::string(full, '#'),
                  std::string(20 - std::min<size_t>(20, full), '-'), 100 * share);
  const double rate = static_cast<double>(done - first) / std::max(seconds, 1e-3);
  if (reading && rate > 0)
    line += fmt::format(", {} of {}, {:.0f} MB/s, {:.0f} s left", base::human_bytes(done),
                        base::human_bytes(total), rate / 1e6, static_cast<double>(total - done) / rate);
  return line;
}

// "; dropped 1 empty, 12 too long"
std::string dropped_text(const nlohmann::ordered_json& dropped) {
  std::string text;
  for (const auto& [key, count] : dropped.items())
    if (count.get<int64_t>() > 0) {
      std::string name = key;
      std::replace(name.begin(), name.end(), '_', ' ');
      text += fmt::format("{}{} {}", text.empty() ? "; dropped " : ", ",
                          base::thousands(count.get<int64_t>()), name);
    }
  return text;
}

// "3 examples, 1,204 tokens, 700 of them trained (58.1 %)"
std::string chat_text(const nlohmann::ordered_json& m) {
  const auto number = [&m](const char* key) { return m.at(key).get<int64_t>(); };
  const std::string kind = m.at("kind");
  std::string text = fmt::format(
      "{}, {}",
      base::counted(number("documents") / (kind == "pairs" ? 2 : 1), kind.substr(0, kind.size() - 1)),
      base::counted(number("tokens"), "token"));
  if (kind != "prompts")
    text += fmt::format(
        ", {} of them trained ({:.1f} %)", base::thousands(number("trained_tokens")),
        100 * static_cast<double>(number("trained_tokens")) / static_cast<double>(number("tokens")));
  return text;
}

int prepare_action(prepare::Options options) {
  if (options.threads == 0) options.threads = train::kernel_threads({}, 1);
  observe::Console& console = observe::Console::standard_error();
  const int64_t begin = base::now_ns();
  std::optional<int64_t> first;  // bytes that an earlier run had read
  options.progress = [&](prepare::Stage stage, int64_t done, int64_t total) {
    if (!first) first = done;
    console.set_live(bar_of(stage, done, total, *first, base::seconds_since(begin)));
  };
  const prepare::Prepared prepared = prepare::prepare(options);
  console.clear_live();
  const nlohmann::ordered_json& m = prepared.manifest;
  const auto number = [&m](const char* key, std::string_view one) {
    return base::counted(m.at(key).get<int64_t>(), one);
  };
  const auto note = [&](const std::string& text) {
    console.print_line("note: " + text, {.style = observe::Style::Dim});
  };
  if (prepared.files_kept_whole > 0)
    note(fmt::format("{} does not apply to plain text, which has no fields: {} kept whole",
                     prepared.kept_whole_option, base::counted(prepared.files_kept_whole, "file")));
  if (!prepared.skipped.empty()) note("skipped " + prepared.skipped);
  if (prepared.plain_arrays > 0)
    note(fmt::format("{} of JSON without the field read as text",
                     base::counted(prepared.plain_arrays, "array")));
  for (const auto& line : m.at("damage")) console.print_line("damaged: " + line.get<std::string>());
  if (prepared.was_complete)
    print_report(fmt::format("{} is complete already: the same inputs and options\n", options.out.string()));
  if (prepared.shards_reused > 0)
    print(fmt::format("continued: {} of {} finished already\n", prepared.shards_reused,
                      base::counted(prepared.shards, "shard was", "shards were")));
  print_report(fmt::format("read     {}, {}{}\n", base::counted(m.at("sources").size(), "file"),
                           number("records", "record"), dropped_text(m.at("dropped"))));
  print_report(fmt::format(
      "wrote    {}: {}\n", options.out.string(),
      options.chat ? chat_text(m)
                   : fmt::format("{} in {}, {:.2f} bytes per token", number("tokens", "token"),
                                 number("documents", "document"), m.at("bytes_per_token").get<double>())));
  print_report(prepare::lengths_text(m.at("lengths")));
  if (const auto cuts = m.value("tokens_across_a_cut", int64_t{0}); cuts > 0)
    note(fmt::format("{} a token spans the edge of a trained part; it is trained",
                     base::counted(cuts, "time")));
  return kExitGood;
}

}  // namespace

Verb add_prepare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("prepare", "tokenise text once, into a folder that runs map into memory");
  auto o = std::make_shared<prepare::Options>();
  command
      ->add_option(
          "INPUT", o->inputs,
          "text, .jsonl, .json and .parquet files (all but .parquet also .gz, .zst), folders of them")
      ->required();
  command
      ->add_option("--tokenizer", o->tokenizer,
                   "tokenizer.json, SentencePiece model, tiktoken file, a folder with one, or \"bytes\"")
      ->type_name("T")
      ->required();
  auto out = std::make_shared<std::string>();
  command
      ->add_option("--out", *out,
                   "folder to write; the same command continues there after it was interrupted")
      ->type_name("DIR")
      ->required();
  auto* field =
      command->add_option("--field", o->field, "field of JSON lines and column of Parquet that has the text")
          ->type_name("NAME")
          ->capture_default_str();
  command
      ->add_option("--template", o->text_template, "text from several fields, such as \"{title}\\n{body}\"")
      ->type_name("T")
      ->excludes(field);
  command
      ->add_option("--where", o->where,
                   "keep objects whose field matches, such as lang=en or score>=0.5; all must")
      ->type_name("COND")
      ->allow_extra_args(false);
  command->add_option("--end", o->end, "token after each document, such as \"<|endoftext|>\"")
      ->type_name("TOKEN");
  command->add_option("--min-tokens", o->min_tokens, "drop shorter documents")
      ->type_name("N")
      ->check(integer_in(1));
  command->add_option("--max-tokens", o->max_tokens, "drop longer documents")
      ->type_name("N")
      ->check(integer_in(1));
  auto dedup = std::make_shared<std::string>("none");
  command
      ->add_option("--dedup", *dedup,
                   "drop documents that repeat an earlier one: exact, or also near ones (MinHash)")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "exact", "near"}));
  auto similarity = std::make_shared<double>(0.8);
  command
      ->add_option("--similarity", *similarity,
                   "documents that share at least this part of their five-word sequences are near-duplicates")
      ->type_name("S")
      ->capture_default_str()
      ->check(number_in(0.1, 1));
  command->add_option("--memory", o->memory, "memory in which duplicates are sorted; the rest goes to disk")
      ->type_name("SIZE")
      ->transform(byte_size(int64_t{1} << 20));
  command->add_option("--shard", o->shard_bytes, "bytes of text after which finished work is kept")
      ->type_name("SIZE")
      ->transform(byte_size(1));
  o->threads = 0;
  command->add_option("--threads", o->threads, "threads that encode; all cores when not given")
      ->type_name("N")
      ->check(integer_in(1, 1024));
  command->add_flag("--overwrite", o->overwrite, "replace what the folder has");
  auto damaged = std::make_shared<std::string>("fail");
  command->add_option("--damaged", *damaged, "what to do with a record that is not JSON or lacks the field")
      ->capture_default_str()
      ->check(CLI::IsMember({"fail", "skip"}));
  command
      ->add_option("--column", o->columns,
                   "keep the numbers of a field, one per document, in DIR/NAME.npy: for data.curriculum.by")
      ->type_name("NAME")
      ->allow_extra_args(false);
  auto is_chat = std::make_shared<bool>(false);
  command->add_flag("--chat", *is_chat, "the input is chat or preference data: see docs/chat.md");
  auto chat = std::make_shared<ChatOptions>();
  chat->add_to(*command);
  auto split_turns = std::make_shared<bool>(false);
  command->add_flag("--split-turns", *split_turns,
                    "one document for each message of the assistant, which alone is trained");
  // An option that has no effect is refused.
  CLI::Option* const of_chat = command->get_option("--chat");
  for (const char* name : {"--chat-template", "--format", "--loss", "--end-of-turn", "--split-turns"})
    command->get_option(name)->needs(of_chat);
  for (const char* name : {"--field", "--template", "--end"}) command->get_option(name)->excludes(of_chat);
  return {command, [=] {
            o->out = *out;
            o->exact = *dedup != "none";
            o->near = *dedup == "near" ? *similarity : 0;
            o->skip_damaged = *damaged == "skip";
            // An option that has no effect is refused.
            if (command->get_option("--similarity")->count() > 0 && *dedup != "near")
              base::fail_user("--similarity needs --dedup near");
            if (command->get_option("--memory")->count() > 0 && *dedup == "none")
              base::fail_user("--memory needs --dedup exact or near: it is what duplicates are sorted in");
            if (*split_turns)
              refuse_without_effect(*command, {"--loss"},
                                    "--split-turns trains the last message of each of its documents");
            if (*is_chat) {
              const tools::ChatSource source = chat->get();
              o->chat = {source.chat_template, source.format, source.mask, *split_turns};
            }
            return prepare_action(*o);
          }};
}

}  // namespace quintet::cli
