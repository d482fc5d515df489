#include "cli/data_check_verb.h"

#include <fmt/format.h>

#include "base/plural.h"
#include "base/text.h"
#include "cli/number.h"
#include "observe/console.h"
#include "tools/check_tokens.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

int data_check_action(tools::TokenCheckOptions options) {
  if (options.threads == 0) options.threads = train::kernel_threads({}, 1);
  observe::Console& console = observe::Console::standard_error();
  options.progress = [&](int64_t done, int64_t total) {
    console.set_live(fmt::format("{} of {} read", base::human_bytes(done), base::human_bytes(total)));
  };
  const std::vector<tools::CheckedFile> files = tools::check_token_files(options);
  console.clear_live();
  for (const tools::CheckedFile& file : files)
    print_report(fmt::format("{}: {}, the largest id is {}{}\n", file.path.string(),
                             base::counted(file.tokens, "token"), base::thousands(file.largest),
                             file.written.empty() ? "" : "; wrote checksums to " + file.written.string()));
  return kExitGood;
}

}  // namespace

Verb add_data_check(CLI::App& data) {
  auto o = std::make_shared<tools::TokenCheckOptions>();
  o->threads = 0;
  CLI::App* check = data.add_subcommand(
      "check",
      "compare every id of token files with a tokenizer, and leave checksums beside files that have none");
  check->add_option("PATH", o->inputs, ".bin (with or without .idx), .npy, prepared data, folders of them")
      ->required();
  check->add_option("--tokenizer", o->tokenizer, "what the ids were made with; \"bytes\" for bytes")
      ->type_name("T")
      ->required();
  check->add_option("--threads", o->threads, "threads that read; all cores when not given")
      ->type_name("N")
      ->check(integer_in(1, 1024));
  return {check, [o] { return data_check_action(*o); }};
}

}  // namespace quintet::cli
