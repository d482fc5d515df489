// Rules for [optimizer].
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <type_traits>

#include "config/names.h"
#include "config/optimizer_traits.h"
#include "config/rule.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

constexpr std::string_view kBlockSize = "optimizer.block_size";

// A key must apply to the optimizer of some parameters, whether of all or of a group.
void optimizer_keys_fit_name(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (o.uses(OptimizerKind::Custom)) return;  // which may read any key
  const std::string why = fmt::format("with optimizer.name = \"{}\"", name_of(o.kind));
  const Recipe defaults;
  for_each_key(r, [&]<class T>(const char* key, const T& value, const auto&...) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::array<double, 2>>) {
      // Another rule is about the size of blocks.
      if (!belongs_to_optimizers(key) || reads_key(o, key) || key == kBlockSize) return;
      for_each_key(defaults, [&]<class D>(const char* same, const D& idle_value, const auto&...) {
        if constexpr (std::is_same_v<D, T>)
          if (std::string_view(same) == key) idle(fail, key, value, idle_value, why);
      });
    }
  });
  if (reads_key(o, "optimizer.nesterov") && o.nesterov && o.momentum == 0)
    fail("optimizer.nesterov", "true has no effect without optimizer.momentum",
         "optimizer.momentum 0.9, or optimizer.nesterov false");
  if (reads_key(o, "optimizer.muon.nesterov") && o.muon.nesterov && o.muon.momentum == 0)
    fail("optimizer.muon.nesterov", "true has no effect without optimizer.muon.momentum",
         "optimizer.muon.momentum 0.95, or optimizer.muon.nesterov false");
  if (reads_key(o, "optimizer.adafactor.eps2") && !o.adafactor.relative)
    idle(fail, "optimizer.adafactor.eps2", o.adafactor.eps2, defaults.optimizer.adafactor.eps2,
         "with optimizer.adafactor.relative = false");
  const auto& [least, largest] = o.ratio_limits;
  if (reads_key(o, "optimizer.ratio_limits") && largest > 0 && least > largest)
    fail("optimizer.ratio_limits", fmt::format("the least, {}, exceeds the largest, {}", least, largest),
         fmt::format("[{}, {}]", largest, least));
}

void block_size_is_a_power_of_two(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (!reads_key(o, kBlockSize))
    return idle(fail, kBlockSize.data(), o.block_size, Optimizer{}.block_size,
                fmt::format("with optimizer.name = \"{}\"", name_of(o.kind)));
  const auto size = static_cast<uint64_t>(o.block_size);
  if (!std::has_single_bit(size))
    fail(kBlockSize.data(), fmt::format("{} is not a power of two", o.block_size),
         fmt::format("{} or {}", std::bit_floor(size), std::bit_ceil(size)));
}

// Tensor-parallel ranks hold runs of consecutive elements of matrices that are cut along their last dim;
// other cuts, and models of the caller's own, are checked when the layout is compiled (layout/groups.cc).
void blocks_divide_rows(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (!reads_key(o, kBlockSize) || o.uses(OptimizerKind::Custom)) return;
  const Model& m = r.model;
  const auto check = [&](const char* key, int64_t ranks, const char* what, int64_t width, int64_t rows) {
    // Smaller matrices have no codes (optim/adamw8bit.cc).
    if (ranks <= 1 || width * rows < 16 * o.block_size || width % ranks != 0) return;
    if (width / ranks % o.block_size == 0) return;
    int64_t fewer = ranks - 1, smaller = o.block_size;
    while (fewer > 1 && (width % fewer != 0 || width / fewer % o.block_size != 0)) --fewer;
    while (smaller > 8 && width / ranks % smaller != 0) smaller /= 2;
    fail(key,
         fmt::format("{} gives each rank {} / {} = {} consecutive elements of {}, no multiple of "
                     "optimizer.block_size {}",
                     ranks, width, ranks, width / ranks, what, o.block_size),
         width / ranks % smaller == 0 ? fmt::format("{}, or optimizer.block_size {}", fewer, smaller)
                                      : fmt::format("{}", fewer));
  };
  const int64_t head = m.mla.kv_rank > 0 ? m.mla.v_dim : m.head_dim;
  check("parallel.tp", r.parallel.tp, "attention's output matrix", m.heads * head, m.embed);
  if (m.has_dense_block())
    check("parallel.tp", r.parallel.tp, "the feed-forward output matrix", m.ffn, m.embed);
  check("parallel.tp", r.parallel.tp, "the shared experts' output matrix", m.moe.shared_ffn, m.embed);
  if (m.moe.experts > 0)
    check("parallel.etp", r.parallel.etp, "the experts' output matrices", m.moe.ffn,
          m.moe.experts * m.expert_width());
}

void clip_needs_clip_norm(const Recipe& r, const Fail& fail) {
  if (r.optimizer.clip_norm == 0)
    idle(fail, "optimizer.clip", r.optimizer.clip, ClipKind::Norm, "with optimizer.clip_norm = 0");
}

void groups_are_complete(const Recipe& r, const Fail& fail) {
  const char* const key = "optimizer.groups";
  for (const ParamGroup& g : r.optimizer.groups) {
    const std::string which = fmt::format("group \"{}\"", g.match);
    if (g.match.empty())
      fail(key, "has a group without match, a pattern over parameter names",
           "match = \"*\" for all parameters");
    if (g.lr && !(*g.lr > 0 && std::isfinite(*g.lr)))
      fail(key, fmt::format("{}: lr must be above 0, got {}", which, *g.lr),
           "update = false, for parameters that stay as they are");
    if (g.weight_decay && !(*g.weight_decay >= 0 && std::isfinite(*g.weight_decay)))
      fail(key, fmt::format("{}: weight_decay must be at least 0, got {}", which, *g.weight_decay),
           "weight_decay = 0");
    if (!g.update && (g.kind || g.lr || g.weight_decay))
      fail(key, fmt::format("{}: name, lr and weight_decay have no effect with update = false", which),
           fmt::format("{{ match = \"{}\", update = false }}", g.match));
  }
}

}  // namespace

std::vector<Rule> optimizer_rules() {
  return {
      {"optimizer keys match optimizer.name",
       {"optimizer.name", "optimizer.groups"},
       optimizer_keys_fit_name},
      {"optimizer.clip requires optimizer.clip_norm",
       {"optimizer.clip", "optimizer.clip_norm"},
       clip_needs_clip_norm},
      {"optimizer.groups have a pattern and settings in range", {"optimizer.groups"}, groups_are_complete},
      {"optimizer.block_size is a power of two and belongs to adamw8bit",
       {"optimizer.name", "optimizer.block_size"},
       block_size_is_a_power_of_two},
      {"adamw8bit: optimizer.block_size divides what a rank holds of a row",
       {"optimizer.name", "optimizer.block_size", "parallel.tp", "parallel.etp", "model.heads",
        "model.head_dim", "model.ffn", "model.moe.ffn", "model.moe.shared_ffn"},
       blocks_divide_rows},
  };
}

}  // namespace quintet::config
