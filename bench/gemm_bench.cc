// GFLOP/s of the CPU matmul on the shapes of a small Llama, as a table or (--csv) for bench/gemm_vs_torch.py.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/philox.h"
#include "device/arena.h"
#include "kernels/cpu/matmul/gemm.h"

namespace {

using quintet::base::Bf16;
using quintet::base::Bytes;
using quintet::base::DType;
using quintet::device::Arena;
using quintet::device::ThreadPool;
using namespace quintet::kernels;

// With --cpu-time: CPU time of the process, which is less sensitive to other load. Divided by the number of
// threads, it is the time on a quiet machine, because waiting threads spin before they sleep.
bool g_cpu_time = false;

double now() {
  timespec t{};
  clock_gettime(g_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Shape {
  const char* name;
  int64_t m, n, k;
  bool trans_a, trans_b, gradient;  // gradient: C is f32 and accumulates.
};

// Forward x W^T, input gradient dy W, weight gradient dy^T x.
constexpr Shape kShapes[] = {{"qkv/out   fwd", 4096, 512, 512, false, true, false},
                             {"gate/up   fwd", 4096, 1408, 512, false, true, false},
                             {"down      fwd", 4096, 512, 1408, false, true, false},
                             {"head8k    fwd", 2048, 8192, 512, false, true, false},
                             {"head32k   fwd", 2048, 32000, 512, false, true, false},
                             {"small     fwd", 2048, 1024, 384, false, true, false},
                             {"qkv/out    dx", 4096, 512, 512, false, false, false},
                             {"gate/up    dx", 4096, 512, 1408, false, false, false},
                             {"down       dx", 4096, 1408, 512, false, false, false},
                             {"head8k     dx", 2048, 512, 8192, false, false, false},
                             {"qkv/out    dw", 512, 512, 4096, true, false, true},
                             {"gate/up    dw", 1408, 512, 4096, true, false, true},
                             {"down       dw", 512, 1408, 4096, true, false, true},
                             {"head8k     dw", 8192, 512, 2048, true, false, true},
                             {"square 2048  ", 2048, 2048, 2048, false, false, false}};

void fill(std::byte* at, int64_t count, DType type) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = 2 * quintet::base::uniform(3, static_cast<uint64_t>(i % 65536)) - 1;
    if (type == DType::F64) reinterpret_cast<double*>(at)[i] = value;
    if (type == DType::F32) reinterpret_cast<float*>(at)[i] = static_cast<float>(value);
    if (type == DType::BF16) reinterpret_cast<Bf16*>(at)[i] = Bf16(static_cast<float>(value));
  }
}

double gflops(const Shape& s, DType type, ThreadPool& pool, double budget_s) {
  const DType c_type = s.gradient && type == DType::BF16 ? DType::F32 : type;
  const int64_t scratch = gemm_workspace_bytes(s.m, s.n, s.k, type, c_type, pool.threads());
  Arena a{Bytes(s.m * s.k * size_of(type))}, b{Bytes(s.k * s.n * size_of(type))},
      c{Bytes(s.m * s.n * size_of(c_type))}, workspace{Bytes(scratch)};
  fill(a.data(), s.m * s.k, type);
  fill(b.data(), s.k * s.n, type);
  const GemmArgs args{.trans_a = s.trans_a,
                      .trans_b = s.trans_b,
                      .m = s.m,
                      .n = s.n,
                      .k = s.k,
                      .a = a.data(),
                      .lda = s.trans_a ? s.m : s.k,
                      .b = b.data(),
                      .ldb = s.trans_b ? s.k : s.n,
                      .c = c.data(),
                      .ldc = s.n,
                      .a_type = type,
                      .b_type = type,
                      .c_type = c_type,
                      .accumulate = s.gradient};
  double best = 1e30;
  const double begin = seconds();
  for (int i = 0; i < 3 || seconds() - begin < budget_s; ++i) {
    const double t = now();
    gemm(args, workspace.data(), scratch, pool);
    best = std::min(best, (now() - t) / (g_cpu_time ? pool.threads() : 1));
  }
  return 2e-9 * double(s.m) * double(s.n) * double(s.k) / best;
}

}  // namespace

// gemm_bench [--list] [--csv] [--cpu-time] [--isa NAME] [--threads N] [--type f32|bf16|f64] [--seconds S]
// [--shape TEXT]
int main(int argc, char** argv) {
  bool csv = false;
  std::string type_name, shape_name;
  int only_threads = 0;
  double budget_s = 0.3;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--csv") {
      csv = true;
      continue;
    }
    if (flag == "--list") {
      for (const Shape& s : kShapes)
        fmt::print("{},{},{},{},{},{},{}\n", s.name, s.m, s.n, s.k, int(s.trans_a), int(s.trans_b),
                   int(s.gradient));
      return 0;
    }
    if (flag == "--cpu-time") {
      g_cpu_time = true;
      continue;
    }
    if (i + 1 == argc) {
      fmt::print(stderr, "{} needs a value\n", flag);
      return 2;
    }
    const std::string value = argv[++i];
    if (flag == "--isa") {
      bool found = false;
      for (GemmIsa isa : gemm_isas())
        if (to_string(isa) == value) set_gemm_isa(isa), found = true;
      if (!found) {
        fmt::print(stderr, "this machine has no {} kernels\n", value);
        return 2;
      }
    } else if (flag == "--threads") {
      only_threads = std::atoi(value.c_str());
    } else if (flag == "--type") {
      type_name = value;
    } else if (flag == "--seconds") {
      budget_s = std::atof(value.c_str());
    } else if (flag == "--shape") {
      shape_name = value;
    } else {
      fmt::print(stderr, "unknown option {}\n", flag);
      return 2;
    }
  }
  if (!csv) fmt::print("kernels: {}\n", to_string(gemm_isa()));
  for (DType type : {DType::F32, DType::BF16, DType::F64}) {
    if (!type_name.empty() && to_string(type) != type_name) continue;
    for (int threads : {1, 2}) {
      if (only_threads != 0) threads = only_threads;
      ThreadPool pool(threads);
      for (const Shape& s : kShapes) {
        if (std::string_view(s.name).find(shape_name) == std::string_view::npos) continue;
        const double rate = gflops(s, type, pool, budget_s);
        if (csv)
          fmt::print("{},{},{},{},{},{},{},{},{},{:.1f}\n", to_string(type), threads, s.name, s.m, s.n, s.k,
                     int(s.trans_a), int(s.trans_b), int(s.gradient), rate);
        else
          fmt::print("{:5} {} threads  {}  {:5} x {:5} x {:5}  {:7.1f} GFLOP/s\n", to_string(type), threads,
                     s.name, s.m, s.n, s.k, rate);
        std::fflush(stdout);
      }
      if (only_threads != 0) break;
    }
  }
}
