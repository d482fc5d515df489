#include "tools/bench_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/environment.h"
#include "config/validate.h"
#include "graph/flops.h"
#include "machine/gpu_probe.h"
#include "models/build.h"
#include "program/ledger.h"
#include "tools/plan_assumptions.h"
#include "train/loop.h"
#include "train/loop_trace.h"
#include "train/memory_check.h"
#include "train/rank.h"

namespace quintet::tools {

using graph::InputKind;

namespace {

constexpr int64_t kMinWarmup = 3;
constexpr size_t kFirstLosses = 20;

// Random tokens in the documents of `packed`, the same in every micro-batch.
exec::LoadBatch random_tokens(const config::Recipe& recipe, const PackedRows& packed, int64_t step,
                              int64_t place) {
  const int64_t rows = recipe.batch.micro * recipe.data.seq_len, seq_len = recipe.data.seq_len;
  const auto vocab = static_cast<uint64_t>(recipe.model.vocab);
  const int64_t micro_batches = recipe.batch.accumulation, sequences = recipe.batch.micro;
  const int64_t first = (step * recipe.parallel.dp() + place) * micro_batches;
  return [=, &packed](int micro, const std::vector<exec::InputRows>& inputs) {
    const auto key = static_cast<uint64_t>(first + micro);
    for (const auto& [spec, data] : inputs)
      for (int64_t i = 0; i < rows; ++i) {
        // Four tokens from one draw; the labels are the ids of the next row.
        const auto token = [&](int64_t at) {
          return static_cast<int32_t>(base::philox(key, static_cast<uint64_t>(at / 4))[at % 4] % vocab);
        };
        if (spec.kind == InputKind::Ids) data[i] = token(i);
        if (spec.kind == InputKind::Labels) data[i] = token(i + 1);
        if (spec.kind == InputKind::NextIds) data[i] = token(i + 1);
        if (spec.kind == InputKind::NextLabels) data[i] = token(i + 2);
        if (spec.kind == InputKind::TokenTypes) data[i] = 0;
        if (spec.kind == InputKind::Positions) data[i] = packed.positions[static_cast<size_t>(i)];
        if (spec.kind == InputKind::Documents) data[i] = packed.documents[static_cast<size_t>(i)];
        if (spec.kind == InputKind::Samples)
          data[i] = static_cast<int32_t>((first + micro) * sequences + i / seq_len);
      }
  };
}

// The class that an instruction is counted in.
std::string class_of(const std::string& name, observe::Category category) {
  if (category == observe::Category::Communication) return "communication";
  const graph::OpDef* const op = graph::find_op(name);
  if (op == nullptr) return "inputs";  // only load_batch has no op
  return std::string(op->op_class == graph::OpClass::Other ? op->name : graph::to_string(op->op_class));
}

struct Peak {
  double tflops = 0;
  std::string source;
};

Peak peak_of(const std::string& device, const config::Precision& precision) {
  const base::DType dtype = precision.compute;
  const hardware::Accelerator* found = machine::find_by_device_name(device);
  if (found == nullptr) return {};
  const hardware::Arithmetic arithmetic = dtype == base::DType::BF16  ? hardware::Arithmetic::BF16
                                          : dtype == base::DType::F16 ? hardware::Arithmetic::F16
                                          : dtype == base::DType::F64 ? hardware::Arithmetic::F64
                                          : precision.tf32            ? hardware::Arithmetic::TF32
                                                                      : hardware::Arithmetic::F32;
  return {found->dense(arithmetic) * 1e-12,
          fmt::format("{}, dense {}", found->title, hardware::to_string(arithmetic))};
}

// Times every kind of instruction in isolation: same op, operands and attributes. Updates run last, because
// they change the operands of the others.
void add_floors(train::Rank& rank, double seconds, StepBench& bench) {
  const program::Program& program = rank.compiled().program;
  const program::Expanded& step = rank.compiled().step;
  bench.copy_bytes_per_s = rank.executor().copy_bytes_per_s(seconds);
  if (bench.copy_bytes_per_s == 0) return;
  struct Kind {
    program::Issue first;
    int64_t count = 0;
  };
  std::map<std::pair<bool, std::string>, Kind> kinds;
  for (const program::Issue& issue : step.issues) {
    const program::Instr& i = program::instr_of(program, issue);
    if (i.kind != program::InstrKind::Compute) continue;
    std::string key = fmt::format("{} {}", i.op->name, graph::to_string(i.attrs));
    for (const auto* list : {&i.in, &i.out})
      for (const program::Operand& o : *list) key += fmt::format(" {}", graph::to_string(o.type));
    const bool updates = i.op->elementwise();
    Kind& kind = kinds.try_emplace({updates, key}, Kind{issue}).first->second;
    ++kind.count;
  }
  for (const auto& [key, kind] : kinds) {
    const program::Instr& i = program::instr_of(program, kind.first);
    std::vector<graph::Type> in, out;
    for (const program::Operand& o : i.in) in.push_back(o.type);
    for (const program::Operand& o : i.out) out.push_back(o.type);
    const std::string name = class_of(std::string(i.op->name), observe::Category::Compute);
    const auto count = static_cast<double>(kind.count);
    const double alone = rank.executor().time_alone(kind.first, seconds);
    const double moved = i.op->cost ? i.op->cost(in, out, i.attrs).bytes : graph::total_bytes(in, out);
    const bool computes = i.op->gemm != nullptr || i.op->op_class == graph::OpClass::Attention;
    for (OpClassTime& c : bench.classes)
      if (c.name == name) {
        c.alone_seconds += count * alone;
        c.floor_seconds += count * (computes ? alone : moved / bench.copy_bytes_per_s);
      }
  }
  for (const OpClassTime& c : bench.classes) bench.floor_seconds += c.floor_seconds;
}

// One rank's part. Complete on rank 0.
StepBench bench_rank(const config::Recipe& recipe, const StepBenchOptions& options, comm::World& world,
                     int64_t ranks_here, int64_t local_rank) {
  StepBench bench;
  const bool first = world.rank().value == 0;
  const int threads = train::kernel_threads(recipe, ranks_here);
  const int64_t begin = base::now_ns();
  train::Rank rank(recipe, world,
                   {.threads = threads,
                    .local_rank = local_rank,
                    .tuned = train::tuned_file(),
                    .log = first ? options.log : nullptr,
                    .fit = train::find_fit(recipe, {}, threads)});
  world.world().barrier();
  bench.setup_seconds = base::seconds_since(begin);

  const int64_t valid = recipe.batch.micro * recipe.batch.accumulation * recipe.data.seq_len;
  const PackedRows packed = pack_documents(options.document_lengths, recipe.batch.micro, recipe.data.seq_len);
  const auto load_of = [&](int64_t step) { return random_tokens(recipe, packed, step, rank.dp_index()); };
  int64_t step = 0;  // steps started
  train::StepResult result;
  const auto start_step = [&] { rank.start_step_from(step++, load_of, valid); };
  const auto finish_step = [&] {
    result = rank.finish_step();
    if (bench.first_losses.size() < kFirstLosses) bench.first_losses.push_back(result.loss);
  };
  const auto timed_step = [&] {
    const int64_t start = base::now_ns();
    start_step();
    finish_step();
    return base::seconds_since(start);
  };
  bench.first_step_seconds = timed_step();
  bench.until_first_step_seconds = static_cast<double>(base::process_age_ns()) * 1e-9;
  const int64_t warm = base::now_ns();
  for (int64_t i = 1; i < std::max(options.warmup, kMinWarmup); ++i) timed_step();
  for (bool more = true; more;) {  // rank 0 decides for all
    int32_t cold = base::seconds_since(warm) < options.warmup_seconds;
    if (world.size() > 1) world.world().broadcast(&cold, 1, base::DType::I32, 0);
    more = cold != 0;
    if (more) timed_step();
  }
  world.world().barrier();
  std::vector<double> seconds;
  // As in a run, the next step is queued before the previous one is finished, if the device supports it.
  int64_t done_ns = base::now_ns();
  start_step();
  for (int64_t i = 0; i < options.steps; ++i) {
    const bool ahead = rank.may_run_ahead() && i + 1 < options.steps;
    if (ahead) start_step();
    finish_step();
    seconds.push_back(base::seconds_since(done_ns));
    done_ns = base::now_ns();
    if (!ahead && i + 1 < options.steps) start_step();
  }

  observe::RankTrace trace = train::make_trace(rank, world.rank(), 1);
  rank.executor().trace_next(&trace, step);
  timed_step();

  std::sort(seconds.begin(), seconds.end());
  const program::Ledger ledger = program::make_ledger(rank.compiled().program, rank.compiled().step);
  double program_flops = ledger.flops;
  world.world().all_reduce(&program_flops, 1, base::DType::F64, comm::ReduceOp::Sum);
  if (!first) return bench;

  bench.name = recipe.name;
  bench.device = rank.executor().device_name();
  bench.dtype = base::to_string(recipe.precision.compute);
  bench.world = world.size();
  bench.parameters = models::parameter_count(rank.compiled().logical);
  bench.tokens_per_step = recipe.batch.global * recipe.data.seq_len;
  bench.steps = options.steps;
  bench.fastest_seconds = seconds.front();
  bench.slowest_seconds = seconds.back();
  bench.step_seconds = seconds[seconds.size() / 2];
  bench.tokens_per_s = static_cast<double>(bench.tokens_per_step) / bench.step_seconds;
  const int64_t tokens = bench.tokens_per_step / recipe.batch.accumulation;
  const double visible = options.document_lengths.empty()
                             ? 1
                             : mean_visible_keys(options.document_lengths, recipe) /
                                   mean_visible_keys({recipe.data.seq_len}, recipe);
  bench.model_flops = model_flops_per_token(rank.compiled().logical, tokens, visible) *
                      static_cast<double>(bench.tokens_per_step);
  bench.program_flops = program_flops;
  bench.tflops = bench.model_flops / bench.step_seconds / static_cast<double>(bench.world) * 1e-12;
  const Peak peak = options.peak_tflops > 0                         ? Peak{options.peak_tflops, "--peak"}
                    : train::device_of(recipe) == exec::Device::Cpu ? Peak{}
                                                                    : peak_of(bench.device, recipe.precision);
  bench.peak_tflops = peak.tflops;
  bench.peak_source = peak.source;
  bench.mfu = peak.tflops > 0 ? bench.tflops / peak.tflops : 0;
  bench.planned_bytes = rank.planned_peak_bytes();
  bench.measured_bytes = rank.measured_peak_bytes();
  bench.extra_bytes = rank.executor().extra_bytes();
  bench.loss = result.loss;

  std::map<std::string, OpClassTime> classes;
  int64_t start = INT64_MAX, end = INT64_MIN;
  for (const observe::TraceRecord& r : trace.records()) {
    OpClassTime& c = classes[class_of(r.name, r.category)];
    ++c.instructions;
    c.seconds += static_cast<double>(r.dur_ns) * 1e-9;
    start = std::min(start, r.start_ns);
    end = std::max(end, r.start_ns + r.dur_ns);
  }
  bench.traced_seconds = static_cast<double>(end - start) * 1e-9;
  for (auto& [name, c] : classes) {
    c.name = name;
    bench.classes.push_back(c);
  }
  std::sort(bench.classes.begin(), bench.classes.end(),
            [](const OpClassTime& a, const OpClassTime& b) { return a.seconds > b.seconds; });
  bench.floors_wanted = options.alone_seconds > 0;
  if (bench.floors_wanted && world.size() == 1) add_floors(rank, options.alone_seconds, bench);
  return bench;
}

}  // namespace

double model_flops_per_token(const graph::Graph& model, int64_t tokens, double visible) {
  const graph::Flops flops = graph::flops_of(model);
  return (flops.matmul + visible * flops.attention) / static_cast<double>(tokens);
}

PackedRows pack_documents(const std::vector<int64_t>& lengths, int64_t sequences, int64_t seq_len) {
  PackedRows packed;
  size_t next = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    int32_t id = -1;
    int64_t left = 0, place = 0;
    for (int64_t t = 0; t < seq_len; ++t, --left, ++place) {
      if (left == 0) {
        ++id;
        place = 0;
        left = lengths.empty() ? seq_len : lengths[next++ % lengths.size()];
      }
      packed.documents.push_back(id);
      packed.positions.push_back(static_cast<int32_t>(place));
    }
  }
  return packed;
}

