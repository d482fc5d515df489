#include "generate/scorer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "compiler/compile.h"
#include "train/element.h"

namespace quintet::generate {
namespace {

using graph::InputKind;

constexpr int64_t kRowMultiple = 16;

struct Pack {
  std::vector<size_t> texts;
  int64_t rows = 0;
};

// The last token of a text predicts nothing: it needs no row.
int64_t rows_of(const std::vector<int32_t>& ids) { return static_cast<int64_t>(ids.size()) - 1; }

// In the order of the texts, each where the last one left room, or in a new pack.
std::vector<Pack> pack(std::span<const std::vector<int32_t>> texts, int64_t rows) {
  std::vector<Pack> packs;
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t wanted = rows_of(texts[i]);
    if (wanted == 0) continue;
    if (packs.empty() || packs.back().rows + wanted > rows) packs.emplace_back();
    packs.back().texts.push_back(i);
    packs.back().rows += wanted;
  }
  return packs;
}

}  // namespace

std::vector<Scored> score(const Source& source, comm::World& world,
                          std::span<const std::vector<int32_t>> texts, const ScoreOptions& options) {
  std::vector<Scored> scored(texts.size());
  int64_t longest = 0, all = 0;
  for (const auto& ids : texts) {
    if (ids.empty()) base::fail_user("a text to score has no tokens");
    longest = std::max(longest, rows_of(ids));
    all += rows_of(ids);
  }
  if (all == 0) return scored;
  const config::Model& model = source.recipe.model;
  if (model.max_positions > 0 && longest > model.max_positions)
    base::fail_user(
        "a text of {} tokens exceeds the {} positions that the model has learned "
        "(model.max_positions)",
        longest + 1, model.max_positions);
  // A pack is one sequence of rows: a learned table of positions limits it too.
  int64_t rows = std::max(longest, std::min(options.pack_rows, all));
  rows = (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  if (model.max_positions > 0) rows = std::min(rows, std::max(longest, model.max_positions));
  if (model.moe.experts > 0)
    rows = (rows + source.recipe.parallel.tp - 1) / source.recipe.parallel.tp * source.recipe.parallel.tp;
  train::Rank rank(source.recipe, world,
                   {.threads = options.threads,
                    .serving = compiler::Serving{.entries = {{graph::Mode::Score, rows}}},
                    .local_rank = options.local_rank,
                    .log = options.log,
                    .draw = false});
  source.load(rank);
  const base::DType dtype = base::accumulator_of(source.recipe.precision.compute);
  for (const Pack& p : pack(texts, rows)) {
    rank.executor().run(rank.compiled().variants[0], [&](int, const auto& inputs) {
      for (const auto& [spec, data] : inputs) {
        std::fill_n(data, rows, spec.kind == InputKind::Labels || spec.kind == InputKind::Documents ? -1 : 0);
        int64_t row = 0;
        for (size_t d = 0; d < p.texts.size(); ++d) {
          const std::vector<int32_t>& ids = texts[p.texts[d]];
          for (size_t i = 0; i + 1 < ids.size(); ++i, ++row)
            data[row] = spec.kind == InputKind::Ids         ? ids[i]
                        : spec.kind == InputKind::Labels    ? ids[i + 1]
                        : spec.kind == InputKind::Positions ? static_cast<int32_t>(i)
                        : spec.kind == InputKind::Documents ? static_cast<int32_t>(d)
                                                            : 0;
        }
      }
    });
    const exec::HostBytes result =
        rank.executor().read({rank.compiled().program.result, 0, rows * base::size_of(dtype)});
    int64_t row = 0;
    for (const size_t t : p.texts)
      for (int64_t i = 0; i < rows_of(texts[t]); ++i, ++row) {
        scored[t].log_probs.push_back(train::read_element(result.data(), dtype, row));
        if (!std::isfinite(scored[t].log_probs.back()))
          base::fail_user("the model's output is not finite: the weights are damaged, or the run diverged");
      }
  }
  return scored;
}

}  // namespace quintet::generate
