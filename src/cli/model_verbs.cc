#include <limits>

#include "base/error.h"
#include "base/output_path.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "cli/without_effect.h"
#include "observe/console.h"
#include "tools/model_files.h"

namespace quintet::cli {
namespace {

struct ModelFileOptions {
  std::string from, to, format = "hf", dtype;
  int64_t shard_bytes = 0;
  int64_t step = -1;
  bool json = false, overwrite = false;

  tools::ConvertOptions convert() const {
    tools::ConvertOptions options;
    if (!dtype.empty()) options.dtype = base::parse_dtype(dtype);
    if (shard_bytes > 0) options.shard_bytes = shard_bytes;
    if (step >= 0) options.step = step;
    options.overwrite = overwrite;
    options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
    return options;
  }
  void add_to(CLI::App& command) {
    command.add_option("--dtype", dtype, "type of the weights in the files (default: as they are)")
        ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
    command.add_option("--shard-size", shard_bytes, "largest file (default: 5GB)")
        ->type_name("SIZE")
        ->transform(byte_size(1));
    command.add_option("--step", step, "of a run: the checkpoint of this step (default: the newest state)")
        ->type_name("N")
        ->check(integer_in(0, int64_t{1} << 53));
  }
};

}  // namespace

Verb add_export(CLI::App& app) {
  CLI::App* command = app.add_subcommand("export", "write a run or a checkpoint as a Hugging Face folder");
  auto o = std::make_shared<ModelFileOptions>();
  command->add_option("RUN", o->from, "a run folder, or a checkpoint")->required();
  command->add_option("--to", o->format, "format")->check(CLI::IsMember({"hf"}))->capture_default_str();
  command->add_option("FOLDER", o->to, "folder to write; must be new or empty")->required();
  o->add_to(*command);
  return {command, [o] {
            print_report(tools::export_model(o->from, o->to, o->convert()) + "\n");
            return kExitGood;
          }};
}

Verb add_convert(CLI::App& app) {
  CLI::App* command = app.add_subcommand("convert", "convert files of weights, without training");
  auto o = std::make_shared<ModelFileOptions>();
  command
      ->add_option(
          "FROM", o->from,
          "a Hugging Face folder, .safetensors, .bin or .pt file, distributed checkpoint, run or checkpoint")
      ->required();
  command->add_option("TO", o->to, "a new folder, or a .safetensors file")->required();
  o->add_to(*command);
  command->add_flag("--overwrite", o->overwrite, "replace an existing .safetensors file");
  return {command, [o, command] {
            if (o->to.ends_with(".safetensors"))
              refuse_without_effect(*command, {"--shard-size"}, "a .safetensors file is never split");
            print_report(tools::convert_model(o->from, o->to, o->convert()) + "\n");
            return kExitGood;
          }};
}

Verb add_diff(CLI::App& app) {
  CLI::App* command = app.add_subcommand("diff", "compare the weights of two folders, runs or checkpoints");
  auto o = std::make_shared<ModelFileOptions>();
  command->add_option("A", o->from, "a folder or file of weights, a run or a checkpoint")->required();
  command->add_option("B", o->to, "the same")->required();
  command->add_flag("--json", o->json, "print JSON");
  command->footer("Exits with 1 when they differ.");
  return {command, [o] {
            const tools::DiffReport report = tools::diff_models(o->from, o->to);
            o->json ? print(report.json) : print_report(report.text);
            return report.equal ? kExitGood : kExitFailure;
          }};
}

Verb add_logits(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "logits", "write the logits of given tokens, to compare with another implementation");
  struct LogitsOptions {
    RecipeOptions recipe;
    std::vector<int32_t> ids;
    std::string out;
    bool overwrite = false;
  };
  auto o = std::make_shared<LogitsOptions>();
  o->recipe.add_to(*command, true, "");
  command->add_option("--ids", o->ids, "token ids, separated by commas")
      ->type_name("N")
      ->delimiter(',')
      ->required()
      ->check(integer_in(0, std::numeric_limits<int32_t>::max()));
  command->add_option("--out", o->out, "safetensors file to write: logits [tokens, vocab]")
      ->type_name("FILE")
      ->required();
  command->add_flag("--overwrite", o->overwrite, "replace an existing file");
  return {command, [o] {
            base::require_new_file("--out", o->out, o->overwrite);
            tools::write_logits(o->recipe.load(), o->ids, o->out);
            return kExitGood;
          }};
}

}  // namespace quintet::cli
