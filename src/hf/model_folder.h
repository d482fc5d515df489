// A Hugging Face model folder, checked against the parameters that a model needs.
#pragma once

#include "config/hf/config.h"
#include "hf/strided.h"

namespace quintet::hf {

// Whether a tensor belongs to a part of the model that is not trained, such as the one for images.
bool is_of_other_part(const config::HfFamily& family, const TensorInfo& tensor);

class ModelFolder {
 public:
  // `ours`: the model's parameters and states. UserError with everything that is wrong at once: tensors that
  // are missing, have another shape or no floating type, and tensors that the model has no use for.
  ModelFolder(const base::Path& folder, const config::Model& model, std::vector<TensorInfo> ours);

  // With files and buffers of its own, for one thread.
  struct OpenReader {
    std::unique_ptr<TensorSource> source;
    WeightReader weights;
  };
  OpenReader open_reader() const;
  TensorSource& source() { return *source_; }
  const NameMap& map() const { return *map_; }
  // For the user: what was left out or converted.
  const std::vector<std::string>& notes() const { return notes_; }

  // Tensors that repeat another one must equal it: the head with tied embeddings, embedding and head of
  // multi-token prediction. Reads both. UserError otherwise.
  void check_copies();

 private:
  void check(const config::Model& model, int64_t predict_layers);
  bool is_equal(const TensorInfo& a, const TensorInfo& b);

  std::unique_ptr<TensorSource> source_;
  std::unique_ptr<NameMap> map_;
  std::vector<std::string> notes_;
  std::vector<std::string> tied_heads_;  // names that files may have for a head that is the embedding
};

}  // namespace quintet::hf
