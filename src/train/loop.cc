#include "train/loop.h"

#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "base/error.h"
#include "base/error_codes.h"
#include "base/json.h"
#include "base/text.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "config/codes.h"
#include "config/environment.h"
#include "config/print.h"
#include "config/validate.h"
#include "observe/progress.h"
#include "program/saved_bytes.h"
#include "train/agreement.h"
#include "train/checkpointer.h"
#include "train/elsewhere.h"
#include "train/end_messages.h"
#include "train/evaluation.h"
#include "train/expert_report.h"
#include "train/fp8_report.h"
#include "train/load_hf.h"
#include "train/memory_check.h"
#include "train/peer_memory.h"
#include "train/rank_loop.h"
#include "train/resume.h"
#include "train/run_data.h"
#include "train/run_facts.h"
#include "train/run_header.h"
#include "train/run_metrics.h"
#include "train/same_bits.h"
#include "train/start_checks.h"
#include "train/step_timeline.h"
#include "train/stream_places.h"

namespace quintet::train {

using base::DType;
using config::Recipe;

namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr int64_t kMeasuringSteps = 2;  // see Rank::measures
constexpr size_t kHashedTogether = 64;  // steps whose hashes one message sums
constexpr int64_t kSmallFilesBytes = int64_t{1} << 20;
constexpr observe::LineFormat kWarning{.style = observe::Style::Warning};

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
        alarm_(recipe_.parallel.ep),
        metrics_(folder_.metrics()),
        ledger_(folder_.ledger()) {}

  RunResult run() {
    start();
    if (options_.dry_run) return end_dry_run();
    try {
      if (evaluation_due_) repeat_evaluation();
      // A signal during set-up, which does not wait for a step.
      if (options_.interrupted && step_ < recipe_.run.steps && is_running() && agree_to_stop())
        result_.summary.end = RunEnd::Interrupted;
      while (started_ > step_ || (step_ < recipe_.run.steps && is_running())) one_step();
      if (step_ == recipe_.run.steps && result_.summary.end == RunEnd::Interrupted && !evaluation_due_)
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
                              .draw = start_.checkpoint.empty() && recipe_.model.hf.empty(),
                              .schedule_steps = start_.schedule_steps});
    traced_ = options_.trace;
    // Of all ranks, since a timeline is gathered from all of them.
    auto most_issues = std::ssize(rank_->compiled().step.issues);
    world_.world().all_reduce(&most_issues, 1, DType::I64, comm::ReduceOp::Max);
    if (!traced_ && most_issues <= static_cast<int64_t>(kMaxTraced)) {
      const int64_t step = std::min(start_.step() + kTracedStep, recipe_.run.steps);
      traced_ = TraceRange{step, step};
    }
    if (traced_) trace_.emplace(make_trace(*rank_, world_.rank(), traced_->last - traced_->first + 1));
    open_start();
    const bool peers = recipe_.checkpoint.peer_every > 0;
    const bool staged = peers && device_of(recipe_) != exec::Device::Cpu;
    checkpoints_.emplace(
        *rank_, world_, recipe_, [this] { return to_json(run_state()); },
        [this](const std::string& line) { say(line); },
        options_.files != nullptr ? *options_.files : base::FileSystem::real(),
        staged ? program::saved_bytes(rank_->compiled().program) : 0);
    rank_->hash_inputs();
    if (first_)
      checkpoints_->set_before_commit([this] {
        metrics_.sync();
        ledger_.sync();
      });
    checkpoints_->set_ending(options_.ending);
    if (peers)
      peers_.emplace(*rank_, world_, peer_copies_, ranks_here_, checkpoints_->peer_staging(),
                     checkpoints_->staging_bytes());
    if (first_) {
      // Before checks of the disk: after a full one they say where the last state is.
      if (talks()) options_.console->clear_live();
      for (const std::string& line : start_.lines) say(line);
      checkpoint::Store(checkpoint_folder(recipe_)).require_own();
      if (!recipe_.checkpoint.dir.empty() && !options_.dry_run)
        base::require_writable_directory(checkpoint_folder(recipe_));
      checkpoints_->require_space(start_.existing == Existing::Replace);
      if (const std::optional<int64_t> end = config::job_end()) checkpoints_->set_deadline(*end);
      lock_folder();
      HeaderFacts facts = facts_;
      facts.compile_ns = base::now_ns() - begin;
      if (device_of(recipe_) != exec::Device::Cpu) {
        facts.device = rank_->executor().device_name();
        facts.nccl = config::nccl_variables();
      }
      facts.disabled_passes = to_string(options_.disabled_passes);
      facts.copies_bytes = copies_bytes();
      if (start_.state)
        if (const std::string line = other_bits_line(*start_.state, run_state()); !line.empty()) say(line);
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
    forecast_last_save(false);
    result_.recipe = recipe_;
    result_.is_first = first_;
    result_.summary.name = recipe_.name;
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
    const int64_t bytes = metrics_bytes(recipe_, *rank_) + kSmallFilesBytes;
    if (options_.dry_run) {
      folder_.require_room(bytes);
      folder_.require_creatable();
    } else {
      lock_.emplace(folder_.acquire(bytes, start_.existing));
      if (auto lock = lock_checkpoints(recipe_, start_)) checkpoint_lock_.emplace(std::move(*lock));
      if (start_.existing == Existing::Continue) note_saved();
    }
  }

