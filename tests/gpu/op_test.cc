// Every op through the table of CUDA kernels against the CPU's in f64: in f64, and in f32, bf16 and f16 on
// operands that were rounded first.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/split_float.h"
#include "gpu/op_runner.h"
#include "graph/adafactor_ops.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
#include "program/flat_ranges.h"

namespace quintet::tests {
namespace {

using graph::DType;
using graph::Type;

// Operands that hold statistics, or numbers that are f64 in every model dtype.
std::set<size_t> statistics(const OpExample& e) {
  static const std::map<const graph::OpDef*, std::set<size_t>> table = {
      {&graph::kRmsNormDx, {3}},      {&graph::kRmsNormDw, {2}},      {&graph::kRmsNormBackward, {3}},
      {&graph::kLayerNormDx, {3, 4}}, {&graph::kLayerNormDw, {2, 3}}, {&graph::kLayerNormBackward, {4, 5}},
      {&graph::kAttentionDx, {5}},    {&graph::kQkvAttentionDx, {3}}, {&graph::kRowSumExp, {1}},
      {&graph::kLogProb, {0, 1}},     {&graph::kLossGrad, {1, 2}},    {&graph::kRouterDx, {0}},
      {&graph::kRouterDw, {0}},       {&graph::kPackWeights, {0}},    {&graph::kUnpackWeights, {0}},
      {&graph::kExpertAct, {2}},      {&graph::kExpertActDx, {3}},    {&graph::kAttentionSink, {1}},
      {&graph::kAttentionSinkDw, {2}}};
  const bool drops = e.attrs.find("dropout") != nullptr && e.attrs.real("dropout") > 0;
  const size_t indices = drops ? 6 : 2;
  if (e.op == &graph::kAttentionHop) return {3 + indices, 4 + indices};
  if (e.op == &graph::kAttentionHopDx) return {5, 6 + indices};
  const auto at = table.find(e.op);
  return at == table.end() ? std::set<size_t>{} : at->second;
}
// Ops that never see the model's dtype: routing is done in the dtype of statistics.
bool routes(const graph::OpDef& op) {
  static const std::set<const graph::OpDef*> ops = {
      &graph::kSelect,        &graph::kSelectDx,      &graph::kLimit,      &graph::kExpertLoad,
      &graph::kBalanceSums,   &graph::kBalanceDx,     &graph::kRunningSum, &graph::kBalanceLoss,
      &graph::kBalanceDsums,  &graph::kZLoss,         &graph::kZLossDx,    &graph::kSpreadChoices,
      &graph::kGatherChoices, &graph::kRandomWeights, &graph::kJoinChoices};
  return ops.contains(&op);
}
bool stays_f64(const OpExample& e, size_t i) {
  return e.in[i].type.num_dims() == 0 || (e.op == &graph::kBalanceLoss && i == 1);
}

// Codes of 8 bits come from bf16 only, and their emulation in wider types runs on CPUs: fp8_op_test.cc.
bool is_quantised(const graph::OpDef& op) {
  static const std::set<const graph::OpDef*> ops = {&graph::kQuantize,
                                                    &graph::kScaledLinear,
                                                    &graph::kScaledLinearDx,
                                                    &graph::kScaledLinearDw,
                                                    &graph::kQuantizeBlocks,
                                                    &graph::kBlockLinear,
                                                    &graph::kBlockLinearDx,
                                                    &graph::kBlockLinearDw,
                                                    &graph::kRmsNormQuantize,
                                                    &graph::kAddRmsNormQuantize,
                                                    &graph::kRmsNormAgainQuantize,
                                                    &graph::kSwiGluQuantize,
                                                    &graph::kSwiGluBackwardQuantize};
  return ops.contains(&op);
}

struct Pair {
  OpRun reference, run;  // on the CPU in f64; on the GPU
};

// An example in a dtype; results start as `before` where they are added to.
Pair in_dtype(const OpExample& e, DType dtype, bool accumulate) {
  Pair p;
  for (OpRun* r : {&p.reference, &p.run}) {
    r->op = e.op;
    r->attrs = e.attrs;
    r->accumulate = accumulate;
    if (e.op == &graph::kLossGrad || e.op == &graph::kCrossEntropy) r->in_place = {{1, 0}};
    if (e.op == &graph::kCacheAppend) r->in_place = {{0, 4}, {1, 6}};
    if (e.op == &graph::kCachedAttention) r->in_place = {{1, 0}, {2, 1}};
  }
  const std::set<size_t> stats = statistics(e);
  for (size_t i = 0; i < e.in.size(); ++i) {
    const bool stat = stats.contains(i) || routes(*e.op);
    const DType to = stays_f64(e, i) ? DType::F64 : stat ? base::accumulator_of(dtype) : dtype;
    HostTensor typed = to_dtype(e.in[i], to);
    if ((e.op == &graph::kLossGrad && i == 2) || (e.op == &graph::kLogProb && i == 1)) {
      p.reference.in.push_back(exchange_pairs(to_f64(typed), true));
      p.run.in.push_back(to_dtype(exchange_pairs(to_f64(typed), true), to));
      continue;
    }
    p.reference.in.push_back(to_f64(typed));
    p.run.in.push_back(std::move(typed));
  }
  if (e.attrs.find("out") != nullptr)
    p.run.attrs.set("out", std::string(base::to_string(base::accumulator_of(dtype))));
  const auto finish = [&](OpRun& r) {
    std::vector<Type> in;
    for (const HostTensor& t : r.in) in.push_back(t.type);
    const std::vector<Type> out = e.op->infer(in, r.attrs);
    r.parts = whole_parts(*e.op, in, out, r.attrs);
    for (const Type& t : out) {
      HostTensor before(t);
      if (accumulate)
        for (int64_t i = 0; i < t.count(); ++i) {
          const double value = 0.25 * static_cast<double>(i % 7);
          if (t.dtype == DType::F64) before.real()[i] = value;
          if (t.dtype == DType::F32)
            reinterpret_cast<float*>(before.bytes.data())[i] = static_cast<float>(value);
        }
      r.out.push_back(std::move(before));
    }
  };
  finish(p.reference);
  finish(p.run);
  if (e.op == &graph::kLimit) p.reference = p.run;  // which weights tie depends on the dtype
  return p;
}

void compare(const Pair& p, DType dtype) {
  const std::vector<HostTensor> want = run_on_cpu(p.reference), got = run_on_gpu(p.run, libraries());
  // Results of weights that are not contiguous are added one after the other, in the result's dtype; norms of
  // a sum are those of the stored sum.
  const bool of_sum = p.run.op == &graph::kAddRmsNorm || p.run.op == &graph::kAddLayerNorm;
  const int roundings = p.run.op == &graph::kLinearsDx ? static_cast<int>(p.run.in.size()) - 1
                        : of_sum                       ? 3
                                                       : 1;
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(got[i], want[i], dtype, "result " + std::to_string(i), roundings,
                 of_sum ? dtype : DType::F64);
}

// Rows without a pair, or past the counts, are unchanged: zero here, on both sides.
TEST(GpuOps, MatchTheCpu) {
  std::set<const graph::OpDef*> seen;
  for (const OpExample& e : op_examples()) {
    if (is_quantised(*e.op)) continue;
    // Sinks in generated text are refused on CUDA (exec/cuda/generate_kernels.cc).
    if (e.op == &graph::kCachedAttention && e.attrs.find("lse") != nullptr) continue;
    seen.insert(e.op);
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
      SCOPED_TRACE(std::string(e.op->name) + " " + graph::to_string(e.attrs) + " " +
                   std::string(base::to_string(dtype)));
      compare(in_dtype(e, dtype, false), dtype);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GE(seen.size(), 50u);
}

TEST(GpuOps, SumsAccumulate) {
  const std::set<const graph::OpDef*> sums = {
      &graph::kLinearDw,     &graph::kLinearsDw,       &graph::kEmbeddingDw,       &graph::kRmsNormDw,
      &graph::kLayerNormDw,  &graph::kSumRows,         &graph::kGroupedLinearDw,   &graph::kRouterDw,
      &graph::kExpertLoad,   &graph::kRunningSum,      &graph::kBalanceLoss,       &graph::kZLoss,
      &graph::kLossGrad,     &graph::kRmsNormBackward, &graph::kLayerNormBackward, &graph::kCrossEntropy,
      &graph::kExpertBiasDw, &graph::kAttentionSinkDw};
  std::set<const graph::OpDef*> seen;
  for (const OpExample& e : op_examples()) {
    if (!sums.contains(e.op)) continue;
    seen.insert(e.op);
    for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
      SCOPED_TRACE(std::string(e.op->name) + " " + std::string(base::to_string(dtype)));
      compare(in_dtype(e, dtype, true), dtype);
    }
  }
  EXPECT_EQ(seen, sums);
}

// Every op that the CPU has a kernel for.
TEST(GpuOps, NoneIsMissing) {
  const auto has_cpu_kernel = [](const graph::OpDef& op) {
    try {
      exec::cpu::find_kernel(op);
      return true;
    } catch (const base::InternalError&) {
      return false;  // a collective, or rewritten before a program is made
    }
  };
  int kernels = 0;
  for (const graph::OpDef* op : graph::all_ops()) {
    if (!has_cpu_kernel(*op)) continue;
    ++kernels;
    EXPECT_NO_THROW(exec::cuda::find_kernel(*op)) << op->name;
  }
  EXPECT_GT(kernels, 50);
}

HostTensor numbers(DType dtype, std::vector<double> values) {
  HostTensor t(Type{DType::F64, {{graph::Dim::Flat, static_cast<int64_t>(values.size())}}});
  std::copy(values.begin(), values.end(), t.real());
  return to_dtype(t, dtype);
}
HostTensor random_numbers(DType dtype, int64_t n, uint64_t seed, double shift = 0) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(shift + normal(random));
  return numbers(dtype, values);
}
HostTensor scalar(double value) {
  HostTensor t(Type{DType::F64, {}});
  *t.real() = value;
  return t;
}
// Gradients, then lr, clip scale, ok and the number of the update.
std::vector<HostTensor> update_operands(std::vector<HostTensor> gradients, double ok) {
  for (const double value : {0.01, 0.5, ok, 3.0}) gradients.push_back(scalar(value));
  return gradients;
}
void compare_bits(const OpRun& run) {
  const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].bytes, want[i].bytes) << run.op->name << " " << i;
}
void compare_step(const OpRun& run, DType dtype) {
  const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
  for (size_t i = 0; i < want.size(); ++i)
    expect_close(got[i], to_f64(want[i]), dtype, std::string(run.op->name) + " result " + std::to_string(i),
                 1, DType::F64, true);
}

