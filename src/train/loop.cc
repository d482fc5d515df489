#include "train/loop.h"

#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/codes.h"
#include "config/environment.h"
#include "config/print.h"
#include "config/validate.h"
#include "observe/metrics.h"
#include "observe/progress.h"
#include "program/allocate.h"
#include "program/saved_bytes.h"
#include "train/agreement.h"
#include "train/checkpointer.h"
#include "train/end_messages.h"
#include "train/expert_report.h"
#include "train/fp8_report.h"
#include "train/load_hf.h"
#include "train/memory_check.h"
#include "train/peer_memory.h"
#include "train/resume.h"
#include "train/run_data.h"
#include "train/run_facts.h"
#include "train/run_header.h"
#include "train/start_checks.h"
#include "train/step_timeline.h"
#include "train/stream_places.h"

namespace quintet::train {

using base::DType;
using config::Recipe;

namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr int64_t kMeasuringSteps = 2;  // see Rank::measures
// Upper estimates of the size of a record in metrics.jsonl.
constexpr int64_t kMetricsBytesPerStep = 512;   // about twice a typical record, with the list of fp8
constexpr int64_t kMetricsBytesPerBlock = 512;  // a block with experts, without its loads
constexpr int64_t kMetricsBytesPerLoad = 12;    // the load of one expert
constexpr int64_t kSmallFilesBytes = int64_t{1} << 20;
constexpr observe::LineFormat kWarning{.style = observe::Style::Warning};

// What all ranks of this process share, prepared before any rank exists.
struct Prepared {
  Recipe recipe;
  Start start;
  RunData data;
  DataIdentity identity;
  std::optional<compiler::Fit> fit;
  int64_t begin_ns = 0;  // of the run
};

RunData load_run_data(const Recipe& recipe, const RunOptions& options, HostShare* share) {
  return options.corpus ? make_data(recipe, *options.corpus) : load_data(recipe, share);
}

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
  RunData data = load_run_data(recipe, options, share);
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

// An error that would be a user's before the first step: something has been written since.
class FailedRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The training loop of one rank.
class RankLoop {
 public:
  RankLoop(const Prepared& prepared, const RunOptions& options, comm::World& world, const HeaderFacts& facts,
           int64_t local_rank, int64_t ranks_here)
      : recipe_(prepared.recipe),
        start_(prepared.start),
        data_(prepared.data),
        identity_(prepared.identity),
        fit_(prepared.fit),
        options_(options),
        world_(world),
        facts_(facts),
        local_rank_(local_rank),
        ranks_here_(ranks_here),
        run_begin_ns_(prepared.begin_ns),
        folder_(recipe_.run.dir),
        first_(world.rank().value == 0),
        ramp_(recipe_),
        alarm_(recipe_.parallel.ep) {}

  RunResult run() {
    start();
    if (options_.dry_run) return end_dry_run();
    try {
      while (started_ > step_ || (step_ < recipe_.run.steps && is_running())) one_step();
      if (step_ == recipe_.run.steps && result_.summary.end == RunEnd::Interrupted)
        result_.summary.end = RunEnd::Finished;  // the step in flight was the last
      if (result_.summary.end == RunEnd::Finished) require_finite_end();
      finish();
    } catch (const base::UserError& e) {
      throw FailedRun(e.what());
    }
    return std::move(result_);
  }

 private:
  bool talks() const { return first_ && options_.console != nullptr; }
  void say(const std::string& line, const observe::LineFormat& format = {}) const {
    if (talks()) options_.console->print_line(line, format);
  }

