#include "cli/bench_step_verb.h"
#include "cli/number.h"
#include "tools/bench_comm.h"

namespace quintet::cli {
namespace {

struct BenchCommOptions {
  tools::CommBenchOptions bench;
  bool json = false;
};

int bench_comm_action(const BenchCommOptions& o) {
  const tools::CommBench bench = tools::bench_comm(o.bench);
  if (bench.is_first) o.json ? print(tools::to_json(bench)) : print_report(tools::to_table(bench));
  return kExitGood;
}

}  // namespace

Verb add_bench_comm(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("comm", "measure collectives between ranks: time and bandwidth by call and size");
  auto o = std::make_shared<BenchCommOptions>();
  command
      ->add_option("--ranks", o->bench.ranks,
                   "ranks as threads; under mpirun, its processes are used instead")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(2, 1024));
  command->add_option("--size", o->bench.bytes, "payloads, over all ranks (4KiB 1MiB 16MiB)")
      ->type_name("BYTES")
      ->transform(byte_size(1));
  command->add_option("--seconds", o->bench.seconds, "about how long each row is measured")
      ->capture_default_str()
      ->check(number_in(0.001, 60));
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "GB/s is payload over time; bus GB/s counts what each rank must send: 2(n-1)/n payloads for "
      "all_reduce, (n-1)/n for the others. Times are the median over repetitions of the slowest rank.");
  return {command, [o] { return bench_comm_action(*o); }};
}

}  // namespace quintet::cli