TEST(GpuOps, StepScalars) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const double count : {0.0, 48.0})
    compare_bits({&graph::kCountToSeed,
                  {},
                  {numbers(DType::F64, {count}), numbers(DType::F64, {1024})},
                  {numbers(DType::F64, {7})}});
  for (const double squares : {0.25, 9.0, inf, nan})
    for (const double loss : {1.5, nan})
      for (const double limit : {0.0, 1.0})
        for (const int64_t window : {0, 4, 5}) {  // after three good steps
          const HostTensor scale = scalar(8), updates = scalar(3), in_row = scalar(1), total = scalar(2),
                           good = scalar(3), none = scalar(0);
          compare_bits({&graph::kClipScale,
                        {{"max_norm", limit}, {"window", window}},
                        {scalar(squares), scalar(loss), scale, updates, in_row, total, good},
                        {none, none, none, scale, updates, in_row, total, good},
                        {{3, 2}, {4, 3}, {5, 4}, {6, 5}, {7, 6}}});
        }
}

TEST(GpuOps, StepMoves) {
  const HostTensor x = random_numbers(DType::F32, 60, 1), y = random_numbers(DType::F32, 60, 2);
  compare_bits({&graph::kCopy, {}, {x}, {y}});
  compare_bits({&graph::kAccumulate, {}, {x}, {y}});
  compare_bits({&graph::kAccumulate, {}, {x}, {y}, {}, {}, true});
  for (const int64_t keep : {0, 1}) compare_bits({&graph::kZeroUnlessFirst, {{"keep", keep}}, {x}, {y}});
  compare_bits({&graph::kSwapBlocks, {{"a", int64_t{4}}, {"b", int64_t{5}}}, {x}, {y}});
}

