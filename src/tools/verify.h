// Proof that a recipe's layout computes what one rank computes: the same seed and the same data in both, and
// every number that training is made of compared. What `quintet verify` does.
//
// Where the tolerances come from. u is the unit roundoff of a type, n the longest sum (terms that one element
// of a result adds up: token rows of the global batch, vocabulary, ...), d the longest chain of ops from
// input to gradient.
//
//  1. One op. Two orders of adding n terms differ by about sqrt(n) u_a relative to the result, u_a that of
//     the accumulator: rounding errors are as good as independent, and a sum whose terms cancel at random
//     shrinks by the same sqrt(n) by which they grow. Storing the result adds u_c, that of the compute (or
//     wire) type. Together
//         e = sqrt(u_c^2 + n u_a^2).
//  2. A chain of d ops adds d such errors in quadrature: sqrt(d) e. With kConfidence = 8 standard deviations
//         tolerance = 8 sqrt(d) e
//     is passed by chance with a probability of about exp(-32) per tensor. (f64, d = 150, n = 4096: about
//     7e-13.)
//  3. A tensor's error is ||a - b|| / max(||b||, floor). Some gradients are zero in exact arithmetic: a bias
//     of keys shifts all scores of a query alike, which the softmax ignores. What is computed is the rounding
//     noise of the last op, relative to the terms that cancel and not to the result. The floor allows for
//     that much and no more: the noise 8 e of one op on elements of the size that the whole gradient has on
//     average,
//         floor = ||G|| sqrt(elements of the tensor / elements of G) / sqrt(d).
//  4. After the first update the weights of both runs differ, within what was accepted before. Results are
//     products of weights, so the relative departures of the tensors add, in quadrature: rho^2 = sum of
//     (||w_a - w_b|| / ||w_b||)^2; biases, which begin at zero and are added to results, count against the
//     norm of all weights. Every op on a path has at most one weight in it, d in all. Weights W are as good
//     as random to their input, ||W x|| = ||W|| ||x|| / sqrt(width), but updates are made of those very
//     inputs: ||dW x|| may be ||dW|| ||x||. So gradients may then differ by d sqrt(width) rho more, width the
//     widest contraction with a weight, and the loss by ||gradient|| ||w_a - w_b||, its first-order change.
//     In f64 that is still about 1e-11; in f32 and bf16 AdamW (see 5) makes rho large, and the sharp
//     statement is that of step 1. (A tolerance above 1, as bf16 gets after an update, says nothing; f64 is
//     the proof.)
//  5. Weights under AdamW. An update is lr m / (sqrt(v) + eps), of size lr whatever the size of the gradient:
//     where a gradient is rounding noise, the weights move by up to lr either way, differently in every
//     layout, and no bound on the weights alone can tell that from an error. So the moments are compared (m
//     is a weighted mean of gradients and sqrt(v) a weighted quadratic mean, so both may differ by what the
//     gradients may, and no more), and then the weights *less the moves that each run's own moments explain*,
//     which must agree to the rounding of k updates. A wrong learning rate, decay, bias correction or a
//     missed update is left over in that difference. The bound shown for a weight is the sum of the two:
//     rounding and explained moves.
//  6. Weights under SGD are linear in the gradients: the sum of lr times what each gradient may differ by.
//  7. Routing decisions are whole numbers. One turns out differently where two scores lie closer together
//     than their errors, which happens to a share of about e of them, times the experts that compete; how
//     many there are in a layer is as good as Poisson, so the mean and 8 standard deviations are allowed.
//     (Seen: a tenth of that mean.) After an update the scores' own departure (4.) adds its share. Where that
//     is less than one decision, as in f64, the experts' loads must be equal, and so must the biases that
//     follow from them be, bit for bit. Sums of real numbers over a step (balance losses, entropies) may
//     differ by what gradients may, and by 1 for every decision that did turn.
//     A decision that did turn takes a token's row from one expert to another. Gradients of R rows, as good
//     as random to each other, have sqrt(R) times the norm of one row's, so f such decisions of a layer, 2 f
//     rows, may change those of its experts and its router by sqrt(2 f / R). What other layers see is f
//     tokens of T that are not the same: sqrt(f / T), over all layers. f is what the loads differ by: where
//     they are equal, nothing is allowed for it.
//  8. Peak memory is as planned, to the byte. Rows that experts receive are the exception: their number is
//     known beforehand only when nothing is dropped and the experts are not divided, or when they are padded.
//     Else the plan holds for the worst case, and less may be touched; so it may on a GPU, where libraries
//     leave some of the scratch that they ask for.
//  9. Between two devices initial weights may differ in their last bits: each has its own logarithm and
//     cosine. What follows from that is small beside the tolerances above.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/run_layout.h"

namespace quintet::tools {

inline constexpr double kConfidence = 8;

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
  std::string name;   // of the tensor; empty for scalars
  int64_t step = 0;   // 1 is the first; 0: before it
  double layout = 0;  // the number, or the norm of the tensor, in the layout
  double one_rank = 0;
  double error = 0;  // relative; for initial weights the number of elements that are not bit-equal
  double tolerance = 0;
  bool pass = true;
};

struct VerifyOptions {
  int64_t steps = 3;
  bool synthetic = false;                            // even where the recipe names data
  bool poison = false;                               // freed memory is overwritten in the layout's run
  int threads = 1;                                   // of each rank's kernels
  std::optional<config::DeviceKind> reference = {};  // where the one rank runs; empty: where the layout does
  data::LabelMask mask;                              // labels that count; empty: all
  compiler::ModelFn model = {};                      // empty: recipe.model
  std::function<void(const std::string&)> log = {};  // what the layout's executor has to say
};

struct VerifyResult {
  std::vector<Check> checks;  // by step; tensors in model order
  std::string layout;         // "dp_shard 2, zero 3, tp 2"
  std::string dtype;
  int64_t world = 1, steps = 0;
  bool synthetic = false;
  double tolerance = 0;  // of one gradient (2. above)
  bool is_first = true;  // false on the ranks other than 0 of an MPI job, which have nothing to compare

  bool pass() const { return first_departure() == nullptr; }
  const Check* first_departure() const;  // null: none
};

// `recipe` is resolved. Ranks are threads of this process, or this process is one of an MPI job. UserError
// for data that cannot be read.
VerifyResult verify(const config::Recipe& recipe, const VerifyOptions& options);

// The comparison alone.
VerifyResult compare(const config::Recipe& recipe, const LayoutRun& layout, const LayoutRun& one_rank);

std::string to_string(Check::Kind kind);
std::string to_table(const VerifyResult& result);
std::string to_json(const VerifyResult& result);
std::string describe(const config::Parallel& parallel);

}  // namespace quintet::tools
