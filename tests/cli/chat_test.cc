// Chat data through the tool.
#include "chat/tiny_tokenizer.h"
#include "cli/support.h"

namespace quintet {
namespace {

using test::Outcome;
using test::quintet;

class ChatVerbs : public testing::Test {
 protected:
  ChatVerbs() {
    test::write_tiny_tokenizer(folder_ / "tok");
    write("chat.jsonl",
          R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
          "\n");
  }
  void write(const std::string& name, const std::string& text) {
    base::write_file_atomically(folder_ / name, text);
  }
  // With FOLDER for the test's folder.
  Outcome run(std::string arguments) {
    for (size_t at; (at = arguments.find("FOLDER")) != std::string::npos;)
      arguments.replace(at, 6, folder_.path().string());
    return quintet(arguments);
  }
  void expect_refused(const std::string& arguments, const std::string& message) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 2) << arguments << o.out << o.err;
    EXPECT_NE(o.err.find(message), std::string::npos) << arguments << "\n" << o.err;
  }
  test::TempFolder folder_;
};

TEST_F(ChatVerbs, PrepareAndShow) {
  const Outcome prepared = run("prepare FOLDER/chat.jsonl --chat --tokenizer FOLDER/tok --out FOLDER/out");
  EXPECT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_NE(prepared.out.find("1 example,"), std::string::npos) << prepared.out;
  base::make_directories(folder_ / "more");
  base::write_file_atomically(folder_ / "more/chat.ndjson", base::read_file(folder_ / "chat.jsonl"));
  for (const char* what : {"data show FOLDER/out", "data show FOLDER/out/tokens.bin",
                           "data show FOLDER/chat.jsonl --tokenizer FOLDER/tok -n 1",
                           "data show FOLDER/more --tokenizer FOLDER/tok -n 1 --loss assistant",
                           "data show FOLDER/more/chat.ndjson --tokenizer FOLDER/tok -n 1"}) {
    const Outcome shown = run(what);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_NE(shown.out.find("<|im_start|>assistant\n{+a<|im_end|>+}"), std::string::npos) << what << "\n"
                                                                                           << shown.out;
  }
  const auto json = nlohmann::json::parse(run("data show FOLDER/out --json").out);
  EXPECT_EQ(json["ids"].size(), json["trained"].size());
  const Outcome again = run("prepare FOLDER/chat.jsonl --chat --tokenizer FOLDER/tok --out FOLDER/out");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_NE(again.out.find("is complete already"), std::string::npos) << again.out;
  expect_refused("prepare FOLDER/chat.jsonl --chat --loss last --tokenizer FOLDER/tok --out FOLDER/out",
                 "--overwrite");
}

TEST_F(ChatVerbs, BadInputIsRefusedWithExitCode2) {
  const std::string chat = "prepare FOLDER/chat.jsonl --chat --tokenizer FOLDER/tok --out FOLDER/new ";
  write("bad.jinja", "{% for m in messages %}{{ m.content | nope }}{% endfor %}");
  expect_refused(chat + "--chat-template FOLDER/bad.jinja",
                 "line 1, column 39: there is no filter named 'nope'");
  write("open.jinja", "{% for m in messages %}");
  expect_refused(chat + "--chat-template FOLDER/open.jinja", "expected '{% endfor %}'");
  expect_refused(chat + "--chat-template missing", "is neither a file nor a chat template");
  expect_refused(chat + "--format nope", "--format");
  expect_refused(chat + "--field text", "--field excludes --chat");
  expect_refused("prepare FOLDER/chat.jsonl --loss all --tokenizer FOLDER/tok --out FOLDER/new",
                 "--loss requires --chat");
  expect_refused(chat + "--format alpaca", "chat.jsonl:1: no field \"instruction\"");
  write("silent.jinja", "{{ bos_token }}");
  expect_refused(chat + "--chat-template FOLDER/silent.jinja", "chat.jsonl:1: no token would be trained");
  write("endless.jinja",
        "{% for m in messages %}{{ m.role }}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}");
  expect_refused(chat + "--chat-template FOLDER/endless.jinja", "never trains a token that ends a turn");
  expect_refused("prepare FOLDER/chat.jsonl --chat --tokenizer bytes --out FOLDER/new",
                 "has no chat template");
  write("chat.jsonl", "{\"messages\": [{\"content\": \"x\"}]}\n");
  expect_refused(chat, "chat.jsonl:1: message 1 has no \"role\"");
  write("chat.jsonl", "");
  expect_refused(chat, "no example is left");
  EXPECT_FALSE(base::file_exists(folder_ / "new" / "tokens.bin"));
  expect_refused("data show FOLDER/chat.jsonl", "needs --tokenizer");
  expect_refused("data show FOLDER/nothing", "does not exist");
}

}  // namespace
}  // namespace quintet
