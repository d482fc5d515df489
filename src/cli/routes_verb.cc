#include "base/output_path.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "config/names.h"
#include "observe/console.h"
#include "tools/record_routes.h"

namespace quintet::cli {

Verb add_routes(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "routes", "record the experts that a model chooses for a run's data, for data.routes");
  struct Options {
    std::string model, device, dtype, out;
    int64_t step = -1;
    bool averages = false, overwrite = false;
    RecipeOptions recipe;
    tools::RecordRoutesOptions record;
  };
  auto o = std::make_shared<Options>();
  command
      ->add_option(
          "MODEL", o->model,
          "whose routers choose: a run folder, a checkpoint, a Hugging Face folder, or a recipe with "
          "model.hf")
      ->required();
  o->recipe.add_to(*command, false, "");
  command->add_option("--step", o->step, "of a run: the checkpoint of this step instead of the newest")
      ->type_name("N")
      ->check(integer_in(0, int64_t{1} << 53));
  command->add_flag("--ema", o->averages, "use the averages of the weights (optimizer.ema)");
  command->add_option("--first", o->record.first_step, "first step of the recipe whose samples are recorded")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 53))
      ->capture_default_str();
  command
      ->add_option("--steps", o->record.steps, "steps whose samples are recorded (default: up to run.steps)")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 53));
  command
      ->add_option("--device", o->device,
                   "device to run on (default: that of MODEL if available, otherwise the CPU)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--dtype", o->dtype, "compute in this type (default: that of MODEL; of a folder f32)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  command->add_option("--out", o->out, "safetensors file to write")->type_name("FILE")->required();
  command->add_flag("--overwrite", o->overwrite, "replace an existing file");
  return {command, [o] {
            base::require_new_file("--out", o->out, o->overwrite);
            generate::SourceOptions& source = o->record.source;
            if (o->step >= 0) source.step = o->step;
            source.averages = o->averages;
            source.needs_text = false;
            source.tp = 1;
            if (!o->dtype.empty()) source.dtype = base::parse_dtype(o->dtype);
            if (!o->device.empty()) source.device = config::value_of<config::DeviceKind>(o->device);
            source.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
            print_report(tools::record_routes(o->model, o->recipe.load(), o->record, o->out));
            return kExitGood;
          }};
}

}  // namespace quintet::cli
