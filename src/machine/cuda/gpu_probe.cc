#include "machine/gpu_probe.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "comm/device_communicator.h"
#include "device/cuda/device.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/support/read_rate.h"
#include "kernels/cuda/support/timing.h"

namespace quintet::machine {
namespace {

namespace gpu = device::cuda;
namespace kernels_cuda = kernels::cuda;
using base::DType;
using kernels::GemmArgs;
using kernels_cuda::Bf16;

constexpr int64_t kMatmulWorkspace = kernels_cuda::Matmul::kWorkspaceBytes;
constexpr int kMinRepeats = 5, kMaxRepeats = 200;

GpuFacts facts_of(int index) {
  const gpu::DeviceFacts device = gpu::device_facts(index);
  return {.name = device.name,
          .memory_bytes = device.memory_bytes,
          .major = device.major,
          .minor = device.minor,
          .units = device.units};
}

// One rank's part of the measurement, on its GPU, which is the current device.
class GpuProber {
 public:
  GpuProber(comm::World& world, int index, const ProbeOptions& options)
      : world_(world), options_(options), index_(index), before_(gpu::memory_info(index)) {}

  GpuProbe run() {
    GpuProbe p;
    p.gpu = facts_of(index_);
    p.gpus = gpu::device_count();
    p.world = world_.size();
    p.ranks_per_host = options_.ranks_per_host;
    p.context_bytes = largest(before_.total - before_.free);
    step("launches");
    p.launch_seconds = launch();
    step("matmuls");
    for (const int64_t size : {int64_t{4096}, int64_t{8192}})
      if (const Rate r = matmul(DType::BF16, size, false); r.median > p.bf16.median) {
        p.bf16 = r;
        p.matmul_size = static_cast<double>(size);
      }
    p.tf32 = matmul(DType::F32, 8192, true);
    p.f32 = matmul(DType::F32, 4096, false);
    p.f64 = matmul(DType::F64, 2048, false);
    step("attention");
    attention(p);
    step("memory");
    p.memory = memory();
    step("copies to and from the host");
    host(p);
    const std::optional<comm::DeviceCommunicators> comms = link(p);
    // With all libraries loaded and nothing else allocated.
    gpu::synchronize_device();
    p.libraries_bytes = largest(std::max<int64_t>(0, before_.free - gpu::memory_info(index_).free));
    return p;
  }

 private:
  void step(std::string_view what) {
    if (options_.on_step && world_.rank().value == 0) options_.on_step(what);
  }
  double slowest(double seconds) {
    world_.world().all_reduce(&seconds, 1, DType::F64, comm::ReduceOp::Max);
    return seconds;
  }
  int64_t largest(int64_t bytes) {
    world_.world().all_reduce(&bytes, 1, DType::I64, comm::ReduceOp::Max);
    return bytes;
  }

  // Seconds per call of `enqueue` on the slowest rank, best and median of several runs. The ranks agree on
  // the number of runs, so that it may be collective over the world.
  struct Times {
    double best = 0, median = 0;
  };
  template <class Enqueue>
  Times time(Enqueue&& enqueue, const comm::DeviceCommunicators& comms = {}) {
    const gpu::Event begin(true), end(true);
    const auto once = [&](int repeats) {
      stream_.record(begin);
      for (int i = 0; i < repeats; ++i) enqueue();
      stream_.record(end);
      comm::wait_for_device([&] { return end.done(); }, comms, world_);
      return static_cast<double>(end.since_ns(begin)) * 1e-9 / repeats;
    };
    once(1);  // first use, first touch
    world_.world().barrier();
    const double first = std::max(slowest(once(1)), 1e-7);
    // Short work is repeated within one measurement, to hide the overhead of the events.
    const int inner = static_cast<int>(std::clamp(1e-3 / first, 1.0, 200.0));
    const int outer = static_cast<int>(
        std::clamp(options_.seconds / (first * inner), double{kMinRepeats}, double{kMaxRepeats}));
    std::vector<double> times;
    for (int i = 0; i < outer; ++i) times.push_back(once(inner));
    std::sort(times.begin(), times.end());
    return {std::max(slowest(times.front()), 1e-9), std::max(slowest(times[times.size() / 2]), 1e-9)};
  }
  static Rate rate(double work, const Times& t) { return {work / t.best, work / t.median}; }

