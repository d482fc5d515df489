#include "tools/bench_generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/philox.h"
#include "comm/local.h"
#include "generate/generator.h"
#include "machine/gpu_probe.h"
#include "train/loop.h"

namespace quintet::tools {
namespace {

constexpr size_t kWarmSteps = 4;  // not timed: a GPU captures its second run

// Bytes of the weights that a decoded token reads: all but a table of which it looks up one row.
int64_t weights_read(const graph::Graph& graph, const config::Model& model, int64_t batch) {
  double bytes = 0;
  for (const graph::Param& p : graph.params()) {
    bool multiplied = false;
    for (const graph::Node& node : graph.nodes())
      for (const graph::ValueId in : node.inputs)
        multiplied = multiplied || (in == p.value && node.op != &graph::kEmbedding);
    if (!multiplied) continue;
    const graph::Type& type = graph.type(p.value);
    double part = 1;  // of experts, those that the batch can choose
    if (type.dims[0].name == graph::Dim::Experts)
      part = std::min(1.0,
                      static_cast<double>(batch * model.moe.top_k) / static_cast<double>(model.moe.experts));
    bytes += part * static_cast<double>(type.bytes());
  }
  return static_cast<int64_t>(bytes);
}

// The host's memory, by one thread per rank as kernels use it.
double host_read_rate() {
  const std::vector<uint64_t> memory(size_t{16} << 20, 1);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const int64_t start = base::now_ns();
    uint64_t sum[8] = {};
    for (size_t i = 0; i < memory.size(); i += 8)
      for (size_t j = 0; j < 8; ++j) sum[j] += memory[i + j];
    uint64_t all = 0;
    for (const uint64_t s : sum) all += s;
    const double seconds = base::seconds_since(start);
    if (all == memory.size()) best = std::max(best, static_cast<double>(memory.size() * 8) / seconds);
  }
  return best;
}

std::vector<generate::Request> random_requests(const GenerateBenchOptions& o, int64_t vocab) {
  std::vector<generate::Request> requests;
  for (int64_t b = 0; b < o.batch; ++b) {
    generate::Request r{.prompt = {}, .new_tokens = o.new_tokens, .number = static_cast<int32_t>(b)};
    for (int64_t i = 0; i < o.prompt_tokens; ++i)
      r.prompt.push_back(
          static_cast<int32_t>(base::philox(static_cast<uint64_t>(b), static_cast<uint64_t>(i))[0] %
                               static_cast<uint64_t>(vocab)));
    requests.push_back(std::move(r));
  }
  return requests;
}

}  // namespace

GenerateBench bench_generate(const base::Path& path, const GenerateBenchOptions& o) {
  generate::SourceOptions how = o.source;
  how.needs_text = false;
  const generate::Source source = generate::open_source(path, how);
  const config::Recipe& recipe = source.recipe;
  if (!o.capture && recipe.run.device != config::DeviceKind::Cuda)
    base::fail_user("--no-capture applies to a GPU, and this model would run on the CPU: leave it out");
  const std::vector<generate::Request> requests = random_requests(o, recipe.model.vocab);
  GenerateBench bench{.name = source.name,
                      .device = {},
                      .dtype = std::string(base::to_string(recipe.precision.compute)),
                      .tp = recipe.parallel.tp,
                      .batch = o.batch,
                      .prompt_tokens = o.prompt_tokens,
                      .new_tokens = o.new_tokens};
  const int threads = train::kernel_threads(recipe, recipe.parallel.tp);
  comm::run_local_world(static_cast<int>(recipe.parallel.tp), [&](comm::World& world) {
    const int64_t start = base::now_ns();
    generate::GeneratorOptions options{.batch = o.batch,
                                       .threads = threads,
                                       .local_rank = world.rank().value,
                                       .draw = false,
                                       .capture = o.capture,
                                       .log = how.log};
    generate::Generator generator(recipe, world, generate::serving_for(recipe, requests, options), options);
    const int64_t begin = base::now_ns();
    const int64_t loaded = source.load(generator.rank());
    const double load = base::seconds_since(begin), setup = base::seconds_since(start);
    exec::Executor& executor = generator.rank().executor();
    const auto ignore = [](size_t, int32_t) { return false; };
    // The first two rounds measure memory, the second and third steps of an entry capture it.
    std::vector<generate::Request> brief = requests;
    for (generate::Request& r : brief) r.new_tokens = std::min<int64_t>(o.new_tokens, kWarmSteps);
    for (int round = 0; round < 2; ++round) {
      executor.begin_measuring(round);
      generator.run(brief, ignore);
      executor.end_measuring(round);
    }
    generate::Times times;
    generator.run(requests, ignore, &times);
    if (world.rank() != base::RankId(0)) return;
    const compiler::Compiled& compiled = generator.rank().compiled();
    std::vector<int64_t> steps(
        times.step_ns.begin() + static_cast<ptrdiff_t>(std::min(kWarmSteps, times.step_ns.size())),
        times.step_ns.end());
    if (steps.empty()) steps = times.step_ns;
    if (steps.empty()) steps = {0};
    std::sort(steps.begin(), steps.end());
    bench.device = executor.device_name();
    bench.setup_seconds = setup;
    bench.load_seconds = load;
    bench.loaded_bytes = loaded;
    bench.prefill_seconds = static_cast<double>(times.prefill_ns) * 1e-9;
    bench.prefill_tokens_per_s = static_cast<double>(times.prompt_tokens) / bench.prefill_seconds;
    bench.step_seconds = static_cast<double>(steps[steps.size() / 2]) * 1e-9;
    bench.fastest_seconds = static_cast<double>(steps.front()) * 1e-9;
    bench.slowest_seconds = static_cast<double>(steps.back()) * 1e-9;
    bench.tokens_per_s = static_cast<double>(o.batch) / bench.step_seconds;
    bench.weight_bytes = weights_read(compiled.logical, recipe.model, o.batch) / recipe.parallel.tp;
    const graph::CacheShape& cache = generator.serving().cache;
    const double row =
        static_cast<double>(generator.cache_bytes()) / static_cast<double>(cache.pages * cache.page_rows);
    const double context = static_cast<double>(o.prompt_tokens) + static_cast<double>(o.new_tokens) / 2;
    bench.cache_bytes = static_cast<int64_t>(row * context * static_cast<double>(o.batch));
    bench.planned_bytes = compiled.program.arena_bytes;
    bench.measured_bytes = executor.measured_peak_bytes();
  });
  bench.read_bytes_per_s =
      recipe.run.device == config::DeviceKind::Cuda ? machine::gpu_read_bytes_per_s() : host_read_rate();
  const double bytes = static_cast<double>(bench.weight_bytes + bench.cache_bytes);
  bench.floor_seconds = bytes / bench.read_bytes_per_s;
  bench.achieved_bytes_per_s = bytes / bench.step_seconds;
  return bench;
}

