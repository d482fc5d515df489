// Ops of quantised linear layers through the table of CUDA kernels, against the CPU's on the same operands.
#include <cmath>
#include <random>

#include "base/fp8.h"
#include "gpu/op_runner.h"
#include "graph/fp8_ops.h"

namespace quintet::tests {
namespace {

using graph::Dim;
using graph::DType;
using graph::Type;

HostTensor normal_bf16(Type type, double size, unsigned seed) {
  HostTensor t(std::move(type));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < t.type.count(); ++i)
    reinterpret_cast<base::Bf16*>(t.bytes.data())[i] = base::Bf16(static_cast<float>(size) * normal(random));
  return t;
}

// Scales of the set: those of x, w and dy.
HostTensor scales_of(const std::vector<float>& scales) {
  const auto n = static_cast<int64_t>(scales.size());
  HostTensor t(Type{DType::F32, {{Dim::Flat, 2 * n * graph::kScaleStride}}});
  auto* const to = reinterpret_cast<float*>(t.bytes.data());
  for (int64_t i = 0; i < n; ++i) {
    to[i * graph::kScaleStride] = scales[static_cast<size_t>(i)];
    to[(n + i) * graph::kScaleStride] = 1 / scales[static_cast<size_t>(i)];
  }
  return t;
}

OpRun run_of(const graph::OpDef& op, graph::Attrs attrs, std::vector<HostTensor> in, bool accumulate) {
  OpRun run{.op = &op, .attrs = std::move(attrs), .in = std::move(in), .out = {}, .accumulate = accumulate};
  std::vector<Type> types;
  for (const HostTensor& t : run.in) types.push_back(t.type);
  for (const Type& t : op.infer(types, run.attrs)) run.out.emplace_back(t);
  return run;
}

graph::Attrs quantize_attrs(const char* format, int64_t scale, bool measures, bool plain, bool transposed) {
  return {{"format", std::string(format)}, {"scale", scale},          {"rows", int64_t{1}},
          {"measures", int64_t{measures}}, {"plain", int64_t{plain}}, {"transposed", int64_t{transposed}}};
}

const std::vector<float> kScales = {64, 1024, 0x1p20f};

TEST(GpuFp8Ops, QuantizeHasTheBitsOfTheCpu) {
  for (const char* format : {"e4m3", "e5m2"})
    for (const int results : {1, 2, 3, 5, 6, 7})
      for (const size_t parts : {1, 3}) {
        SCOPED_TRACE(testing::Message() << format << " " << results << " " << parts << " parts");
        std::vector<HostTensor> in;
        for (size_t i = 0; i < parts; ++i)
          in.push_back(
              normal_bf16({DType::BF16, {{Dim::Tokens, 48 + 96 * static_cast<int64_t>(i)}, {Dim::Ffn, 208}}},
                          2, static_cast<unsigned>(i)));
        in.push_back(scales_of(kScales));
        const OpRun run = run_of(
            graph::kQuantize,
            quantize_attrs(format, 1, (results & 4) != 0, (results & 1) != 0, (results & 2) != 0), in, true);
        const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
        for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].bytes, want[i].bytes) << "result " << i;
      }
}

// Decibels of `want` over the difference.
double quality(const HostTensor& got, const HostTensor& want) {
  const HostTensor a = to_f64(got), b = to_f64(want);
  double signal = 0, noise = 0;
  for (int64_t i = 0; i < b.type.count(); ++i) {
    signal += b.real()[i] * b.real()[i];
    noise += std::pow(a.real()[i] - b.real()[i], 2);
  }
  return 10 * std::log10(signal / noise);
}

HostTensor codes(const char* format, int64_t scale, const HostTensor& x, bool transposed) {
  return run_on_cpu(run_of(graph::kQuantize, quantize_attrs(format, scale, false, !transposed, transposed),
                           {x, scales_of(kScales)}, false))[0];
}

