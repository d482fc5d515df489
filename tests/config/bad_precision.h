// Invalid recipes with the expected problem, and those that are invalid in [precision].
#pragma once

#include <string>
#include <vector>

namespace quintet::config {

struct Bad {
  std::vector<std::string> overrides;  // applied to kGood (support.h)
  std::string name;                    // of the violated rule
  std::string key;                     // that is reported
  std::vector<std::string> parts;      // substrings of the message
  std::string nearest;                 // substring of the suggestion; empty: no suggestion
};

inline std::vector<Bad> bad_precision() {
  return {
      {{"precision.compute='f64'", "precision.master='f32'"},
       "f64 is used for all precision keys or for none",
       "precision.master",
       {"f32", "compute = \"f64\""},
       "\"f64\""},
      {{"precision.reduce='f64'"},
       "f64 is used for all precision keys or for none",
       "precision.reduce",
       {"f64", "compute = \"f32\""},
       "\"f32\""},
      {{"precision.moments='f64'"},
       "f64 is used for all precision keys or for none",
       "precision.moments",
       {"f64"},
       "\"f32\""},
      {{"precision.master='bf16'"},
       "precision.master is at least f32",
       "precision.master",
       {"bf16", "f32"},
       "\"f32\""},
      {{"precision.compute='bf16'", "precision.master='bf16'"},
       "precision.master is at least f32",
       "precision.master",
       {"bf16", "f32"},
       "\"split\""},
      {{"precision.master='split'"},
       "precision.master = \"split\" requires bf16 compute",
       "precision.master",
       {"compute = \"bf16\"", "\"f32\""},
       "\"f32\""},
      {{"precision.compute='f64'", "precision.master='split'"},
       "precision.master = \"split\" requires bf16 compute",
       "precision.master",
       {"compute = \"bf16\"", "\"f64\""},
       "\"f64\""},
      {{"precision.gradients='bf16'"},
       "precision.gradients = \"bf16\" requires bf16 compute",
       "precision.gradients",
       {"compute = \"bf16\"", "precision.reduce"},
       "\"f32\""},
      {{"precision.gradients='f64'", "precision.reduce='f32'"},
       "f64 is used for all precision keys or for none",
       "precision.gradients",
       {"f64"},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.gradients='bf16'"},
       "precision.gradients = \"bf16\" requires bf16 compute",
       "precision.gradients",
       {"compute = \"bf16\"", "\"f16\""},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.master='split'"},
       "precision.master = \"split\" requires bf16 compute",
       "precision.master",
       {"compute = \"bf16\"", "\"f16\""},
       "\"f32\""},
      {{"precision.compute='f16'", "precision.gradients='f16'"},
       "f16 is allowed only for precision.compute",
       "precision.gradients",
       {"only for precision.compute", "overflow"},
       "\"f32\""},
      {{"precision.moments='f16'"},
       "f16 is allowed only for precision.compute",
       "precision.moments",
       {"only for precision.compute"},
       "\"f32\""},
      {{"precision.reduce='f16'"},
       "f16 is allowed only for precision.compute",
       "precision.reduce",
       {"only for precision.compute"},
       "\"f32\""},
      {{"precision.tf32=true"},
       "precision.tf32 requires f32 compute on a GPU",
       "precision.tf32",
       {"device = \"cuda\""},
       "false"},
      {{"precision.tf32=true", "run.device='cuda'", "precision.compute='bf16'"},
       "precision.tf32 requires f32 compute on a GPU",
       "precision.tf32",
       {"no effect", "\"bf16\""},
       "false"},
      {{"precision.loss_scale='static'"},
       "type",
       "precision.loss_scale",
       {"\"dynamic\" or a number above 0", "static"},
       "\"dynamic\""},
      {{"precision.loss_scale=0"}, "type", "precision.loss_scale", {"above 0", "got 0"}, "\"dynamic\""},
      {{"precision.loss_scale=1024", "precision.loss_scale_window=100"},
       "precision.loss_scale_window requires precision.loss_scale = \"dynamic\"",
       "precision.loss_scale_window",
       {"100 has no effect", "dynamic"},
       "2000"},
  };
}

}  // namespace quintet::config
