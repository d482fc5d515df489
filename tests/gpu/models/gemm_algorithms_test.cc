// The tuned GEMM algorithms: agreed on by ranks and stored in a file; needs no GPU.
#include "exec/cuda/gemm_algorithms.h"

#include "base/temp_folder.h"
#include "comm/local.h"
#include "gpu/models/support.h"

namespace quintet {
namespace {

using exec::cuda::agree_on_algorithms;

std::string line(const std::string& problem, const std::string& algorithm) {
  return "GPU, library 1 | " + problem + " | 2.5 | " + algorithm + "\n";
}

TEST(Choices, TheFirstTakesPrecedence) {
  const std::string texts[] = {line("a", "1") + "nonsense\n" + line("b", "2"),
                               line("b", "3") + line("c", "4"), "another GPU, library 1 | a | 1 | 5\n | \n"};
  EXPECT_EQ(exec::cuda::merge_algorithms(texts),
            line("a", "1") + line("b", "2") + line("c", "4") + "another GPU, library 1 | a | 1 | 5\n");
}

// Ranks that tuned the same problem independently end with one choice, which is also stored in the file.
TEST(Choices, AllRanksUseAndStoreTheLowestRanksChoices) {
  const test::TempFolder folder;
  const base::Path file = folder / "not/there/yet/tuned.txt";
  std::vector<std::string> taken(3);
  comm::run_local_world(3, [&](comm::World& world) {
    const int me = world.rank().value;
    const std::string told =
        exec::cuda::broadcast_algorithms(me == 0 ? line("a", "1") : "never heard", world);
    EXPECT_EQ(told, line("a", "1"));
    const std::string mine = me == 0 ? told : told + line("b", std::to_string(me));
    taken[static_cast<size_t>(me)] = agree_on_algorithms(mine, me > 0, file, world);
  });
  EXPECT_EQ(taken, std::vector<std::string>(3, line("a", "1") + line("b", "1")));
  EXPECT_EQ(base::read_file(file), taken[0]);
}

// What another run has written since this one read the file takes precedence over what this one found.
TEST(Choices, TheFileTakesPrecedence) {
  const test::TempFolder folder;
  const base::Path file = folder / "tuned.txt";
  base::write_file_atomically(file, line("a", "7") + line("x", "8"));
  comm::run_local_world(1, [&](comm::World& world) {
    EXPECT_EQ(agree_on_algorithms(line("a", "1"), false, file, world), line("a", "1"));
    EXPECT_EQ(base::read_file(file), line("a", "7") + line("x", "8")) << "nothing new: not written";
    const std::string all = line("a", "7") + line("x", "8") + line("b", "2");
    EXPECT_EQ(agree_on_algorithms(line("a", "1") + line("b", "2"), true, file, world), all);
    EXPECT_EQ(base::read_file(file), all);
  });
}

}  // namespace
}  // namespace quintet