  // From kernel to kernel as the executor runs them: in one stream of a captured graph.
  double launch() {
    constexpr int kKernels = 500;
    const gpu::Memory cells(256);
    auto* y = reinterpret_cast<float*>(cells.data());
    kernels_cuda::fill(y, 0.0, 16, stream_.handle());  // loads the kernel
    stream_.synchronize();
    stream_.begin_capture();
    for (int i = 0; i < kKernels; ++i) kernels_cuda::fill(y, 0.0, 16, stream_.handle());
    const gpu::Graph graph = stream_.end_capture();
    return time([&] { graph.launch(stream_.handle()); }).median / kKernels;
  }

  void fill_noise(const gpu::Memory& memory, DType type) {
    const int64_t n = memory.bytes() / base::size_of(type);
    if (type == DType::BF16)
      kernels_cuda::fill_noise(reinterpret_cast<Bf16*>(memory.data()), n, stream_.handle());
    else if (type == DType::F32)
      kernels_cuda::fill_noise(reinterpret_cast<float*>(memory.data()), n, stream_.handle());
    else
      kernels_cuda::fill_noise(reinterpret_cast<double*>(memory.data()), n, stream_.handle());
  }

  Rate matmul(DType type, int64_t size, bool tf32) {
    matmul_.allow_tf32(tf32);
    const int64_t bytes = size * size * base::size_of(type);
    const gpu::Memory a(bytes), b(bytes), c(bytes), workspace(kMatmulWorkspace);
    fill_noise(a, type);
    fill_noise(b, type);
    const GemmArgs args{.m = size,
                        .n = size,
                        .k = size,
                        .a = a.data(),
                        .lda = size,
                        .b = b.data(),
                        .ldb = size,
                        .c = c.data(),
                        .ldc = size,
                        .a_type = type,
                        .b_type = type,
                        .c_type = type};
    matmul_.tune(args, kMatmulWorkspace, stream_.handle());
    const Times times =
        time([&] { matmul_.run(args, workspace.data(), kMatmulWorkspace, stream_.handle()); });
    matmul_.allow_tf32(false);
    return rate(2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size),
                times);
  }

  // Through cuDNN, as in the executor.
  void attention(GpuProbe& p) {
    constexpr int64_t kSeq = 4096, kSequences = 2, kHeads = 16, kHead = 128, kWidth = kHeads * kHead;
    constexpr int64_t kRows = kSeq * kSequences, kBytes = kRows * kWidth * 2;
    constexpr auto kMasks = kernels_cuda::AttentionMasks::Dense;
    kernels_cuda::AttentionShape shape;
    shape.q_rows = shape.k_rows = {.seq_len = kSeq, .sequences = kSequences};
    shape.heads = shape.kv_heads = kHeads;
    shape.head_dim = shape.value_dim = kHead;
    shape.q_stride = shape.k_stride = shape.v_stride = shape.o_stride = kWidth;
    shape.dq_stride = shape.dk_stride = shape.dv_stride = kWidth;
    shape.scale = 1 / std::sqrt(static_cast<double>(kHead));
    shape.deterministic = options_.deterministic;
    const int64_t space = std::max(kernels_cuda::Attention::workspace_bytes(shape, kMasks, false),
                                   kernels_cuda::Attention::workspace_bytes(shape, kMasks, true));
    const bool planned = kernels_cuda::Attention::suits(shape, kMasks, DType::BF16) &&
                         attention_.prepare(shape, kMasks, false, space) &&
                         attention_.prepare(shape, kMasks, true, space);
    // All ranks continue or none: the rest is timed together.
    if (largest(planned ? 0 : 1) != 0) return;
    std::vector<gpu::Memory> parts;
    for (int i = 0; i < 8; ++i) {
      parts.emplace_back(kBytes);
      fill_noise(parts.back(), DType::BF16);
    }
    const gpu::Memory lse(kRows * kHeads * 4), workspace(space);
    const auto part = [&](size_t i) { return reinterpret_cast<Bf16*>(parts[i].data()); };
    auto* sums = reinterpret_cast<float*>(lse.data());
    // Two GEMMs forward, five backward, without the masked half.
    const double gemm = 1.0 * kSequences * kSeq * kSeq * kWidth;
    p.attention_forward = rate(2 * gemm, time([&] {
                                 attention_.forward(shape, kMasks, part(0), part(1), part(2), part(3), sums,
                                                    workspace.data(), space, stream_.handle());
                               }));
    p.attention_backward =
        rate(5 * gemm, time([&] {
               attention_.backward(shape, kMasks, part(4), part(0), part(1), part(2), part(3), sums, part(5),
                                   part(6), part(7), workspace.data(), space, stream_.handle());
             }));
    p.attention_keys = kSeq;
  }