std::vector<int64_t> parse_document_lengths(const std::string& text, const std::string& where) {
  std::vector<int64_t> lengths;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int64_t length = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), length);
    if (error != std::errc{} || end != word.data() + word.size() || length < 1)
      base::fail_user("{}: a document length must be an integer of at least 1, got '{}'", where, word);
    lengths.push_back(length);
  }
  if (lengths.empty()) base::fail_user("{}: it contains no document lengths", where);
  return lengths;
}

std::optional<StepBench> bench_step(const config::Recipe& recipe, const StepBenchOptions& options) {
  if (!options.document_lengths.empty() && !recipe.data.pack)
    base::fail_user("--documents needs data.pack = true, the recipe has false");
  exec::require_device(train::device_of(recipe));
  const std::optional<config::Launch> launch = config::detect_launch();
  std::optional<StepBench> bench;
  const auto run = [&](comm::World& world, int64_t ranks_here, int64_t local_rank) {
    StepBench mine = bench_rank(recipe, options, world, ranks_here, local_rank);
    if (world.rank().value == 0) bench = std::move(mine);
  };
  if (launch && launch->world > 1) {
    comm::run_mpi_world([&](comm::World& world) {
      config::check_world(recipe, world.size());
      run(world, launch->local_world, launch->local_rank);
    });
  } else {
    const int64_t ranks = recipe.parallel.world();
    comm::run_local_world(static_cast<int>(ranks),
                          [&](comm::World& world) { run(world, ranks, world.rank().value); });
  }
  return bench;
}

}  // namespace quintet::tools
