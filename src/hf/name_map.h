// Where the files of a family store our parameters (config::HfWeight, resolved for one model): every
// parameter is a strided view of one tensor, or, with one tensor per expert, of several.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "config/hf/family.h"

namespace quintet::hf {

using checkpoint::TensorInfo;

// A parameter (or one expert's part of it) in a tensor: its element (i0, i1, ...) is the tensor's element
// offset + i0 x stride[0] + i1 x stride[1] + ... A dim with interleaved halves has index 2 x pair + half.
struct Link {
  size_t ours = 0, theirs = 0;  // indices of NameMap's lists
  int64_t expert = -1;          // index of our first dim, whose stride means nothing; -1: all of it
  int64_t offset = 0;
  std::vector<int64_t> stride;    // by our dim
  std::vector<bool> interleaved;  // by our dim
};

struct TheirTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<Link> links;  // in the order of concatenation
  bool copy = false;        // of a parameter that another tensor stores, which NameMap::find names
};

class NameMap {
 public:
  using Has = std::function<bool(const std::string& name)>;
  // `ours`: the model's parameters and states with their shapes. `has`: whether files have a tensor, which
  // selects the prefix and the way of storage; empty: as the family's files are written. A parameter that no
  // row names is an InternalError. With model.moe.upcycle the files are dense, every expert is their
  // feed-forward network or the slice e % upcycle_slices of it, and routers have no place in them.
  NameMap(const config::HfFamily& family, const config::Model& model, std::vector<TensorInfo> ours,
          const Has& has);

  const config::HfFamily& family() const { return *family_; }
  const std::vector<TensorInfo>& ours() const { return ours_; }
  const std::vector<TheirTensor>& theirs() const { return theirs_; }
  // The links of a parameter, by expert; null for a name that the map lacks.
  const std::vector<Link>* find(const std::string& ours) const;
  const std::string& prefix() const { return prefix_; }
  // The name of a tensor that is not one of the base model's, such as "lm_head.weight".
  std::string outer_name(std::string_view name) const { return outer_ + std::string(name); }

 private:
  const config::HfFamily* family_;
  std::vector<TensorInfo> ours_;
  std::vector<TheirTensor> theirs_;
  std::map<std::string, std::vector<Link>> links_;
  std::string prefix_, outer_;
};

}  // namespace quintet::hf
