// A step allocates no memory for tensors: everything is in the planned arena.
//
// Counted: calls of malloc, calloc, realloc and the aligned forms (operator new uses them) of more than
// 4 KiB, on every thread of the process, while armed. Smaller ones are bookkeeping of collectives and
// waits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "comm/local.h"
#include "tools/run_layout.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define QUINTET_COUNTS_MALLOC 0
#else
#define QUINTET_COUNTS_MALLOC 1
#endif

namespace {

constexpr size_t kLarge = 4096;
std::atomic<bool> armed = false;
std::atomic<int64_t> large_allocations = 0;

void count(size_t bytes) {
  if (bytes > kLarge && armed.load(std::memory_order_relaxed))
    large_allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

#if QUINTET_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) { return count(bytes), __libc_malloc(bytes); }
void* calloc(size_t n, size_t bytes) { return count(n * bytes), __libc_calloc(n, bytes); }
void* realloc(void* p, size_t bytes) { return count(bytes), __libc_realloc(p, bytes); }
void* memalign(size_t alignment, size_t bytes) { return count(bytes), __libc_memalign(alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) {
  return count(bytes), __libc_memalign(alignment, bytes);
}
int posix_memalign(void** out, size_t alignment, size_t bytes) {
  count(bytes);
  *out = __libc_memalign(alignment, bytes);
  return *out == nullptr ? 12 : 0;
}
}
#endif

namespace quintet::tests {
namespace {

constexpr const char* kNotCounted =
    "malloc cannot be counted under a sanitizer, which has its own, nor without glibc, and a sanitizer's "
    "shadow memory counts as resident: run this test in a build without a sanitizer, on Linux with glibc";

config::Recipe recipe(int64_t dp_shard, int64_t zero, int64_t tp) {
  config::Recipe r;
  r.model = {.family = config::Family::Llama,
             .layers = 2,
             .embed = 64,
             .ffn = 128,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 16,
             .vocab = 512,
             .rope_theta = 10000};
  r.data.seq_len = 64;
  r.precision = config::Precision::of(base::DType::F32);
  r.parallel.dp_shard = dp_shard;
  r.parallel.zero = zero;
  r.parallel.tp = tp;
  r.parallel.sequence_parallel = tp > 1;
  r.batch = {4 * dp_shard, 2, 2};
  r.optimizer.lr = 1e-3;
  r.run.steps = 5;
  return r;
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Allocation, TheCounterCounts) {
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << kNotCounted;
  large_allocations = 0;
  armed = true;
  std::vector<char> big(100000);
  big[1] = 1;
  const auto small = std::make_unique<char[]>(100);
  armed = false;
  EXPECT_NE(small, nullptr);
  EXPECT_EQ(large_allocations.load(), 1);
}

// A ring of two context ranks.
config::Recipe ring() {
  config::Recipe r = recipe(1, 0, 1);
  r.parallel.cp = 2;
  r.parallel.cp_method = config::ContextMethod::Ring;
  return r;
}

// Experts over two ranks, with losses, a bias and dropped rows.
config::Recipe experts() {
  config::Recipe r = recipe(2, 1, 1);
  r.model.moe = {.experts = 4,
                 .top_k = 2,
                 .ffn = 96,
                 .balance_loss = 0.01,
                 .z_loss = 0.001,
                 .bias_rate = 0.001,
                 .capacity_factor = 1.25};
  r.parallel.ep = 2;
  return r;
}

TEST(Allocation, NoneForTensorsInsideAStep) {
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << kNotCounted;
  for (const auto& [name, r] :
       {std::pair{"one rank", recipe(1, 0, 1)}, std::pair{"dp_shard 2", recipe(2, 0, 1)},
        std::pair{"dp_shard 2, zero 2", recipe(2, 2, 1)},
        std::pair{"dp_shard 2, zero 3, tp 2", recipe(2, 3, 2)}, std::pair{"cp 2, ring", ring()},
        std::pair{"ep 2", experts()}}) {
    SCOPED_TRACE(name);
    const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
    comm::run_local_world(static_cast<int>(r.parallel.world()), [&](comm::World& world) {
      train::Rank rank(r, world, {.threads = 2});
      for (int64_t step = 0; step < 2; ++step) rank.step(step, batches);
      world.world().barrier();
      if (world.rank().value == 0) {
        large_allocations = 0;
        armed = true;
      }
      world.world().barrier();
      for (int64_t step = 2; step < 5; ++step) rank.step(step, batches);
      world.world().barrier();
      if (world.rank().value == 0) armed = false;
      world.world().barrier();
    });
    EXPECT_EQ(large_allocations.load(), 0);
  }
}

// Graphs, programs, thread stacks and the corpus in addition to the arena.
constexpr int64_t kOverheadBytes = int64_t{32} << 20;

TEST(Allocation, ResidentMemoryIsTheArenaAndAConstant) {
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << kNotCounted;
  config::Recipe r = recipe(1, 0, 1);
  r.model.embed = 256;
  r.model.ffn = 1024;
  r.model.vocab = 4096;
  const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
  const int64_t before = resident_bytes();
  int64_t after = 0, arena = 0;
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(r, world, {.threads = 1});
    for (int64_t step = 0; step < 3; ++step) rank.step(step, batches);
    after = resident_bytes();
    arena = rank.planned_peak_bytes();
  });
  EXPECT_GT(arena, 2 * kOverheadBytes);
  EXPECT_LT(after - before - arena, kOverheadBytes);
}

}  // namespace
}  // namespace quintet::tests