  void start() {
    const int64_t begin = base::now_ns();
    if (talks()) options_.console->set_live("compiling and verifying the step program ...");
    rank_.emplace(recipe_, world_,
                  RankOptions{.model = options_.model,
                              .threads = facts_.threads,
                              .evaluate = recipe_.eval.every > 0,
                              .poison = options_.poison,
                              .local_rank = local_rank_,
                              .tuned = algorithms_file(),
                              .log = [this](const std::string& line) { say(line); },
                              .fit = fit_,
                              .disabled_passes = options_.disabled_passes,
                              .schedule_steps = start_.schedule_steps});
    traced_ = options_.trace;
    if (!traced_ && rank_->compiled().step.issues.size() <= kMaxTraced) {
      const int64_t step = std::min(start_.step() + kTracedStep, recipe_.run.steps);
      traced_ = TraceRange{step, step};
    }
    if (traced_) trace_.emplace(make_trace(*rank_, world_.rank(), traced_->last - traced_->first + 1));
    open_start();
    const bool peers = recipe_.checkpoint.peer_every > 0;
    const bool staged = peers && device_of(recipe_) != exec::Device::Cpu;
    checkpoints_.emplace(
        *rank_, world_, recipe_, [this] { return to_json(run_state()); },
        [this](const std::string& line) { say(line); }, base::FileSystem::real(),
        staged ? program::saved_bytes(rank_->compiled().program) : 0);
    if (peers)
      peers_.emplace(*rank_, world_, peer_copies_, ranks_here_, checkpoints_->peer_staging(),
                     checkpoints_->staging_bytes());
    if (first_) {
      checkpoint::Store(checkpoint_folder(recipe_)).require_own();
      if (!recipe_.checkpoint.dir.empty() && !options_.dry_run)
        base::require_writable_directory(checkpoint_folder(recipe_));
      checkpoints_->require_space(start_.existing == Existing::Replace);
      if (const std::optional<int64_t> end = config::job_end()) checkpoints_->set_deadline(*end);
      lock_folder();
      HeaderFacts facts = facts_;
      facts.compile_ns = base::now_ns() - begin;
      if (device_of(recipe_) != exec::Device::Cpu) facts.device = rank_->executor().device_name();
      facts.disabled_passes = to_string(options_.disabled_passes);
      if (talks()) options_.console->clear_live();
      for (const std::string& line : start_.lines) say(line);
      for (const std::string& note : load_plan_.notes) say(note);
      const auto lines = options_.verbose ? header_lines : short_header_lines;
      for (const std::string& line : lines(recipe_, data_, *rank_, facts)) say(line, observe::kLabelled);
      say("");
      run_json_ = run_json(recipe_, data_, *rank_, facts, options_.provenance);
    }
    if (!options_.dry_run && !was_complete())
      require_shared_folder(checkpoint_folder(recipe_),
                            recipe_.checkpoint.dir.empty() ? "run.dir" : "checkpoint.dir", world_);
    load_start();
    if (first_ && !options_.dry_run) take_folder();
    world_.world().barrier();  // no rank trains until rank 0 can write
    if (talks())
      progress_.emplace(*options_.console, observe::Progress::Options{.total_steps = recipe_.run.steps,
                                                                      .done_before = step_,
                                                                      .every = recipe_.run.log_every});
    result_.recipe = recipe_;
    result_.is_first = first_;
    result_.summary.name = recipe_.name;
    result_.summary.planned_is_bound = plan_is_bound(rank_->compiled());
  }

  // The tuned GEMM algorithms: a run that continues uses those of its checkpoint, or bits would differ. A
  // dry run writes nothing.
  base::Path algorithms_file() {
    if (options_.dry_run || !start_.state || start_.state->algorithms.empty()) return tuned_file();
    if (first_) {
      base::make_directories(folder_.path());
      base::write_file_atomically(folder_.algorithms(), start_.state->algorithms);
    }
    return folder_.algorithms();
  }

  void lock_folder() {
    const int64_t bytes = metrics_bytes() + kSmallFilesBytes;
    if (options_.dry_run) {
      folder_.require_room(bytes);
      folder_.require_creatable();
    } else {
      lock_.emplace(folder_.acquire(bytes, start_.existing));
      if (auto lock = lock_checkpoints(recipe_, start_)) checkpoint_lock_.emplace(std::move(*lock));
    }
  }

