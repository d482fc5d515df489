// Every verb with invalid input: exit code 2, a message with a code that `quintet explain` knows, and no
// file left behind. The tables in bad_commands/ have one command per line, after the code that its error
// must have.
#include <set>

#include "cli/support.h"
#include "config/codes.h"
#include "support/folders.h"

namespace quintet {
namespace {

struct BadCommand {
  std::string code, arguments;
};

std::vector<BadCommand> bad_commands(const std::string& table) {
  std::vector<BadCommand> all;
  const std::string text =
      base::read_file(fmt::format("{}/tests/cli/bad_commands/{}.txt", test::source_dir(), table));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && line[0] != '#') all.push_back({line.substr(0, 5), line.substr(6)});
  }
  return all;
}

std::string files_in(const base::Path& folder) {
  return test::shell("cd " + folder.string() + " && find . | sort").out;
}

class BadCommands : public testing::TestWithParam<const char*> {};

TEST_P(BadCommands, AreRefusedWithACodeAndLeaveNothing) {
  const std::vector<BadCommand> commands = bad_commands(GetParam());
  ASSERT_GE(commands.size(), 70u);
  const test::TempFolder folder, results;
  const test::Outcome made =
      test::shell("cd " + folder.path().string() + " && QUINTET=" + test::kTool + " && . " +
                  test::source_dir() + "/tests/cli/bad_commands_fixture.sh");
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string before = files_in(folder.path());
  std::string script = "cd " + folder.path().string() + "\n";
  for (size_t i = 0; i < commands.size(); ++i)
    script += fmt::format("timeout 60 {} {} >{}/{}.out 2>{}/{}.err; echo $?\n", test::kTool,
                          commands[i].arguments, results.path().string(), i, results.path().string(), i);
  const test::Outcome o = test::shell(script);
  std::set<std::string> codes;
  size_t at = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    const BadCommand& c = commands[i];
    const std::string exit_code = o.out.substr(at, o.out.find('\n', at) - at);
    at = o.out.find('\n', at) + 1;
    const std::string err = base::read_file(results / fmt::format("{}.err", i));
    const std::string out = base::read_file(results / fmt::format("{}.out", i));
    const bool json = c.arguments.find("--json") != std::string::npos;
    SCOPED_TRACE("quintet " + c.arguments + "\n" + (json ? out : err));
    EXPECT_EQ(exit_code, "2");
    EXPECT_NE(config::find_code(c.code), nullptr);
    codes.insert(c.code);
    if (json) {
      EXPECT_NE(out.find("\"code\": \"" + c.code + "\""), std::string::npos);
      continue;
    }
    EXPECT_EQ(out, "");
    EXPECT_NE(err.find("[" + c.code + "]"), std::string::npos);
    EXPECT_NE(err.find("'quintet explain " + c.code + "' says more"), std::string::npos);
    EXPECT_EQ(err.find('\x1b'), std::string::npos) << "an escape sequence reached the terminal";
  }
  EXPECT_GE(codes.size(), 7u);
  EXPECT_EQ(files_in(folder.path()), before) << "something was left behind, or removed";
}

INSTANTIATE_TEST_SUITE_P(Of, BadCommands,
                         testing::Values("check", "data", "machine", "plan", "train", "weights"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace quintet
