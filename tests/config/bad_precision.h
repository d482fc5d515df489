// A bad recipe and why it is refused, and those that are bad in [precision].
#pragma once

#include <string>
#include <vector>

namespace quintet::config {

struct Bad {
  std::vector<std::string> overrides;  // of support.h's kGood
  std::string name;                    // of the broken rule
  std::string key;                     // that is blamed
  std::vector<std::string> parts;      // of the rule's text: the numbers
  std::string nearest;                 // part of what is offered instead; empty: nothing is offered
};

inline std::vector<Bad> bad_precision() {
  return {
      {{"precision.compute='f64'", "precision.master='f32'"},
       "f64 is all or nothing",
       "precision.master",
       {"f32", "compute = \"f64\""},
       "\"f64\""},
      {{"precision.reduce='f64'"},
       "f64 is all or nothing",
       "precision.reduce",
       {"f64", "compute = \"f32\""},
       "\"f32\""},
      {{"precision.moments='f64'"}, "f64 is all or nothing", "precision.moments", {"f64"}, "\"f32\""},
      {{"precision.master='bf16'"}, "master is not narrower", "precision.master", {"bf16", "f32"}, "\"f32\""},
      {{"precision.compute='bf16'", "precision.master='bf16'"},
       "master is not narrower",
       "precision.master",
       {"bf16", "f32"},
       "\"split\""},
      {{"precision.master='split'"},
       "split masters have bf16 weights",
       "precision.master",
       {"compute = \"bf16\"", "\"f32\""},
       "\"f32\""},
      {{"precision.compute='f64'", "precision.master='split'"},
       "split masters have bf16 weights",
       "precision.master",
       {"compute = \"bf16\"", "\"f64\""},
       "\"f64\""},
      {{"precision.gradients='bf16'"},
       "narrow gradients are of narrow weights",
       "precision.gradients",
       {"compute = \"bf16\"", "precision.reduce"},
       "\"f32\""},
      {{"precision.gradients='f64'", "precision.reduce='f32'"},
       "f64 is all or nothing",
       "precision.gradients",
       {"f64"},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.gradients='bf16'"},
       "narrow gradients are of narrow weights",
       "precision.gradients",
       {"compute = \"bf16\"", "\"f16\""},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.master='split'"},
       "split masters have bf16 weights",
       "precision.master",
       {"compute = \"bf16\"", "\"f16\""},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.gradients='f16'"},
       "f16 is of computing",
       "precision.gradients",
       {"precision.compute alone", "65504"},
       "\"f32\""},
      {{"precision.moments='f16'"}, "f16 is of computing", "precision.moments", {"compute alone"}, "\"f32\""},
      {{"precision.reduce='f16'"}, "f16 is of computing", "precision.reduce", {"compute alone"}, "\"f32\""},
      {{"precision.tf32=true"}, "tf32 is of f32 on GPUs", "precision.tf32", {"device = \"cuda\""}, "false"},
      {{"precision.tf32=true", "run.device='cuda'", "precision.compute='bf16'"},
       "tf32 is of f32 on GPUs",
       "precision.tf32",
       {"no effect", "\"bf16\""},
       "false"},
      {{"precision.loss_scale='static'"},
       "type",
       "precision.loss_scale",
       {"\"dynamic\" or a number above 0", "static"},
       "\"dynamic\""},
      {{"precision.loss_scale=0"}, "type", "precision.loss_scale", {"above 0", "is 0"}, "\"dynamic\""},
      {{"precision.loss_scale=1024", "precision.loss_scale_window=100"},
       "loss scale window is of dynamic",
       "precision.loss_scale_window",
       {"100 has no effect", "dynamic"},
       "2000"},
  };
}

}  // namespace quintet::config
