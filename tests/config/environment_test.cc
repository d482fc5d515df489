#include "config/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "base/error.h"

namespace quintet::config {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> detect(const Variables& variables) {
  return detect_launch([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(Environment, ReadsVariables) {
  ::setenv("QUINTET_TEST_VARIABLE", "seen", 1);
  EXPECT_EQ(environment("QUINTET_TEST_VARIABLE"), "seen");
  ::unsetenv("QUINTET_TEST_VARIABLE");
  EXPECT_EQ(environment("QUINTET_TEST_VARIABLE"), std::nullopt);
}

TEST(Environment, NoLauncherIsNoLaunch) { EXPECT_FALSE(detect({})); }

TEST(Environment, OpenMpiGoesBeforeTheSlurmStepItRunsIn) {
  const auto launch = detect({{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"SLURM_PROCID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "mpirun");
  EXPECT_EQ(launch->rank, 3);
  EXPECT_EQ(launch->world, 4);
  EXPECT_EQ(launch->local_rank, 1);
  EXPECT_EQ(launch->local_world, 2);
}

TEST(Environment, ASlurmStepIsALaunchAndABatchScriptIsNot) {
  const auto launch = detect({{"SLURM_PROCID", "5"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "2"}});
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->launcher, "srun");
  EXPECT_EQ(launch->rank, 5);
  EXPECT_EQ(launch->world, 8);
  EXPECT_EQ(launch->local_rank, 2);
  EXPECT_EQ(launch->local_world, 1);
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}));
}

TEST(Environment, ASlurmStepSaysHowManyRanksEveryHostHas) {
  const auto ranks_of = [](const char* list, const char* host) {
    return detect({{"SLURM_PROCID", "0"},
                   {"SLURM_STEP_NUM_TASKS", "64"},
                   {"SLURM_STEP_TASKS_PER_NODE", list},
                   {"SLURM_NODEID", host}})
        ->local_world;
  };
  EXPECT_EQ(ranks_of("8", "0"), 8);
  EXPECT_EQ(ranks_of("8(x3),4", "2"), 8);
  EXPECT_EQ(ranks_of("8(x3),4", "3"), 4);
  EXPECT_EQ(ranks_of("2,4(x2),1", "1"), 4);
  EXPECT_EQ(ranks_of("2,4(x2),1", "3"), 1);
  EXPECT_EQ(ranks_of("8(x3),4", "9"), 1);
  EXPECT_EQ(ranks_of("128", "0"), 64) << "capped at the world size";
  for (const char* odd : {"", "x", "8(x", "8(x3", "8x3", "8 (x2)", "8(x0)", "8(x2)3", "0", "-8"})
    EXPECT_EQ(ranks_of(odd, "0"), 1) << odd;
}

TEST(Environment, ASlurmJobSaysHowManyCoresAHostHas) {
  const auto cores_of = [](const Variables& variables) {
    return host_cores([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(cores_of({}), std::nullopt);
  EXPECT_EQ(cores_of({{"SLURM_CPUS_ON_NODE", "128"}}), 128);
}

TEST(Environment, TheCacheFolderIsWhereTheUserSays) {
  const auto folder = [](const Variables& variables) {
    return cache_folder([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    });
  };
  EXPECT_EQ(folder({}), "");
  EXPECT_EQ(folder({{"HOME", "/home/a"}}), "/home/a/.cache/quintet");
  EXPECT_EQ(folder({{"HOME", "/home/a"}, {"XDG_CACHE_HOME", "/c"}}), "/c/quintet");
  EXPECT_EQ(folder({{"XDG_CACHE_HOME", "/c"}, {"QUINTET_CACHE_DIR", "/own"}}), "/own");
}

TEST(Environment, ColoursAreUnlessTheUserWantsNone) {
  const auto colours = [](const Variables& variables) {
    return wants_colours([&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_TRUE(colours({{"TERM", "xterm-256color"}}));
  EXPECT_TRUE(colours({{"TERM", "xterm"}, {"NO_COLOR", ""}}));
  EXPECT_FALSE(colours({{"TERM", "xterm"}, {"NO_COLOR", "1"}}));
  EXPECT_FALSE(colours({{"TERM", "dumb"}}));
  EXPECT_FALSE(colours({}));
  EXPECT_TRUE(has_escapes([](const std::string& name) -> std::optional<std::string> {
    return name == "TERM" ? "xterm" : "1";
  })) << "a live line needs no colours";
}

TEST(Environment, NonsenseIsRefused) {
  EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), base::UserError);
  EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", "-1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), base::UserError);
  EXPECT_THROW(detect({{"OMPI_COMM_WORLD_RANK", "4"}, {"OMPI_COMM_WORLD_SIZE", "4"}}), base::UserError);
  EXPECT_THROW(detect({{"PMIX_RANK", "0"}, {"PMIX_SIZE", "2x"}}), base::UserError);
}

}  // namespace
}  // namespace quintet::config
