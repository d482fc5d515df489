#include "machine/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "comm/local.h"
#include "config/parse.h"
#include "device/arena.h"
#include "device/thread_pool.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/matmul/gemm.h"
#include "machine/fit_efficiency.h"
#include "machine/measured_rates.h"
#include "train/rank.h"

namespace quintet::machine {
namespace {

using base::DType;
using device::Arena;

constexpr int64_t kAttentionHeads = 4, kAttentionHead = 64;
// FLOPs of one attention matmul, without the masked half; there are two forward and five backward.
constexpr double kAttentionProduct = 1.0 * kAttentionKeys * kAttentionKeys * kAttentionHeads * kAttentionHead;

constexpr const char* kTinyRecipe = R"(name = "tiny"
[model]
family = "llama"
layers = 8
embed = 16
ffn = 16
heads = 1
kv_heads = 1
vocab = 256
[data]
seq_len = 4
[batch]
global = 1
micro = 1
[optimizer]
lr = 1e-3
[run]
steps = 1000000
threads = 1
)";

// One rank's part of the measurement.
class Prober {
 public:
  Prober(comm::World& world, const ProbeOptions& options)
      : world_(world), comm_(world.world()), options_(options), pool_(options.threads) {}

  Probe run() {
    Probe p;
    p.world = world_.size();
    p.ranks_per_host = options_.ranks_per_host;
    p.threads = options_.threads;
    step("instructions");
    p.launch_seconds = launch();
    step("matmuls");
    p.f32 = matmul(DType::F32, 768, 768, 768);
    p.bf16 = matmul(DType::BF16, 768, 768, 768);
    p.f64 = matmul(DType::F64, 512, 512, 512);
    p.small_matmul_seconds = 2.0 * 64 * 64 * 64 / matmul(DType::F32, 64, 64, 64).median;
    step("attention");
    computing(p);
    step("memory");
    p.memory = memory();
    links(p);
    if (options_.disk_bytes > 0) disk(p);
    return p;
  }

 private:
  void step(std::string_view what) {
    if (options_.on_step && world_.rank().value == 0) options_.on_step(what);
  }

  // The slowest rank's value, on all ranks.
  double slowest(double seconds) {
    comm_.all_reduce(&seconds, 1, DType::F64, comm::ReduceOp::Max);
    return seconds;
  }

  // Seconds per call of `body`, best and median of several runs; ranks start together. They agree on the
  // number of runs, so that a body may be collective over the world.
  struct Times {
    double best, median;
  };
  template <class Body>
  Times time(Body&& body) {
    body();  // warm-up
    comm_.barrier();
    const int64_t start = base::now_ns();
    body();
    const double once = std::max(slowest(base::seconds_since(start)), 1e-9);
    // Short bodies are repeated within one measurement, to hide the overhead of the clock.
    const int inner = static_cast<int>(std::clamp(1e-3 / once, 1.0, 1000.0));
    const int outer = static_cast<int>(std::clamp(options_.seconds / (once * inner), 3.0, 1000.0));
    std::vector<double> times;
    for (int i = 0; i < outer; ++i) {
      const int64_t from = base::now_ns();
      for (int j = 0; j < inner; ++j) body();
      times.push_back(base::seconds_since(from) / inner);
    }
    std::sort(times.begin(), times.end());
    return {std::max(slowest(times.front()), 1e-12), std::max(slowest(times[times.size() / 2]), 1e-12)};
  }

  static Rate rate(double work, const Times& times) { return {work / times.best, work / times.median}; }

  // The executor's overhead per instruction: the step time of a model so small that it is all overhead,
  // divided by the number of instructions.
  double launch() {
    double seconds = 0;
    comm::run_local_world(1, [&](comm::World& alone) {
      const config::Recipe recipe = config::parse(kTinyRecipe, {});
      train::Rank rank(recipe, alone, {.threads = options_.threads});
      int64_t issues = 0;
      for (const program::Issue& i : rank.compiled().step.issues)
        issues += instr_of(rank.compiled().program, i).kind != program::InstrKind::Free;
      const exec::LoadBatch ones = [&](int, const std::vector<exec::InputRows>& inputs) {
        for (const auto& [spec, data] : inputs)
          for (int64_t i = 0; i < recipe.batch.micro * recipe.data.seq_len; ++i)
            data[i] =
                spec.kind == graph::InputKind::Positions ? static_cast<int32_t>(i % recipe.data.seq_len) : 0;
      };
      int64_t step = 0;
      const auto body = [&] { rank.step_with(step++, ones, recipe.data.seq_len); };
      body();  // two steps that measure memory
      body();
      seconds = time(body).median / static_cast<double>(issues);
    });
    return seconds;
  }