  // Removes what this run replaces. The state that it starts from is loaded by now: a checkpoint that is
  // damaged costs nothing that is there.
  void take_folder() {
    if (was_complete()) return;
    folder_.begin(recipe_, start_.existing);
    base::remove_file(folder_.summary());
    truncate_metrics(folder_.metrics(), start_.step());
    metrics_.emplace(folder_.metrics(), observe::MetricsFile::Start::Continue);
    base::write_file_atomically(folder_.facts(),
                                with_origin(run_json_, start_, options_.load, folder_.facts()));
    const bool replace = start_.existing == Existing::Replace;
    checkpoints_->begin(replace ? -1 : start_.step(), replace);
  }

  // What a dry run returns: the planned memory of all ranks.
  RunResult end_dry_run() {
    progress_.reset();
    gather_memory();
    return std::move(result_);
  }

  // What the run starts from, before anything in the run folder is replaced: it may not fit this recipe.
  void open_start() {
    if (start_.checkpoint.empty() && recipe_.model.hf.empty()) return;
    std::exception_ptr failure;
    try {
      if (!start_.checkpoint.empty()) {
        saved_.emplace(start_.checkpoint);
        load_plan_ = plan_load(*rank_, *saved_, start_.load);
      } else {
        hf_.emplace(recipe_.model.hf, recipe_.model, model_tensors(*rank_));
        if (first_) hf_->check_copies();
      }
    } catch (...) {
      failure = std::current_exception();
    }
    agree(world_, failure);
  }

  void load_first_weights() {
    if (!hf_) return;
    const int64_t begin = base::now_ns();
    const HfLoad load = load_hf(*rank_, *hf_);
    int64_t bytes = load.bytes_read;
    world_.world().all_reduce(&bytes, 1, DType::I64, comm::ReduceOp::Sum);
    for (const std::string& note : hf_->notes()) say(note);
    const int64_t ns = base::now_ns() - begin;
    say(fmt::format("weights of '{}' loaded in {}: {} read by {} rank{}, {}/s", recipe_.model.hf,
                    base::human_duration(ns), base::human_bytes(bytes), world_.size(),
                    world_.size() == 1 ? "" : "s",
                    base::human_bytes(static_cast<int64_t>(static_cast<double>(bytes) * kNanosPerSecond /
                                                           static_cast<double>(std::max<int64_t>(1, ns))))));
    hf_.reset();
  }

  void load_saved() {
    try {
      load_state(*rank_, *saved_, load_plan_);
    } catch (const base::UserError& e) {
      refuse_damaged(e, saved_->folder());
    }
  }

  void load_start() {
    if (!saved_) return load_first_weights();
    const int64_t begin = base::now_ns();
    load_saved();
    const bool continues = start_.existing == Existing::Continue;
    if (continues && start_.load.rules.empty()) checkpoints_->link_to(saved_->manifest());
    saved_.reset();
    if (start_.state) {
      const RunState& state = *start_.state;
      require_whole_state(start_, rank_->set_scalar_states(state.scalars), data_.train.position(state.step),
                          !options_.allow.empty());
      rank_->spike_guard().restore(state.spikes);
      noise_.restore(state.noise);
      result_.summary = state.summary;
      timed_tokens_ = state.timed_tokens;
      timed_seconds_ = state.timed_seconds;
      step_ = started_ = state.step;
      if (continues) checkpoints_->set_last_step(state.step);
    }
    world_.world().barrier();  // nothing is replaced until all ranks have loaded
    say(fmt::format("checkpoint loaded in {}", base::human_duration(base::now_ns() - begin)));
  }

