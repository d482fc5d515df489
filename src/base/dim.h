// Names of tensor dims as interned ids: the built-in ones are constants, a model may add its own by name. A
// dim is named for what it is, never for how it is split; that is all the layout needs to know about a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace quintet::base {

enum class Dim : uint16_t {
  Tokens,     // rows of a micro-batch: whole sequences one after another
  Embed,      // the residual stream's width
  Heads,      // query heads
  KvHeads,    // key and value heads
  HeadDim,    // width of one head
  Ffn,        // inner width of the feed-forward block
  Vocab,      // token types
  Positions,  // learned position table
  Flat,       // elements of a group buffer (see layout/groups.h)
  Context,    // rows within a sequence: only a key in sharding rules, token rows themselves are Tokens
  Latent,     // compressed width inside multi-head latent attention; never divided
  Routes,     // experts as the router scores them; never divided
  Choices,    // the k experts of one token; never divided
  Experts,    // experts as owners of weights
  ExpertFfn,  // inner width of one expert
  Slots,      // (token, choice) pairs in the order of their experts, on the token's side
  Routed,     // the same rows on the expert's side: how many is known in the step only
  Counts,     // how many rows go to, or came for, each expert; every rank has its own
  Types,      // table of token types
  // Dims of users follow, in the order in which they were interned.
};
inline constexpr int kNumBuiltInDims = 19;

inline bool is_user_dim(Dim d) { return static_cast<int>(d) >= kNumBuiltInDims; }

// Rows whose number is known in the step only. They are not cut: every rank has room for a bound.
inline bool is_ragged(Dim d) { return d == Dim::Slots || d == Dim::Routed || d == Dim::Counts; }

// The dim of this name, a new one if there is none yet. Names are lower-case letters, digits and '_'. The id
// is good for this process only; ids never decide an order. Safe to call from any thread.
Dim intern_dim(std::string_view name);
std::string_view to_string(Dim d);
std::optional<Dim> parse_dim(std::string_view text);  // a built-in dim, or one that was interned before

// What a model asks of the ranks that divide one of its dims.
enum class DimNeed : uint8_t {
  Divide,  // the ranks divide the size
  Share,   // or the size divides the ranks: several then hold the same part (KV heads)
  Pad,     // any size: the last parts are padded (vocabulary)
};

// A dim of a model that ranks may divide. A dim of two sizes makes two demands.
struct DimDemand {
  Dim dim;
  int64_t size = 0;
  DimNeed need = DimNeed::Divide;
  friend bool operator==(const DimDemand&, const DimDemand&) = default;
};
using DimDemands = std::vector<DimDemand>;

// The largest size that is demanded of a dim; 0 when there is none.
int64_t demanded(const DimDemands& demands, Dim dim);

}  // namespace quintet::base
