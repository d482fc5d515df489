#include "cli/chat_options.h"

#include <fmt/format.h>

#include "base/plural.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "observe/console.h"
#include "train/loop.h"

namespace quintet::cli {

void ChatOptions::add_to(CLI::App& command) {
  command
      .add_option("--chat-template", source.chat_template,
                  "Jinja file, or the name of one of the tokenizer's templates, instead of its own")
      ->type_name("T");
  command.add_option("--format", source.format, "format of the lines; detected when not given")
      ->check(CLI::IsMember(chat::format_names()));
  command
      .add_option("--loss", loss,
                  "what is trained: messages of the assistant, the last of them, or all tokens")
      ->capture_default_str()
      ->check(CLI::IsMember({"assistant", "last", "all"}));
  command
      .add_option("--end-of-turn", source.mask.end_of_turn,
                  "text that ends a turn, for templates where no special token does")
      ->type_name("TEXT");
}

tools::ChatSource ChatOptions::get() const {
  tools::ChatSource out = source;
  out.mask.loss = loss == "all" ? chat::Loss::All : loss == "last" ? chat::Loss::Last : chat::Loss::Assistant;
  return out;
}

void PrepareChatVerb::add_to(CLI::App& command) {
  command.add_flag("--chat", enabled, "the input is chat or preference data: see docs/chat.md");
  chat.add_to(command);
  command.add_flag("--split-turns", prepare.split_turns,
                   "one document for each message of the assistant, which alone is trained");
}

int PrepareChatVerb::run(const std::vector<std::string>& inputs, const std::string& tokenizer,
                         const std::string& out, bool overwrite, bool skip_damaged) {
  observe::Console& console = observe::Console::standard_error();
  prepare.source = chat.get();
  prepare.source.inputs = inputs;
  prepare.source.tokenizer = tokenizer;
  prepare.out = out;
  prepare.overwrite = overwrite;
  prepare.skip_damaged = skip_damaged;
  if (prepare.threads == 0) prepare.threads = train::kernel_threads({}, 1);
  prepare.progress = [&](int64_t done, int64_t total) {
    console.set_live(fmt::format("{} of {} bytes read", base::thousands(done), base::thousands(total)));
  };
  const tools::PreparedChat prepared = tools::prepare_chat(prepare);
  console.clear_live();
  for (const std::string& line : prepared.first_damage) console.print_line("damaged: " + line);
  print_report(fmt::format("read     {}, {}; {} damaged, {} too long\n",
                           base::counted(prepared.files, "file"), base::counted(prepared.records, "line"),
                           base::thousands(prepared.damaged), base::counted(prepared.too_long, "document")));
  const int64_t kept = prepared.kind == "pairs" ? prepared.documents / 2 : prepared.documents;
  const std::string one =
      prepared.kind.substr(0, prepared.kind.size() - 1);  // of "pairs", "prompts", "examples"
  print(fmt::format("wrote    {}: {}, {}", out, base::counted(kept, one),
                    base::counted(prepared.tokens, "token")));
  if (prepared.kind == "prompts")
    print("\n");
  else
    print(fmt::format(", {} of them trained ({:.1f} %)\n", base::thousands(prepared.trained),
                      100 * static_cast<double>(prepared.trained) / static_cast<double>(prepared.tokens)));
  if (prepared.straddling > 0)
    print(fmt::format("note     {} a token spans the edge of a trained part; it is trained\n",
                      base::counted(prepared.straddling, "time")));
  return kExitGood;
}

}  // namespace quintet::cli
