// `quintet verify`: proves that a recipe's layout computes the same as one rank. Both run with the same seed
// and the same data, and every quantity of training is compared.
//
// Derivation of the tolerances. u is the unit roundoff of a type, n the length of the longest sum (terms that
// are added into one element of a result: token rows of the global batch, vocabulary, ...), d the longest
// chain of ops from input to gradient.
//
//  1. One op. Two orders of adding n terms differ by about sqrt(n) u_a relative to the result, where u_a is
//     that of the accumulator: rounding errors are practically independent, and a sum of randomly cancelling
//     terms shrinks by the same sqrt(n) by which the errors grow. Storing the result adds u_c, that of the
//     compute (or wire) type. Together
//         e = sqrt(u_c^2 + n u_a^2).
//  2. A chain of d ops adds d such errors in quadrature: sqrt(d) e. With kConfidence = 8 standard deviations,
//         tolerance = 8 sqrt(d) e
//     is exceeded by chance with a probability of about exp(-32) per tensor. (f64, d = 150, n = 4096: about
//     7e-13.)
//  3. The error of a tensor is ||a - b|| / max(||b||, floor). Some gradients are zero in exact arithmetic: a
//     bias of keys shifts all scores of a query equally, which the softmax ignores. The computed value is the
//     rounding noise of the last op, relative to the cancelling terms and not to the result. The floor allows
//     exactly for that: the noise 8 e of one op on elements of the average magnitude of the whole gradient G,
//         floor = ||G|| sqrt(elements of the tensor / elements of G) / sqrt(d).
//  4. After the first update, the weights of both runs differ within the tolerances of the previous step.
//     Results are products of weights, so the relative differences of the tensors add in quadrature:
//     rho^2 = sum of (||w_a - w_b|| / ||w_b||)^2; biases, which start at zero and are added to results, are
//     relative to the norm of all weights. Every op on a path has at most one weight, d in total. Weights W
//     are practically random relative to their input, ||W x|| = ||W|| ||x|| / sqrt(width), but updates are
//     made of those very inputs: ||dW x|| may be ||dW|| ||x||. Gradients may therefore differ by an extra
//     d sqrt(width) rho, where width is the widest contraction with a weight, and the loss by
//     ||gradient|| ||w_a - w_b||, its first-order change. In f64 that is still about 1e-11; in f32 and bf16,
//     AdamW (see 5) makes rho large, and the sharp comparison is that of step 1. (A tolerance above 1, as for
//     bf16 after an update, proves nothing; f64 is the proof.)
//  5. Weights under AdamW. An update is lr m / (sqrt(v) + eps), of magnitude lr regardless of the gradient:
//     where a gradient is rounding noise, the weights move by up to lr in either direction, differently in
//     every layout. The weights alone cannot tell such a move from an error, so the moments are
//     compared (m is a weighted mean of gradients and sqrt(v) a weighted quadratic mean, so both may differ
//     by as much as the gradients), and then the weights *minus the moves explained by each run's own
//     moments*, which must agree to the rounding of k updates. A wrong learning rate, decay, bias correction
//     or a missed update remains in that difference. The bound shown for a weight is the sum of both:
//     rounding and explained moves.
//  6. Weights under SGD are linear in the gradients: the sum of lr times the tolerance of each gradient.
//  7. Routing decisions are integers. A decision changes when two scores are closer than their errors, which
//     affects a fraction of about e of them, times the number of competing experts; the count per layer is
//     practically Poisson, so its mean plus 8 standard deviations is allowed. (Observed: a tenth of that
//     mean.) After an update, the difference of the scores themselves (4) adds its share. Where that is less
//     than one decision, as in f64, the expert loads must be equal, and so must the biases derived from them,
//     bit for bit. Real-valued sums over a step (balance losses, entropies) may differ by as much as
//     gradients, plus 1 for every changed decision.
//     A changed decision moves a token's row from one expert to another. Gradients of R practically
//     independent rows have sqrt(R) times the norm of one row's, so f changed decisions in a layer, 2 f rows,
//     may change the gradients of its experts and its router by sqrt(2 f / R). Other layers see f tokens of T
//     that differ: sqrt(f / T), over all layers. f is the observed difference of the loads: where they are
//     equal, nothing is allowed for it.
//  8. Peak memory equals the plan to the byte. Rows received by experts are the exception: their number is
//     known in advance only when nothing is dropped and the experts are not distributed, or when they are
//     padded. Otherwise the plan is an upper bound, and less may be touched; the same holds on a GPU, where
//     libraries may not use all of their requested scratch. With Muon a rank may own fewer matrices than
//     another rank of its stage: one of them must touch what is planned, the others no more.
//  9. On two different devices, initial weights may differ in their last bits, because each has its own
//     logarithm and cosine. The effect is small compared to the tolerances above.
//  10. Ill-conditioned models (dropout near 1, a latent of rank 1, normalised heads of two elements, a
//     learning rate that makes training chaotic) amplify rounding by more than these bounds can know. When
//     a comparison fails, one rank runs again with every weight multiplied by 1 + u_c or 1 - u_c at
//     random, which is as much as the rounding of each op, and with other micro-batches. Its difference
//     from the first run is thus one standard deviation of what rounding does in this model, where the
//     tolerance is kConfidence of those of 2. If it is f > 1 times as large in a step, all comparisons of
//     the step are allowed f times theirs, and the report says so. Where the norm of all its gradients
//     differs by half or more after the first step, comparisons of that step prove nothing. Micro-batches
//     stay where they are part of the mathematics: balance losses per micro-batch, those over a step, which
//     count the loads of earlier micro-batches, and capacities. (Other micro-batches alone would not do: a
//     CPU computes a sequence alike in each.)
//  11. Quantised values (precision.linear) are rounded to steps of up to 1/4 of themselves. A value whose
//     error crosses the border between two steps changes by a whole one; with relative errors r = sqrt(d) e
//     that is a share of about r / (1/4) of all values, and the relative error of a tensor is 1/4 times the
//     root of the share. In f64 that is less than one value of any tensor, so nothing is allowed for it.
//     Counts of values that became 0 are not compared: a value that is zero in exact arithmetic is noise in
//     one layout and zero in another.
//  12. Skipped steps. Whether a gradient overflows (f16 ends at 65504) is a decision, too. Where weights have
//     drifted so far that a gradient may differ by as much as itself (4), one run may skip a step that the
//     other applies. Nothing after that is compared. Before that, both runs must decide alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/run_layout.h"

