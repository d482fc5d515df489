// Codes of 8 bits: bit-equal to those of the CPU, in every order and from every producer; and their GEMMs.
#include "base/fp8.h"

#include <limits>
#include <memory>
#include <random>

#include "gpu/device.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/fp8/quantize.h"
#include "kernels/cuda/fp8/scales.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/norm/norm.h"

namespace quintet::kernels::cuda::test {
namespace {

using base::DType;

uint8_t code_of(DType format, float x, float scale) {
  const float scaled = x * scale;
  return format == DType::E4M3 ? base::E4M3(scaled).bits : base::E5M2(scaled).bits;
}
double value_of(DType format, uint8_t code) {
  base::E4M3 a;
  base::E5M2 b;
  a.bits = b.bits = code;
  return format == DType::E4M3 ? static_cast<float>(a) : static_cast<float>(b);
}

// Codes of a matrix on the device, in both orders, its scale and measures.
struct Codes {
  Codes(int64_t rows, int64_t columns, DType format, float scale, bool in_rows = true, bool in_columns = true)
      : rows(rows),
        columns(columns),
        format(format),
        by_row(rows * columns),
        by_column(rows * columns),
        scale(std::vector<double>{scale}),
        amax(std::vector<double>{0}),
        rounded(std::vector<double>{0, 0, 0}),
        has_rows(in_rows),
        has_columns(in_columns) {}
  CodeTarget target() {
    return {.rows = has_rows ? by_row.data() : nullptr,
            .row_stride = columns,
            .columns = has_columns ? by_column.data() : nullptr,
            .column_stride = rows,
            .format = format,
            .scale = scale.data(),
            .measures = {amax.data(), rounded.data()}};
  }
  void quantize(std::span<const QuantizePart> parts) {
    cuda::quantize({.parts = parts,
                    .rows = rows,
                    .columns = columns,
                    .format = format,
                    .scale = scale.data(),
                    .codes = target().rows,
                    .transposed = target().columns,
                    .amax = amax.data(),
                    .rounded = rounded.data(),
                    .accumulate = true},
                   nullptr);
  }
  void quantize(Device<Bf16>& x) {
    const QuantizePart part{x.data(), rows};
    quantize(std::span(&part, 1));
  }
  // Equal to the codes of x; NaN may lose its sign.
  void expect_codes_of(const std::vector<float>& x, const char* what) {
    const auto got_rows = by_row.get(), got_columns = by_column.get();
    const float s = scale.get()[0];
    int wrong = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const float v = x[static_cast<size_t>(r * columns + c)];
        const uint8_t want = code_of(format, v, s), mask = std::isnan(v) ? 0x7f : 0xff;
        const uint8_t row_code = got_rows[static_cast<size_t>(r * columns + c)],
                      column_code = got_columns[static_cast<size_t>(c * rows + r)];
        if (has_rows && ((row_code ^ want) & mask) != 0 && wrong++ < 4)
          ADD_FAILURE() << what << " rows (" << r << ", " << c << "): " << v << " became " << int{row_code}
                        << ", expected " << int{want};
        if (has_columns && ((column_code ^ want) & mask) != 0 && wrong++ < 4)
          ADD_FAILURE() << what << " columns (" << r << ", " << c << "): " << v << " became "
                        << int{column_code} << ", expected " << int{want};
      }
    EXPECT_EQ(wrong, 0) << what;
  }
  void expect_measures_of(const std::vector<float>& x) {
    float most = 0;
    bool nan = false;
    const float s = scale.get()[0], largest = format == DType::E4M3 ? 448.0f : 57344.0f;
    std::vector<double> counts = {static_cast<double>(x.size()), 0, 0};
    for (const float v : x) {
      most = std::max(most, std::abs(v));
      nan |= std::isnan(v);
      counts[1] += std::abs(v * s) > largest;
      counts[2] += v != 0 && (code_of(format, v, s) & 0x7f) == 0;
    }
    if (nan)
      EXPECT_TRUE(std::isnan(amax.get()[0]));
    else
      EXPECT_EQ(amax.get()[0], most);
    EXPECT_EQ(rounded.get(), counts);
  }

