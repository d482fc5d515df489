// The measured choices between kernels of attention, as text; needs no GPU.
#include "exec/cuda/attention_choices.h"

#include <gtest/gtest.h>

#include "exec/cuda/gemm_algorithms.h"

namespace quintet {
namespace {

using exec::cuda::AttentionChoices;
using exec::cuda::AttentionKernels;

TEST(AttentionChoices, AreReadAsWritten) {
  AttentionChoices made("card, cuDNN 1, attention");
  made.set("attention bf16, 4 x 4096", {AttentionKernels::Own, 301.5, 340.2});
  made.set("attention_dx bf16, 4 x 4096", {AttentionKernels::Library, 800.0, 900.0});
  AttentionChoices read("card, cuDNN 1, attention"), elsewhere("card, cuDNN 2, attention");
  for (AttentionChoices* one : {&read, &elsewhere})
    one->read_tuned("card, cublasLt 1 | gemm | 2.5 | 00ff\nnonsense | x\n" + made.tuned());
  EXPECT_EQ(read.tuned(), made.tuned());
  EXPECT_EQ(read.find("attention bf16, 4 x 4096"), AttentionKernels::Own);
  EXPECT_EQ(read.find("attention_dx bf16, 4 x 4096"), AttentionKernels::Library);
  EXPECT_EQ(read.find("attention bf16, 8 x 4096"), std::nullopt);
  EXPECT_EQ(elsewhere.count(), 0);
}

// They share a file with GEMM algorithms, whose merging keeps one line per device and problem.
TEST(AttentionChoices, AreMergedLikeAlgorithms) {
  AttentionChoices first("card, attention"), second("card, attention");
  first.set("a", {AttentionKernels::Own, 1.0, 2.0});
  second.set("a", {AttentionKernels::Library, 1.0, 2.0});
  second.set("b", {AttentionKernels::Library, 1.0, 2.0});
  const std::string texts[] = {first.tuned(), second.tuned()};
  AttentionChoices merged("card, attention");
  merged.read_tuned(exec::cuda::merge_algorithms(texts));
  EXPECT_EQ(merged.find("a"), AttentionKernels::Own);
  EXPECT_EQ(merged.find("b"), AttentionKernels::Library);
}

TEST(AttentionChoices, SummaryNamesWhatWasAskedFor) {
  AttentionChoices choices("card");
  choices.set("attention bf16, 4 x 4096", {AttentionKernels::Own, 301.5, 340.2});
  choices.set("attention bf16, 2 x 8192", {AttentionKernels::Own, 600.0, 640.0});
  EXPECT_EQ(choices.summary(), "");
  choices.find("attention bf16, 4 x 4096");
  EXPECT_EQ(choices.summary(),
            "attention, the faster kernels: attention by Quintet in 0.30 ms (cuDNN: 0.34)");
}

}  // namespace
}  // namespace quintet
