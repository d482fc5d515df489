// Ops of experts and routing at sizes where kernels take other paths than in small examples: several tiles of
// a GEMM, several sources, hundreds of experts, groups of experts, sequences sharded over ranks.
#include <cmath>
#include <cstring>
#include <numeric>

#include "gpu/device.h"
#include "gpu/op_runner.h"

namespace quintet::tests {
namespace {

using kernels::cuda::test::under_racecheck;

using graph::Attrs;
using graph::Dim;
using graph::DimSize;
using graph::DType;
using graph::Type;

constexpr DType kTypes[] = {DType::F64, DType::F32, DType::BF16, DType::F16};

class Random {
 public:
  HostTensor real(DType dtype, std::vector<DimSize> dims, double scale = 1) {
    HostTensor t(Type{DType::F64, std::move(dims)});
    for (int64_t i = 0; i < t.type.count(); ++i) t.real()[i] = scale * normal_(random_);
    return to_dtype(t, dtype);
  }
  HostTensor positive(DType dtype, std::vector<DimSize> dims) {
    HostTensor t(Type{DType::F64, std::move(dims)});
    for (int64_t i = 0; i < t.type.count(); ++i) t.real()[i] = 0.01 + std::abs(normal_(random_));
    return to_dtype(t, dtype);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  HostTensor indices(std::vector<DimSize> dims, int64_t n, int64_t lowest = 0) {
    HostTensor t(Type{DType::I32, std::move(dims)});
    for (int64_t i = 0; i < t.type.count(); ++i)
      t.index()[i] = static_cast<int32_t>(lowest + below(n - lowest));
    return t;
  }

 private:
  std::mt19937_64 random_{5};
  std::normal_distribution<double> normal_;
};

HostTensor counts(const std::vector<int32_t>& values) {
  HostTensor t(Type{DType::I32, {{Dim::Counts, static_cast<int64_t>(values.size())}}});
  std::copy(values.begin(), values.end(), t.index());
  return t;
}

// The reference is the CPU on the same operands: in f64 where kernels sum, typed where they only move data.
OpRun widened(const OpRun& run) {
  OpRun wide = run;
  for (auto* list : {&wide.in, &wide.out})
    for (HostTensor& t : *list) t = to_f64(t);
  if (wide.attrs.find("out") != nullptr) wide.attrs.set("out", std::string("f64"));
  return wide;
}
void compare(const OpRun& run, DType dtype) {
  const auto want = run_on_cpu(widened(run)), got = run_on_gpu(run, libraries());
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(got[i], want[i], dtype, std::string(run.op->name) + " result " + std::to_string(i));
}
void compare_bits(const OpRun& run) {
  const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_EQ(got[i].bytes, want[i].bytes) << run.op->name << " result " << i;
}

// An op whose results initially hold noise.
OpRun over_noise(Random& random, const graph::OpDef& op, const Attrs& attrs, std::vector<HostTensor> in,
                 bool accumulate = false) {
  std::vector<Type> types;
  for (const HostTensor& t : in) types.push_back(t.type);
  OpRun run{&op, attrs, std::move(in), {}, {}, {}, accumulate};
  for (const Type& t : op.infer(types, attrs)) run.out.push_back(random.real(t.dtype, t.dims));
  return run;
}

// Rows from `first` on become NaN: they must not be read.
HostTensor without_rows(HostTensor t, int64_t first) {
  const size_t row = t.bytes.size() / static_cast<size_t>(t.type.size(0));
  std::fill(t.bytes.begin() + static_cast<std::ptrdiff_t>(row) * first, t.bytes.end(), std::byte{0xff});
  return t;
}

TEST(GpuExpertOps, GroupedGemmsOfSeveralTiles) {
  Random random;
  struct Case {
    int64_t out, in;
    std::vector<int32_t> received;  // for five experts, from two sources
  };
  // One expert has no rows, one more than a tile. The last has more steps than the pipeline has stages, in
  // all three GEMMs.
  const std::vector<int32_t> few = {70, 0, 3, 129, 20, 91, 0, 1, 8, 0},
                             many = {300, 0, 64, 1, 200, 90, 0, 64, 6, 13};
  const int64_t experts = 5;
  for (const auto& [out, in, received] :
       {Case{136, 72, few}, {72, 200, few}, {33, 17, few}, {520, 392, many}})
    for (const DType dtype : kTypes) {
      const int64_t total = std::accumulate(received.begin(), received.end(), 0), rows = total + 30;
      SCOPED_TRACE(std::to_string(out) + " x " + std::to_string(in) + " " +
                   std::string(base::to_string(dtype)));
      const DimSize R{Dim::Routed, rows}, X{Dim::Experts, experts}, O{Dim::ExpertFfn, out}, I{Dim::Embed, in};
      const HostTensor x = without_rows(random.real(dtype, {R, I}), total),
                       dy = without_rows(random.real(dtype, {R, O}), total),
                       w = random.real(dtype, {X, O, I}, 0.1), n = counts(received),
                       add = random.real(dtype, {R, I});
      compare({&graph::kGroupedLinear, {}, {x, w, n}, {random.real(dtype, {R, O}, 0)}}, dtype);
      compare({&graph::kGroupedLinearDx, {}, {dy, w, n}, {random.real(dtype, {R, I}, 0)}}, dtype);
      compare({&graph::kGroupedLinearDx, {}, {dy, w, n, add}, {random.real(dtype, {R, I}, 0)}}, dtype);
      for (const bool accumulate : {false, true})
        compare({&graph::kGroupedLinearDw,
                 {{"out", std::string("f32")}, {"experts", experts}},
                 {dy, x, n},
                 {random.real(base::accumulator_of(dtype), {X, O, I})},
                 {},
                 {},
                 accumulate},
                dtype);
    }
}

TEST(GpuExpertOps, RowsAreRegrouped) {
  Random random;
  const int64_t experts = 4;
  const std::vector<int32_t> received = {3, 0, 5, 1, 0, 0, 2, 7, 4, 1, 0, 6};  // three sources
  const int64_t rows = std::accumulate(received.begin(), received.end(), 0) + 5;
  for (const DType dtype : kTypes)
    for (const int64_t width : {1, 5, 16, 2056})
      for (const int64_t inverse : {0, 1}) {
        const std::vector<DimSize> dims = {{Dim::Routed, rows}, {Dim::Embed, width}};
        compare_bits({&graph::kRegroup,
                      {{"experts", experts}, {"inverse", inverse}},
                      {random.real(dtype, dims), counts(received)},
                      {random.real(dtype, dims)}});
      }
}

// Passes of a group: the first one without an operand for it, further ones, and one past the last.
TEST(GpuExpertOps, RowsAreSplitIntoPasses) {
  Random random;
  struct Case {
    int64_t ranks, copies, experts, most;  // most: rows of a count
  };
  for (const auto& [ranks, copies, experts, most] :
       {Case{1, 1, 3, 5}, {2, 1, 2, 40}, {4, 2, 3, 9}, {8, 1, 40, 30}})
    for (const int64_t rows : {7, 300})
      for (int32_t pass = -1; pass < 4; ++pass) {
        const int64_t members = ranks * copies, all = ranks * experts, position = random.below(members);
        std::vector<int32_t> n(static_cast<size_t>(members * all));
        for (int32_t& c : n) c = static_cast<int32_t>(random.below(3) == 0 ? 0 : random.below(most));
        const int64_t sent = std::accumulate(n.begin() + position * all, n.begin() + (position + 1) * all, 0);
        HostTensor order(Type{DType::I32, {{Dim::Slots, sent + 3}}});
        for (int64_t s = 0; s < sent + 3; ++s) order.index()[s] = s < sent ? static_cast<int32_t>(s * 7) : -1;
        const auto filled = [](int64_t size) {
          return counts(std::vector<int32_t>(static_cast<size_t>(size), 99));
        };
        OpRun run{&graph::kSplitRows,
                  {{"rows", rows}, {"experts", experts}, {"all_experts", all}, {"copies", copies}},
                  {order, counts(n)},
                  {order, filled(all), filled(members * experts), filled(1)},
                  {},
                  {{Dim::Counts, position, 1, members, members}}};
        std::fill_n(run.out[0].index(), sent + 3, 99);
        if (pass >= 0) run.in.push_back(counts({pass}));
        compare_bits(run);
      }
}

TEST(GpuExpertOps, CopiesAreSummed) {
  Random random;
  for (const DType dtype : kTypes)
    for (const int64_t copies : {1, 3})
      for (const int64_t width : {7, 16}) {
        const DimSize W{Dim::Embed, width};
        compare({&graph::kSumCopies,
                 {{"copies", copies}},
                 {random.real(dtype, {{Dim::Slots, 11 * copies}, W})},
                 {random.real(dtype, {{Dim::Slots, 11}, W})}},
                dtype);
      }
}

TEST(GpuExpertOps, RouteAndPackManyExperts) {
  Random random;
  const int64_t tokens = 701;
  for (const auto& [experts, choices] :
       {std::pair<int64_t, int64_t>{1, 3}, {40, 1}, {40, 2}, {40, 3}, {40, 6}, {300, 3}})
    for (const int64_t pad : {int64_t{0}, tokens * choices}) {
      const DimSize T{Dim::Tokens, tokens}, C{Dim::Choices, choices};
      SCOPED_TRACE(std::to_string(choices) + " of " + std::to_string(experts) + " experts, padded to " +
                   std::to_string(pad));
      const DimSize S{Dim::Slots, pad > 0 ? experts * pad : tokens * choices};
      const Attrs route = {{"experts", experts}, {"choices", choices}, {"pad", pad}, {"token_rows", tokens}};
      const HostTensor kept = random.indices({T, C}, experts, -1);
      const OpRun run{
          &graph::kRoute,
          route,
          {kept},
          {HostTensor(Type{DType::I32, {S}}), HostTensor(Type{DType::I32, {{Dim::Counts, experts}}})}};
      compare_bits(run);
      if (S.size > 20000) continue;
      const HostTensor order = run_on_cpu(run)[0];
      const Attrs moves = {{"choices", choices}, {"pad", pad}, {"token_rows", tokens}};
      for (const int64_t width : {7, 24}) {  // not whole 16-byte vectors, and whole ones
        const DimSize W{Dim::Embed, width};
        compare_bits({&graph::kPack,
                      moves,
                      {random.real(DType::BF16, {T, W}), order},
                      {random.real(DType::BF16, {S, W})}});
        for (const DType dtype : kTypes) {
          const HostTensor rows = random.real(dtype, {S, W});
          compare({&graph::kUnpack, moves, {rows, order}, {random.real(dtype, {T, W})}}, dtype);
          // Added to rows, and in place.
          OpRun added{&graph::kUnpack,
                      moves,
                      {rows, order, random.real(dtype, {T, W})},
                      {random.real(dtype, {T, W})}};
          compare(added, dtype);
          const auto apart = run_on_gpu(added, libraries())[0].bytes;
          added.in_place = {{0, 2}};
          EXPECT_EQ(run_on_gpu(added, libraries())[0].bytes, apart);
        }
      }
      compare_bits({&graph::kPackWeights,
                    moves,
                    {random.real(DType::F32, {T, C}), order},
                    {random.real(DType::F32, {S})}});
      compare_bits({&graph::kUnpackWeights,
                    moves,
                    {random.real(DType::F32, {S}), order},
                    {random.real(DType::F32, {T, C})}});
    }
}

// Sizes on both sides of every split of the GEMMs; rows of which not all are whole 16-byte vectors.
TEST(GpuExpertOps, RouterOfManySizes) {
  Random random;
  for (const auto& [most_rows, routes, embed] : {std::tuple<int64_t, int64_t, int64_t>{1500, 8, 264},
                                                 {333, 5, 72},
                                                 {70, 16, 1032},
                                                 {200, 24, 328},
                                                 {6500, 64, 512},  // several row tiles per block
                                                 {97, 130, 320},
                                                 {64, 256, 64},
                                                 {40, 300, 72},
                                                 {33, 7, 30},
                                                 {1, 1, 8}})
    for (const DType dtype : kTypes) {
      // Blocks of tiled GEMMs share much memory, whatever the type.
      if (under_racecheck() && dtype == DType::F64) continue;
      const int64_t rows = under_racecheck() ? std::min<int64_t>(most_rows, 100) : most_rows;
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(embed) + ", " + std::to_string(routes) +
                   " routes, " + std::string(base::to_string(dtype)));
      const DType wide = base::accumulator_of(dtype);
      const DimSize T{Dim::Tokens, rows}, R{Dim::Routes, routes}, E{Dim::Embed, embed};
      const HostTensor x = random.real(dtype, {T, E}), w = random.real(dtype, {R, E}, 0.1),
                       dlogits = random.real(wide, {T, R});
      const OpRun logits = over_noise(random, graph::kRouter, {}, {x, w});
      compare(logits, dtype);
      compare(over_noise(random, graph::kRouterDx, {}, {dlogits, w}), dtype);
      const Attrs out = {{"out", std::string(base::to_string(wide))}};
      for (const bool accumulate : {false, true})
        compare(over_noise(random, graph::kRouterDw, out, {dlogits, x}, accumulate), dtype);

      // A row's logits are the same, to the bit, wherever they are computed: all but the first row alone.
      if (rows == 1) continue;
      const size_t row_bytes = x.bytes.size() / static_cast<size_t>(rows);
      HostTensor rest(Type{dtype, {{Dim::Tokens, rows - 1}, E}});
      std::copy(x.bytes.begin() + static_cast<int64_t>(row_bytes), x.bytes.end(), rest.bytes.begin());
      const auto all = run_on_gpu(logits, libraries())[0].bytes,
                 few = run_on_gpu(over_noise(random, graph::kRouter, {}, {rest, w}), libraries())[0].bytes;
      EXPECT_TRUE(std::equal(few.begin(), few.end(), all.end() - static_cast<int64_t>(few.size())));
    }
}

// Rows of one vector, of several, and so long that each has a block; fewer rows received than planned.
TEST(GpuExpertOps, RowsOfAllLengths) {
  Random random;
  for (const int64_t n : {8, 37, 264, 1408, 8456})
    for (const DType dtype : kTypes) {
      SCOPED_TRACE(std::to_string(n) + " " + std::string(base::to_string(dtype)));
      const DimSize R{Dim::Routed, 21}, T{Dim::Tokens, 19}, F{Dim::ExpertFfn, n}, E{Dim::Embed, n},
          one{Dim::Choices, 1};
      const HostTensor gate = random.real(dtype, {R, F}), up = random.real(dtype, {R, F}),
                       weight = random.real(base::accumulator_of(dtype), {R}), came = counts({7, 0, 11}),
                       y = random.real(dtype, {T, E}), g = random.real(dtype, {T, one});
      compare(over_noise(random, graph::kExpertAct, {}, {gate, up, weight, came}), dtype);
      compare(
          over_noise(random, graph::kExpertActDx, {}, {random.real(dtype, {R, F}), gate, up, weight, came}),
          dtype);
      compare(over_noise(random, graph::kScaleRows, {}, {y, g}), dtype);
      compare(over_noise(random, graph::kScaleRowsDx, {}, {random.real(dtype, {T, E}), y, g}), dtype);
    }
}

TEST(GpuExpertOps, HeadsOfSeveralVectors) {
  Random random;
  for (const auto& [heads, d1, d2] :
       {std::tuple<int64_t, int64_t, int64_t>{16, 128, 64}, {3, 16, 24}, {5, 12, 8}, {2, 7, 9}})
    for (const int64_t shared : {0, 1})
      for (const DType dtype : kTypes) {
        SCOPED_TRACE(std::to_string(heads) + " x " + std::to_string(d1) + " + " + std::to_string(d2) +
                     (shared ? " shared " : " ") + std::string(base::to_string(dtype)));
        const DimSize T{Dim::Tokens, 37}, H{Dim::Heads, heads}, one{Dim::Choices, 1}, A{Dim::HeadDim, d1},
            B{Dim::HeadDim, d2}, both{Dim::HeadDim, d1 + d2};
        compare_bits(
            over_noise(random, graph::kJoinHeads, {},
                       {random.real(dtype, {T, H, A}), random.real(dtype, {T, shared ? one : H, B})}));
        compare(over_noise(random, graph::kJoinHeadsDx, {{"d1", d1}, {"shared", shared}},
                           {random.real(dtype, {T, H, both})}),
                dtype);
      }
}

// Well-separated scores never tie within rounding, so both sides choose the same.
TEST(GpuExpertOps, SelectAmongManyExperts) {
  Random random;
  for (const auto& [experts, k, groups, kept] : {std::tuple<int64_t, int64_t, int64_t, int64_t>{256, 8, 8, 4},
                                                 {64, 6, 1, 1},
                                                 {33, 3, 11, 5},
                                                 {8, 2, 1, 1},
                                                 {100, 8, 1, 1},
                                                 {200, 7, 1, 1},
                                                 {300, 4, 1, 1}})
    for (const bool biased : {false, true})
      for (const char* score : {"softmax", "sigmoid", "sqrt_softplus"}) {
        SCOPED_TRACE(std::to_string(experts) + " experts " + score + (biased ? " biased" : ""));
        const DimSize T{Dim::Tokens, 50}, R{Dim::Routes, experts}, C{Dim::Choices, k};
        const Attrs attrs = {{"k", k},
                             {"score", std::string(score)},
                             {"order", std::string("score_first")},
                             {"normalise", int64_t{1}},
                             {"scale", 2.5},
                             {"groups", groups},
                             {"groups_kept", kept},
                             {"biased", int64_t{biased}},
                             {"force_balance", int64_t{0}}};
        for (const DType dtype : {DType::F64, DType::F32}) {
          OpRun run{&graph::kSelect,
                    attrs,
                    {random.real(dtype, {T, R})},
                    {random.real(dtype, {T, R}), random.indices({T, C}, 2), random.real(dtype, {T, C})}};
          if (biased) run.in.push_back(random.real(dtype, {R}, 0.1));
          compare(run, dtype);
        }
      }
}

// On both sides of what fits into registers; choices of a row may be equal.
TEST(GpuExpertOps, SelectGradientsOfManyExperts) {
  Random random;
  for (const auto& [experts, k] : {std::pair<int64_t, int64_t>{1, 1},
                                   {8, 2},
                                   {33, 5},
                                   {64, 8},
                                   {128, 32},
                                   {129, 8},
                                   {256, 9},
                                   {300, 4},
                                   {40, 35}})
    for (const auto& [score, order] : {std::pair{"softmax", "score_first"},
                                       {"sigmoid", "score_first"},
                                       {"sqrt_softplus", "score_first"},
                                       {"softmax", "top_k_first"}})
      for (const int64_t normalise : {0, 1})
        for (const int gradients : {1, 2, 3}) {
          SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(experts) + " experts " + score + ", " +
                       order + ", gradients " + std::to_string(gradients));
          const DimSize T{Dim::Tokens, 50}, R{Dim::Routes, experts}, C{Dim::Choices, k};
          const int64_t weights = gradients % 2, scores = gradients / 2;
          const Attrs attrs = {{"score", std::string(score)}, {"order", std::string(order)},
                               {"normalise", normalise},      {"scale", 2.5},
                               {"has_dweights", weights},     {"has_dscores", scores}};
          for (const DType dtype : {DType::F64, DType::F32}) {
            OpRun run{&graph::kSelectDx,
                      attrs,
                      {random.real(dtype, {T, R}), random.indices({T, C}, experts)},
                      {random.real(dtype, {T, R})}};
            if (weights != 0) run.in.push_back(random.real(dtype, {T, C}));
            if (scores != 0) run.in.push_back(random.real(dtype, {T, R}));
            compare(run, dtype);
          }
        }
}

// The same bits as on the CPU: what is dropped must not depend on the device.
TEST(GpuExpertOps, RandomWeightsAreThoseOfTheCpu) {
  Random random;
  for (const int64_t k : {1, 4, 7}) {
    const DimSize T{Dim::Tokens, 1003}, C{Dim::Choices, k};
    HostTensor key(Type{DType::I64, {}});
    const int64_t seed = 0x1234567890abcdef;
    std::memcpy(key.bytes.data(), &seed, sizeof(seed));
    compare_bits({&graph::kRandomWeights,
                  {{"salt", int64_t{9}}},
                  {random.indices({T, C}, 8), random.indices({T}, 1 << 20), random.indices({T}, 4096), key},
                  {random.real(DType::F64, {T, C})}});
  }
}

// Several chunks of pairs, the last ragged; several tiles of experts; experts without pairs, and one with
// all.
TEST(GpuExpertOps, RouteManyPairs) {
  Random random;
  const int64_t tokens = 5003, choices = 4;
  const DimSize T{Dim::Tokens, tokens}, C{Dim::Choices, choices};
  for (const int64_t experts : {8, 128, 1300})
    for (const bool one : {false, true})
      for (const int64_t pad : {int64_t{0}, tokens * choices}) {
        if (pad > 0 && experts > 128) continue;
        SCOPED_TRACE(std::to_string(experts) + " experts, padded to " + std::to_string(pad));
        HostTensor kept = random.indices({T, C}, experts, -1);
        for (int64_t i = 0; i < kept.type.count(); ++i) {
          int32_t& expert = kept.index()[i];
          expert = one ? static_cast<int32_t>(experts - 1) : expert % 7 == 3 ? -1 : expert;
        }
        const DimSize S{Dim::Slots, pad > 0 ? experts * pad : tokens * choices};
        compare_bits(
            {&graph::kRoute,
             {{"experts", experts}, {"choices", choices}, {"pad", pad}, {"token_rows", tokens}},
             {kept},
             {HostTensor(Type{DType::I32, {S}}), HostTensor(Type{DType::I32, {{Dim::Counts, experts}}})}});
      }
}

// Weights with many ties, or none, or any bits; sequences in the row order of two context ranks.
HostTensor tied(Random& random, const std::vector<DimSize>& dims) {
  HostTensor weights(Type{DType::F64, dims});
  for (int64_t i = 0; i < weights.type.count(); ++i)
    weights.real()[i] =
        0.1 * static_cast<double>(random.below(6)) * (1 + 1e-12 * static_cast<double>(random.below(9)));
  return weights;
}
HostTensor unbounded(Random& random, const std::vector<DimSize>& dims) {
  HostTensor weights = random.real(DType::F64, dims, 1e3);
  for (int64_t i = 0; i < weights.type.count(); i += 5)
    weights.real()[i] = i % 2 == 0 ? HUGE_VAL : i % 3 == 0 ? -HUGE_VAL : NAN;
  return weights;
}
void compare_limits(Random& random, int64_t seq_len, const HostTensor& chosen, const HostTensor& weights,
                    int64_t capacity) {
  for (const char* policy : {"probability", "position"})
    for (const int64_t group : {1, 3})
      for (const int64_t cp : {1, 2})
        for (const DType dtype : {DType::F64, DType::F32}) {
          if (under_racecheck() && (cp > 1 || dtype == DType::F64)) continue;
          SCOPED_TRACE(std::string(policy) + ", capacity " + std::to_string(capacity) + ", groups of " +
                       std::to_string(group) + ", cp " + std::to_string(cp) + ", " +
                       std::string(base::to_string(dtype)));
          compare_bits({&graph::kLimit,
                        {{"seq_len", seq_len},
                         {"capacity", capacity},
                         {"group", group},
                         {"policy", std::string(policy)},
                         {"cp", cp}},
                        {chosen, to_dtype(weights, dtype)},
                        {random.indices(chosen.type.dims, 3)}});
        }
}

TEST(GpuExpertOps, LimitDropsTheSamePairs) {
  Random random;
  const int64_t seq_len = 64;
  const std::vector<DimSize> dims = {{Dim::Tokens, seq_len * 6}, {Dim::Choices, 2}};
  const HostTensor few = random.indices(dims, 5, -1), many = random.indices(dims, 700, -1);
  for (const HostTensor& weights :
       {tied(random, dims), random.positive(DType::F64, dims), unbounded(random, dims)})
    for (const int64_t capacity : {0, 17, 1000}) {
      compare_limits(random, seq_len, few, weights, capacity);
      compare_limits(random, seq_len, many, weights, capacity / 8);
    }
}

// Several chunks of pairs; more pairs per expert than the threads of its block hold.
TEST(GpuExpertOps, LimitDropsTheSameOfManyPairs) {
  Random random;
  const int64_t seq_len = 1500;
  const std::vector<DimSize> dims = {{Dim::Tokens, seq_len * 3}, {Dim::Choices, 3}};
  const HostTensor weights = random.positive(DType::F64, dims), ties = tied(random, dims);
  compare_limits(random, seq_len, random.indices(dims, 8, -1), weights, 600);
  compare_limits(random, seq_len, random.indices(dims, 1), weights, 3000);
  compare_limits(random, seq_len, random.indices(dims, 1), ties, 3000);
}

// As few experts as lanes, more than threads; numbers of rows that no number of chunks divides, and one row.
TEST(GpuExpertOps, SumsOverRowsOfAllSizes) {
  Random random;
  for (const int64_t experts : {1, 8, 9, 32, 64, 100, 256, 300})
    for (const int64_t rows : {1, 77, 9001}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(experts) + " experts");
      if (under_racecheck() && rows > 77 && experts % 64 != 0) continue;
      const int64_t k = 3;
      const DimSize T{Dim::Tokens, rows}, C{Dim::Choices, k}, R{Dim::Routes, experts};
      const HostTensor chosen = random.indices({T, C}, experts), kept = random.indices({T, C}, experts, -1);
      for (const DType dtype : {DType::F64, DType::F32}) {
        compare({&graph::kExpertLoad,
                 {},
                 {chosen, kept, random.positive(dtype, {T, R})},
                 {random.real(DType::F64, {{Dim::Flat, experts + 2}})}},
                dtype);
        compare({&graph::kBalanceSums,
                 {{"scope", std::string("sequence")}, {"seq_len", rows}, {"cp", int64_t{1}}},
                 {random.positive(dtype, {T, R}), chosen},
                 {random.real(dtype, {{Dim::Tokens, 1}, {Dim::Flat, 2 * experts}})}},
                dtype);
        for (const bool accumulate : {false, true})
          compare({&graph::kZLoss,
                   {{"coefficient", 0.1}},
                   {random.real(dtype, {T, R}, 3)},
                   {random.real(DType::F64, {})},
                   {},
                   {},
                   accumulate},
                  dtype);
        compare({&graph::kZLossDx,
                 {{"coefficient", 0.1}},
                 {random.real(dtype, {T, R}, 3), random.real(DType::F64, {})},
                 {random.real(dtype, {T, R})}},
                dtype);
      }
    }
}

