#include "device/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/error.h"

namespace quintet::device {
namespace {

using base::Bytes;

TEST(Arena, IsZeroAlignedAndWritableToTheLastByte) {
  for (int64_t size : {int64_t{1}, int64_t{4096}, int64_t{5} << 20, (int64_t{2} << 20) + 1}) {
    Arena arena{Bytes(size)};
    ASSERT_NE(arena.data(), nullptr);
    EXPECT_EQ(arena.size().value, size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (2 << 20), 0u);
    for (int64_t i : {int64_t{0}, size / 2, size - 1}) EXPECT_EQ(arena.data()[i], std::byte{0});
    for (int64_t i : {int64_t{0}, size / 2, size - 1}) {
      arena.data()[i] = std::byte{7};
      EXPECT_EQ(arena.data()[i], std::byte{7});
    }
  }
}

TEST(Arena, MovesItsMemory) {
  Arena a{Bytes(100)};
  a.data()[3] = std::byte{9};
  std::byte* where = a.data();
  Arena b = std::move(a);
  EXPECT_EQ(b.data(), where);
  EXPECT_EQ(a.data(), nullptr);
  EXPECT_EQ(a.size().value, 0);
  a = std::move(b);
  EXPECT_EQ(a.data()[3], std::byte{9});
}

TEST(Arena, ZeroAndImpossibleSizes) {
  EXPECT_EQ(Arena{Bytes(0)}.data(), nullptr);
  EXPECT_THROW(Arena{Bytes(INT64_MAX)}, base::UserError);
  EXPECT_THROW(Arena{Bytes(int64_t{1} << 60)}, base::UserError);
  EXPECT_THROW(Arena{Bytes(-1)}, base::InternalError);
}

}  // namespace
}  // namespace quintet::device