  Rate matmul(DType type, int64_t m, int64_t n, int64_t k) {
    const DType c_type = type;
    const int64_t workspace = kernels::gemm_workspace_bytes(m, n, k, type, c_type, options_.threads);
    const int64_t size = base::size_of(type);
    // Arenas are zero; on a CPU, multiplying zeros takes no less time.
    const Arena a(base::Bytes(m * k * size)), b(base::Bytes(k * n * size)), c(base::Bytes(m * n * size)),
        scratch(base::Bytes(std::max<int64_t>(workspace, 64)));
    const kernels::GemmArgs args{.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a.data(),
                                 .lda = k,
                                 .b = b.data(),
                                 .ldb = n,
                                 .c = c.data(),
                                 .ldc = n,
                                 .a_type = type,
                                 .b_type = type,
                                 .c_type = c_type};
    const Times times = time([&] { kernels::gemm(args, scratch.data(), workspace, pool_); });
    return rate(2.0 * static_cast<double>(m * n * k), times);
  }

  // Measurements that depend on the compute dtype.
  void computing(Probe& p) {
    const auto both = [&]<class T>(T) {
      attention<T>(p);
      p.activation = activation<T>();
    };
    p.compute = options_.compute;
    switch (p.compute) {
      case DType::F64:
        return both(double());
      case DType::BF16:
        return both(base::Bf16());
      case DType::F16:
        return both(base::F16());
      default:
        p.compute = DType::F32;
        return both(float());
    }
  }

  template <class T>
  Rate activation() {
    constexpr int64_t kRow = 1024;
    const int64_t rows =
        std::max<int64_t>(1, options_.memory_bytes / 3 / kRow / static_cast<int64_t>(sizeof(T)));
    const auto bytes = base::Bytes(rows * kRow * static_cast<int64_t>(sizeof(T)));
    const Arena gate(bytes), up(bytes), out(bytes);
    const auto at = [](const Arena& a) { return reinterpret_cast<T*>(a.data()); };
    kernels::cpu::fill(at(gate), 0.5, rows * kRow, pool_);
    kernels::cpu::fill(at(up), 0.5, rows * kRow, pool_);
    return rate(3.0 * static_cast<double>(bytes.value),
                time([&] { kernels::cpu::swiglu(at(gate), at(up), kRow, at(out), rows, kRow, pool_); }));
  }

  template <class T>
  void attention(Probe& p) {
    using kernels::cpu::Stat;
    constexpr int64_t kSeq = kAttentionKeys, kHeads = kAttentionHeads, kHead = kAttentionHead,
                      kWidth = kHeads * kHead;
    kernels::cpu::AttentionShape shape;
    shape.q_rows = shape.k_rows = {.seq_len = kSeq, .sequences = 1};
    shape.heads = shape.kv_heads = kHeads;
    shape.head_dim = shape.value_dim = kHead;
    shape.q_stride = shape.k_stride = shape.v_stride = shape.o_stride = kWidth;
    shape.dq_stride = shape.dk_stride = shape.dv_stride = kWidth;
    shape.scale = 0.125;
    const Arena data(base::Bytes(8 * kSeq * kWidth * static_cast<int64_t>(sizeof(T)))),
        lse(base::Bytes(kHeads * kSeq * static_cast<int64_t>(sizeof(Stat<T>))));
    const auto part = [&](int i) { return reinterpret_cast<T*>(data.data()) + i * kSeq * kWidth; };
    const int64_t bytes =
        std::max(kernels::cpu::attention_workspace_bytes<T>(shape, options_.threads),
                 kernels::cpu::attention_backward_workspace_bytes<T>(shape, options_.threads));
    const Arena scratch(base::Bytes(std::max<int64_t>(bytes, 64)));
    auto* sums = reinterpret_cast<Stat<T>*>(lse.data());
    p.attention_forward = rate(2 * kAttentionProduct, time([&] {
                                 kernels::cpu::attention(shape, part(0), part(1), part(2), part(3), sums,
                                                         scratch.data(), pool_);
                               }));
    p.attention_backward =
        rate(5 * kAttentionProduct, time([&] {
               kernels::cpu::attention_backward(shape, part(4), part(0), part(1), part(2), part(3), sums,
                                                part(5), part(6), part(7), scratch.data(), pool_);
             }));
  }

  Rate memory() {
    const int64_t elements = std::max<int64_t>(1024, options_.memory_bytes / 8);
    const Arena x(base::Bytes(elements * 4)), y(base::Bytes(elements * 4));
    auto* from = reinterpret_cast<float*>(x.data());
    auto* to = reinterpret_cast<float*>(y.data());
    kernels::cpu::fill(from, 1.0, elements, pool_);  // untouched pages are not backed by memory yet
    return rate(8.0 * static_cast<double>(elements),
                time([&] { kernels::cpu::scale(from, 2.0, to, elements, pool_); }));
  }