  int64_t rows, columns;
  DType format;
  Device<uint8_t> by_row, by_column;
  Device<float> scale;
  Device<double> amax, rounded;
  bool has_rows, has_columns;
};

std::vector<float> floats(const auto& values) {
  std::vector<float> out;
  for (const auto v : values) out.push_back(static_cast<float>(v));
  return out;
}

void check_quantize(int64_t rows, int64_t columns, DType format, bool in_rows, bool in_columns, float scale) {
  SCOPED_TRACE(testing::Message() << rows << " x " << columns << " " << base::to_string(format) << " "
                                  << in_rows << in_columns << " scale " << scale);
  Device<Bf16> x(random_values<Bf16>(rows * columns, 1));
  Codes codes(rows, columns, format, scale, in_rows, in_columns);
  codes.quantize(x);
  codes.expect_codes_of(floats(x.get()), "quantize");
  codes.expect_measures_of(floats(x.get()));
}

TEST(GpuFp8, CodesInEveryOrder) {
  for (const DType format : {DType::E4M3, DType::E5M2})
    for (const auto& [in_rows, in_columns] : {std::pair{true, true}, {true, false}, {false, true}})
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{16, 16},
                                          {128, 128},
                                          {144, 272},
                                          {400, 1040},
                                          {16, 2064},
                                          {1040, 32}}) {
        check_quantize(rows, columns, format, in_rows, in_columns, 0x1p7f);
        check_quantize(rows, columns, format, in_rows, in_columns, 0x1p9f);
      }
}

// Subnormals, ties, saturation, infinities and NaN.
TEST(GpuFp8, EveryBf16Number) {
  std::vector<Bf16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<uint16_t>(i);
  for (const DType format : {DType::E4M3, DType::E5M2})
    for (const float scale : {1.0f, 0x1p9f, 0x1p-20f, 0x1p60f}) {
      SCOPED_TRACE(testing::Message() << base::to_string(format) << " scale " << scale);
      Device<Bf16> x(65536);
      require(cudaMemcpy(x.data(), all.data(), x.bytes(), cudaMemcpyHostToDevice));
      Codes codes(256, 256, format, scale);
      codes.quantize(x);
      codes.expect_codes_of(floats(all), "every number");
      codes.expect_measures_of(floats(all));
    }
}

TEST(GpuFp8, MeasuresAccumulate) {
  const int64_t rows = 272, columns = 144;
  Codes codes(rows, columns, DType::E4M3, 64.0f);
  std::vector<double> values(static_cast<size_t>(rows * columns), 0.25);
  const auto run = [&] {
    Device<Bf16> x(values);
    codes.quantize(x);
    return codes.amax.get()[0];
  };
  values[12345] = -9;  // saturates
  EXPECT_EQ(run(), 9.0);
  values[12345] = 0x1p-20;  // becomes 0
  EXPECT_EQ(run(), 9.0);
  EXPECT_EQ(codes.rounded.get(), (std::vector<double>{2.0 * 272 * 144, 1, 1}));
  values.back() = std::numeric_limits<double>::infinity();
  EXPECT_EQ(run(), std::numeric_limits<double>::infinity());
  values.front() = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(run()));
  values.front() = 1;
  EXPECT_TRUE(std::isnan(run())) << "NaN survives a finite maximum";
}

TEST(GpuFp8, PartsAreOneMatrix) {
  const int64_t sizes[] = {144, 16, 400}, columns = 208, rows = 560;
  const auto values = random_values<Bf16>(rows * columns, 5);
  std::vector<std::unique_ptr<Device<Bf16>>> matrices;
  std::vector<QuantizePart> parts;
  int64_t first = 0;
  for (const int64_t n : sizes) {
    matrices.push_back(std::make_unique<Device<Bf16>>(
        std::vector<double>(values.begin() + first * columns, values.begin() + (first + n) * columns)));
    parts.push_back({matrices.back()->data(), n});
    first += n;
  }
  Codes codes(rows, columns, DType::E4M3, 0x1p6f);
  codes.quantize(parts);
  codes.expect_codes_of(floats(values), "parts");
  codes.expect_measures_of(floats(values));
}

TEST(GpuFp8, GatedActivations) {
  for (const Gate act : {Gate::Silu, Gate::GeluTanh})
    for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{16, 16}, {144, 272}, {272, 1040}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << n);
      Device<Bf16> in(random_values<Bf16>(2 * rows * n, 1)), dy(random_values<Bf16>(rows * n, 2)),
          y(rows * n), d(2 * rows * n);
      const Bf16 *gate = in.data(), *up = in.data() + n;
      swiglu<Bf16>(gate, up, 2 * n, y.data(), rows, n, nullptr, act);
      for (const auto& [in_rows, in_columns] : {std::pair{true, false}, {true, true}, {false, true}}) {
        Codes codes(rows, n, DType::E4M3, 0x1p6f, in_rows, in_columns);
        swiglu_codes(gate, up, 2 * n, rows, n, act, codes.target(), nullptr);
        codes.expect_codes_of(floats(y.get()), "swiglu");
        codes.expect_measures_of(floats(y.get()));
      }
      swiglu_backward<Bf16>(dy.data(), gate, up, 2 * n, d.data(), d.data() + n, y.data(), rows, n, nullptr,
                            act);
      for (const bool with_y : {false, true}) {
        Codes gradients(rows, 2 * n, DType::E5M2, 0x1p12f),
            again(rows, n, DType::E4M3, 0x1p6f, false, with_y);
        CodeTarget y_target = again.target();
        y_target.measures = {};
        swiglu_backward_codes(dy.data(), gate, up, 2 * n, rows, n, act, gradients.target(), y_target,
                              nullptr);
        gradients.expect_codes_of(floats(d.get()), "gradients");
        gradients.expect_measures_of(floats(d.get()));
        again.expect_codes_of(floats(y.get()), "y again");
      }
    }
}