  // The state after the last finished step, without tensors.
  RunState run_state() {
    return {.step = step_,
            .sequences = data_.train.position(step_),
            .schedule_steps = start_.schedule_steps > 0 ? start_.schedule_steps : recipe_.run.steps,
            .scalars = rank_->scalar_states(),
            .spikes = rank_->spike_guard().recent(),
            .noise = noise_.sums(),
            .summary = result_.summary,
            .timed_tokens = timed_tokens_,
            .timed_seconds = timed_seconds_,
            .data = identity_,
            .streams = places_,
            .tokenizer = data_.tokenizer,
            .recipe = config::to_toml(recipe_),
            .program = fmt::format("{:016x}{:016x}", rank_->compiled().class_hash.high,
                                   rank_->compiled().class_hash.low),
            .version = options_.version,
            .algorithms = algorithms()};
  }

  std::string algorithms() const {
    if (device_of(recipe_) == exec::Device::Cpu) return {};
    const bool own = start_.state && !start_.state->algorithms.empty();
    const base::Path file = own ? folder_.algorithms() : tuned_file();
    return base::file_exists(file) ? base::read_file(file) : std::string();
  }

  // Steps with a progress line.
  bool is_logged(int64_t number) const {
    return number == 1 || number == recipe_.run.steps ||
           number % std::max<int64_t>(1, recipe_.run.log_every) == 0;
  }

  // An upper estimate of the size of metrics.jsonl.
  int64_t metrics_bytes() const {
    int64_t bytes = kMetricsBytesPerStep;
    for (const Rank::Sum& sum : rank_->step_sums())
      if (sum.kind == graph::SumKind::Load)
        bytes += kMetricsBytesPerBlock + kMetricsBytesPerLoad * static_cast<int64_t>(sum.values.size());
    return recipe_.run.steps * bytes;
  }

  // A finished run that was started again: nothing is left to do, and what it measured stays.
  bool was_complete() const {
    return start_.existing == Existing::Continue && start_.step() >= recipe_.run.steps &&
           base::file_exists(folder_.summary());
  }
  bool is_running() const { return result_.summary.end == RunEnd::Finished; }
  bool is_traced(int64_t number) const { return traced_ && traced_->contains(number); }
  bool is_evaluated(int64_t number) const {
    return recipe_.eval.every > 0 && (number % recipe_.eval.every == 0 || number == recipe_.run.steps);
  }
  // Steps whose gradient is also measured over a small batch, before them.
  bool is_measured(int64_t number) const {
    const int64_t every = recipe_.run.noise_scale_every;
    return every > 0 && number % every == 0 &&
           ramp_.at(number - 1).accumulation > config::noise_accumulation(recipe_);
  }
  bool is_checked(int64_t number) const {
    return recipe_.run.check_replicas_every > 0 && number % recipe_.run.check_replicas_every == 0;
  }

  // Steps after which a checkpoint is saved. With an interval of time that is known only as the run goes, so
  // the step that is in flight by then is saved.
  bool is_saved(int64_t number) const { return save_at_ == number || checkpoints_->is_due(number); }
  // Steps after which the state is copied to other ranks' memory.
  bool is_copied(int64_t number) const { return peers_ && number % recipe_.checkpoint.peer_every == 0; }

  // Whether the next step may be in flight while step `number` is finished: nothing reads the weights between
  // the two, and skipped steps cannot stop the run there.
  bool may_run_ahead(int64_t number) const {
    return started_ < recipe_.run.steps && is_running() && rank_->may_run_ahead() && !is_evaluated(number) &&
           !is_checked(number) && !is_saved(number) && !is_copied(number) && !save_at_ &&
           !is_measured(number + 1) && !is_traced(number) && !is_traced(number + 1) && !skipped_ &&
           recipe_.run.max_skipped_steps > 1;
  }

  // Whether a step is worth abandoning for a stop. Asking takes a message between all ranks per micro-batch.
  bool may_abandon() const {
    return options_.interrupted && recipe_.parallel.pp == 1 && (long_steps_ || step_ == start_.step());
  }

