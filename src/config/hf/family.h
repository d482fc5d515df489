// Families of Hugging Face models, as data: which keys of a config.json describe the model, and how its files
// name and store our parameters. A new family is one HfFamily (families.cc); reading and writing configs
// (config.h), loading, exporting and converting weights (room hf) follow from it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

// A parameter of ours in the files of a family.
//   ours    its name (models/build.h); {i} is the block
//   theirs  the tensor's name, relative to HfFamily::prefix; a leading "/" means without the prefix. {i} is
//           the block, {e} an index of our first dim: one tensor for each, stored without that dim
//   layout  the tensor's dims, separated by spaces. A dim is a product of our dims, given by number, slowest
//           first: "01 2" stores [heads, head_dim, embed] as [heads x head_dim, embed], "1 0" is a transpose.
//           "+" is where parameters that share one tensor are concatenated, in the order of the rows: "+01 2"
//           in three rows is [q; k; v], "0+1 2" alternates between them within every head, "0 1+" interleaves
//           single elements. "~" after a dim: its two halves are interleaved (0, n/2, 1, n/2 + 1, ...)
// Rows whose parameter the model lacks do not apply. A second row of the same parameter is another way in
// which files store it: reading takes the one that is there, writing the first.
// A row that is a copy repeats a parameter that another row stores: written, and equal where it is read.
struct HfWeight {
  std::string ours, theirs, layout;
  bool copy = false;
};

struct HfKey;  // keys.h

struct HfFamily {
  std::string_view type;                        // model_type
  std::vector<std::string_view> architectures;  // accepted; the first is written
  std::string_view prefix;                      // of the base model's tensors
  std::vector<HfKey> (*keys)();                 // read in order
  std::vector<HfWeight> (*weights)(const Model& m);
  std::vector<std::string_view> unused;  // patterns (* and ?) of tensors without a role in the model
  // Of a model with images, of which only the text part is trained: the family of the config in
  // "text_config", and patterns of the tensors of the other parts, which are left out and kept by an
  // export.
  std::string_view text_type = {};
  std::vector<std::string_view> other_parts = {};
};

std::span<const HfFamily> hf_families();
const HfFamily* find_hf_family(std::string_view type);  // null when unknown

}  // namespace quintet::config
