// Recipes that are invalid in what they say about a model that a program supplies.
#pragma once

#include "config/bad_precision.h"

namespace quintet::config {

inline std::vector<Bad> bad_custom_model() {
  return {
      {{"model.preset=''", "model.family='custom'"},
       "ranks divide the dims of a custom model",
       "model.family",
       {"a recipe alone has none"},
       "leave it out and name a model with model.preset"},
      {{"parallel.dims.channels='tp'"},
       "parallel.dims names dims of the model",
       "parallel.dims",
       {"places the dim \"channels\", but only a custom model has dims of its own"},
       "leave it out"},
      {{"parallel.dims.channels='pt'"},
       "values have the type of their key",
       "parallel.dims",
       {"must be one of \"none\", \"tp\""},
       "\"tp\""},
      {{"parallel.dims=3"},
       "values have the type of their key",
       "parallel.dims",
       {"a table of dims and axes"},
       "{ channels = \"tp\" }"},
  };
}

}  // namespace quintet::config