  // Collective: whether any rank was asked to stop.
  bool agree_to_stop() {
    int32_t signal = options_.interrupted();
    world_.world().all_reduce(&signal, 1, DType::I32, comm::ReduceOp::Max);
    if (signal != 0) result_.signal = signal;
    return signal != 0;
  }

  // The run ends with the state of the last complete step.
  void end_in_step() {
    result_.summary.end = RunEnd::Interrupted;
    result_.abandoned_step = started_;
    started_ = step_;
    if (trace_ && is_traced(step_ + 1)) trace_.reset();
  }

  void start_step() {
    if (started_ == step_) begin_ns_ = base::now_ns();
    if (may_abandon()) rank_->executor().abandon_next([this] { return agree_to_stop(); });
    if (result_.summary.setup_seconds == 0)
      result_.summary.setup_seconds = static_cast<double>(begin_ns_ - run_begin_ns_) / kNanosPerSecond;
    if (is_traced(started_ + 1)) rank_->executor().trace_next(&*trace_, started_ + 1);
    rank_->start_step(started_++, data_.train);
  }

  void one_step() {
    const int64_t number = step_ + 1;  // 1-based
    std::optional<GradientNorm> small;
    if (is_measured(number)) small = rank_->measure_gradient(step_, data_.train);
    if (started_ == step_) start_step();
    if (may_run_ahead(number)) start_step();
    if (rank_->step_was_abandoned()) return end_in_step();
    const StepResult step = rank_->finish_step();
    const int64_t end_ns = base::now_ns();
    const double seconds = static_cast<double>(end_ns - begin_ns_) / kNanosPerSecond;
    begin_ns_ = end_ns;  // of the step in flight
    step_seconds_ = seconds;
    ++step_;
    skipped_ = step.skipped;
    account(step, seconds);
    if (first_ && options_.on_step) options_.on_step(number, step);

    observe::Record record;
    const double rate = static_cast<double>(step.tokens) / seconds;
    record.set("step", number).set("loss", step.loss).set("grad_norm", step.grad_norm).set("lr", step.lr);
    if (recipe_.optimizer.weight_decay_ramp.kind != config::RampKind::Constant)
      record.set("weight_decay", recipe_.optimizer.weight_decay * step.decay_ratio);
    record.set("tokens", step.tokens).set("tokens_per_s", rate);
    if (recipe_.precision.loss_scale != config::LossScale{}) record.set("loss_scale", step.loss_scale);
    if (step.skipped) record.set("skipped", true);
    if (step.spike) record.set("spike", true);
    if (!recipe_.batch.ramp.empty()) record.set("sequences", ramp_.after(number).sequences);
    if (small) add_noise(record, *small, step);
    const std::vector<ExpertUse> experts = expert_uses(rank_->step_sums(), recipe_);
    add_experts(record, experts, is_logged(number));
    add_roundings(record, *rank_);
    add_next_token_loss(record, rank_->step_sums(), step.tokens);
    const double load = experts.empty() ? 0 : worst(experts)->max_over_mean;
    if (progress_) progress_->update({number, step.loss, rate, step.grad_norm, step.lr, load});
    if (const std::string line = alarm_.check(number, experts); !line.empty()) say(line, kWarning);
    if (is_evaluated(number)) evaluate(record);
    if (first_) append_metrics(record);
    if (step.spike)
      say(fmt::format("step {}: spike of the loss ({:.4f}) or the gradient norm ({:.3f}), step skipped",
                      number, step.loss, step.grad_norm),
          kWarning);
    else if (step.skipped)
      say(fmt::format(
              "step {}: non-finite loss or gradient, step skipped{}", number,
              recipe_.precision.loss_scale.dynamic ? fmt::format(" (loss scale {:g})", step.loss_scale) : ""),
          kWarning);

    if (is_checked(number)) rank_->check_replicas();
    if (step.skipped && step.skipped_in_row >= std::max<int64_t>(1, recipe_.run.max_skipped_steps)) {
      stop_for_skipped(step);
      return;
    }
    agree_on_next();
    if (is_copied(number) && started_ == step_ && is_running()) {
      places_ = gather_places(world_, data_, data_.train.position(step_));
      peers_->copy(step_, base::json_text(to_json(run_state())));
    }
    // The last state is saved when the run ends.
    if (is_saved(number) && started_ == step_ && step_ < recipe_.run.steps && is_running()) save_checkpoint();
  }

