// Filling and counting batches happens inside a step, which must not allocate. This program counts every
// allocation of the calling thread.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "data/batch.h"

namespace {
thread_local int64_t t_allocations = 0;
}

// Not inlined: a compiler that sees free() but not the malloc() behind new reports a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++t_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace quintet::data {
namespace {

TEST(Allocation, CounterCounts) {
  const int64_t before = t_allocations;
  const std::vector<int> some(100);
  EXPECT_GT(t_allocations, before);
}

TEST(Allocation, NoneInsideAStep) {
  const std::vector<std::vector<int32_t>> documents(50, std::vector<int32_t>(13, 7));
  const Dataset dataset(Corpus::from_documents("test", 256, documents), 16, true, 0, 40);
  const LabelMask mask = [](const LabelSite& site) { return site.position % 2 == 0; };
  const Batches batches(dataset, Sampler(1, 40, Order::Shuffled), {8, 2, 2, 2}, {}, mask);
  std::vector<int32_t> ids(32), labels(32), positions(32), documents_row(32), samples(32);
  const MicroBatch out = {ids, labels, positions, documents_row, samples};
  const int64_t before = t_allocations;
  int64_t filled = 0, counted = 0;
  for (int64_t step = 0; step < 20; ++step)
    for (int64_t dp = 0; dp < 2; ++dp) {
      counted += batches.count_labels(step, dp);
      for (int64_t micro = 0; micro < 2; ++micro) filled += batches.fill(step, micro, dp, out);
    }
  const int64_t after = t_allocations;
  EXPECT_EQ(after, before);
  EXPECT_EQ(filled, counted);
  EXPECT_GT(filled, 0);
}

}  // namespace
}  // namespace quintet::data
