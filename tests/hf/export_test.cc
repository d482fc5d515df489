// A run as a Hugging Face folder, and a run from that folder.
#include <gtest/gtest.h>

#include "tools/model_files.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;

const std::vector<std::string> kCheckpoint = {"checkpoint.every=100", "precision.compute='bf16'"};

TEST(HfExport, ARunBecomesAFolderAndARunAgain) {
  const SmallRun small;
  small.train(kCheckpoint);
  const base::Path out = small / "out";
  const std::string line =
      tools::export_model(small.run_dir(), out, {.dtype = base::DType::F32, .shard_bytes = 20000, .log = {}});
  EXPECT_CONTAINS(line, "21 tensors");
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors.index.json"})
    EXPECT_TRUE(base::file_exists(out / name)) << name;
  EXPECT_EQ(test::read_json(out / "config.json").at("model_type"), "llama");
  const tools::DiffReport same = tools::diff_models(small.run_dir(), out);
  EXPECT_TRUE(same.equal) << same.text;
  EXPECT_CONTAINS(same.text, "equal: 21 tensors");

  // One step that changes nothing, in another layout: what comes out is what went in.
  const std::vector<std::string> again = {"model.hf='" + out.string() + "'",
                                          "data.tokenizer='bytes'",
                                          "run.steps=1",
                                          "optimizer.name='sgd'",
                                          "optimizer.lr=1e-300",
                                          "optimizer.weight_decay=0",
                                          "parallel.tp=1",
                                          "parallel.sequence_parallel=false",
                                          "parallel.pp=2",
                                          "checkpoint.every=100",
                                          "run.dir='" + (small / "second").string() + "'"};
  small.train(again);
  const base::Path second = small / "second-out";
  tools::export_model(small / "second", second, {.dtype = {}, .log = {}});
  const tools::DiffReport round = tools::diff_models(second, out);
  EXPECT_TRUE(round.equal) << round.text;
  EXPECT_EQ(base::read_file(second / "config.json"), base::read_file(out / "config.json"));

  // A difference is named.
  const tools::DiffReport other = tools::diff_models(small.run_dir(), [&] {
    const base::Path narrow = small / "narrow";
    tools::convert_model(out, narrow, {.dtype = base::DType::BF16, .log = {}});
    return narrow;
  }());
  EXPECT_FALSE(other.equal);
  EXPECT_CONTAINS(other.text, "first different tensor: lm_head.weight");
}

TEST(HfExport, NothingIsOverwritten) {
  const SmallRun small;
  base::make_directories(small / "full");
  base::write_file_atomically(small / "full/x", "1");
  EXPECT_CONTAINS(test::user_error([&] { tools::export_model(small.run_dir(), small / "full", {}); }),
                  "is not empty");
  EXPECT_CONTAINS(test::user_error([&] { tools::export_model(small.run_dir(), small / "new", {}); }),
                  "is neither a checkpoint nor a run that has one");
  EXPECT_CONTAINS(test::user_error([&] { tools::convert_model(small / "full", small / "new", {}); }),
                  "has no weights");
  EXPECT_FALSE(base::directory_exists(small / "new"));
}

}  // namespace
}  // namespace quintet
