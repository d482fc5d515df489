// `quintet verify --bisect`: the first op whose result departs from that of one rank.
//
// Both runs show every result of every micro-batch (exec::Executor::observe). A local graph says of each
// value which logical value it is a piece of and how it is placed, so the pieces of all ranks are assembled,
// terms of open sums are added, and the whole is compared with what one rank computed for the same logical
// value: the same op on the same values, whatever each run fused or recomputed. The single rank has the
// layout's micro-batches, so that they hold the same sequences.
//
// The first departure in the order of the program is the faulty op: what it reads is equal. Values are not
// compared that are in another order in every layout (rows by expert), or that exist for a chunk of rows
// only; a fault there is reported at the first op that follows, with the list of ops between. Where all
// values of the micro-batches agree, the departure is outside them: reductions of gradients, clipping,
// updates. These are found by the comparison of verify.h, and reported as the kind of work between the last
// value that agrees and the first that does not.
//
// The tolerance of a value is that of verify.h (2.), relative to the larger of its norm and, because sums may
// cancel, of the norms of what it is made of. One step is compared: afterwards weights differ by what
// optimizers make of rounding. A later step is reached from a checkpoint.
#pragma once

#include <map>

#include "tools/verify.h"

namespace quintet::tools {

struct Departure {
  std::string op;                   // "attention", "all_reduce", "recv"; or the work outside of micro-batches
  std::string value;                // of which parameter or tensor, for people: "%41 f64[tokens=16, ffn=24]"
  std::string phase;                // "forward", "backward", "weight gradients", "step"
  int block = -1;                   // -1: of none
  int64_t micro = -1;               // 0-based; -1: outside of micro-batches
  std::string placement;            // "[tokens: dp_shard, ffn: tp]"
  std::vector<int> ranks;           // that hold the departing piece, or its terms
  double error = 0, tolerance = 0;  // relative
  std::vector<std::string> inputs;  // each with what is known of it
  std::vector<std::string> skipped;  // ops between the last compared value that it depends on and itself
};

struct Bisection {
  VerifyResult verified;  // of the same runs
  std::optional<Departure> first;
  int64_t compared = 0, skipped = 0;           // values of the micro-batches
  std::map<std::string, int64_t> skipped_ops;  // how many by the op that makes them
  bool pass() const { return !first && verified.pass(); }
};

// As verify(); on CPUs, with ranks as threads of this process. UserError otherwise.
Bisection bisect(const config::Recipe& recipe, const VerifyOptions& options);

std::string to_text(const Bisection& result);
std::string to_json(const Bisection& result);

}  // namespace quintet::tools
