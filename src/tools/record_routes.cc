#include "tools/record_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "comm/local.h"
#include "train/loop.h"
#include "train/rank.h"
#include "train/route_file.h"
#include "train/run_data.h"

namespace quintet::tools {
namespace {

using graph::InputKind;

// The model of the weights routes as that of the recipe: as many tokens, blocks, experts and choices.
void require_same_routers(const config::Model& weights, const config::Model& run, const std::string& name) {
  const auto require = [&](const char* key, int64_t have, int64_t want) {
    if (have != want)
      base::fail_user("routes: {} has {} {}, but the recipe has {}: their routers do not match", name, key,
                      have, want);
  };
  require("model.vocab", weights.vocab, run.vocab);
  require("model.layers", weights.layers, run.layers);
  require("model.moe.experts", weights.moe.experts, run.moe.experts);
  require("model.moe.top_k", weights.moe.top_k, run.moe.top_k);
  for (int64_t block = 0; block < run.layers; ++block)
    if (weights.moe.in_block(block) != run.moe.in_block(block))
      base::fail_user("routes: block {} has experts in {} only: their routers do not match", block,
                      run.moe.in_block(block) ? "the recipe" : name);
}

struct Sample {
  std::vector<int32_t> ids, positions, documents;
  explicit Sample(size_t rows) : ids(rows), positions(rows), documents(rows) {}
  std::span<const int32_t> of(InputKind kind) const {
    if (kind == InputKind::Ids) return ids;
    if (kind == InputKind::Positions) return positions;
    if (kind == InputKind::Documents) return documents;
    return {};
  }
  void read(const data::Mixture& mixture, int64_t place) {
    const auto pick = mixture.at(place);
    QUINTET_CHECK(pick.has_value(), "no sample {} in an order without end", place);
    const data::MixtureSet::Found found = mixture.find(*pick);
    found.dataset->fill(found.index, {ids, {}, positions, documents}, place);
  }
};

}  // namespace

std::string record_routes(const base::Path& model, config::Recipe recipe, const RecordRoutesOptions& options,
                          const base::Path& out) {
  const config::Moe& moe = recipe.model.moe;
  if (moe.experts == 0) base::fail_user("routes: the recipe's model has no experts (model.moe.experts = 0)");
  if (moe.experts > std::numeric_limits<int16_t>::max())
    base::fail_user("routes: a file has numbers of experts up to {}, and the model has {} experts",
                    std::numeric_limits<int16_t>::max(), moe.experts);
  const int64_t last = options.steps > 0 ? options.first_step - 1 + options.steps : recipe.run.steps;
  if (options.first_step < 1 || options.first_step > last || last > recipe.run.steps)
    base::fail_user("routes: steps {} to {} are not among the {} steps of the recipe (run.steps)",
                    options.first_step, last, recipe.run.steps);
  generate::Source source = generate::open_source(model, options.source);
  require_same_routers(source.recipe.model, recipe.model, source.name);
  recipe.data.routes.clear();
  const train::RunData data = train::load_data(recipe);
  const int64_t first = data.train.position(options.first_step - 1),
                samples = data.train.position(last) - first;
  const int64_t rows = recipe.data.seq_len, columns = moe.choices_in(recipe.model.layers);
  source.recipe.parallel = {};
  source.recipe.data.seq_len = rows;
  source.recipe.data.pack = recipe.data.pack;

  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(source.recipe, world,
                     {.threads = train::kernel_threads(source.recipe, 1),
                      .serving = compiler::Serving{.entries = {{graph::Mode::Routes, rows}}},
                      .log = options.source.log,
                      .draw = false});
    source.load(rank);
    Sample sample(static_cast<size_t>(rows));
    const exec::LoadBatch load = [&](int, const std::vector<exec::InputRows>& inputs) {
      for (const auto& [spec, to] : inputs)
        if (const auto from = sample.of(spec.kind); !from.empty())
          std::ranges::copy(from, to);
        else
          std::fill_n(to, rows, spec.kind == InputKind::Labels ? -1 : 0);
    };
    checkpoint::write_safetensors(
        out.string(),
        {{.name = train::kRouteIds, .dtype = base::DType::I32, .shape = {samples, rows}},
         {.name = train::kRoutes, .dtype = base::DType::I16, .shape = {samples, rows, columns}}},
        {{train::kFirstSample, std::to_string(first)}}, [&](size_t tensor, std::span<std::byte> to) {
          for (int64_t i = 0; i < samples; ++i) {
            sample.read(data.train.mixture(), first + i);
            if (tensor == 0) {
              std::ranges::copy(sample.ids, reinterpret_cast<int32_t*>(to.data()) + i * rows);
              continue;
            }
            rank.executor().run(rank.compiled().variants[0], load);
            const exec::HostBytes chosen =
                rank.executor().read({rank.compiled().program.result, 0, rows * columns * 4});
            std::copy_n(reinterpret_cast<const int32_t*>(chosen.data()), rows * columns,
                        reinterpret_cast<int16_t*>(to.data()) + i * rows * columns);
          }
        });
  });
  return fmt::format("{} of steps {} to {}, {} of {} each: {}\n", base::counted(samples, "sample"),
                     options.first_step, last, base::counted(rows, "row"), base::counted(columns, "choice"),
                     out.string());
}

}  // namespace quintet::tools
