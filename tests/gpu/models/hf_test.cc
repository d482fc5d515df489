// Hugging Face folders loaded onto a GPU: the logits are those of transformers.
#include "support/hf_goldens.h"

namespace quintet {
namespace {

TEST(HfFolders, LogitsAreThoseOfTransformers) {
  for (const std::string& name : test::golden_names()) {
    SCOPED_TRACE(name);
    const base::Path folder = test::golden_folder() / name;
    test::expect_logits(test::golden_recipe(folder, {"run.device=\"cuda\""}), folder);
  }
}

}  // namespace
}  // namespace quintet
