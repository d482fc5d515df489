// The host's access to an executor between runs.
#include "exec/executor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "comm/local.h"

namespace quintet {
namespace {

namespace scalars = program::scalars;

// Two buffers and the scalars, no instructions.
program::Program bare_program() {
  program::Program p;
  p.streams = {{"compute"}};
  const auto add = [&](const char* name, int64_t bytes) {
    p.buffers.push_back({.name = name, .bytes = bytes, .scope = program::Scope::Persistent});
    p.buffers.back().offset = p.arena_bytes;
    p.arena_bytes += bytes;
    return program::BufferId(static_cast<int32_t>(p.buffers.size()) - 1);
  };
  p.scalars = add("scalars", 128);
  p.scalar_table = {
      {.name = std::string(scalars::kCount), .kind = program::ScalarKind::Input},
      {.name = std::string(scalars::kLearningRate), .kind = program::ScalarKind::Input},
      {.name = std::string(scalars::kLossScale), .kind = program::ScalarKind::State, .initial = 1}};
  p.workspace = add("workspace", 64);
  add("wide", 512);
  add("narrow", 256);
  p.persistent_bytes = p.arena_bytes;
  return p;
}
constexpr program::BufferId kWide(2), kNarrow(3);

void with_executor(const std::function<void(exec::Executor&)>& fn) {
  const program::Program p = bare_program();
  comm::run_local_world(1, [&](comm::World& world) { fn(*exec::make_executor(p, world, {.threads = 2})); });
}

double number(const exec::HostBytes& bytes, size_t i) {
  double v;
  std::memcpy(&v, bytes.data() + i * sizeof(v), sizeof(v));
  return v;
}

TEST(Executor, DrawsByPlaceInTheWhole) {
  with_executor([](exec::Executor& e) {
    // The lower right part of a 5 x 7 whole, in boxes of 3 x 4: the last row and column are padding.
    const std::vector<int64_t> box = {3, 4}, whole = {5, 7}, begin = {3, 4};
    const exec::Draw draw{.kind = exec::Draw::Kind::Normal,
                          .stddev = 0.5,
                          .key = 42,
                          .box = box,
                          .whole = whole,
                          .begin = begin,
                          .first = 1};
    e.draw({kWide, 8, 11 * 8}, base::DType::F64, draw);
    const exec::HostBytes held = e.read({kWide, 0, 13 * 8});
    EXPECT_EQ(number(held, 0), 0);  // outside the range
    EXPECT_EQ(number(held, 12), 0);
    for (int64_t i = 1; i < 12; ++i) {
      const int64_t row = 3 + i / 4, column = 4 + i % 4;
      const double expected =
          row < 5 && column < 7 ? 0.5 * base::normal(42, static_cast<uint64_t>(row * 7 + column)) : 0;
      EXPECT_EQ(number(held, static_cast<size_t>(i)), expected) << i;
    }
  });
}

TEST(Executor, ConvertsAndGivesBackWhatWasWritten) {
  with_executor([](exec::Executor& e) {
    e.write({kWide, 0, 64}, [](std::byte* to) {
      for (int i = 0; i < 16; ++i) {
        const float v = 1 + 0x1p-9f * static_cast<float>(i);
        std::memcpy(to + i * 4, &v, 4);
      }
    });
    e.convert({kWide, 0, 64}, base::DType::F32, {kNarrow, 32, 32}, base::DType::BF16);
    const exec::HostBytes held = e.read({kNarrow, 32, 32});
    for (int i = 0; i < 16; ++i) {
      base::Bf16 v;
      std::memcpy(&v, held.data() + i * 2, 2);
      EXPECT_EQ(static_cast<float>(v), static_cast<float>(base::Bf16(1 + 0x1p-9f * static_cast<float>(i))));
    }
  });
}

TEST(Executor, ScalarsAreSetAndRead) {
  with_executor([](exec::Executor& e) {
    EXPECT_EQ(e.scalar(scalars::kLossScale), 1);
    e.set_scalar(scalars::kCount, 12);
    e.set_scalar(scalars::kLearningRate, 0.25);
    EXPECT_EQ(e.scalar(scalars::kCount), 12);
    EXPECT_EQ(e.scalar(scalars::kLearningRate), 0.25);
    EXPECT_THROW(e.scalar("no such"), base::InternalError);
    EXPECT_TRUE(e.sums().empty());
    EXPECT_EQ(e.device_name(), "CPU, 2 threads");
  });
}

}  // namespace
}  // namespace quintet