namespace {

std::string loading(const GenerateBench& b) {
  if (b.loaded_bytes == 0) return "";
  const double gigabytes = static_cast<double>(b.loaded_bytes) * 1e-9;
  return fmt::format(", of which loading {:.2f} GB {:.2f} s, {:.2f} GB/s", gigabytes, b.load_seconds,
                     gigabytes / b.load_seconds);
}

}  // namespace

std::string to_table(const GenerateBench& b) {
  return fmt::format(
      "{}: {}, {}, {} tensor-parallel rank{}\n"
      "batch {}, prompts of {} tokens, {} new tokens each\n"
      "set up    {:.1f} s{}\n"
      "prefill   {:.3f} s, {:.0f} tokens/s\n"
      "decode    {:.3f} ms per step (fastest {:.3f}, slowest {:.3f}), {:.1f} tokens/s\n"
      "floor     {:.3f} ms: {:.3f} GB of weights and {:.3f} GB of cache at {:.0f} GB/s, measured\n"
      "achieved  {:.0f} GB/s, {:.1f} % of the floor's\n"
      "memory    {} bytes planned, {} touched\n",
      b.name, b.device, b.dtype, b.tp, b.tp == 1 ? "" : "s", b.batch, b.prompt_tokens, b.new_tokens,
      b.setup_seconds, loading(b), b.prefill_seconds, b.prefill_tokens_per_s, b.step_seconds * 1e3,
      b.fastest_seconds * 1e3, b.slowest_seconds * 1e3, b.tokens_per_s, b.floor_seconds * 1e3,
      static_cast<double>(b.weight_bytes) * 1e-9, static_cast<double>(b.cache_bytes) * 1e-9,
      b.read_bytes_per_s * 1e-9, b.achieved_bytes_per_s * 1e-9, 100 * b.floor_seconds / b.step_seconds,
      b.planned_bytes, b.measured_bytes);
}

std::string to_json(const GenerateBench& b) {
  const nlohmann::ordered_json json = {{"name", b.name},
                                       {"device", b.device},
                                       {"dtype", b.dtype},
                                       {"tp", b.tp},
                                       {"batch", b.batch},
                                       {"prompt_tokens", b.prompt_tokens},
                                       {"new_tokens", b.new_tokens},
                                       {"setup_seconds", b.setup_seconds},
                                       {"load_seconds", b.load_seconds},
                                       {"loaded_bytes", b.loaded_bytes},
                                       {"prefill_seconds", b.prefill_seconds},
                                       {"prefill_tokens_per_s", b.prefill_tokens_per_s},
                                       {"step_seconds", b.step_seconds},
                                       {"fastest_seconds", b.fastest_seconds},
                                       {"slowest_seconds", b.slowest_seconds},
                                       {"tokens_per_s", b.tokens_per_s},
                                       {"weight_bytes", b.weight_bytes},
                                       {"cache_bytes", b.cache_bytes},
                                       {"read_bytes_per_s", b.read_bytes_per_s},
                                       {"floor_seconds", b.floor_seconds},
                                       {"achieved_bytes_per_s", b.achieved_bytes_per_s},
                                       {"planned_bytes", b.planned_bytes},
                                       {"measured_bytes", b.measured_bytes}};
  return base::json_text(json, 2) + "\n";
}

}  // namespace quintet::tools