TEST(GpuFp8, Norms) {
  for (const double offset : {0.0, 1.0})
    for (const auto& [rows, n] :
         {std::pair<int64_t, int64_t>{16, 16}, {48, 272}, {144, 1040}, {32, 2048}, {16, 4096}, {16, 8192}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << n << " offset " << offset);
      Device<Bf16> x(random_values<Bf16>(rows * n, 1)), r(random_values<Bf16>(rows * n, 2)),
          w(random_values<Bf16>(n, 3)), sum(rows * n), y(rows * n), sum2(rows * n);
      Device<float> rstd(rows), rstd2(rows);
      rmsnorm<Bf16>(x.data(), w.data(), y.data(), rstd.data(), rows, n, 1e-5, nullptr, offset);
      Codes codes(rows, n, DType::E4M3, 0x1p6f, true, false);
      rmsnorm_codes(x.data(), nullptr, w.data(), nullptr, rstd2.data(), rows, n, 1e-5, offset, codes.target(),
                    nullptr);
      codes.expect_codes_of(floats(y.get()), "rmsnorm");
      codes.expect_measures_of(floats(y.get()));
      EXPECT_EQ(rstd.bits(), rstd2.bits());
      Codes again(rows, n, DType::E4M3, 0x1p6f, false, true);
      rmsnorm_again_codes(x.data(), w.data(), rstd.data(), rows, n, offset, again.target(), nullptr);
      again.expect_codes_of(floats(y.get()), "again");
      add_rmsnorm<Bf16>(x.data(), r.data(), w.data(), sum.data(), y.data(), rstd.data(), rows, n, 1e-5,
                        nullptr, offset);
      Codes added(rows, n, DType::E4M3, 0x1p6f, true, false);
      rmsnorm_codes(x.data(), r.data(), w.data(), sum2.data(), rstd2.data(), rows, n, 1e-5, offset,
                    added.target(), nullptr);
      added.expect_codes_of(floats(y.get()), "add_rmsnorm");
      EXPECT_EQ(sum.bits(), sum2.bits());
    }
}

// Decibels between a GEMM of codes and the same sums in f64.
double gemm_quality(Matmul& matmul, DType a_type, DType b_type, DType c_type, int64_t m, int64_t n, int64_t k,
                    bool fast, bool accumulate) {
  std::mt19937 random(static_cast<unsigned>(m + n + k));
  std::normal_distribution<float> normal;
  const float a_scale = 0x1p-5f, b_scale = 0x1p-7f;  // of the GEMM: reciprocals
  const auto codes = [&](DType format, int64_t count, float scale) {
    std::vector<double> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(code_of(format, normal(random), 1 / scale));
    return out;
  };
  const auto a = codes(a_type, m * k, a_scale), b = codes(b_type, n * k, b_scale);
  Device<uint8_t> da(a), db(b), workspace(Matmul::kWorkspaceBytes);
  Device<float> scales(std::vector<double>{a_scale, 0, 0, 0, b_scale});
  std::vector<double> before(static_cast<size_t>(m * n));
  for (double& v : before) v = static_cast<float>(Bf16(20 * normal(random)));
  Device<float> c32(before);
  Device<Bf16> c16(before);
  const GemmArgs args{.trans_b = true,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a = da.data(),
                      .lda = k,
                      .b = db.data(),
                      .ldb = k,
                      .c = c_type == DType::F32 ? static_cast<void*>(c32.data()) : c16.data(),
                      .ldc = n,
                      .a_type = a_type,
                      .b_type = b_type,
                      .c_type = c_type,
                      .accumulate = accumulate,
                      .a_scale = scales.data(),
                      .b_scale = scales.data() + 4,
                      .fast_accumulation = fast};
  matmul.run(args, workspace.data(), Matmul::kWorkspaceBytes, nullptr);
  const auto got = c_type == DType::F32 ? c32.values() : c16.values();
  double table_a[256], table_b[256], signal = 0, noise = 0;
  for (int i = 0; i < 256; ++i) {
    table_a[i] = value_of(a_type, static_cast<uint8_t>(i)) * a_scale;
    table_b[i] = value_of(b_type, static_cast<uint8_t>(i)) * b_scale;
  }
  std::vector<double> va, vb;
  for (const double v : a) va.push_back(table_a[static_cast<uint8_t>(v)]);
  for (const double v : b) vb.push_back(table_b[static_cast<uint8_t>(v)]);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = accumulate ? before[static_cast<size_t>(i * n + j)] : 0;
      for (int64_t q = 0; q < k; ++q)
        sum += va[static_cast<size_t>(i * k + q)] * vb[static_cast<size_t>(j * k + q)];
      const double error = got[static_cast<size_t>(i * n + j)] - sum;
      signal += sum * sum;
      noise += error * error;
    }
  return 10 * std::log10(signal / noise);
}

