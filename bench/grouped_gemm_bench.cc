// Grouped GEMM of the experts compared with one plain GEMM of the same total size: GFLOP/s of both and their
// ratio, for rows distributed evenly and unevenly over 8 experts.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/philox.h"
#include "device/arena.h"
#include "kernels/cpu/matmul/grouped_gemm.h"

namespace {

using quintet::base::Bf16;
using quintet::base::Bytes;
using quintet::base::DType;
using quintet::device::Arena;
using quintet::device::ThreadPool;
using namespace quintet::kernels;

constexpr int64_t kRows = 4096, kExperts = 8, kFfn = 1408;

// With --cpu-time: CPU time of the process, which is less sensitive to other load.
bool g_cpu_time = false;

double now() {
  timespec t{};
  clock_gettime(g_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

void fill(std::byte* at, int64_t count, DType type) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = 2 * quintet::base::uniform(3, static_cast<uint64_t>(i % 65536)) - 1;
    if (type == DType::F32) reinterpret_cast<float*>(at)[i] = static_cast<float>(value);
    if (type == DType::BF16) reinterpret_cast<Bf16*>(at)[i] = Bf16(static_cast<float>(value));
  }
}

struct Times {
  double plain = 1e30, grouped = 1e30;
};

using Grouped = void (*)(const GroupedArgs&, void*, int64_t, ThreadPool&);

// Alternates between both, so that other load affects both; returns the best of each.
Times measure(const GemmArgs& plain, const GroupedArgs& args, Grouped grouped, ThreadPool& pool,
              double budget_s) {
  Arena workspace{Bytes(
      std::max(grouped_workspace_bytes(args, pool.threads()),
               gemm_workspace_bytes(plain.m, plain.n, plain.k, plain.a_type, plain.c_type, pool.threads())))};
  Times t;
  const int64_t begin = quintet::base::now_ns();
  for (int i = 0; i < 3 || 1e-9 * double(quintet::base::now_ns() - begin) < budget_s; ++i) {
    const double per = g_cpu_time ? pool.threads() : 1;
    double start = now();
    gemm(plain, workspace.data(), workspace.size().value, pool);
    t.plain = std::min(t.plain, (now() - start) / per);
    start = now();
    grouped(args, workspace.data(), workspace.size().value, pool);
    t.grouped = std::min(t.grouped, (now() - start) / per);
  }
  return t;
}

}  // namespace

// grouped_gemm_bench [--cpu-time] [threads [seconds]]
int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--cpu-time") g_cpu_time = true, --argc, ++argv;
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const double budget_s = argc > 2 ? std::atof(argv[2]) : 0.3;
  ThreadPool pool(threads);
  const struct {
    const char* name;
    std::vector<int32_t> received;
  } spreads[] = {{"even  ", std::vector<int32_t>(kExperts, kRows / kExperts)},
                 {"uneven", {1500, 900, 700, 500, 300, 150, 46, 0}}};
  fmt::print("kernels: {}, {} threads, {} rows, {} experts\n", to_string(gemm_isa()), threads, kRows,
             kExperts);
  for (const DType type : {DType::F32, DType::BF16})
    for (const int64_t embed : {512, 1024}) {
      const int64_t wide = kRows * kFfn, narrow = kRows * embed, weight = kExperts * kFfn * embed;
      Arena x{Bytes(narrow * size_of(type))}, y{Bytes(wide * size_of(type))},
          w{Bytes(weight * size_of(type))}, dw{Bytes(weight * size_of(DType::F32))};
      fill(x.data(), narrow, type);
      fill(y.data(), wide, type);
      fill(w.data(), weight, type);
      for (const auto& spread : spreads) {
        GroupedArgs g{.rows = kRows,
                      .experts = kExperts,
                      .out = kFfn,
                      .in = embed,
                      .received = spread.received.data(),
                      .type = type,
                      .c_type = type};
        const auto report = [&](const char* what, const Times& t) {
          const double flops = 2e-9 * double(kRows) * double(kFfn) * double(embed);
          fmt::print("{:5} embed {:5} {} {:3}  plain {:7.1f}  grouped {:7.1f} GFLOP/s  ratio {:.3f}\n",
                     to_string(type), embed, spread.name, what, flops / t.plain, flops / t.grouped,
                     t.plain / t.grouped);
          std::fflush(stdout);
        };
        GemmArgs p{.trans_b = true,
                   .m = kRows,
                   .n = kFfn,
                   .k = embed,
                   .a = x.data(),
                   .lda = embed,
                   .b = w.data(),
                   .ldb = embed,
                   .c = y.data(),
                   .ldc = kFfn,
                   .a_type = type,
                   .b_type = type,
                   .c_type = type};
        g.a = x.data(), g.b = w.data(), g.c = y.data();
        report("fwd", measure(p, g, grouped_linear, pool, budget_s));
        p = {.m = kRows,
             .n = embed,
             .k = kFfn,
             .a = y.data(),
             .lda = kFfn,
             .b = w.data(),
             .ldb = embed,
             .c = x.data(),
             .ldc = embed,
             .a_type = type,
             .b_type = type,
             .c_type = type};
        g.a = y.data(), g.c = x.data();
        report("dx", measure(p, g, grouped_linear_dx, pool, budget_s));
        p = {.trans_a = true,
             .m = kFfn,
             .n = embed,
             .k = kRows,
             .a = y.data(),
             .lda = kFfn,
             .b = x.data(),
             .ldb = embed,
             .c = dw.data(),
             .ldc = embed,
             .a_type = type,
             .b_type = type,
             .c_type = DType::F32,
             .accumulate = true};
        g.b = x.data(), g.c = dw.data(), g.c_type = DType::F32, g.accumulate = true;
        report("dw", measure(p, g, grouped_linear_dw, pool, budget_s));
        fill(x.data(), narrow, type);
        fill(y.data(), wide, type);
      }
    }
}