TEST(GpuOps, SumOfSquaresOverRanges) {
  const int64_t n = 200000;
  using program::FlatRange;
  using Ranges = std::vector<FlatRange>;
  Ranges many;
  for (int64_t i = 0; i < 300; ++i) many.push_back({i / 150, i % 150 * 600 + i % 5, 500 + i % 3});
  for (const DType dtype : {DType::F64, DType::F32})
    for (const Ranges& ranges : {Ranges{}, Ranges{{0, 0, n}}, Ranges{{0, 3, 70000}, {0, 100001, 99999}},
                                 Ranges{{0, 0, 10}, {1, 1, n / 2 - 1}, {2, 0, 1}}, Ranges{{2, 0, 4}}, many})
      for (const bool accumulate : {false, true})
        compare_step(
            {&graph::kSumSquares,
             {{"ranges", program::to_attribute(ranges)}},
             {random_numbers(dtype, n, 3), random_numbers(dtype, n / 2, 4), random_numbers(dtype, 4, 5)},
             {numbers(DType::F64, {2.5})},
             {},
             {},
             accumulate},
            DType::F64);
  const std::vector<program::FlatRange> all = {{0, 0, n, 0}};
  compare_bits({&graph::kMaxAbs,
                {{"ranges", program::to_attribute(all)}},
                {random_numbers(DType::F32, n, 3)},
                {numbers(DType::F64, {2.5})}});
}