  void save_checkpoint() {
    save_at_.reset();
    places_ = gather_places(world_, data_, data_.train.position(step_));
    checkpoints_->save(step_);
  }

  // A full disk may have room again before the run ends, so the run continues.
  void append_metrics(const observe::Record& record) {
    try {
      metrics_->append(record);
    } catch (const base::UserError& e) {
      if (lost_records_++ == 0)
        say(fmt::format("warning: {}; training continues without this record", e.what()), kWarning);
    }
  }

  void add_noise(observe::Record& record, const GradientNorm& small, const StepResult& step) {
    noise_.add(small, {.squared = step.grad_norm * step.grad_norm, .tokens = step.tokens});
    if (noise_.estimates() == 0) return;
    record.set("noise_scale", noise_.tokens());
    record.set("gradient_variance", noise_.variance()).set("gradient_squared", noise_.squared_gradient());
  }

  void account(const StepResult& step, double seconds) {
    Summary& s = result_.summary;
    s.steps = step_;
    if (step_ == 1) s.first_loss = step.loss;
    s.last_loss = step.loss;
    s.tokens += step.tokens;
    s.seconds += seconds;
    s.skipped_steps = step.skipped_total;
    if (step_ > kMeasuringSteps || recipe_.run.steps <= kMeasuringSteps) {
      timed_tokens_ += step.tokens;
      timed_seconds_ += seconds;
      s.tokens_per_s = static_cast<double>(timed_tokens_) / timed_seconds_;
    }
  }

  void evaluate(observe::Record& record) {
    Rank::Evaluation all;
    std::vector<std::string> lines;
    for (const EvalData& set : data_.evals) {
      const Rank::Evaluation e = rank_->evaluate(set.batches, 0, set.batches_read(recipe_));
      all.loss_sum += e.loss_sum, all.tokens += e.tokens;
      if (data_.evals.size() == 1) continue;
      const double loss = e.loss_sum / std::max(1.0, static_cast<double>(e.tokens));
      record.set("eval_loss." + set.name, loss);
      lines.push_back(
          fmt::format("  {}: loss {:.4f} over {} tokens", set.name, loss, base::thousands(e.tokens)));
    }
    const double loss = all.loss_sum / std::max(1.0, static_cast<double>(all.tokens));
    result_.summary.evaluations.push_back({step_, loss, all.tokens});
    record.set("eval_loss", loss).set("eval_tokens", all.tokens);
    lines.insert(lines.begin(), fmt::format("eval at step {}: loss {:.4f} over {} tokens", step_, loss,
                                            base::thousands(all.tokens)));
    for (const std::string& line : lines) say(line, {.style = observe::Style::Good});
  }

  void stop_for_skipped(const StepResult& step) {
    result_.summary.end = RunEnd::NonFinite;
    result_.message = skipped_message(step, step_, recipe_.run.max_skipped_steps);
  }

  // Weights that give no finite loss are not a result.
  void require_finite_end() {
    if (is_finite(result_.summary)) return;
    result_.summary.end = RunEnd::NonFinite;
    result_.message = non_finite_message(result_.summary);
  }