namespace quintet::tools {

inline constexpr double kConfidence = 8;
inline constexpr double kCodeStep = 0.25;  // of E5M2, relative to the number

struct Check {
  enum class Kind : uint8_t {
    InitialWeight,
    Loss,
    Gradient,
    GradientNorm,
    Moment,
    Weight,
    Tokens,
    Peak,
    Sum,
    State
  };
  Kind kind;
  std::string name;   // of the tensor, or of a parameter and its moment; empty for scalars
  std::string param;  // whose weight, gradient or moment it is
  int64_t step = 0;   // 1-based; 0: before the first step
  double layout = 0;  // the value, or the norm of the tensor, in the layout
  double one_rank = 0;
  double error = 0;  // relative; for initial weights the number of elements that are not bit-equal
  double tolerance = 0;
  bool pass = true;
  // What this comparison proves nothing about: the tolerance is as large as the value, or both runs have no
  // finite value (a skipped step).
  bool blind = false;
  // Above 0: the tolerance of rounding alone was exceeded, but the model amplifies rounding by this factor
  // (10. above), and `tolerance` contains it.
  double amplified = 0;
};

struct VerifyOptions {
  int64_t steps = 3;
  bool synthetic = false;                            // even if the recipe names data
  bool poison = false;                               // overwrite freed memory in the layout's run
  int threads = 1;                                   // kernel threads per rank
  std::optional<config::DeviceKind> reference = {};  // device of the single rank; empty: that of the layout
  base::Path from = {};                              // a checkpoint whose weights both start with
  data::LabelMask mask;                              // which labels count; empty: all
  compiler::ModelFn model = {};                      // empty: recipe.model
  compiler::DisabledPasses disabled_passes = {};     // in the layout's run; the single rank runs all
  std::function<void(const std::string&)> log = {};  // messages of the layout's executor
};

struct VerifyResult {
  std::vector<Check> checks;             // by step; tensors in model order
  std::string layout;                    // "dp_shard 2, zero 3, tp 2"
  base::DType dtype = base::DType::F64;  // of the arithmetic
  int64_t world = 1, steps = 0;
  bool synthetic = false;
  double tolerance = 0;  // of one gradient (2. above)
  bool is_first = true;  // false on ranks other than 0 of an MPI job, which have nothing to compare

  bool pass() const { return first_mismatch() == nullptr; }
  const Check* first_mismatch() const;  // null: none
  int64_t blind() const;                // comparisons that prove nothing
  int64_t sensitive() const;            // comparisons that 10. above decided
};

// `recipe` must be resolved. Ranks are threads of this process, or this process is one rank of an MPI job.
// UserError when the data cannot be read.
VerifyResult verify(const config::Recipe& recipe, const VerifyOptions& options);

// The comparison alone. For `sensitivity`, see 10. above: it is compared with `one_rank` as well.
VerifyResult compare(const config::Recipe& recipe, const LayoutRun& layout, const LayoutRun& one_rank);

// One rank with other micro-batches, for 10 above; empty where there are no others, or where they are part of
// the mathematics.
std::optional<config::Recipe> with_other_micro_batches(config::Recipe one_rank);

std::string to_string(Check::Kind kind);
std::string to_table(const VerifyResult& result);
std::string to_json(const VerifyResult& result);
std::string describe(const config::Parallel& parallel);

}  // namespace quintet::tools
