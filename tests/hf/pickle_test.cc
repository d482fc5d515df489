#include "hf/pickle.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temp_folder.h"
#include "hf/tensor_source.h"
#include "hf/torch_source.h"
#include "support/folders.h"

namespace quintet::hf {
namespace {

const base::Path kCorpus = base::Path(test::source_dir()) / "tests/fuzz/corpus";

// What Python's pickle wrote in every protocol.
TEST(Pickle, EveryProtocolIsRead) {
  for (int protocol = 2; protocol <= 5; ++protocol) {
    SCOPED_TRACE(protocol);
    const std::string bytes =
        base::read_file(kCorpus / "pickle" / ("good_protocol" + std::to_string(protocol)));
    const Pickle p(bytes, "test");
    const Pickle::Value* const list = p.get(p.root(), "a");
    ASSERT_NE(list, nullptr);
    ASSERT_EQ(list->items.size(), 8u);
    EXPECT_EQ(p[list->items[0]].integer, 1);
    EXPECT_EQ(p[list->items[1]].number, 2.5);
    EXPECT_EQ(p[list->items[2]].kind, Pickle::Kind::None);
    EXPECT_EQ(p[list->items[4]].items.size(), 3u);
    EXPECT_EQ(p[list->items[6]].integer, -5);
    EXPECT_EQ(p[list->items[7]].integer, int64_t{1} << 40);
    EXPECT_TRUE(p.is_object(p.get_id(p.root(), "d"), "collections.OrderedDict"));
  }
}

// A call is a value that names what would be called; nothing runs.
TEST(Pickle, NothingIsExecuted) {
  const Pickle p(base::read_file(kCorpus / "pickle/call"), "test");
  EXPECT_TRUE(p.is_object(p.root(), "os.system"));
  EXPECT_CONTAINS(test::user_error([] { Pickle(base::read_file(kCorpus / "pickle/ext"), "test"); }),
                  "instruction 130 is not supported");
}

TEST(TorchFile, TensorsAreRead) {
  for (const char* name : {"good_state", "good_nested"}) {
    const auto source = open_torch(kCorpus / "torch_file" / name, {kCorpus / "torch_file" / name});
    ASSERT_EQ(source->tensors().size(), 2u);
    const TensorInfo& a = *source->find("a");
    EXPECT_EQ(a.shape, std::vector<int64_t>({2, 3}));
    std::vector<float> values(6);
    source->read(a, 0, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, std::vector<float>({0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(source->find("b")->dtype, base::DType::BF16);
  }
}

TEST(TorchFile, OthersAreRefusedWithWhatToDo) {
  const auto refusal = [](const char* name) {
    return test::user_error(
        [&] { open_torch(kCorpus / "torch_file" / name, {kCorpus / "torch_file" / name}); });
  };
  EXPECT_CONTAINS(refusal("truncated"), "is not a file of torch.save that Quintet reads");
  EXPECT_CONTAINS(refusal("legacy"), "must be loaded and saved again");
}

}  // namespace
}  // namespace quintet::hf