  // At the end of every step the ranks exchange what one of them may know: that the run is to stop, that a
  // checkpoint is due, and how far the save in progress is.
  void agree_on_next() {
    Checkpointer::Flags flags = checkpoints_->flags(step_seconds_);
    int32_t all[5] = {options_.interrupted ? options_.interrupted() : 0, flags.busy, flags.failed, flags.due,
                      step_seconds_ > options_.long_step_seconds};
    world_.world().all_reduce(all, 5, DType::I32, comm::ReduceOp::Max);
    long_steps_ = all[4] != 0;
    checkpoints_->advance({.busy = all[1], .failed = all[2], .due = all[3]});
    if (all[3] != 0 && !save_at_) save_at_ = started_;
    if (all[0] == 0 || step_ == recipe_.run.steps) return;
    result_.summary.end = RunEnd::Interrupted;
    result_.signal = all[0];
  }

  void finish() {
    progress_.reset();
    if (recipe_.run.check_replicas_every > 0) rank_->check_replicas();
    if (peers_) peers_->finish();
    if (options_.save_last)
      save_last();
    else
      checkpoints_->finish();
    if (options_.trace) guarded([&] { write_gathered_trace(*trace_, world_, folder_.trace()); });
    if (trace_) guarded([&] { write_timeline(*trace_, *rank_, traced_->first, world_, folder_.timeline()); });
    gather_memory();
    result_.summary.ended_at = base::utc_text();
    result_.summary.wall_seconds = static_cast<double>(base::now_ns() - run_begin_ns_) / kNanosPerSecond;
    if (first_ && !was_complete())
      guarded([&] { base::write_file_atomically(folder_.summary(), to_json(result_.summary)); });
    if (const std::string damage = stream_damage(data_); !damage.empty()) say("data: " + damage, kWarning);
    if (lost_records_ > 0)
      report_incomplete(fmt::format("{} lacks {} of {} records", folder_.metrics().string(), lost_records_,
                                    result_.summary.steps));
    world_.world().barrier();
  }

  // The peaks of all ranks. Collective.
  void gather_memory() {
    const program::Peak peak = program::peak_of(rank_->compiled().program);
    std::vector<int64_t> mine = {rank_->planned_peak_bytes(),
                                 options_.dry_run ? 0 : rank_->measured_peak_bytes()};
    mine.insert(mine.end(), peak.by_class.begin(), peak.by_class.end());
    const size_t count = mine.size();
    std::vector<int64_t> all(count * static_cast<size_t>(world_.size()));
    world_.world().all_gather(mine.data(), all.data(), static_cast<int64_t>(count), DType::I64);
    for (size_t r = 0; r < all.size(); r += count) {
      Summary::RankMemory& m = result_.summary.ranks.emplace_back();
      m.planned_peak_bytes = all[r];
      m.measured_peak_bytes = all[r + 1];
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(r) + 2, m.planned_by_class.size(),
                  m.planned_by_class.begin());
    }
  }

  void report_incomplete(const std::string& what) {
    result_.incomplete += (result_.incomplete.empty() ? "" : "; ") + what;
  }

  // A failed write of rank 0 after the last checkpoint is safe.
  void guarded(const std::function<void()>& write) {
    try {
      write();
    } catch (const base::UserError& e) {
      report_incomplete(e.what());
    }
  }

  // The state that the run leaves. One that ended with numbers that are not finite removes no older
  // checkpoint: one of those is likely what the user goes back to.
  void save_last() {
    places_ = gather_places(world_, data_, data_.train.position(step_));
    const std::vector<base::Path> elsewhere = other_places(recipe_, world_);
    const auto older =
        result_.summary.end == RunEnd::NonFinite ? Checkpointer::Older::Keep : Checkpointer::Older::Prune;
    const Checkpointer::Last last = checkpoints_->save_last(step_, older, elsewhere);
    if (!first_ || last.failures.empty()) return;
    const RunFolder other(last.folder.parent_path().parent_path());
    guarded([&] {
      Recipe moved = recipe_;
      moved.checkpoint.dir.clear();
      other.write_recipe(moved);
    });
    report_incomplete(fmt::format("{}; the last checkpoint is in {}: --run-dir NEW --from {} continues it",
                                  last.failures, other.path().string(), other.path().string()));
  }