TEST(GpuFp8Ops, LinearsMatchTheCpu) {
  constexpr int64_t kTokens = 144, kIn = 208, kOut = 80;
  const HostTensor x = normal_bf16({DType::BF16, {{Dim::Tokens, kTokens}, {Dim::Embed, kIn}}}, 1, 1),
                   w = normal_bf16({DType::BF16, {{Dim::Ffn, kOut}, {Dim::Embed, kIn}}}, 0.05, 2),
                   dy = normal_bf16({DType::BF16, {{Dim::Tokens, kTokens}, {Dim::Ffn, kOut}}}, 1e-4, 3);
  const auto attrs = [](int64_t a, int64_t b, const char* out) {
    return graph::Attrs{
        {"a_scale", a}, {"b_scale", b}, {"contracted", int64_t{1}}, {"out", std::string(out)}};
  };
  const HostTensor scales = scales_of(kScales);
  const auto check = [](const OpRun& run, double least) {
    SCOPED_TRACE(run.op->name);
    const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_GE(quality(got[i], want[i]), least) << "result " << i;
  };
  const OpRun forward = run_of(graph::kScaledLinear, attrs(0, 1, "bf16"),
                               {codes("e4m3", 0, x, false), codes("e4m3", 1, w, false), scales}, false);
  check(forward, 40);
  OpRun added = forward;
  added.in.push_back(normal_bf16(forward.out[0].type, 1, 4));
  check(added, 40);
  check(run_of(graph::kScaledLinearDx, attrs(2, 1, "bf16"),
               {codes("e5m2", 2, dy, false), codes("e4m3", 1, w, true), scales}, false),
        50);
  for (const char* out : {"bf16", "f32"}) {
    const std::vector<HostTensor> in = {codes("e5m2", 2, dy, true), codes("e4m3", 0, x, true), scales};
    check(run_of(graph::kScaledLinearDw, attrs(2, 0, out), in, false), 50);
    check(run_of(graph::kScaledLinearDw, attrs(2, 0, out), in, true), 50);
    graph::Attrs parts = attrs(2, 0, out);
    parts.set("parts", std::string("ffn=32 ffn=48"));
    check(run_of(graph::kScaledLinearDw, parts, in, false), 50);
  }
}

graph::Attrs blocks_attrs(int64_t rows, bool square, bool measures, bool plain, bool transposed) {
  return {{"format", std::string("e4m3")},    {"block", int64_t{128}},
          {"square", int64_t{square}},        {"rows", rows},
          {"measures", int64_t{measures}},    {"plain", int64_t{plain}},
          {"transposed", int64_t{transposed}}};
}

// The bytes of codes and factors; NaN may lose its sign and its payload.
void expect_same_codes(const HostTensor& got, const HostTensor& want) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < want.type.count(); ++i) {
    bool same = false;
    if (want.type.dtype == DType::E4M3) {
      const uint8_t a = static_cast<uint8_t>(got.bytes[static_cast<size_t>(i)]),
                    b = static_cast<uint8_t>(want.bytes[static_cast<size_t>(i)]);
      same = a == b || ((a & 0x7f) == 0x7f && (b & 0x7f) == 0x7f);
    } else if (want.type.dtype == DType::F32) {
      const float a = reinterpret_cast<const float*>(got.bytes.data())[i],
                  b = reinterpret_cast<const float*>(want.bytes.data())[i];
      same = a == b || (std::isnan(a) && std::isnan(b));
    } else {
      same = got.real()[i] == want.real()[i];
    }
    if (!same && wrong++ < 4) ADD_FAILURE() << "element " << i << " of " << graph::to_string(want.type);
  }
  EXPECT_EQ(wrong, 0);
}

// Blocks of one number, of zeros, of subnormals, and with an infinity and a NaN among them.
HostTensor with_extremes(HostTensor t) {
  auto* const x = reinterpret_cast<base::Bf16*>(t.bytes.data());
  const int64_t columns = t.type.dims.back().size;
  for (int64_t i = 0; i < 128; ++i) x[i] = base::Bf16(0.0f);
  for (int64_t i = 0; i < 128; ++i) x[columns + i].bits = static_cast<uint16_t>(i);
  x[2 * columns + 5] = base::Bf16(3e38f);
  x[3 * columns + 7].bits = 0x7f80;
  x[4 * columns + 9].bits = 0xffc1;
  x[5 * columns + 11] = base::Bf16(448.0f);
  return t;
}

