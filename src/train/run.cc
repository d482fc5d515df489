// How a run starts: as threads of this process, or as processes of an MPI launcher.
#include <fmt/format.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/codes.h"
#include "config/environment.h"
#include "config/validate.h"
#include "train/agreement.h"
#include "train/memory_check.h"
#include "train/rank_loop.h"
#include "train/start_checks.h"
#include "train/stream_places.h"

namespace quintet::train {

using base::DType;
using config::Recipe;

namespace {

StartOptions start_options(const RunOptions& options) {
  return {.overwrite = options.overwrite,
          .from = options.from,
          .step = options.from_step,
          .weights_only = options.weights_only,
          .load = options.load,
          .allow = options.allow};
}

Prepared prepare(Recipe recipe, Start start, std::optional<compiler::Fit> fit, const RunOptions& options,
                 int64_t begin_ns, HostShare* share = nullptr) {
  RunData data = options.corpus ? make_data(recipe, *options.corpus) : load_data(recipe, share);
  DataIdentity identity = identity_of(data);
  require_same_data(start, identity);
  if (start.state && start.state->data == identity) restore_places(data, start.state->streams);
  if (!options.dry_run || !start.state) open_streams(data, start.state ? start.state->sequences : 0);
  return {std::move(recipe),   std::move(start), std::move(data),
          std::move(identity), std::move(fit),   begin_ns};
}

// Rejects options that are known to be wrong without reading data.
void check_options(const Recipe& recipe, const RunOptions& options) {
  if (options.trace && options.trace->last > recipe.run.steps)
    config::fail_coded(config::kOptionsFit, "--trace steps={}-{} ends after the last step, {}",
                       options.trace->first, options.trace->last, recipe.run.steps);
}

RunResult run_as_threads(Recipe recipe, const RunOptions& options) {
  const int64_t begin_ns = base::now_ns();
  check_options(recipe, options);
  Start start = plan_start(recipe, start_options(options));
  const int64_t world_size = recipe.parallel.world();
  comm::require_local_ranks(world_size);
  const exec::Device device = device_of(recipe);
  exec::require_device(device);
  const HeaderFacts facts{.backend = world_size > 1 ? "threads of this process" : "this process",
                          .threads = kernel_threads(recipe, world_size)};
  const auto fit = find_fit(recipe, options.model, facts.threads, options.disabled_passes);
  require_memory(recipe, options.model, facts.threads, exec::shared_memory(device, 0, world_size), fit,
                 options.disabled_passes, exec::shared_memory(exec::Device::Cpu, 0, world_size));
  const Prepared prepared = prepare(recipe, std::move(start), fit, options, begin_ns);
  RunResult result;
  comm::run_local_world(static_cast<int>(world_size), [&](comm::World& world) {
    try {
      RunResult mine = train_rank(prepared, options, world, facts, world.rank().value, world_size);
      if (world.rank().value == 0) result = std::move(mine);
    } catch (const base::UserError&) {
      throw;
    } catch (const FailedRun&) {
      throw;
    } catch (const comm::CommError&) {
      throw;  // already names its rank, or was caused by another rank
    } catch (const std::exception& e) {
      throw std::runtime_error(fmt::format("rank {} of {}: {}", world.rank(), world.size(), e.what()));
    }
  });
  return result;
}

RunResult run_under_mpi(const std::function<Recipe()>& load, const RunOptions& options, int64_t ranks_here,
                        int64_t local_rank) {
  const int64_t begin_ns = base::now_ns();
  RunResult result;
  comm::run_mpi_world([&](comm::World& world) {
    // The first process of every host reads the data, then the others map what it has tokenised.
    int64_t stamp = begin_ns;
    world.world().broadcast(&stamp, 1, DType::I64, 0);
    const bool is_first = local_rank == 0;
    HostShare share(fmt::format("/dev/shm/quintet-{}", stamp),
                    is_first ? HostShare::Role::First : HostShare::Role::Other);
    std::optional<Prepared> prepared;
    std::exception_ptr failure;
    const auto attempt = [&failure](const std::function<void()>& part) {
      try {
        part();
      } catch (...) {
        failure = std::current_exception();
      }
    };
    Recipe recipe;
    Start start;
    SharedTexts manifests;
    const auto plan = [&] {
      recipe = load();
      config::check_world(recipe, world.size());
      check_options(recipe, options);
      StartOptions wanted = start_options(options);
      wanted.read = [&](const base::Path& file) { return manifests.read(file); };
      start = plan_start(recipe, wanted);
    };
    if (world.rank().value == 0) attempt(plan);
    manifests.send(world);
    if (world.rank().value != 0) attempt(plan);
    manifests = {};
    std::optional<compiler::Fit> fit;
    if (!failure)
      attempt([&] {
        const exec::Device device = device_of(recipe);
        exec::require_device(device);
        const int threads = kernel_threads(recipe, ranks_here);
        fit = find_fit(recipe, options.model, threads, options.disabled_passes);
        require_memory(recipe, options.model, threads, exec::shared_memory(device, local_rank, ranks_here),
                       fit, options.disabled_passes, exec::shared_memory(exec::Device::Cpu, 0, ranks_here));
      });
    agree(world, failure);
    agree_on_start(start, world);
    const auto read = [&] { prepared.emplace(prepare(recipe, start, fit, options, begin_ns, &share)); };
    if (is_first) attempt(read);
    agree(world, failure);
    if (!is_first) attempt(read);
    agree(world, failure);
    if (is_first) share.remove();
    const HeaderFacts facts{.backend = "MPI processes",
                            .threads = kernel_threads(prepared->recipe, ranks_here)};
    result = train_rank(*prepared, options, world, facts, local_rank, ranks_here);
  });
  return result;
}

}  // namespace

base::Path tuned_file() {
  const std::string folder = config::cache_folder();
  return folder.empty() ? base::Path() : base::Path(folder) / "matmul.txt";
}

RunResult run(const std::function<Recipe()>& load, const RunOptions& options) {
  const std::optional<config::Launch> launch = config::detect_launch();
  if (launch && launch->world > 1) {
    const auto checked = [&] {
      Recipe recipe = load();
      if (recipe.run.backend == config::BackendKind::Local)
        base::fail_user(
            "run.backend is \"local\", but {} started {} processes, each of which would train a run of its "
            "own: use \"auto\" or \"mpi\", or start one process",
            launch->launcher, launch->world);
      return recipe;
    };
    return run_under_mpi(checked, options, launch->local_world, launch->local_rank);
  }
  const Recipe recipe = load();
  const bool mpi = recipe.run.backend == config::BackendKind::Mpi ||
                   (recipe.run.backend == config::BackendKind::Auto && launch.has_value());
  if (!mpi) return run_as_threads(recipe, options);
  return run_under_mpi([&] { return recipe; }, options, 1, 0);
}

}  // namespace quintet::train