  void note_saved() {
    if (lock_ && !has_noted_saved_) RunFolder::note_saved(*lock_);
    has_noted_saved_ = true;
  }

  // Removes what this run replaces, once the state that it starts from is loaded: damage costs nothing.
  // Checkpoints first: a crash before their records are gone leaves nothing behind that has no record.
  void take_folder() {
    if (was_complete()) return checkpoint::Store(checkpoint_folder(recipe_)).point_to_newest();
    const bool replace = start_.existing == Existing::Replace;
    checkpoints_->begin(replace ? -1 : start_.step(), replace);
    folder_.begin(recipe_, start_.existing);
    base::remove_file(folder_.summary());
    metrics_.open(start_.step());
    ledger_.open(start_.step());
    writes_ = true;
    base::write_file_atomically(folder_.facts(),
                                with_origin(run_json_, start_, options_.load, folder_.facts()));
  }

  // Host memory of this rank for copies of its state (program::SavingMemory).
  int64_t copies_bytes() const {
    const auto staged = std::ssize(checkpoints_->peer_staging()) + checkpoints_->staging_bytes();
    return staged + (peers_ ? 4 * program::saved_bytes(rank_->compiled().program) : 0);
  }

  // What a dry run returns: the planned memory of all ranks.
  RunResult end_dry_run() {
    progress_.reset();
    gather_memory(*rank_, world_, options_.dry_run, result_.summary);
    return std::move(result_);
  }