TEST(GpuExpertOps, LoadsAndBalanceOfManyRows) {
  Random random;
  const int64_t seq_len = 256, sequences = 4, k = 4, experts = 60;
  const DimSize T{Dim::Tokens, seq_len * sequences}, C{Dim::Choices, k}, R{Dim::Routes, experts},
      sums{Dim::Flat, 2 * experts};
  const HostTensor chosen = random.indices({T, C}, experts), kept = random.indices({T, C}, experts, -1);
  for (const DType dtype : {DType::F64, DType::F32}) {
    const HostTensor scores = random.positive(dtype, {T, R});
    for (const bool accumulate : {false, true})
      compare({&graph::kExpertLoad,
               {},
               {chosen, kept, scores},
               {random.real(DType::F64, {{Dim::Flat, experts + 2}})},
               {},
               {},
               accumulate},
              dtype);
    for (const int64_t cp : {1, 2}) {
      const Attrs attrs = {{"scope", std::string("sequence")}, {"seq_len", seq_len}, {"cp", cp}};
      const std::vector<DimSize> each = {{Dim::Tokens, sequences}, sums};
      compare({&graph::kBalanceSums, attrs, {scores, chosen}, {random.real(dtype, each)}}, dtype);
      compare_bits(
          {&graph::kBalanceDx, attrs, {random.real(dtype, each), chosen}, {random.real(dtype, {T, R})}});
    }
  }
}

}  // namespace
}  // namespace quintet::tests
