// A step allocates no memory for tensors: everything lies in the arena that was planned.
//
// Counted: calls of malloc, calloc, realloc and the aligned forms (operator new goes through them) of more
// than 4 KiB, on every thread of the process, while armed. Smaller ones are bookkeeping of collectives and
// waits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>

#include "comm/local.h"
#include "tools/layouts.h"

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
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer has malloc for itself";
  large_allocations = 0;
  armed = true;
  std::vector<char> big(100000);
  big[1] = 1;
  const auto small = std::make_unique<char[]>(100);
  armed = false;
  EXPECT_NE(small, nullptr);
  EXPECT_EQ(large_allocations.load(), 1);
}

TEST(Allocation, NoneForTensorsInsideAStep) {
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer has malloc for itself";
  for (const auto& [dp_shard, zero, tp] :
       std::vector<std::array<int64_t, 3>>{{1, 0, 1}, {2, 0, 1}, {2, 2, 1}, {2, 3, 2}}) {
    const config::Recipe r = recipe(dp_shard, zero, tp);
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
    EXPECT_EQ(large_allocations.load(), 0) << "dp_shard " << dp_shard << ", zero " << zero << ", tp " << tp;
  }
}

// Graphs, programs, threads' stacks and the corpus besides the arena.
constexpr int64_t kOverheadBytes = int64_t{32} << 20;

TEST(Allocation, ResidentMemoryIsTheArenaAndAConstant) {
  if (!QUINTET_COUNTS_MALLOC) GTEST_SKIP() << "a sanitizer's shadow memory counts as resident";
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