  // All-reduces within groups; ranks in no group still take part in finding the slowest.
  LinkRate link(comm::Communicator* group, int ranks) {
    if (ranks < 2) return {};
    const int64_t count = std::max<int64_t>(1, options_.message_bytes / 4);
    const Arena data(base::Bytes(count * 4));
    const auto reduce = [&](int64_t n) {
      if (group != nullptr) group->all_reduce(data.data(), n, DType::F32, comm::ReduceOp::Sum);
    };
    LinkRate l;
    l.ranks = ranks;
    const double small = time([&] { reduce(2); }).median;
    const double large = time([&] { reduce(count); }).median;
    l.latency_seconds = small / (2 * std::ceil(std::log2(ranks)));
    const double moved = 2.0 * (ranks - 1) / ranks * 4.0 * static_cast<double>(count);
    l.bytes_per_s = moved / std::max(large - small, large / 2);
    return l;
  }

  void links(Probe& p) {
    const int per_host = options_.ranks_per_host, hosts = world_.size() / per_host;
    const int me = world_.rank().value;
    if (world_.size() > 1) step("links");
    std::vector<base::RankId> mine, heads;
    for (int r = 0; r < per_host; ++r) mine.emplace_back(me / per_host * per_host + r);
    for (int h = 0; h < hosts; ++h) heads.emplace_back(h * per_host);
    const auto inside = world_.create(mine, "ranks of a host");
    p.inside = link(inside.get(), per_host);
    const auto across = me % per_host == 0 ? world_.create(heads, "first ranks of hosts") : nullptr;
    p.across = link(across.get(), hosts);
  }

  void disk(Probe& p) {
    step("disk");
    const bool first = world_.rank().value % options_.ranks_per_host == 0;
    double wrote = 0, read = 0;
    std::string failure;
    if (first) {
      const base::Path path = options_.disk_folder / fmt::format(".quintet-probe-{}", world_.rank().value);
      try {
        const std::string piece(size_t{1} << 20, '\x5a');
        int64_t start = base::now_ns();
        {
          base::AtomicFile file(path);
          for (int64_t done = 0; done < options_.disk_bytes; done += static_cast<int64_t>(piece.size()))
            file.write(piece);
          file.commit();
        }
        wrote = base::seconds_since(start);
        start = base::now_ns();
        const std::string back = base::read_file(path);
        read = base::seconds_since(start);
        QUINTET_CHECK(!back.empty() && back.back() == '\x5a', "{} reads back different data", path.string());
        base::remove_file(path);
      } catch (...) {
        base::remove_file(path);
        throw;
      }
    }
    const double bytes = std::ceil(static_cast<double>(options_.disk_bytes) / (1 << 20)) * (1 << 20);
    p.disk_write_bytes_per_s = bytes / std::max(slowest(wrote), 1e-9);
    p.disk_read_bytes_per_s = bytes / std::max(slowest(read), 1e-9);
  }

  comm::World& world_;
  comm::Communicator& comm_;
  const ProbeOptions& options_;
  device::ThreadPool pool_;
};

}  // namespace

Probe probe(comm::World& world, const ProbeOptions& options) {
  if (options.ranks_per_host < 1 || world.size() % options.ranks_per_host != 0)
    base::fail_user("the probe needs the same number of ranks on every host: {} ranks, {} on this host",
                    world.size(), options.ranks_per_host);
  return Prober(world, options).run();
}