TEST(GpuFp8, GemmsOfTheSameCodes) {
  Matmul matmul;
  for (const auto& [a, b] :
       {std::pair{DType::E4M3, DType::E4M3}, {DType::E5M2, DType::E4M3}, {DType::E4M3, DType::E5M2}})
    for (const DType c : {DType::BF16, DType::F32})
      for (const bool accumulate : {false, true})
        for (const bool fast : {false, true})
          for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{48, 80, 112},
                                        {16, 16, 16},
                                        {256, 144, 4096},
                                        {128, 128, 16384}}) {
            const double quality = gemm_quality(matmul, a, b, c, m, n, k, fast, accumulate);
            EXPECT_GE(quality, fast ? 40 : 50)
                << base::to_string(a) << " x " << base::to_string(b) << " -> " << base::to_string(c) << " "
                << m << "x" << n << "x" << k << (fast ? " fast" : " split")
                << (accumulate ? " accumulated" : "");
            std::printf("%s x %s -> %s %ldx%ldx%ld %s%s: %.1f dB\n", base::to_string(a).data(),
                        base::to_string(b).data(), base::to_string(c).data(), m, n, k,
                        fast ? "fast" : "split", accumulate ? " accumulated" : "", quality);
          }
}

TEST(GpuFp8, TunedAlgorithmsOfCodesAreRead) {
  Matmul first, second;
  const GemmArgs args{.trans_b = true,
                      .m = 256,
                      .n = 144,
                      .k = 4096,
                      .lda = 4096,
                      .ldb = 4096,
                      .ldc = 144,
                      .a_type = DType::E5M2,
                      .b_type = DType::E4M3,
                      .c_type = DType::BF16};
  EXPECT_GT(first.tune(args, Matmul::kWorkspaceBytes, nullptr), 0);
  second.read_tuned(first.tuned());
  EXPECT_EQ(second.tuned_count(), 1);
  EXPECT_GE(gemm_quality(second, DType::E5M2, DType::E4M3, DType::BF16, 256, 144, 4096, false, false), 50);
  EXPECT_EQ(second.tuned_count(), 1) << "another problem was run";
}

TEST(GpuFp8, ScalesAreThoseOfTheCpu) {
  constexpr int64_t kRows = 5, kLength = 16, kStride = 4;
  std::vector<double> history(kRows * kLength, 0);
  history[3] = 448;               // exactly the largest
  history[kLength + 15] = 449;    // a little more
  history[2 * kLength] = 1e-300;  // clamped
  history[3 * kLength + 7] = 1e300;
  const std::vector<double> largest = {448, 448, 57344, 448, 448}, initial = {8, 8, 8, 8, 64};
  Device<double> dh(history), dl(largest), di(initial);
  Device<float> scales(std::vector<double>(2 * kRows * kStride, -1));
  delayed_scales(dh.data(), kLength, dl.data(), di.data(), kRows, scales.data(), kStride, nullptr);
  const auto got = scales.get();
  const float want[kRows] = {1, 0.5f, 0x1p126f, 0x1p-126f, 64};
  for (int64_t s = 0; s < kRows; ++s) {
    EXPECT_EQ(got[static_cast<size_t>(s * kStride)], want[s]) << s;
    EXPECT_EQ(got[static_cast<size_t>((kRows + s) * kStride)], 1 / want[s]) << s;
  }
}

TEST(GpuFp8, AmaxesAreRecorded) {
  constexpr int64_t kRows = 3, kLength = 4;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Device<double> history(std::vector<double>(kRows * kLength, 7)), amax(std::vector<double>{1, 5, nan, 3, 2}),
      scalars(std::vector<double>{1, 6, 0});
  Device<int64_t> rows(std::vector<double>{0, 1, 2, 1, 2});
  const auto record = [&](int ok) {
    record_amax(amax.data(), rows.data(), 5, scalars.data() + ok, scalars.data() + 1, kLength, kRows,
                history.data(), nullptr);
  };
  record(2);  // a skipped step
  EXPECT_EQ(history.get(), std::vector<double>(kRows * kLength, 7));
  record(0);
  EXPECT_EQ(history.get(), (std::vector<double>{7, 1, 7, 7, 7, 5, 7, 7, 7, 0, 7, 7}));
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
