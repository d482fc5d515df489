// quintet doctor, run as a user would.
#include "cli/support.h"
#include "comm/mpi.h"
#include "hardware/cluster.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;
using test::quoted;

TEST(Doctor, SaysWhatThereIs) {
  const Outcome plain = quintet("doctor");
  EXPECT_EQ(plain.code, 0) << plain.err;
  for (const char* part : {"processor", "memory", "MPI", "CUDA"})
    EXPECT_NE(plain.out.find(part), std::string::npos) << plain.out;
  const Outcome json = quintet("doctor --json");
  EXPECT_EQ(json.code, 0);
  EXPECT_NE(json.out.find("\"processor\": "), std::string::npos) << json.out;
}

TEST(Doctor, ProbeWritesAClusterThatPlansRead) {
  const test::TempFolder folder;
  const std::string file = (folder / "here.toml").string();
  const Outcome probe = quintet("doctor --probe --seconds 0.002 --ranks 2 --disk " +
                                quoted((folder / ".").string()) + " --out " + quoted(file));
  ASSERT_EQ(probe.code, 0) << probe.err;
  EXPECT_NE(probe.out.find("matmul f32"), std::string::npos);
  EXPECT_NE(probe.out.find("wrote "), std::string::npos);
  const hardware::Cluster cluster = hardware::parse_cluster(file);
  EXPECT_EQ(cluster.world(), 2);
  EXPECT_GT(cluster.accelerator.dense(hardware::Arithmetic::F32), 0);
  EXPECT_GT(cluster.inner.bytes_per_s, 0);
}

TEST(Doctor, UnderMpirun) {
  if (!test::has_mpirun()) GTEST_SKIP() << test::kNoMpirun;
  if (!comm::mpi_available())
    GTEST_SKIP() << "this build has no MPI backend, so the probe was not run under MPI: configure with "
                    "-DQUINTET_MPI=ON where libopenmpi-dev is installed";
  const test::TempFolder folder;
  const std::string file = (folder / "mpi.toml").string();
  const Outcome probe = test::shell(test::kMpirun + "-np 2 " + test::kTool +
                                    " doctor --probe --seconds 0.002 --no-disk --out " + quoted(file));
  ASSERT_EQ(probe.code, 0) << probe.err;
  const hardware::Cluster cluster = hardware::parse_cluster(file);
  EXPECT_EQ(cluster.world(), 2);
  EXPECT_EQ(cluster.inner.title, "processes on one host");
}

TEST(Doctor, ComparesARecipeWithItsPlan) {
  const test::TempFolder folder;
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "one rank waits for another. ";
  base::write_file_atomically(folder / "data.txt", text);
  base::write_file_atomically(folder / "recipe.toml", R"(name = "patient"
[model]
family = "llama"
layers = 2
embed = 32
ffn = 64
heads = 4
kv_heads = 2
[data]
path = ")" + (folder / "data.txt").string() + R"("
seq_len = 32
[batch]
global = 4
micro = 1
[parallel]
dp_shard = 2
zero = 3
[optimizer]
lr = 1e-3
[run]
steps = 1
threads = 1
)");
  const std::string recipe = quoted((folder / "recipe.toml").string());
  const Outcome out = quintet("doctor " + recipe + " --steps 2 --cluster \"1x2 cpu\"");
  ASSERT_EQ(out.code, 0) << out.err;
  for (const char* part : {"patient on 2 x CPU", "measured", "planned", "bottleneck: "})
    EXPECT_NE(out.out.find(part), std::string::npos) << out.out;
  if (comm::mpi_available()) {
    const Outcome mpi = test::shell(test::kMpirun + "-np 2 " + test::kTool + " doctor " + recipe +
                                    " --steps 2 --json --cluster \"1x2 cpu\"");
    ASSERT_EQ(mpi.code, 0) << mpi.err;
    EXPECT_NE(mpi.out.find("\"bottleneck\": "), std::string::npos) << mpi.out;
  }
  const Outcome world = quintet("doctor " + recipe + " --cluster \"1x8 h100\"");
  EXPECT_EQ(world.code, 2) << world.out;
  EXPECT_EQ(quintet("doctor " + recipe + " --probe").code, 2);
}

TEST(Doctor, BadOptionsTeach) {
  EXPECT_EQ(quintet("doctor --cluster \"1x2 cpu\"").code, 2);
  const Outcome out = quintet("doctor --out x.toml");
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("--probe"), std::string::npos);
  const Outcome name = quintet("doctor --probe --out cluster.txt");
  EXPECT_EQ(name.code, 2);
  EXPECT_NE(name.err.find(".toml"), std::string::npos);
  EXPECT_EQ(quintet("doctor --probe --ranks 0").code, 2);
}

}  // namespace
}  // namespace quintet