hardware::Cluster cluster_of(const Probe& p, const MachineFacts& facts, const std::string& date) {
  using hardware::Arithmetic;
  using hardware::LinkKind;
  hardware::Accelerator a;
  a.name = "probed-cpu";
  a.title = fmt::format("{} ({} core{} per rank)", facts.processor, p.threads, p.threads == 1 ? "" : "s");
  a.vendor = hardware::Vendor::Cpu;
  a.memory_bytes = facts.memory_bytes / p.ranks_per_host;
  a.memory_bytes_per_s = p.memory.best;
  const auto peak = [&](Arithmetic kind) -> double& { return a.dense_flops[static_cast<size_t>(kind)]; };
  peak(Arithmetic::F64) = p.f64.best;
  peak(Arithmetic::F32) = p.f32.best;
  peak(Arithmetic::BF16) = p.bf16.best;
  a.units = p.threads;
  a.tile = 16;
  a.runtime_bytes = int64_t{64} << 20;
  a.per_node = p.ranks_per_host;
  a.link = "shared-memory";
  a.network = "ethernet-25";
  a.host = "host-memory";
  a.host_bytes_per_device = facts.memory_bytes / p.ranks_per_host;
  a.source = "quintet doctor --probe; the dense peak of an arithmetic is the best rate measured";
  a.date = date;
  a.efficiency_source = "quintet doctor --probe";
  hardware::Efficiency& e = a.efficiency;
  e.matmul = std::min(share_of(p.f32.median, p.f32.best), share_of(p.bf16.median, p.bf16.best));
  e.half_head_forward = e.half_head_backward = 0;  // only one head size is measured
  // Kernels between matmuls are a mix of both kinds: the time per byte is the mean of the two.
  e.memory = share_of(2 / (1 / p.memory.median + 1 / p.activation.median), p.memory.best);
  e.launch_seconds = p.launch_seconds;
  const double small_flops = 2.0 * 64 * 64 * 64;
  e.half_flops = std::max(0.0, p.small_matmul_seconds * p.f32.best * e.matmul - small_flops);
  e.half_k = 0;  // within half_flops
  hardware::Attention attention;
  attention.head_dim = kAttentionHead;
  attention.keys = kAttentionKeys;
  attention.arithmetic = p.compute == DType::F64    ? Arithmetic::F64
                         : p.compute == DType::BF16 ? Arithmetic::BF16
                         : p.compute == DType::F16  ? Arithmetic::F16
                                                    : Arithmetic::F32;
  attention.flops = 2 * kAttentionProduct;
  e.attention_forward = fit_attention(a, attention, attention.flops / p.attention_forward.median);
  attention.flops = 5 * kAttentionProduct;
  attention.backward = true;
  e.attention_backward = fit_attention(a, attention, attention.flops / p.attention_backward.median);

  hardware::Cluster c = hardware::make_cluster(a, p.world, p.ranks_per_host);
  c.host_bytes = facts.memory_bytes;
  if (p.inside.ranks > 1)
    c.inner = measured_link("probed-inner", p.processes ? "processes on one host" : "threads of one process",
                            LinkKind::Inner, p.inside.bytes_per_s, p.inside.latency_seconds, date);
  if (p.across.ranks > 1)
    c.outer = measured_link("probed-network", fmt::format("{} hosts, one rank each", p.across.ranks),
                            LinkKind::Network, p.across.bytes_per_s, p.across.latency_seconds, date);
  // One rank per host was measured alone: the ranks of a host share that rate.
  if (p.across.ranks > 1) c.ports_per_device = 1.0 / p.ranks_per_host;
  c.host = measured_link("probed-memory", "memory of this machine", LinkKind::Host, p.memory.median / 2, 1e-6,
                         date);
  if (p.disk_write_bytes_per_s > 0)
    c.disk = measured_link("probed-disk", "disk of the probed folder", LinkKind::Disk,
                           std::min(p.disk_write_bytes_per_s, p.disk_read_bytes_per_s), 1e-4, date);
  return c;
}

std::string describe(const Probe& p) {
  const auto flops = [](const Rate& r) {
    return fmt::format("{}, best {}", with_prefix(r.median, "FLOP/s"), with_prefix(r.best, "FLOP/s"));
  };
  const auto bytes = [](double rate) { return with_prefix(rate, "B/s"); };
  std::string text =
      fmt::format("measured    {} rank{} of {} thread{}, running together; rates of the slowest rank\n",
                  p.world, p.world == 1 ? "" : "s", p.threads, p.threads == 1 ? "" : "s");
  text += fmt::format("matmul f32  {}\n", flops(p.f32));
  text += fmt::format("matmul bf16 {}\n", flops(p.bf16));
  text += fmt::format("matmul f64  {}\n", flops(p.f64));
  text += fmt::format("attention   forward {}, backward {} ({}, causal, {} tokens, head size 64)\n",
                      with_prefix(p.attention_forward.median, "FLOP/s"),
                      with_prefix(p.attention_backward.median, "FLOP/s"), base::to_string(p.compute),
                      kAttentionKeys);
  text += fmt::format("memory      {} read and written, {} with one exponential per element\n",
                      bytes(p.memory.median), bytes(p.activation.median));
  text += fmt::format("launch      {} per instruction\n",
                      base::human_duration(std::llround(p.launch_seconds * 1e9)));
  for (const auto& [link, what] :
       {std::pair(&p.inside, "within a host"), std::pair(&p.across, "between hosts")})
    if (link->ranks > 1)
      text +=
          fmt::format("link        {}: {} each way, {} per hop, {} ranks\n", what, bytes(link->bytes_per_s),
                      base::human_duration(std::llround(link->latency_seconds * 1e9)), link->ranks);
  if (p.disk_write_bytes_per_s > 0)
    text += fmt::format("disk        write {} (flushed), read {} (possibly from the page cache)\n",
                        bytes(p.disk_write_bytes_per_s), bytes(p.disk_read_bytes_per_s));
  return text;
}

}  // namespace quintet::machine
