// Types of logical values: an element type and named dims. A dim is named for what it is, never for how it is
// split; that is all the layout needs to know about a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace quintet::graph {

using base::DType;

enum class Dim : uint8_t {
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
};
inline constexpr int kNumDims = 18;

// Rows whose number is known in the step only. They are not cut: every rank has room for a bound.
inline bool is_ragged(Dim d) { return d == Dim::Slots || d == Dim::Routed || d == Dim::Counts; }

std::string_view to_string(Dim d);
std::optional<Dim> parse_dim(std::string_view text);

struct DimSize {
  Dim name;
  int64_t size;
  friend bool operator==(const DimSize&, const DimSize&) = default;
};

struct Type {
  DType dtype = DType::F32;
  std::vector<DimSize> dims;  // empty: a scalar

  int64_t count() const;
  int64_t bytes() const { return count() * base::size_of(dtype); }
  int num_dims() const { return static_cast<int>(dims.size()); }
  int64_t size(int dim) const { return dims[static_cast<size_t>(dim)].size; }
  friend bool operator==(const Type&, const Type&) = default;
};

std::string to_string(const Type& type);  // f32[tokens=512, embed=128]

}  // namespace quintet::graph
