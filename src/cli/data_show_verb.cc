#include "cli/data_show_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/chat_options.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/show_data.h"

namespace quintet::cli {
namespace {

struct DataShowOptions {
  ChatOptions chat;
  std::string path;
  int64_t count = 3;
  bool json = false;
};

int data_show_action(const DataShowOptions& o) {
  tools::ChatSource source = o.chat.get();
  source.inputs = {o.path};
  const auto documents = tools::show_data(source, static_cast<size_t>(o.count));
  for (size_t i = 0; i < documents.size(); ++i) {
    const tools::ShownDocument& document = documents[i];
    if (o.json) {
      std::string text;
      for (const auto& run : document.runs) text += run.text;
      print(base::json_text({{"ids", document.ids}, {"trained", document.trained}, {"text", text}}) + "\n");
      continue;
    }
    const auto trained = std::count(document.trained.begin(), document.trained.end(), 1);
    print(fmt::format("document {}: {} tokens, {} trained\n", i + 1, document.ids.size(), trained));
    for (const auto& run : document.runs) {
      const std::string text = base::printable(run.text);
      run.trained ? print_highlighted(text) : print(text);
    }
    print("\n");
  }
  return kExitGood;
}

}  // namespace

Verb add_data_show(CLI::App& data) {
  auto o = std::make_shared<DataShowOptions>();
  CLI::App* show = data.add_subcommand(
      "show", "print the first documents; trained tokens are coloured, or between {+ and +} in a pipe");
  show->add_option("PATH", o->path,
                   "chat data (.jsonl or .parquet files, or a folder of them), or prepared data: a folder or "
                   "a token file")
      ->required();
  show->add_option("-n", o->count, "how many")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(1, 1'000'000));
  show->add_option("--tokenizer", o->chat.source.tokenizer,
                   "folder with tokenizer.json and its chat template; prepared data names its own")
      ->type_name("T");
  o->chat.add_to(*show);
  show->add_flag("--json", o->json, "one JSON object per line: ids, trained flags, text");
  return {show, [=] {
            if (tools::is_prepared(o->path))
              for (const char* name : {"--chat-template", "--format", "--loss", "--end-of-turn"})
                if (show->get_option(name)->count() > 0)
                  base::fail_user("{} applies to chat data; '{}' has been prepared with its own", name,
                                  base::printable(o->path));
            return data_show_action(*o);
          }};
}

}  // namespace quintet::cli
