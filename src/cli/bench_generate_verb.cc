#include "cli/bench_step_verb.h"
#include "cli/model_source.h"
#include "cli/number.h"
#include "cli/without_effect.h"
#include "tools/bench_generate.h"

namespace quintet::cli {
namespace {

struct BenchGenerateVerbOptions {
  ModelSourceOptions model;
  tools::GenerateBenchOptions bench;
  bool random_weights = false, no_capture = false, json = false;
};

int bench_generate_action(const BenchGenerateVerbOptions& o) {
  tools::GenerateBenchOptions options = o.bench;
  options.source = o.model.options();
  options.source.random_weights = o.random_weights;
  options.capture = !o.no_capture;
  const tools::GenerateBench bench = tools::bench_generate(o.model.folder, options);
  o.json ? print(tools::to_json(bench)) : print_report(tools::to_table(bench));
  return kExitGood;
}

}  // namespace

Verb add_bench_generate(CLI::App& bench) {
  CLI::App* command = bench.add_subcommand(
      "generate", "measure decoding of text beside the time to read weights and cache once");
  auto o = std::make_shared<BenchGenerateVerbOptions>();
  o->model.add_to(*command);
  const auto count = [&](const char* name, int64_t& value, const char* help) {
    command->add_option(name, value, help)
        ->type_name("N")
        ->capture_default_str()
        ->check(integer_in(1, int64_t{1} << 20));
  };
  count("--batch", o->bench.batch, "sequences decoded at once");
  count("--prompt-tokens", o->bench.prompt_tokens, "tokens of every prompt");
  count("--new-tokens", o->bench.new_tokens, "tokens generated for every prompt");
  command->add_flag("--random-weights", o->random_weights,
                    "weights as training starts with: no files are read");
  command->add_flag("--no-capture", o->no_capture,
                    "on a GPU: launch kernels one by one instead of as a graph");
  command->add_flag("--json", o->json, "print JSON");
  return {command, [o, command] {
            if (o->random_weights)
              refuse_without_effect(*command, {"--ema"}, "--random-weights reads no weights");
            return bench_generate_action(*o);
          }};
}

}  // namespace quintet::cli
