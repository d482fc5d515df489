// Folders that transformers wrote (tests/hf/models_test.py --write-goldens), with the logits that it computes
// in f64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/temp_folder.h"
#include "config/hf/config.h"
#include "config/parse.h"
#include "hf/tensor_source.h"
#include "support/folders.h"
#include "tools/model_files.h"

namespace quintet::test {

inline base::Path golden_folder() {
  const char* const root = std::getenv("QUINTET_ROOT");  // where the tests run on another machine
  return base::Path(root != nullptr ? root : test::source_dir()) / "tests/hf/golden";
}

inline std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const base::Path& entry : base::list_folder(golden_folder()))
    names.push_back(entry.filename().string());
  EXPECT_GE(names.size(), 11u);
  return names;
}

// The vocabulary of the goldens is smaller than the byte tokenizer's, which no rule is to compare here.
inline config::Recipe golden_recipe(const base::Path& folder, const std::vector<std::string>& sets = {}) {
  const config::HfConfig c = config::read_hf_config(base::read_file(folder / "config.json"));
  EXPECT_TRUE(c.problems.empty()) << folder << ": " << c.problems[0];
  config::Recipe r = config::parse(
      "[model]\npreset = \"llama-tiny\"\n[data]\nseq_len = 8\n[optimizer]\nlr = 1e-3\n[batch]\nglobal = "
      "8\n[run]\nsteps = 1\n",
      sets, "test");
  r.precision = config::Precision::of(base::DType::F64);
  r.model = c.model;
  r.model.hf = folder.string();
  r.model.dropout = 0;
  return r;
}

// The recipe's logits are those that transformers computes for the folder.
inline void expect_logits(const config::Recipe& recipe, const base::Path& folder) {
  const TempFolder temp;
  // Not a .safetensors file by name, so that the folder has one set of weights.
  base::write_file_atomically(temp / "expected.safetensors", base::read_file(folder / "expected.st"));
  const auto expected = hf::open_tensors(temp / "expected.safetensors");
  const checkpoint::TensorInfo* const wanted = expected->find("logits");
  ASSERT_NE(wanted, nullptr);
  std::vector<int32_t> ids(static_cast<size_t>(wanted->shape[0]));
  expected->read(*expected->find("ids"), 0, std::as_writable_bytes(std::span(ids)));
  std::vector<double> theirs(static_cast<size_t>(wanted->count())), ours(theirs.size());
  expected->read(*wanted, 0, std::as_writable_bytes(std::span(theirs)));
  const base::Path out = temp / "logits.safetensors";
  tools::write_logits(recipe, ids, out);
  const auto got = hf::open_tensors(out);
  got->read(*got->find("logits"), 0, std::as_writable_bytes(std::span(ours)));
  double largest = 0, error = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(theirs[i]));
    error = std::max(error, std::abs(ours[i] - theirs[i]));
  }
  EXPECT_LT(error, 1e-10 * largest);
  EXPECT_GT(largest, 0.1);
}

}  // namespace quintet::test