TEST(GpuFp8Ops, BlocksHaveTheBitsOfTheCpu) {
  for (const bool square : {false, true})
    for (const int results : {1, 2, 3, 5, 6, 7})
      for (const size_t parts : {1, 3}) {
        SCOPED_TRACE(testing::Message()
                     << (square ? "square " : "rows ") << results << " " << parts << " parts");
        std::vector<HostTensor> in;
        for (size_t i = 0; i < parts; ++i)
          in.push_back(with_extremes(normal_bf16(
              {DType::BF16, {{Dim::Tokens, 128 + 256 * static_cast<int64_t>(i)}, {Dim::Ffn, 384}}}, 2,
              static_cast<unsigned>(i))));
        const OpRun run = run_of(
            graph::kQuantizeBlocks,
            blocks_attrs(1, square, (results & 4) != 0, (results & 1) != 0, (results & 2) != 0), in, true);
        const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
        for (size_t i = 0; i < want.size(); ++i) {
          SCOPED_TRACE(testing::Message() << "result " << i);
          expect_same_codes(got[i], want[i]);
        }
      }
}

TEST(GpuFp8Ops, EveryBf16NumberInABlock) {
  HostTensor t(Type{DType::BF16, {{Dim::Tokens, 65536 / 2}, {Dim::Ffn, 256}}});
  auto* const x = reinterpret_cast<base::Bf16*>(t.bytes.data());
  for (int64_t row = 0; row < 32768; ++row)  // two blocks a row, each with one number and its half
    for (int64_t half = 0; half < 2; ++half) {
      base::Bf16* const block = x + row * 256 + half * 128;
      for (int64_t i = 0; i < 128; ++i) block[i] = base::Bf16(0.0f);
      block[row % 128].bits = static_cast<uint16_t>(2 * row + half);
      block[(row + 1) % 128] = base::Bf16(0.5f * static_cast<float>(block[row % 128]));
    }
  const OpRun run = run_of(graph::kQuantizeBlocks, blocks_attrs(1, false, true, true, true), {t}, true);
  const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
  for (size_t i = 0; i < want.size(); ++i) expect_same_codes(got[i], want[i]);
}

struct BlockCodes {
  HostTensor codes, factors;
};
BlockCodes block_codes(const HostTensor& x, bool square, bool transposed) {
  auto results = run_on_cpu(
      run_of(graph::kQuantizeBlocks, blocks_attrs(1, square, false, !transposed, transposed), {x}, false));
  return {results[0], results[1]};
}
OpRun block_linear(const graph::OpDef& op, const BlockCodes& a, const BlockCodes& b, bool square,
                   const char* out, bool accumulate = false, const char* parts = nullptr) {
  graph::Attrs attrs{{"block", int64_t{128}},
                     {"square", int64_t{square}},
                     {"contracted", int64_t{1}},
                     {"out", std::string(out)}};
  if (parts != nullptr) attrs.set("parts", std::string(parts));
  return run_of(op, std::move(attrs), {a.codes, b.codes, a.factors, b.factors}, accumulate);
}

// The 384 inputs are three blocks, whose factors are copied into rows of four.
TEST(GpuFp8Ops, BlockLinearsMatchTheCpu) {
  for (const auto& [tokens, in, out] :
       {std::tuple<int64_t, int64_t, int64_t>{256, 384, 128}, {128, 1024, 640}, {1024, 512, 512}}) {
    SCOPED_TRACE(testing::Message() << tokens << " x " << in << " -> " << out);
    const HostTensor x = normal_bf16({DType::BF16, {{Dim::Tokens, tokens}, {Dim::Embed, in}}}, 1, 1),
                     w = normal_bf16({DType::BF16, {{Dim::Ffn, out}, {Dim::Embed, in}}}, 0.05, 2),
                     dy = normal_bf16({DType::BF16, {{Dim::Tokens, tokens}, {Dim::Ffn, out}}}, 1e-4, 3);
    const auto check = [](const OpRun& run) {
      const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
      for (size_t i = 0; i < want.size(); ++i) {
        const double decibels = quality(got[i], want[i]);
        std::printf("%s, result %zu: %.1f dB to the CPU\n", std::string(run.op->name).c_str(), i, decibels);
        EXPECT_GE(decibels, 50) << run.op->name << ", result " << i;
      }
    };
    const OpRun forward = block_linear(graph::kBlockLinear, block_codes(x, false, false),
                                       block_codes(w, true, false), true, "bf16");
    check(forward);
    OpRun added = forward;
    added.in.push_back(normal_bf16(forward.out[0].type, 1, 4));
    check(added);
    check(block_linear(graph::kBlockLinearDx, block_codes(dy, false, false), block_codes(w, true, true), true,
                       "bf16"));
    const std::string parts = "ffn=" + std::to_string(out - 128) + " ffn=128";
    for (const char* type : {"bf16", "f32"})
      for (const bool accumulate : {false, true}) {
        const BlockCodes a = block_codes(dy, false, true), b = block_codes(x, false, true);
        check(block_linear(graph::kBlockLinearDw, a, b, false, type, accumulate));
        if (out > 128)
          check(block_linear(graph::kBlockLinearDw, a, b, false, type, accumulate, parts.c_str()));
      }
  }
}