// For an update of two groups, the second with 77 elements.
const std::vector<program::FlatRange> kUpdated = {
    {0, 0, 1000, true}, {0, 1003, 997, false}, {0, 2000, 2999, true}, {1, 0, 40, false}, {1, 41, 36, true}};

TEST(GpuOps, OptimizerUpdates) {
  const int64_t n = 5000;
  const std::vector<int64_t> ranges = program::to_attribute(kUpdated);
  const graph::Attrs adamw = {
      {"ranges", ranges}, {"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}, {"weight_decay", 0.1}};
  for (const double ok : {0.0, 1.0})
    for (const auto& [master, moment, copy] : {std::tuple{DType::F64, DType::F64, DType::F64},
                                               {DType::F64, DType::F64, DType::F32},
                                               {DType::F32, DType::F32, DType::F32},
                                               {DType::F32, DType::F32, DType::BF16},
                                               {DType::F32, DType::BF16, DType::BF16},
                                               {DType::F32, DType::F32, DType::F16},
                                               {DType::F32, DType::BF16, DType::F16}}) {
      SCOPED_TRACE(std::string(base::to_string(master)) + " " + std::string(base::to_string(moment)) + " " +
                   std::string(base::to_string(copy)));
      const std::vector<HostTensor> in =
          update_operands({random_numbers(master, n, 1), random_numbers(master, 77, 6)}, ok);
      OpRun run{&graph::kAdamW, adamw, in, {}};
      OpRun adam = run, lion{&graph::kLion,
                             {{"ranges", ranges}, {"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0.1}},
                             in,
                             {}};
      adam.op = &graph::kAdam;
      OpRun sgd{&graph::kSgd,
                {{"ranges", ranges}, {"momentum", 0.9}, {"nesterov", int64_t{1}}, {"weight_decay", 0.1}},
                in,
                {}};
      for (const int64_t count : {n, int64_t{77}}) {
        HostTensor squares = random_numbers(moment, count, 4, 5);
        for (int64_t i = 0; i < count; ++i)  // second moments are never negative
          if (moment == DType::F64) squares.real()[i] = std::abs(squares.real()[i]);
        for (OpRun* r : {&run, &adam, &sgd, &lion}) {
          r->out.push_back(random_numbers(master, count, 2));
          r->out.push_back(random_numbers(moment, count, 3));
          if (r == &run || r == &adam) r->out.push_back(squares);
          if (copy != master) r->out.push_back(random_numbers(copy, count, 5));
        }
      }
      compare_step(run, master);
      compare_step(adam, master);
      compare_step(sgd, master);
      compare_step(lion, master);
    }
}

// LAMB and LARS: norms of two parameters, and updates by their ratios; a third has no ratio.
TEST(GpuOps, UpdatesByRatio) {
  const int64_t n = 50000;
  const std::vector<program::FlatRange> rows = {{0, 0, 40000, 3}, {0, 40001, 9999, 4}, {1, 0, 77, 7}};
  const graph::Attrs common = {{"ranges", program::to_attribute(rows)},
                               {"weight_decay", 0.1},
                               {"groups", std::vector<double>{1, 0.1, 0.5, 0, 2, 0.2}}};
  graph::Attrs lamb = common, lars = common;
  for (const auto& [name, value] : {std::pair{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}})
    lamb.set(name, value);
  for (const auto& [name, value] : {std::pair{"momentum", 0.9}, {"trust", 0.01}}) lars.set(name, value);
  lamb.set("ratio_limits", std::vector<double>{0.01, 0.85});  // between the two ratios
  for (const DType dtype : {DType::F64, DType::F32})
    for (const double ok : {0.0, 1.0}) {
      OpRun lamb_norms{&graph::kLambNorms, lamb, {}, {numbers(DType::F64, {9, 9, 9, 9, 9, 9})}};
      OpRun lars_norms{&graph::kLarsNorms, lars, {}, lamb_norms.out};
      const std::vector<HostTensor> in =
          update_operands({random_numbers(dtype, n, 1), random_numbers(dtype, 77, 6)}, ok);
      OpRun by_lamb{&graph::kLamb, lamb, in, {}}, by_lars{&graph::kLars, lars, in, {}};
      for (OpRun* r : {&by_lamb, &by_lars}) r->in.push_back(numbers(DType::F64, {2, 3, 4, 5, 6, 7}));
      for (size_t g = 0; g < 2; ++g) {
        const int64_t count = in[g].type.count();
        HostTensor squares = random_numbers(DType::F64, count, 4, 5);
        for (int64_t i = 0; i < count; ++i) squares.real()[i] = std::abs(squares.real()[i]);
        const HostTensor p = random_numbers(dtype, count, 2), m = random_numbers(dtype, count, 3),
                         v = to_dtype(squares, dtype);
        for (const HostTensor& t : {in[g], p, m, v}) lamb_norms.in.push_back(t);
        for (const HostTensor& t : {in[g], p}) lars_norms.in.push_back(t);
        for (const HostTensor& t : {p, m, v}) by_lamb.out.push_back(t);
        for (const HostTensor& t : {p, m}) by_lars.out.push_back(t);
      }
      for (OpRun* r : {&lamb_norms, &lars_norms})
        for (size_t i = 2; i < in.size(); ++i) r->in.push_back(in[i]);
      compare_step(lamb_norms, DType::F64);
      compare_step(lars_norms, DType::F64);
      compare_step(by_lamb, dtype);
      compare_step(by_lars, dtype);
    }
}

HostTensor positive_numbers(DType dtype, int64_t count, uint64_t seed) {
  HostTensor x = random_numbers(DType::F64, count, seed);
  for (int64_t i = 0; i < count; ++i) x.real()[i] = std::abs(x.real()[i]) + 0.01;
  return to_dtype(x, dtype);
}

// Half of the columns of a matrix of 40 x 60, two of three experts of 10 x 24, and a vector; the borders of a
// shard cut the first two.
TEST(GpuOps, Adafactor) {
  using program::FlatRange;
  const std::vector<FlatRange> rows = {{0, 13, 1100, 3}, {0, 1205, 470, 5}, {1, 0, 77, 7}};
  const std::vector<graph::FactoredParam> params = {
      {0, 1, 40, 60, 0}, {100, 3, 10, 24, 1}, {202, 1, 0, 77, 4}};
  const int64_t averages = 279, matrices = 5;
  for (const int64_t relative : {0, 1}) {
    const graph::Attrs settings = {{"decay", 0.8},         {"eps1", 1e-6},
                                   {"eps2", 1e-3},         {"clip", 0.7},
                                   {"relative", relative}, {"averages", averages},
                                   {"matrices", matrices}, {"factors", graph::to_attribute(params)}};
    graph::Attrs attrs = settings;
    attrs.set("weight_decay", 0.1);
    attrs.set("groups", std::vector<double>{1, 0.1, 0.5, 0, 2, 0.2});
    attrs.set("ranges", program::to_attribute(rows));
    attrs.set("origins", std::vector<int64_t>{0, 13, 30, 60, 30, 0, 5, 480, 720, 240, 0, 0, 77, 77, 0});
    const HostTensor factors = positive_numbers(DType::F64, averages + matrices, 8);
    for (const DType dtype : {DType::F64, DType::F32})
      for (const double ok : {0.0, 1.0}) {
        const std::vector<HostTensor> in =
            update_operands({random_numbers(dtype, 1680, 1), random_numbers(dtype, 77, 6)}, ok);
        compare_step({&graph::kFactorSums, attrs, in, {positive_numbers(DType::F64, averages + matrices, 7)}},
                     DType::F64);
        const HostTensor average = positive_numbers(dtype, averages, 9);
        compare_step({&graph::kUpdateFactors,
                      settings,
                      {factors, average, numbers(DType::F64, {ok}), numbers(DType::F64, {7})},
                      {factors, average},
                      {{0, 0}, {1, 1}}},
                     dtype);
        const HostTensor p[] = {random_numbers(dtype, 1680, 2), random_numbers(dtype, 77, 3)};
        std::vector<HostTensor> both = {in[0], p[0], in[1], p[1]};
        both.insert(both.end(), in.begin() + 2, in.end());
        both.push_back(factors);
        compare_step(
            {&graph::kFactorNorms, attrs, both, {numbers(DType::F64, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}},
            DType::F64);
        compare_step({&graph::kFactorSizes,
                      settings,
                      {positive_numbers(DType::F64, 2 * matrices, 10), factors},
                      {factors},
                      {{0, 1}}},
                     DType::F64);
        OpRun update{&graph::kAdafactor, attrs, in, {p[0], p[1]}};
        update.in.push_back(factors);
        compare_step(update, dtype);
      }
  }
}

HostTensor joined(const HostTensor& weight, const HostTensor& remainder) {
  HostTensor master(Type{DType::F32, weight.type.dims});
  for (int64_t i = 0; i < master.type.count(); ++i)
    reinterpret_cast<float*>(master.bytes.data())[i] =
        base::join_float(reinterpret_cast<const base::Bf16*>(weight.bytes.data())[i],
                         reinterpret_cast<const int16_t*>(remainder.bytes.data())[i]);
  return master;
}

void compare_split(const OpRun& run) {
  const std::vector<HostTensor> want = run_on_cpu(run), got = run_on_gpu(run, libraries());
  const size_t each = want.size() / (run.in.size() - 4);
  for (size_t g = 0; g < want.size(); g += each) {
    expect_close(joined(got[g], got[g + 1]), to_f64(joined(want[g], want[g + 1])), DType::F32, "master");
    for (size_t i = g + 2; i < g + each; ++i)
      expect_close(got[i], to_f64(want[i]), DType::F32, "moment", 1, DType::F64, true);
  }
}

// Weight and remainder of the CPU and of the GPU, combined into masters.
TEST(GpuOps, UpdatesOfSplitMasters) {
  const int64_t n = 5000;
  const std::vector<int64_t> ranges = program::to_attribute(kUpdated);
  for (const DType moment : {DType::F32, DType::BF16})
    for (const DType gradient : {DType::F32, DType::BF16})
      for (const bool adam : {true, false}) {
        SCOPED_TRACE(std::string(base::to_string(moment)) + " " + std::string(base::to_string(gradient)));
        OpRun run{adam ? &graph::kAdamW : &graph::kSgd,
                  adam ? graph::Attrs{{"ranges", ranges},
                                      {"beta1", 0.9},
                                      {"beta2", 0.95},
                                      {"eps", 1e-8},
                                      {"weight_decay", 0.1}}
                       : graph::Attrs{{"ranges", ranges},
                                      {"momentum", 0.9},
                                      {"nesterov", int64_t{1}},
                                      {"weight_decay", 0.1}},
                  update_operands({random_numbers(gradient, n, 1), random_numbers(gradient, 77, 6)}, 1),
                  {}};
        for (const int64_t count : {n, int64_t{77}}) {
          run.out.push_back(random_numbers(DType::BF16, count, 2));
          run.out.push_back(HostTensor(Type{DType::I16, {{graph::Dim::Flat, count}}}));
          run.out.push_back(random_numbers(moment, count, 3));
          if (adam) run.out.push_back(random_numbers(moment, count, 4, 5));
        }
        compare_split(run);
      }
}

TEST(GpuOps, BiasOfTheRouterFollowsTheLoad) {
  HostTensor bias(Type{DType::F32, {{graph::Dim::Routes, 6}}});
  for (const double ok : {0.0, 1.0})
    compare_bits({&graph::kUpdateBias,
                  {{"rate", 0.001}},
                  {numbers(DType::F64, {4, 9, 1, 4, 0, 6, 2, 0.5}), scalar(ok), bias},
                  {bias},
                  {{0, 2}}});
}

}  // namespace
}  // namespace quintet::tests
