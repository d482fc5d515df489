#include "tools/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "checkpoint/reader.h"
#include "comm/mpi.h"
#include "config/environment.h"
#include "config/validate.h"
#include "graph/adafactor_ops.h"
#include "graph/fp8_ops.h"
#include "tools/assemble_tensors.h"
#include "train/resume.h"
#include "train/saved_state.h"

namespace quintet::tools {

using base::DType;
using Kind = Check::Kind;

namespace {

// Relative difference of weights in f64 that rounding alone does not reach in a few steps.
constexpr double kDiverged = 1e-9;

// Half the distance from 1 to the next number.
double unit_roundoff(DType t) {
  switch (t) {
    case DType::F64:
      return 0x1p-53;
    case DType::F32:
      return 0x1p-24;
    case DType::BF16:
      return 0x1p-8;
    case DType::F16:
      return 0x1p-11;
    default:
      base::fail_internal("no arithmetic in dtype {}", base::to_string(t));
  }
}

double norm(const std::vector<double>& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

double norm(const std::vector<Tensor>& list) {
  double sum = 0;
  for (const Tensor& t : list) sum += std::pow(norm(t.values), 2);
  return std::sqrt(sum);
}

// Infinite where an element is NaN, as max_abs has it: no maximum may lose one.
double largest(const std::vector<Tensor>& list) {
  double result = 0;
  for (const Tensor& t : list)
    for (const double x : t.values) result = std::isnan(x) ? INFINITY : std::max(result, std::abs(x));
  return result;
}

double distance(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(distance(a[i].values, b[i].values), 2);
  return std::sqrt(sum);
}

// Of the tensors whose elements are all finite: their norm, and the root of their mean square.
struct Finite {
  double norm = 0, mean = 0;
};
Finite finite(const std::vector<Tensor>& list) {
  double squares = 0, elements = 0;
  for (const Tensor& t : list) {
    const double size = norm(t.values);
    if (!std::isfinite(size)) continue;
    squares += size * size;
    elements += static_cast<double>(t.values.size());
  }
  return {.norm = std::sqrt(squares), .mean = elements > 0 ? std::sqrt(squares / elements) : 0};
}

std::vector<double> square_roots(const std::vector<double>& v) {
  std::vector<double> s(v.size());
  for (size_t i = 0; i < v.size(); ++i) s[i] = std::sqrt(v[i]);
  return s;
}

// Everything that the comparison needs besides the two runs.
class Comparison {
 public:
  Comparison(const config::Recipe& recipe, const LayoutRun& a, const LayoutRun& b)
      : recipe_(recipe), a_(a), b_(b), chain_(static_cast<double>(b.longest_path)) {
    const config::Precision& p = recipe.precision;
    const double product = p.tf32 ? 0x1p-11 : 0.0;
    const double store =
        std::max({unit_roundoff(p.compute), unit_roundoff(p.gradients), unit_roundoff(p.reduce), product});
    const double accumulate = unit_roundoff(base::accumulator_of(p.compute));
    const config::Model& m = recipe.model;
    int64_t widest = std::max({m.ffn, m.embed, m.heads * m.head_dim, m.moe.ffn, m.moe.shared_ffn,
                               m.mla.kv_rank, m.mla.q_rank, m.heads * m.mla.v_dim});
    if (m.family == config::Family::Custom)
      for (const base::DimDemand& d : m.demands)
        if (d.dim != base::Dim::Vocab) widest = std::max(widest, d.size);
    const int64_t longest_sum = std::max(
        {recipe.batch.global * recipe.data.seq_len * std::max<int64_t>(1, m.moe.top_k), m.vocab, widest});
    width_ = static_cast<double>(widest);
    one_op_ = std::sqrt(store * store + static_cast<double>(longest_sum) * accumulate * accumulate);
    tolerance_ = kConfidence * std::sqrt(chain_) * one_op_;
    // 11 in verify.h.
    if (p.quantises() && p.compute != base::DType::F64)
      tolerance_ =
          std::max(tolerance_, kConfidence * kCodeStep * std::sqrt(std::sqrt(chain_) * one_op_ / kCodeStep));
  }

  VerifyResult run() {
    result_.tolerance = tolerance_;
    result_.steps = static_cast<int64_t>(b_.steps.size());
    result_.world = recipe_.parallel.world();
    result_.layout = describe(recipe_.parallel);
    result_.dtype = recipe_.precision.compute;
    same_tensors(a_.initial, b_.initial);
    QUINTET_CHECK(a_.steps.size() == b_.steps.size(), "the runs have {} and {} steps", a_.steps.size(),
                  b_.steps.size());

    for (size_t i = 0; i < b_.initial.size(); ++i) initial(a_.initial[i], b_.initial[i]);
    for (size_t t = 0; t < b_.steps.size(); ++t) step(t);
    moments();
    weights();
    peaks();
    return std::move(result_);
  }

 private:
  // `difference` and `allowed` are absolute; both are reported relative to `scale`.
  void add(Kind kind, const std::string& name, int64_t step, double layout, double one_rank,
           double difference, double allowed, double scale) {
    add_of(name, {}, kind, step, layout, one_rank, difference, allowed, scale);
  }
  // Of a parameter's moment.
  void add_of(const std::string& param, const std::string& moment, Kind kind, int64_t step, double layout,
              double one_rank, double difference, double allowed, double scale) {
    if (scale == 0) scale = 1;
    Check check{.kind = kind,
                .name = moment.empty() ? param : param + " " + moment,
                .param = param,
                .step = step,
                .layout = layout,
                .one_rank = one_rank,
                .error = difference / scale,
                .tolerance = allowed / scale,
                .pass = difference <= allowed};  // false for NaN
    const bool exact = kind == Kind::Tokens || kind == Kind::Peak;
    if ((parted_ && !exact) || (!std::isfinite(layout) && !std::isfinite(one_rank))) {
      // Both runs skipped the step, or only one did (12 in verify.h): there is nothing to compare.
      check.error = check.tolerance = 0;
      check.pass = check.blind = true;
    } else if (!std::isfinite(check.tolerance)) {
      check.tolerance = 0;  // no bound follows from values that are not finite
      check.pass = difference == 0;
    }
    check.blind = check.blind || check.tolerance >= 1;
    result_.checks.push_back(std::move(check));
  }

  void same_tensors(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    QUINTET_CHECK(a.size() == b.size(), "{} tensors in the layout and {} on one rank", a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      QUINTET_CHECK(a[i].name == b[i].name && a[i].values.size() == b[i].values.size(),
                    "{} does not match {}", a[i].name, b[i].name);
  }

  void initial(const Tensor& a, const Tensor& b) {
    // Each device has its own logarithm and cosine (kernels/cuda/support/fill.h).
    const double apart = a_.device == b_.device ? 0 : 8 * unit_roundoff(recipe_.precision.master_type());
    double differ = 0;
    for (size_t i = 0; i < a.values.size(); ++i)
      differ += !(std::abs(a.values[i] - b.values[i]) <= apart * std::abs(b.values[i]));
    add(Kind::InitialWeight, a.name, 0, norm(a.values), norm(b.values), differ, 0, 1);
  }

  void step(size_t t) {
    const StepState &a = a_.steps[t], &b = b_.steps[t];
    const int64_t number = static_cast<int64_t>(t) + 1;
    // The difference of the weights at the start of this step.
    const std::vector<Tensor>& before_a = t == 0 ? a_.initial : a_.steps[t - 1].weights;
    const std::vector<Tensor>& before_b = t == 0 ? b_.initial : b_.steps[t - 1].weights;
    const double apart = distance(before_a, before_b);
    const double drift = chain_ * std::sqrt(width_) * weight_drift(before_a, before_b),
                 relative = tolerance_ + drift;
    const RoutingChanges changes = routing_changes(a, b);
    diverged_.push_back(drift > kDiverged);
    parted_ = parted_ || (relative >= 1 && a.result.skipped != b.result.skipped);

    add(Kind::Tokens, "", number, static_cast<double>(a.result.tokens), static_cast<double>(b.result.tokens),
        std::abs(static_cast<double>(a.result.tokens - b.result.tokens)), 0, 1);
    // Where a gradient is not finite, the loss and the finite tensors are still compared.
    const double all = norm(b.gradients);
    const auto [whole, mean] = finite(b.gradients);
    const double from_weights = std::isfinite(all) ? all * apart : drift * std::abs(b.result.loss);
    add(Kind::Loss, "", number, a.result.loss, b.result.loss, std::abs(a.result.loss - b.result.loss),
        tolerance_ * std::abs(b.result.loss) + from_weights, std::abs(b.result.loss));

    same_tensors(a.gradients, b.gradients);
    const double floor = mean / std::sqrt(chain_);  // for each element
    allowed_.emplace_back();
    for (size_t i = 0; i < b.gradients.size(); ++i) {
      const auto &x = a.gradients[i].values, &y = b.gradients[i].values;
      const double scale = std::max(norm(y), floor * std::sqrt(static_cast<double>(y.size())));
      const double allowed = relative * scale + routing_share(changes, b.gradients[i].name) * norm(y);
      allowed_.back().push_back(allowed);
      add(Kind::Gradient, b.gradients[i].name, number, norm(x), norm(y), distance(x, y), allowed, scale);
    }
    // Errors of elements are relative to the whole gradient, also that of the largest.
    const bool inf = recipe_.optimizer.clip == config::ClipKind::Inf;
    add(Kind::GradientNorm, "", number, a.result.grad_norm, b.result.grad_norm,
        std::abs(a.result.grad_norm - b.result.grad_norm),
        (relative + changes.of_any) * (inf ? whole : b.result.grad_norm), b.result.grad_norm);
    // The reported norm must be the norm of the reduced gradients.
    const double expected = inf ? largest(a.gradients) : norm(a.gradients);
    add(Kind::GradientNorm, "of all tensors", number, a.result.grad_norm, expected,
        std::abs(a.result.grad_norm - expected), tolerance_ * whole, whole);
    sums(a, b, number, relative, drift, changes.decisions);
  }

  // Routing decisions that differ in a step, as their possible effect on gradients relative to their norms: 7
  // in verify.h.
  struct RoutingChanges {
    double decisions = 0;            // in all layers
    double of_any = 0;               // effect on tensors that see every token
    std::map<int, double> of_block;  // effect on the tensors of a block's experts and router
  };

  double routing_share(const RoutingChanges& changes, const std::string& gradient) const {
    const auto routed = b_.routed.find(gradient);
    if (routed == b_.routed.end()) return changes.of_any;
    const auto at = changes.of_block.find(routed->second);
    return std::max(changes.of_any, at == changes.of_block.end() ? 0.0 : at->second);
  }

  RoutingChanges routing_changes(const StepState& a, const StepState& b) const {
    same_tensors(a.sums, b.sums);
    const auto tokens = static_cast<double>(recipe_.batch.global * recipe_.data.seq_len);
    const double rows = tokens * static_cast<double>(recipe_.model.moe.top_k);
    RoutingChanges changes;
    for (size_t i = 0; i < b.sums.size(); ++i) {
      if (b.sums[i].sum != graph::SumKind::Load) continue;
      double here = 0;
      for (size_t e = 0; e < counts_in(b.sums[i]); ++e)
        here += std::abs(a.sums[i].values[e] - b.sums[i].values[e]) / 2;
      changes.of_block[b.sums[i].block] = std::sqrt(2 * here / rows);
      changes.decisions += here;
    }
    changes.of_any = std::sqrt(changes.decisions / tokens);
    return changes;
  }

  // How many elements of a sum count decisions: of a load all but the entropy, of a running sum half.
  static size_t counts_in(const Tensor& sum) {
    if (sum.sum == graph::SumKind::Load) return sum.values.size() - 1;
    return sum.sum == graph::SumKind::Running ? sum.values.size() / 2 : 0;
  }

  // 7 in verify.h.
  void sums(const StepState& a, const StepState& b, int64_t number, double relative, double drift,
            double changes) {
    const config::Moe& moe = recipe_.model.moe;
    const auto decisions =
        static_cast<double>(recipe_.batch.global * recipe_.data.seq_len * moe.top_k * moe.experts);
    const double ties = one_op_ * decisions;
    const double may_flip = std::floor(ties + kConfidence * std::sqrt(ties) + drift * decisions);
    for (size_t i = 0; i < b.sums.size(); ++i) {
      const std::string& name = b.sums[i].name;
      const auto &x = a.sums[i].values, &y = b.sums[i].values;
      const size_t counts = counts_in(b.sums[i]);
      const auto part = [](const std::vector<double>& v, size_t from, size_t to) {
        return std::vector<double>(v.begin() + static_cast<std::ptrdiff_t>(from),
                                   v.begin() + static_cast<std::ptrdiff_t>(to));
      };
      const auto counted_a = part(x, 0, counts), counted_b = part(y, 0, counts);
      const auto real_a = part(x, counts, x.size()), real_b = part(y, counts, y.size());
      if (counts > 0)
        add(Kind::Sum, name + " (counts)", number, norm(counted_a), norm(counted_b),
            distance(counted_a, counted_b), may_flip, norm(counted_b));
      add(Kind::Sum, name, number, norm(real_a), norm(real_b), distance(real_a, real_b),
          relative * norm(real_b) + changes, norm(real_b));
    }
    same_tensors(a.states, b.states);
    for (size_t i = 0; i < b.states.size(); ++i) {
      const auto &x = a.states[i].values, &y = b.states[i].values;
      // Adafactor's averages of squared gradients have twice their relative error.
      if (b.states[i].name == graph::kFactorState) {
        const double error = relative + changes + clip_error(static_cast<size_t>(number) - 1);
        add(Kind::Moment, b.states[i].name, number, norm(x), norm(y), distance(x, y),
            2 * kConfidence * error * norm(y), norm(y));
        continue;
      }
      // Magnitudes of quantised values.
      if (b.states[i].name == graph::kAmaxState) {
        add(Kind::State, b.states[i].name, number, norm(x), norm(y), distance(x, y), relative * norm(y),
            norm(y));
        continue;
      }
      const double allowed = may_flip < 1 ? 0
                                          : 2 * moe.bias_rate * static_cast<double>(number) *
                                                std::sqrt(static_cast<double>(y.size()));
      add(Kind::State, b.states[i].name, number, norm(x), norm(y), distance(x, y), allowed, norm(y));
    }
  }

  // rho of 4 in verify.h.
  double weight_drift(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    const double whole = norm(b);
    double sum = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      const double size = norm(b_.initial[i].values) > 0 ? norm(b[i].values) : whole;
      sum += std::pow(distance(a[i].values, b[i].values) / std::max(size, 1e-300), 2);
    }
    return std::sqrt(sum);
  }

  // Of stored moments. In f64 codes and stochastically rounded moments differ between layouts only where a
  // number is within rounding of a border; in narrower types any code may be the next one, of which there are
  // 64 or more up to a block's largest.
  double moment_roundoff() const {
    const bool codes = recipe_.optimizer.uses(config::OptimizerKind::AdamW8bit),
               wide = recipe_.precision.compute == base::DType::F64;
    return codes && !wide ? 0x1p-5 : unit_roundoff(recipe_.precision.moments);
  }

  // Means of gradients, scaled by the clip factor (at most 1): they may differ by as much as the gradients,
  // plus the rounding of k updates and of their own type.
  void moments() {
    const double steps = static_cast<double>(b_.steps.size());
    const double round =
        kConfidence * steps * 2 * std::max(unit_roundoff(recipe_.precision.master_type()), moment_roundoff());
    QUINTET_CHECK(a_.moments.size() == b_.moments.size(), "the runs have {} and {} optimizer states",
                  a_.moments.size(), b_.moments.size());
    for (size_t k = 0; k < b_.moments.size(); ++k) {
      const Moments &a = a_.moments[k], &b = b_.moments[k];
      if (b.of_weights) continue;  // with the weights
      same_tensors(a.tensors, b.tensors);
      for (size_t i = 0; i < b.tensors.size(); ++i) {
        const size_t of = index_of(b_.steps[0].gradients, b.tensors[i].name);
        double allowed = 0, relative = 0;
        // The difference of the clip factor affects the whole gradient.
        for (size_t t = 0; t < allowed_.size(); ++t) {
          if (b_.steps[t].result.skipped) continue;
          const double size = norm(b_.steps[t].gradients[of].values);
          allowed = std::max(allowed, allowed_[t][of] + clip_error(t) * size);
          relative = std::max(relative, size > 0 ? allowed_[t][of] / size + clip_error(t) : 1);
        }
        // LARS keeps updates, whose size does not depend on that of the gradients: one that is only rounding
        // errors in one run, and zero in the other, makes a whole update.
        if (b.op == &graph::kLars)
          allowed = 2 * relative * std::max(norm(a.tensors[i].values), norm(b.tensors[i].values)) /
                    (1 - recipe_.optimizer.momentum);
        const auto compare = [&](const std::string& what, const std::vector<double>& x,
                                 const std::vector<double>& y) {
          add(Kind::Moment, b.tensors[i].name + what, result_.steps, norm(x), norm(y), distance(x, y),
              b.gain * allowed + round * norm(y), norm(y));
        };
        const auto &x = a.tensors[i].values, &y = b.tensors[i].values;
        if (b.of_squares)
          compare(" sqrt(" + b.name + ")", square_roots(x), square_roots(y));
        else
          compare(" " + b.name, x, y);
      }
    }
  }

  // Upper bound on the singular values after Newton-Schulz.
  static constexpr double kLargestSingularValue = 1.3;
  // Each iteration multiplies small singular values, and rounding errors, by the first coefficient.
  static double newton_schulz_gain(const Matrices& m) {
    return std::pow(graph::kNewtonSchulzCoefficients[0], graph::kNewtonSchulzSteps) *
           std::sqrt(static_cast<double>(std::max(m.rows, m.columns)));
  }

  // clip = limit / norm: its relative error is that of the norm.
  double clip_error(size_t t) const {
    const double limit = recipe_.optimizer.clip_norm, a = a_.steps[t].result.grad_norm,
                 b = b_.steps[t].result.grad_norm;
    return limit > 0 && std::max(a, b) > limit ? std::abs(a - b) / b + tolerance_ : 0;
  }

  void weights() {
    if (b_.steps.empty()) return;
    const double steps = static_cast<double>(b_.steps.size());
    const auto &final_a = a_.steps.back().weights, &final_b = b_.steps.back().weights;
    same_tensors(final_a, final_b);
    for (size_t i = 0; i < final_b.size(); ++i) {
      const std::string& name = final_b[i].name;
      std::vector<double> x = final_a[i].values;
      const std::vector<double>& y = final_b[i].values;
      for (const auto* unsure : {find(a_.unsure, name), find(b_.unsure, name)})
        for (size_t k = 0; unsure != nullptr && k < x.size(); ++k)
          if (unsure->values[k] != 0) x[k] = y[k];
      const Tensor *moves_a = find(a_.moves, name), *moves_b = find(b_.moves, name);
      const size_t trainable = index_of(b_.steps[0].gradients, name);
      double allowed = 0, difference = distance(x, y);
      if (trainable != kNone) {  // a frozen weight must not change at all
        const optim::ParamSettings& settings = b_.settings.at(name);
        double round = kConfidence * steps * 4 * unit_roundoff(recipe_.precision.master_type()) *
                       std::max(norm(x), norm(y));
        if (moves_a && moves_b) {
          round +=
              kConfidence * 4 * steps *
              (unit_roundoff(recipe_.precision.moments) + unit_roundoff(recipe_.precision.master_type())) *
              std::max(norm(moves_a->values), norm(moves_b->values));
          if (const auto matrices = b_.matrices.find(name); matrices != b_.matrices.end())
            round *= newton_schulz_gain(matrices->second);
          std::vector<double> rest_a(x.size()), rest_b(y.size());
          for (size_t k = 0; k < x.size(); ++k) {
            rest_a[k] = x[k] - moves_a->values[k];
            rest_b[k] = y[k] - moves_b->values[k];
          }
          // The moves themselves are compared through the moments.
          difference = distance(rest_a, rest_b);
          allowed = round;
        } else if (const auto matrices = b_.matrices.find(name); matrices != b_.matrices.end()) {
          // Narrow types: directions whose gradient is only rounding error may be rotated arbitrarily.
          const Matrices& m = matrices->second;
          allowed = round;
          for (const StepState& step : b_.steps)
            allowed += 2 * step.result.lr * settings.lr_factor * m.scale * kLargestSingularValue *
                       std::sqrt(static_cast<double>(m.count * std::min(m.rows, m.columns)));
        } else if (settings.kind == config::OptimizerKind::Lion) {
          // Signs do not depend on the size of a gradient: in narrow types any small one may flip, and so may
          // all signs of rounding errors once the weights have diverged.
          allowed = round;
          for (size_t t = 0; t < b_.steps.size(); ++t)
            if (recipe_.precision.compute != base::DType::F64 || diverged_[t])
              allowed +=
                  2 * b_.steps[t].result.lr * settings.lr_factor * std::sqrt(static_cast<double>(x.size()));
        } else {
          allowed = round;
          const auto found = b_.gains.find(name);
          const double gain = found != b_.gains.end() ? found->second : 1;
          for (size_t t = 0; t < b_.steps.size(); ++t)
            if (!b_.steps[t].result.skipped)
              allowed +=
                  b_.steps[t].result.lr * settings.lr_factor * gain *
                  (allowed_[t][trainable] + clip_error(t) * norm(b_.steps[t].gradients[trainable].values));
        }
      }
      add(Kind::Weight, name, result_.steps, norm(x), norm(y), difference, allowed, norm(y));
      Check& check = result_.checks.back();
      // A run that skipped every step has no moves.
      check.pass = check.pass && (parted_ || (moves_a == nullptr) == (moves_b == nullptr));
      if (trainable != kNone) averages(name, allowed);
    }
  }

  // Averages of the weights differ by no more than the weights of any step. Where moves explain these, what
  // is left without the averages of the moves is compared, as it is of the weights.
  void averages(const std::string& name, double allowed) {
    for (size_t k = 0; k < b_.moments.size(); ++k) {
      if (!b_.moments[k].of_weights) continue;
      const std::vector<double>& x = find(a_.moments[k].tensors, name)->values;
      const std::vector<double>& y = find(b_.moments[k].tensors, name)->values;
      const Tensor *moves_a = find(a_.average_moves, name), *moves_b = find(b_.average_moves, name);
      const bool explained = moves_a != nullptr && moves_b != nullptr;
      std::vector<double> rest_a = x, rest_b = y;
      for (size_t i = 0; explained && i < x.size(); ++i)
        rest_a[i] -= moves_a->values[i], rest_b[i] -= moves_b->values[i];
      for (const auto* unsure : {find(a_.unsure, name), find(b_.unsure, name)})
        for (size_t i = 0; unsure != nullptr && i < x.size(); ++i)
          if (unsure->values[i] != 0) rest_a[i] = rest_b[i];
      add_of(name, b_.moments[k].name, Kind::Moment, result_.steps, norm(x), norm(y),
             distance(rest_a, rest_b), allowed, norm(y));
    }
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  static size_t index_of(const std::vector<Tensor>& list, const std::string& name) {
    const Tensor* t = find(list, name);
    return t ? static_cast<size_t>(t - list.data()) : kNone;
  }

  void peaks() {
    if (b_.steps.size() < 2) return;  // measuring takes two steps
    for (size_t r = 0; r < a_.peaks.size(); ++r) {
      const Peak& peak = a_.peaks[r];
      add_peak(fmt::format("rank {}", r), peak.planned, peak.measured, rows_vary() || peak.uneven);
    }
    // Some rank of a stage owns as many matrices as the plan has room for.
    std::map<int, Peak> most;  // by place along the pipeline
    for (const Peak& peak : a_.peaks) {
      if (rows_vary() || !peak.uneven) continue;
      Peak& of_place = most[peak.place];
      of_place.planned = peak.planned;
      of_place.measured = std::max(of_place.measured, peak.measured);
    }
    for (const auto& [place, peak] : most)
      add_peak(fmt::format("the most of stage {}", place), peak.planned, peak.measured, /*is_bound=*/false);
  }

  void add_peak(const std::string& name, int64_t planned, int64_t measured, bool is_bound) {
    const int64_t difference = is_bound && measured <= planned ? 0 : std::abs(measured - planned);
    add(Kind::Peak, name, 0, static_cast<double>(measured), static_cast<double>(planned),
        static_cast<double>(difference), 0, 1);
  }

  // 8 in verify.h.
  bool rows_vary() const {
    const config::Moe& moe = recipe_.model.moe;
    if (recipe_.run.device != config::DeviceKind::Cpu) return true;
    return moe.experts > 0 && !moe.pad && (moe.capacity_factor > 0 || recipe_.parallel.ep > 1);
  }

  const config::Recipe& recipe_;
  const LayoutRun &a_, &b_;
  const double chain_;
  double one_op_ = 0, tolerance_ = 0, width_ = 1;
  bool parted_ = false;                       // 12 in verify.h
  std::vector<char> diverged_;                // by step: the weights before it differ by more than rounding
  std::vector<std::vector<double>> allowed_;  // allowed difference by step and gradient
  VerifyResult result_;
};

}  // namespace

const Check* VerifyResult::first_mismatch() const {
  for (const Check& c : checks)
    if (!c.pass) return &c;
  return nullptr;
}

int64_t VerifyResult::blind() const {
  return std::count_if(checks.begin(), checks.end(), [](const Check& c) { return c.blind; });
}

int64_t VerifyResult::sensitive() const {
  return std::count_if(checks.begin(), checks.end(), [](const Check& c) { return c.amplified > 0; });
}

std::optional<config::Recipe> with_other_micro_batches(config::Recipe r) {
  const config::Moe& moe = r.model.moe;
  // Over all tokens of a step the loss of a micro-batch counts the loads of those before it.
  const bool per_micro_batch = moe.balance_over(config::BalanceScope::MicroBatch) > 0 ||
                               moe.balance_over(config::BalanceScope::Global) > 0;
  if (moe.experts > 0 && (per_micro_batch || moe.capacity_factor > 0)) return std::nullopt;
  if (r.batch.global == 1) return std::nullopt;
  r.batch.micro = r.batch.micro == 1 ? r.batch.global : 1;
  r.batch.accumulation = r.batch.global / r.batch.micro;
  return r;
}

namespace {

// Every weight, multiplied by 1 + u or 1 - u. Signs are a function of its index in the whole parameter.
void perturb_weights(train::Rank& rank, double u) {
  rank.visit(program::holds_weights, [&](const train::Rank::Piece& piece, const layout::GlobalIndex& global) {
    const exec::HostBytes old = rank.read(piece);
    std::vector<double> next(static_cast<size_t>(piece.count));
    for (int64_t i = 0; i < piece.count; ++i) {
      const bool up = base::philox(0, static_cast<uint64_t>(global(piece.first + i)), 0)[0] % 2 == 0;
      next[static_cast<size_t>(i)] = element_of(old.data(), piece.dtype, i) * (up ? 1 + u : 1 - u);
    }
    rank.write(piece, [&](std::byte* to) {
      for (size_t i = 0; i < next.size(); ++i) {
        if (piece.dtype == DType::F64)
          reinterpret_cast<double*>(to)[i] = next[i];
        else
          reinterpret_cast<float*>(to)[i] = static_cast<float>(next[i]);
      }
    });
  });
  rank.weights_changed();
}

// A gradient norm that one rank reproduces no better than this says nothing, nor do gradients of that step.
constexpr double kChaos = 0.5;

// `own` compares one rank with itself, weights perturbed; the tolerances are those of `result`.
void allow_for_sensitivity(VerifyResult& result, const VerifyResult& own) {
  std::map<int64_t, double> of_step;  // deviations by step
  std::set<int64_t> chaotic;          // steps
  double of_all = 0;
  for (size_t i = 0; i < std::min(own.checks.size(), result.checks.size()); ++i) {
    const Check &o = own.checks[i], &c = result.checks[i];
    if (o.kind == Kind::Peak || c.kind == Kind::Peak) break;  // what follows differs in number
    if (o.kind == Kind::GradientNorm && o.step > 1 && o.error >= kChaos) chaotic.insert(o.step);
    if (o.blind || c.tolerance <= 0 || !std::isfinite(o.error)) continue;
    double& here = of_step[c.step];
    here = std::max(here, kConfidence * o.error / c.tolerance);
    of_all = std::max(of_all, here);
  }
  for (Check& c : result.checks) {
    if (c.pass || c.tolerance <= 0) continue;
    // Moments and weights have seen all steps.
    const bool whole = c.kind == Kind::Moment || c.kind == Kind::Weight;
    const double factor = whole ? of_all : of_step[c.step], tolerance = factor * c.tolerance;
    if (whole ? !chaotic.empty() : chaotic.contains(c.step)) {
      c.amplified = factor;
      c.pass = c.blind = true;
      continue;
    }
    if (factor <= 1 || !(c.error <= tolerance)) continue;
    c.amplified = factor;
    c.tolerance = tolerance;
    c.pass = true;
    c.blind = c.tolerance >= 1;
  }
}

}  // namespace

VerifyResult compare(const config::Recipe& recipe, const LayoutRun& layout, const LayoutRun& one_rank) {
  return Comparison(recipe, layout, one_rank).run();
}

VerifyResult verify(const config::Recipe& recipe, const VerifyOptions& options) {
  if (options.steps < 1) base::fail_user("verify: --steps must be at least 1, got {}", options.steps);
  exec::require_device(train::device_of(recipe));
  const bool synthetic = options.synthetic || recipe.data.path.empty() || recipe.data.stream ||
                         recipe.data.format == config::DataFormat::Chat;
  const data::Dataset dataset = training_data(recipe, synthetic);
  const auto batches = [&](const config::Recipe& r) { return training_batches(r, dataset, options.mask); };
  const base::Path from = options.from.empty() ? base::Path() : train::find_checkpoint(options.from);
  std::function<void(train::Rank&)> prepare;
  if (!from.empty())
    prepare = [&](train::Rank& rank) {
      checkpoint::Reader reader(from);
      train::load_state(rank, reader, train::LoadOptions{.weights_only = true});
    };
  const LayoutOptions run_options{.steps = options.steps,
                                  .poison = options.poison,
                                  .threads = options.threads,
                                  .model = options.model,
                                  .disabled_passes = options.disabled_passes,
                                  .log = options.log,
                                  .prepare = prepare};
  const std::optional<config::Launch> launch = config::detect_launch();
  LayoutRun layout;
  bool first = true;
  if (launch && launch->world > 1)
    comm::run_mpi_world([&](comm::World& world) {
      config::check_world(recipe, world.size());
      layout = run_layout_on(world, recipe, batches(recipe), run_options, launch->local_rank);
      first = world.rank().value == 0;
    });
  else
    layout = run_layout(recipe, batches(recipe), run_options);
  if (!first) return {.is_first = false};
  config::Recipe reference = on_one_rank(recipe);
  reference.run.device = options.reference.value_or(recipe.run.device);
  exec::require_device(train::device_of(reference));
  const LayoutOptions of_one_rank{
      .steps = options.steps, .threads = options.threads, .model = options.model, .prepare = prepare};
  const LayoutRun one = run_layout(reference, batches(reference), of_one_rank);
  VerifyResult result = compare(recipe, layout, one);
  if (!result.pass()) {
    const config::Recipe other = with_other_micro_batches(reference).value_or(reference);
    LayoutOptions perturbed = of_one_rank;
    perturbed.prepare = [&](train::Rank& rank) {
      if (prepare) prepare(rank);
      perturb_weights(rank, unit_roundoff(recipe.precision.compute));
    };
    allow_for_sensitivity(result, compare(recipe, run_layout(other, batches(other), perturbed), one));
  }
  result.synthetic = synthetic;
  return result;
}

}  // namespace quintet::tools
