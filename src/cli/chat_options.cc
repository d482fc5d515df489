#include "cli/chat_options.h"

namespace quintet::cli {

void ChatOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "--chat-template", source.chat_template,
          "Jinja file, the name of one of the tokenizer's templates, or a built-in one such as chatml")
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

}  // namespace quintet::cli
