// NCCL's variables: values it takes, misspelt names, pairs that contradict each other, and files of them.
#include "config/nccl_variables.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace quintet::config {
namespace {

using Variables = std::map<std::string, std::string>;

std::string problem(const Variables& all, const std::string& name) {
  for (const NcclVariable& v : explain_nccl(all))
    if (v.name == name) return v.problem;
  ADD_FAILURE() << name << " is not in the list";
  return {};
}

TEST(NcclVariables, ValuesThatNcclTakesHaveNoProblem) {
  // What a cluster of NVL72 racks sets, and the names that users of other clusters do.
  const Variables good = {{"NCCL_ALGO", "Ring,Tree"},    {"NCCL_PROTO", "^LL128"},
                          {"NCCL_BUFFSIZE", "8388608"},  {"NCCL_NSOCKS_PERTHREAD", "4"},
                          {"NCCL_SOCKET_NTHREADS", "8"}, {"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1:1"},
                          {"NCCL_IB_GID_INDEX", "3"},    {"NCCL_IB_TIMEOUT", "22"},
                          {"NCCL_IB_RETRY_CNT", "7"},    {"NCCL_SOCKET_IFNAME", "^lo,docker"},
                          {"NCCL_NET_GDR_LEVEL", "SYS"}, {"NCCL_P2P_LEVEL", "NVL"},
                          {"NCCL_NVLS_ENABLE", "1"},     {"NCCL_MNNVL_ENABLE", "1"},
                          {"NCCL_DEBUG", "info"},        {"NCCL_DEBUG_SUBSYS", "INIT,NET"},
                          {"NCCL_CUMEM_ENABLE", "1"},    {"NCCL_CROSS_NIC", "1"}};
  const std::vector<NcclVariable> list = explain_nccl(good);
  EXPECT_EQ(list.size(), good.size());
  for (const NcclVariable& v : list) {
    EXPECT_EQ(v.problem, "") << v.name;
    EXPECT_NE(v.meaning, "") << v.name;
  }
}

TEST(NcclVariables, WrongValuesNameWhatIsAccepted) {
  EXPECT_EQ(
      problem({{"NCCL_ALGO", "Ring,Tre"}}, "NCCL_ALGO"),
      "\"Tre\" is none of Ring, Tree, CollnetDirect, CollnetChain, NVLS, NVLSTree, PAT; did you mean Tree?");
  EXPECT_EQ(problem({{"NCCL_ALGO", "allreduce:tree;broadcast:ring"}}, "NCCL_ALGO"), "");
  EXPECT_EQ(problem({{"NCCL_IB_TIMEOUT", "23"}}, "NCCL_IB_TIMEOUT"), "\"23\" is not an integer from 1 to 22");
  EXPECT_EQ(problem({{"NCCL_IB_TIMEOUT", "22s"}}, "NCCL_IB_TIMEOUT"),
            "\"22s\" is not an integer from 1 to 22");
  EXPECT_NE(problem({{"NCCL_P2P_LEVEL", "NVLINK"}}, "NCCL_P2P_LEVEL"), "");
  EXPECT_EQ(problem({{"NCCL_P2P_LEVEL", "2"}}, "NCCL_P2P_LEVEL"), "") << "integers of old versions";
  EXPECT_EQ(problem({{"NCCL_SOCKET_IFNAME", ""}}, "NCCL_SOCKET_IFNAME"), "is empty");
}

TEST(NcclVariables, UnknownNamesAreNotPassedOver) {
  EXPECT_EQ(problem({{"NCCL_SOCKET_IFNMAE", "eth0"}}, "NCCL_SOCKET_IFNMAE"),
            "is not a variable of NCCL that this version knows; did you mean NCCL_SOCKET_IFNAME?");
  EXPECT_NE(problem({{"TORCH_NCCL_BLOCKING_WAIT", "1"}}, "TORCH_NCCL_BLOCKING_WAIT").find("PyTorch"),
            std::string::npos);
  EXPECT_EQ(problem({{"NCCL_TIMEOUT", "1800"}}, "NCCL_TIMEOUT"),
            "is not a variable of NCCL; the time-out of a run is run.timeout");
  EXPECT_TRUE(explain_nccl({{"PATH", "/bin"}, {"MY_NCCL_NOTE", "x"}}).empty());
}

TEST(NcclVariables, PairsThatContradictEachOther) {
  EXPECT_EQ(problem({{"NCCL_IB_DISABLE", "1"}, {"NCCL_IB_HCA", "mlx5_0"}}, "NCCL_IB_HCA"),
            "has no effect with NCCL_IB_DISABLE=1");
  EXPECT_EQ(problem({{"NCCL_IB_DISABLE", "0"}, {"NCCL_IB_HCA", "mlx5_0"}}, "NCCL_IB_HCA"), "");
  EXPECT_EQ(problem({{"NCCL_P2P_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "NVL"}}, "NCCL_P2P_LEVEL"),
            "has no effect with NCCL_P2P_DISABLE=1");
  EXPECT_EQ(problem({{"NCCL_MIN_NCHANNELS", "8"}, {"NCCL_MAX_NCHANNELS", "4"}}, "NCCL_MIN_NCHANNELS"),
            "8 exceeds NCCL_MAX_NCHANNELS=4");
  EXPECT_EQ(
      problem({{"NCCL_NSOCKS_PERTHREAD", "16"}, {"NCCL_SOCKET_NTHREADS", "8"}}, "NCCL_NSOCKS_PERTHREAD"),
      "16 sockets of 8 threads exceed the 64 of a connection");
  EXPECT_EQ(problem({{"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ALGO", "NVLS"}}, "NCCL_ALGO"),
            "NVLS needs NCCL_NVLS_ENABLE, which is 0");
  EXPECT_NE(problem({{"NCCL_DEBUG_FILE", "/tmp/nccl.%h"}}, "NCCL_DEBUG_FILE"), "");
  EXPECT_NE(problem({{"NCCL_COMM_BLOCKING", "1"}}, "NCCL_COMM_BLOCKING").find("run.timeout"),
            std::string::npos);
}

TEST(NcclVariables, TheEnvironmentIsRead) {
  ::setenv("NCCL_IB_TIMEOUT", "99", 1);
  const std::vector<NcclVariable> list = nccl_variables();
  ::unsetenv("NCCL_IB_TIMEOUT");
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(list.front().name, "NCCL_IB_TIMEOUT");
  EXPECT_NE(list.front().problem, "");
}

TEST(NcclVariables, FilesOfSettings) {
  const Variables all = parse_variables(
      "# a job\nexport NCCL_IB_HCA=\"mlx5_0,mlx5_1\"  # both\n\nNCCL_DEBUG=WARN # quiet\r\n  "
      "NCCL_NET='IB';\n",
      "job.env");
  EXPECT_EQ(all, (Variables{{"NCCL_IB_HCA", "mlx5_0,mlx5_1"}, {"NCCL_DEBUG", "WARN"}, {"NCCL_NET", "IB"}}));
  const auto message = [](const std::string& text) {
    try {
      parse_variables(text, "job.env");
    } catch (const base::UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(message("A=1\nNCCL_DEBUG WARN\n").find("job.env:2: expected NAME=value"), std::string::npos);
  EXPECT_NE(message("NCCL_NET='IB\n").find("no closing quote"), std::string::npos);
}

}  // namespace
}  // namespace quintet::config
