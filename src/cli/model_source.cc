#include "cli/model_source.h"

#include "base/error.h"
#include "cli/number.h"
#include "config/names.h"
#include "observe/console.h"

namespace quintet::cli {

void ModelSourceOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "MODEL", folder,
          "a run folder, of which the newest checkpoint is taken, a checkpoint, a Hugging Face folder, "
          "or a recipe with model.hf")
      ->required();
  command.add_option("--step", step, "of a run: the checkpoint of this step instead of the newest")
      ->type_name("N")
      ->check(integer_in(0, int64_t{1} << 53));
  command.add_flag("--ema", averages, "use the averages of the weights (optimizer.ema)");
  command.add_option("--tokenizer", tokenizer,
                     "instead of the model's: \"bytes\" or the path of a tokenizer");
  command
      .add_option("--device", device,
                  "device to run on (default: that of the run if available, otherwise the CPU)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command
      .add_option("--dtype", dtype,
                  "compute in this type (default: that of the run; of a folder f32, on a GPU bf16)")
      ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
  command.add_option("--tp", tp, "tensor-parallel ranks (default: those of the run's recipe)")
      ->type_name("N")
      ->check(integer_in(1, 4096));
}

generate::SourceOptions ModelSourceOptions::options() const {
  generate::SourceOptions o;
  if (step >= 0) o.step = step;
  if (tp > 0) o.tp = tp;
  o.averages = averages;
  o.tokenizer = tokenizer;
  if (!dtype.empty()) o.dtype = base::parse_dtype(dtype);
  if (!device.empty()) o.device = config::value_of<config::DeviceKind>(device);
  o.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  return o;
}

}  // namespace quintet::cli