// Norms and activations that write codes: the devices' values differ in bf16's last bit here and there, so a
// few codes do; statistics agree as the separate ops' do.
void expect_similar_codes(const HostTensor& got, const HostTensor& want) {
  int64_t different = 0;
  for (size_t i = 0; i < want.bytes.size(); ++i) {
    const int distance = std::abs(static_cast<int>(got.bytes[i]) - static_cast<int>(want.bytes[i]));
    EXPECT_LE(distance, 1) << i;
    different += distance != 0;
  }
  EXPECT_LE(different, static_cast<int64_t>(want.bytes.size() / 50));
}

TEST(GpuFp8Ops, ProducersOfCodesMatchTheCpu) {
  constexpr int64_t kTokens = 144, kN = 208;
  const Type rows{DType::BF16, {{Dim::Tokens, kTokens}, {Dim::Embed, kN}}},
      packed{DType::BF16, {{Dim::Tokens, kTokens}, {Dim::Ffn, 2 * kN}}},
      inner{DType::BF16, {{Dim::Tokens, kTokens}, {Dim::Ffn, kN}}}, of_row{DType::BF16, {{Dim::Embed, kN}}};
  const HostTensor x = normal_bf16(rows, 1, 1), r = normal_bf16(rows, 1, 2), w = normal_bf16(of_row, 1, 3),
                   gates = normal_bf16(packed, 2, 4), dy = normal_bf16(inner, 1e-4, 5),
                   scales = scales_of(kScales);
  const auto attrs = [](const char* format, int64_t scale, bool transposed, graph::Attrs more) {
    graph::Attrs all = quantize_attrs(format, scale, true, true, transposed);
    graph::Attrs own = std::move(more);
    for (const auto& [name, value] : all.items())
      if (name != "rows") own.set(name, value);
    return own;
  };
  const auto check = [](const OpRun& run) {
    SCOPED_TRACE(run.op->name);
    const auto want = run_on_cpu(run), got = run_on_gpu(run, libraries());
    for (size_t i = 0; i < want.size(); ++i) {
      SCOPED_TRACE(testing::Message() << "result " << i);
      if (base::is_fp8(want[i].type.dtype))
        expect_similar_codes(got[i], want[i]);
      else
        EXPECT_GE(quality(got[i], want[i]), 40);
    }
  };
  const graph::Attrs norm{{"eps", 1e-5}};
  check(run_of(graph::kRmsNormQuantize, attrs("e4m3", 0, false, norm), {x, w, scales}, true));
  check(run_of(graph::kAddRmsNormQuantize, attrs("e4m3", 0, false, norm), {x, r, w, scales}, true));
  check(run_of(graph::kSwiGluQuantize, attrs("e4m3", 0, false, {}), {gates, scales}, true));
  for (const int64_t again : {0, 1})
    check(run_of(graph::kSwiGluBackwardQuantize,
                 attrs("e5m2", 2, true, {{"again", again}, {"again_scale", int64_t{0}}}), {dy, gates, scales},
                 true));
  HostTensor rstd(Type{DType::F32, {{Dim::Tokens, kTokens}}});
  for (int64_t i = 0; i < kTokens; ++i)
    reinterpret_cast<float*>(rstd.bytes.data())[i] = 0.5f + 0.01f * static_cast<float>(i);
  check(run_of(graph::kRmsNormAgainQuantize, {{"format", std::string("e4m3")}, {"scale", int64_t{0}}},
               {x, w, rstd, scales}, false));
}

}  // namespace
}  // namespace quintet::tests