  const Recipe& recipe_;
  const Start& start_;
  const RunData& data_;
  const DataIdentity& identity_;
  const std::optional<compiler::Fit>& fit_;
  const RunOptions& options_;
  comm::World& world_;
  const HeaderFacts facts_;
  const int64_t local_rank_, ranks_here_;
  const int64_t run_begin_ns_;
  const RunFolder folder_;
  const bool first_;
  const config::BatchRamp ramp_;

  LoadAlarm alarm_;
  NoiseScale noise_;
  std::optional<Rank> rank_;
  std::optional<checkpoint::Reader> saved_;  // the checkpoint that the run starts from, until it is loaded
  LoadPlan load_plan_;
  std::optional<hf::ModelFolder> hf_;  // until the first weights are loaded
  std::optional<Checkpointer> checkpoints_;
  PeerCopies peer_copies_;
  std::optional<PeerMemory> peers_;   // checkpoint.peer_every
  std::optional<int64_t> save_at_;    // the step whose state is saved next, by an interval of time
  std::optional<TraceRange> traced_;  // options_.trace, or the step that the report shows
  std::optional<observe::RankTrace> trace_;
  std::optional<base::FileLock> lock_;             // of the run folder, on rank 0
  std::optional<base::FileLock> checkpoint_lock_;  // of checkpoint.dir, on rank 0
  std::string run_json_;                           // for run.json
  std::optional<observe::MetricsFile> metrics_;
  int64_t lost_records_ = 0;  // of metrics_
  std::optional<observe::Progress> progress_;
  int64_t step_ = 0, started_ = 0;  // steps finished, steps started; at most one is in flight
  int64_t begin_ns_ = 0;            // start of the step that finishes next
  bool skipped_ = false;            // the last step
  double step_seconds_ = 0;         // of the last step
  bool long_steps_ = false;         // the last step, on any rank
  int64_t timed_tokens_ = 0;
  double timed_seconds_ = 0;
  std::vector<std::string> places_;  // of data streams, at the last save
  RunResult result_;
};

RunResult run_as_threads(Recipe recipe, const RunOptions& options) {
  const int64_t begin_ns = base::now_ns();
  check_options(recipe, options);
  Start start = plan_start(recipe, start_options(options));
  const int64_t world_size = recipe.parallel.world();
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
      RunResult mine = RankLoop(prepared, options, world, facts, world.rank().value, world_size).run();
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
    std::function<void()> read;
    Start start;
    try {
      Recipe recipe = load();
      config::check_world(recipe, world.size());
      check_options(recipe, options);
      start = plan_start(recipe, start_options(options));
      const exec::Device device = device_of(recipe);
      exec::require_device(device);
      const int threads = kernel_threads(recipe, ranks_here);
      const auto fit = find_fit(recipe, options.model, threads, options.disabled_passes);
      require_memory(recipe, options.model, threads, exec::shared_memory(device, local_rank, ranks_here), fit,
                     options.disabled_passes, exec::shared_memory(exec::Device::Cpu, 0, ranks_here));
      read = [&prepared, &options, &share, recipe, start, fit, begin_ns] {
        prepared.emplace(prepare(recipe, start, fit, options, begin_ns, &share));
      };
    } catch (...) {
      failure = std::current_exception();
    }
    agree(world, failure);
    agree_on_start(start, world);
    try {
      if (is_first) read();
    } catch (...) {
      failure = std::current_exception();
    }
    agree(world, failure);
    try {
      if (!is_first) read();
    } catch (...) {
      failure = std::current_exception();
    }
    agree(world, failure);
    if (is_first) share.remove();
    const HeaderFacts facts{.backend = "MPI processes",
                            .threads = kernel_threads(prepared->recipe, ranks_here)};
    result = RankLoop(*prepared, options, world, facts, local_rank, ranks_here).run();
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
            "own: "
            "use \"auto\" or \"mpi\", or start one process",
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