  // What the run starts from, before anything in the run folder is replaced: it may not fit this recipe.
  void open_start() {
    if (start_.checkpoint.empty() && recipe_.model.hf.empty()) return;
    std::exception_ptr failure;
    try {
      if (!start_.checkpoint.empty()) {
        const std::string text = read_for_all(start_.checkpoint / checkpoint::kManifestFile, world_);
        if (text.empty()) return agree(world_, failure);  // rank 0 says why
        saved_.emplace(start_.checkpoint, text);
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
    for (const std::string& line : load_first_weights_of(recipe_.model.hf, *hf_, *rank_, world_)) say(line);
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
      skipped_in_row_ = skipped_in_row(state);
      if (continues) checkpoints_->set_last_step(state.step, older());
      evaluation_due_ = continues && state.evaluation_due && is_evaluated(step_);
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
            .evaluation_due = evaluation_due_,
            .data = identity_,
            .streams = places_,
            .tokenizer = data_.tokenizer,
            .recipe = config::to_toml(recipe_),
            .program = fmt::format("{:016x}{:016x}", rank_->compiled().class_hash.high,
                                   rank_->compiled().class_hash.low),
            .version = options_.version,
            .environment = environment_json(facts_, rank_->executor().device_name(), options_.provenance),
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

  // A finished run that was started again: nothing is left to do, and what it measured stays.
  bool was_complete() const {
    return start_.existing == Existing::Continue && start_.step() >= recipe_.run.steps &&
           !start_.state->evaluation_due && base::file_exists(folder_.summary());
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
           !is_measured(number + 1) && !is_traced(number) && !is_traced(number + 1) && skipped_in_row_ == 0 &&
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
    if (signal != 0) checkpoints_->hurry();
    return signal != 0;
  }

  void forecast_last_save(bool begins) const {
    if (first_ && options_.on_last_save) options_.on_last_save(checkpoints_->last_save_seconds(), begins);
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
    if (options_.on_progress) {
      options_.on_progress(0, 0);
      rank_->executor().follow_next(options_.on_progress);
    }
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
    hashes_.push_back(rank_->take_input_hash(step_ - 1));
    skipped_in_row_ = step.skipped ? step.skipped_in_row : 0;
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
    if (first_)
      if (const std::string warning = metrics_.append(record); !warning.empty()) say(warning, kWarning);
    if (step.spike)
      say(fmt::format("step {}: spike of the loss ({:.4f}) or the gradient norm ({:.3f}), step skipped",
                      number, step.loss, step.grad_norm),
          kWarning);
    else if (step.skipped)
      say(fmt::format(
              "step {}: non-finite loss or gradient, step skipped{}", number,
              recipe_.precision.loss_scale.dynamic ? fmt::format(" (loss scale {:g})", step.loss_scale) : ""),
          kWarning);

    if (hashes_.size() == kHashedTogether) record_hashes();
    if (evaluation_due_) return;
    if (is_checked(number)) rank_->check_replicas();
    if (step.skipped && step.skipped_in_row >= std::max<int64_t>(1, recipe_.run.max_skipped_steps)) {
      stop_for_skipped(step);
      return;
    }
    agree_on_next();
    if (is_copied(number) && started_ == step_ && is_running()) {
      record_hashes();
      places_ = gather_places(world_, data_, data_.train.position(step_));
      peers_->copy(step_, base::json_text(to_json(run_state())));
    }
    // The last state is saved when the run ends.
    if (is_saved(number) && started_ == step_ && step_ < recipe_.run.steps && is_running()) save_checkpoint();
  }

  // Collective: the hashes of the ids and labels of the last steps, which every rank has a part of, are
  // added up and recorded. A run that is killed before it does starts at a checkpoint before these steps.
  void record_hashes() {
    // Halves, whose sums do not overflow.
    std::vector<int64_t> halves;
    for (const uint64_t hash : hashes_) {
      halves.push_back(static_cast<int64_t>(hash & 0xFFFFFFFFu));
      halves.push_back(static_cast<int64_t>(hash >> 32));
    }
    if (!halves.empty())
      world_.world().all_reduce(halves.data(), std::ssize(halves), DType::I64, comm::ReduceOp::Sum);
    for (size_t i = 0; first_ && i < hashes_.size(); ++i) {
      const uint64_t sum =
          (static_cast<uint64_t>(halves[2 * i + 1]) << 32) + static_cast<uint64_t>(halves[2 * i]);
      observe::Record record;
      record.set("step", step_ - static_cast<int64_t>(hashes_.size() - 1 - i));
      record.set("tokens_hash", fmt::format("{:016x}", sum));
      if (const std::string warning = ledger_.append(record); !warning.empty()) say(warning, kWarning);
    }
    hashes_.clear();
  }

  void save_checkpoint() {
    save_at_.reset();
    record_hashes();
    places_ = gather_places(world_, data_, data_.train.position(step_));
    guard_save([&] { checkpoints_->save(step_, older()); });
  }

  // A checkpoint that cannot be written ends the run; the state is in memory, and is saved as at any end.
  template <class Fn>
  void guard_save(const Fn& fn) {
    try {
      fn();
    } catch (const SaveFailed& e) {
      result_.summary.end = RunEnd::SaveFailed;
      result_.message = base::without_code(e.what());
    }
  }

  // A run that may have diverged removes no older checkpoint: the user is likely to go back to one.
  Checkpointer::Older older() const {
    return step_ == 0 || (skipped_in_row_ == 0 && is_finite(result_.summary)) ? Checkpointer::Older::Prune
                                                                              : Checkpointer::Older::Keep;
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
    s.non_finite_at_end = non_finite_in_row(step, recipe_);
    if (step_ > kMeasuringSteps || recipe_.run.steps <= kMeasuringSteps) {
      timed_tokens_ += step.tokens;
      timed_seconds_ += seconds;
      s.tokens_per_s = static_cast<double>(timed_tokens_) / timed_seconds_;
    }
  }

  // Adds the result to the record, unless a signal ends the run meanwhile: the next run then repeats it.
  void evaluate(observe::Record& record) {
    const auto stop = [this] { return agree_to_stop(); };
    const int64_t begin_ns = base::now_ns();
    const auto e =
        evaluate_sets(*rank_, data_, recipe_, options_.interrupted ? stop : std::function<bool()>());
    evaluation_due_ = !e;
    if (!e) {
      result_.summary.end = RunEnd::Interrupted;
      return;
    }
    evaluation_seconds_ = static_cast<double>(base::now_ns() - begin_ns) / kNanosPerSecond;
    record.add(e->record);
    result_.summary.evaluations.push_back({step_, e->loss, e->tokens});
    constexpr observe::LineFormat kGood{.style = observe::Style::Good};
    say(fmt::format("eval at step {}: loss {:.4f} over {} tokens", step_, e->loss,
                    base::thousands(e->tokens)),
        kGood);
    for (const std::string& line : e->lines) say(line, kGood);
  }

  // The run that is continued was stopped in the middle of it.
  void repeat_evaluation() {
    observe::Record record;
    evaluate(record);
    if (evaluation_due_) return;
    places_ = gather_places(world_, data_, data_.train.position(step_));
    if (!first_) return;
    guarded([&] {
      metrics_.amend(step_, record);
      metrics_.sync();
      checkpoint::Store(checkpoint_folder(recipe_)).replace_run(step_, to_json(run_state()));
    });
  }

  std::string way_back() const {
    return first_ ? ". " + train::way_back(checkpoint_folder(recipe_), step_ - skipped_in_row_) : "";
  }

  void stop_for_skipped(const StepResult& step) {
    result_.summary.end = RunEnd::NonFinite;
    result_.message = skipped_message(step, step_, recipe_.run.max_skipped_steps) + way_back();
  }

  // Weights that give no finite loss are not a result.
  void require_finite_end() {
    if (is_finite(result_.summary)) return;
    result_.summary.end = RunEnd::NonFinite;
    result_.message = non_finite_message(result_.summary) + way_back();
  }

  // That an evaluation takes: as the last one, before it at most as many steps as it has batches.
  double evaluation_seconds() const {
    if (evaluation_seconds_ > 0) return evaluation_seconds_;
    return step_seconds_ * static_cast<double>(recipe_.eval.batches) *
           static_cast<double>(data_.evals.size());
  }

  // At the end of every step the ranks exchange what one of them may know: that the run is to stop, that a
  // checkpoint is due, and how far the save in progress is.
  void agree_on_next() {
    const bool evaluates = is_evaluated(step_ + 1) || is_evaluated(step_ + 2);
    Checkpointer::Flags flags = checkpoints_->flags(step_seconds_, evaluates ? evaluation_seconds() : 0);
    int32_t all[6] = {options_.interrupted ? options_.interrupted() : 0, flags.busy,  flags.failed, flags.due,
                      step_seconds_ > options_.long_step_seconds,        flags.ending};
    world_.world().all_reduce(all, 6, DType::I32, comm::ReduceOp::Max);
    long_steps_ = all[4] != 0;
    const bool ending = all[0] != 0 || all[5] != 0;
    guard_save(
        [&] { checkpoints_->advance({.busy = all[1], .failed = all[2], .due = all[3], .ending = ending}); });
    forecast_last_save(false);
    if (checkpoints_->has_saved()) note_saved();
    if (all[3] != 0 && !save_at_) save_at_ = started_;
    if (all[0] == 0 || step_ == recipe_.run.steps || !is_running()) return;
    result_.summary.end = RunEnd::Interrupted;
    result_.signal = all[0];
  }

  void finish() {
    progress_.reset();
    record_hashes();
    if (recipe_.run.check_replicas_every > 0) rank_->check_replicas();
    if (peers_) peers_->finish();
    if (first_) result_.summary.auto_seconds = checkpoints_->auto_seconds();
    if (options_.save_last)
      save_last();
    else
      checkpoints_->finish();
    if (writes_) guarded([&] { folder_.restore_if_removed(recipe_, run_json_, step_); });
    if (options_.trace) guarded([&] { write_gathered_trace(*trace_, world_, folder_.trace()); });
    if (trace_) guarded([&] { write_timeline(*trace_, *rank_, traced_->first, world_, folder_.timeline()); });
    gather_memory(*rank_, world_, options_.dry_run, result_.summary);
    rank_->traffic().require_planned(rank_->executor());
    result_.summary.traffic = gather_traffic(rank_->traffic(), rank_->executor(), world_);
    result_.summary.ended_at = base::utc_text();
    result_.summary.wall_seconds = static_cast<double>(base::now_ns() - run_begin_ns_) / kNanosPerSecond;
    if (first_ && !was_complete())
      guarded([&] { base::write_file_atomically(folder_.summary(), to_json(result_.summary)); });
    if (const std::string damage = stream_damage(data_); !damage.empty()) say("data: " + damage, kWarning);
    for (const RunMetrics* file : {&metrics_, &ledger_})
      if (const std::string what = file->incomplete(); !what.empty()) report_incomplete(what);
    world_.world().barrier();
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

  // The state that the run leaves.
  void save_last() {
    places_ = gather_places(world_, data_, data_.train.position(step_));
    const std::vector<base::Path> elsewhere = other_places(recipe_, world_);
    forecast_last_save(true);
    const Checkpointer::Last last = [&] {
      try {
        return checkpoints_->save_last(step_, older(), elsewhere);
      } catch (...) {  // nothing is lost by starting again (resume.cc)
        if (lock_) lock_->leave_file();
        throw;
      }
    }();
    if (result_.summary.end == RunEnd::SaveFailed)
      result_.message +=
          fmt::format(". Training stopped after step {}, whose state is in {}{}", step_, last.folder.string(),
                      last.failures.empty() ? ": the same command continues" : "");
    if (!first_ || last.failures.empty()) return;
    const base::Path other = last.folder.parent_path().parent_path();
    guarded([&] { mark_elsewhere(recipe_, other); });
    report_incomplete(fmt::format("{}; the last checkpoint is in {}: --run-dir NEW --from {} continues it",
                                  last.failures, other.string(), other.string()));
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
  RunMetrics metrics_, ledger_;
  std::vector<uint64_t> hashes_;  // of the last steps, this rank's parts (Rank::take_input_hash)
  bool writes_ = false;           // rank 0, once it has taken the folder
  bool has_noted_saved_ = false;  // see RunFolder::note_saved
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
  std::optional<observe::Progress> progress_;
  int64_t step_ = 0, started_ = 0;  // steps finished, steps started; at most one is in flight
  int64_t begin_ns_ = 0;            // start of the step that finishes next
  int64_t skipped_in_row_ = 0;      // of the last steps
  bool evaluation_due_ = false;     // after the last step: a signal has ended it
  double step_seconds_ = 0;         // of the last step
  double evaluation_seconds_ = 0;   // of the last evaluation; 0: none yet
  bool long_steps_ = false;         // the last step, on any rank
  int64_t timed_tokens_ = 0;
  double timed_seconds_ = 0;
  std::vector<std::string> places_;  // of data streams, at the last save
  RunResult result_;
};

}  // namespace

RunResult train_rank(const Prepared& prepared, const RunOptions& options, comm::World& world,
                     const HeaderFacts& facts, int64_t local_rank, int64_t ranks_here) {
  return RankLoop(prepared, options, world, facts, local_rank, ranks_here).run();
}

}  // namespace quintet::train