  // A streaming kernel, larger than the caches.
  Rate memory() {
    constexpr int64_t kBytes = int64_t{1} << 30;
    const gpu::Memory from(kBytes), to(kBytes);
    const auto* x = reinterpret_cast<const float*>(from.data());
    auto* y = reinterpret_cast<float*>(to.data());
    return rate(2.0 * kBytes, time([&] { kernels_cuda::scale(x, 2.0, y, kBytes / 4, stream_.handle()); }));
  }

  void host(GpuProbe& p) {
    constexpr int64_t kBytes = int64_t{256} << 20;
    const gpu::Memory device(kBytes);
    const gpu::Pinned host(kBytes);
    const auto once = [&](void* to, const void* from) {
      return rate(static_cast<double>(kBytes), time([&] { stream_.copy(to, from, kBytes); })).median;
    };
    p.to_device_bytes_per_s = once(device.data(), host.data());
    p.to_host_bytes_per_s = once(host.data(), device.data());
  }

  // Ranks that share a GPU measure no link. The communicators are released, so that NCCL's memory is counted.
  std::optional<comm::DeviceCommunicators> link(GpuProbe& p) {
    const int ranks = world_.size();
    if (ranks < 2 || options_.ranks_per_host > p.gpus) return std::nullopt;
    step("links");
    std::vector<base::RankId> members;
    for (int r = 0; r < ranks; ++r) members.emplace_back(r);
    std::optional<comm::DeviceCommunicators> comms =
        comm::make_device_communicators({{members, "all GPUs"}}, world_, index_);
    constexpr int64_t kBytes = int64_t{128} << 20;
    const gpu::Memory data(kBytes);
    const auto reduce = [&](int64_t n) {
      return time(
                 [&] {
                   comms->front()->all_reduce(data.data(), n, DType::F32, comm::ReduceOp::Sum,
                                              stream_.handle());
                 },
                 *comms)
          .median;
    };
    const double small = reduce(2), large = reduce(kBytes / 4);
    p.link.ranks = ranks;
    p.link.latency_seconds = small / (2 * std::ceil(std::log2(ranks)));
    p.link.bytes_per_s =
        2.0 * (ranks - 1) / ranks * static_cast<double>(kBytes) / std::max(large - small, large / 2);
    return comms;
  }

  comm::World& world_;
  const ProbeOptions& options_;
  const int index_;
  const gpu::MemoryInfo before_;  // before any library is loaded
  gpu::Stream stream_;
  kernels_cuda::Matmul matmul_;
  kernels_cuda::Attention attention_;
};

}  // namespace

std::vector<GpuFacts> list_gpus(std::string& reason) {
  std::vector<GpuFacts> list;
  for (int i = 0, n = gpu::device_count(&reason); i < n; ++i) list.push_back(facts_of(i));
  return list;
}

double gpu_read_bytes_per_s() {
  if (gpu::device_count() == 0) return 0;
  constexpr int64_t kBytes = int64_t{4} << 30;
  constexpr int kRepeats = 10;
  const gpu::Stream stream;
  const gpu::Memory memory(kBytes), result(256);
  kernels_cuda::fill_noise(memory.data(), DType::BF16, kBytes / 2, stream.handle());
  const auto read = [&] {
    kernels_cuda::read_all(memory.data(), kBytes, reinterpret_cast<uint32_t*>(result.data()),
                           stream.handle());
  };
  kernels_cuda::microseconds_of(read, kRepeats, stream.handle());
  return static_cast<double>(kBytes) / kernels_cuda::microseconds_of(read, kRepeats, stream.handle()) * 1e6;
}

GpuProbe probe_gpu(comm::World& world, int64_t local_rank, const ProbeOptions& options) {
  std::string reason;
  const int count = gpu::device_count(&reason);
  if (count == 0) base::fail_user("no GPU to measure: {}", reason);
  if (options.ranks_per_host < 1 || world.size() % options.ranks_per_host != 0)
    base::fail_user("a probe needs the same number of ranks on every host: {} ranks, {} on this one",
                    world.size(), options.ranks_per_host);
  const int index = static_cast<int>(local_rank % count);
  gpu::use_device(index);
  return GpuProber(world, index, options).run();
}

}  // namespace quintet::machine
