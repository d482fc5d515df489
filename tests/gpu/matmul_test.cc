#include "kernels/cuda/matmul/matmul.h"

#include <filesystem>

#include "gpu/device.h"

namespace quintet::kernels::cuda::test {
namespace {

enum class Add { No, Accumulate, Addend, AddendIsC };

// op(A) op(B) with its own leading dims, against plain loops in double.
template <class T, class C>
void check_product(Matmul& matmul, int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, Add add,
                   int64_t pad, double input_unit = 0) {
  SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " " << trans_a << trans_b << " add "
                                  << static_cast<int>(add) << " pad " << pad);
  const int64_t lda = (trans_a ? m : k) + pad, ldb = (trans_b ? k : n) + pad, ldc = n + pad;
  const auto a = random_values<T>((trans_a ? k : m) * lda, 1),
             b = random_values<T>((trans_b ? n : k) * ldb, 2), c = random_values<C>(m * ldc, 3),
             d = random_values<C>(m * ldc, 4);
  Device<T> ba(a), bb(b);
  Device<C> bc(c), bd(d);
  Device<uint8_t> workspace(Matmul::kWorkspaceBytes);
  const GemmArgs args{.trans_a = trans_a,
                      .trans_b = trans_b,
                      .m = m,
                      .n = n,
                      .k = k,
                      .a = ba.data(),
                      .lda = lda,
                      .b = bb.data(),
                      .ldb = ldb,
                      .c = bc.data(),
                      .ldc = ldc,
                      .a_type = base::DTypeOf<T>::value,
                      .b_type = base::DTypeOf<T>::value,
                      .c_type = base::DTypeOf<C>::value,
                      .accumulate = add == Add::Accumulate,
                      .addend = add == Add::Addend      ? bd.data()
                                : add == Add::AddendIsC ? bc.data()
                                                        : nullptr};
  matmul.run(args, workspace.data(), Matmul::kWorkspaceBytes, nullptr);
  std::vector<double> want = c, size(c.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * ldc + j);
      double sum = add == Add::No ? 0 : add == Add::Addend ? d[at] : c[at], total = std::abs(sum);
      for (int64_t q = 0; q < k; ++q) {
        const double term = a[static_cast<size_t>(trans_a ? q * lda + i : i * lda + q)] *
                            b[static_cast<size_t>(trans_b ? j * ldb + q : q * ldb + j)];
        sum += term;
        total += std::abs(term);
      }
      // In place cuBLASLt may round a 16-bit result before it adds.
      const bool in_place = add == Add::Accumulate || add == Add::AddendIsC;
      if (in_place && cpu::test::kHalf<C>) total += std::abs(sum - c[at]) * unit<C>() / (32 * unit<float>());
      want[at] = sum;
      size[at] = total;
    }
  // Products of bf16 are exact in f32; the sum's error is at most k additions, far less in practice.
  expect_close(
      bc, want, 32 + input_unit / unit<Stat<C>>(), [&](size_t i) { return size[i]; }, "C");
}

template <class T, class C>
void check_all(double input_unit = 0, bool tf32 = false) {
  Matmul matmul;
  matmul.allow_tf32(tf32);
  for (bool trans_a : {false, true})
    for (bool trans_b : {false, true})
      for (Add add : {Add::No, Add::Accumulate, Add::Addend, Add::AddendIsC}) {
        check_product<T, C>(matmul, 64, 96, 128, trans_a, trans_b, add, 0, input_unit);
        check_product<T, C>(matmul, 40, 24, 200, trans_a, trans_b, add, 8, input_unit);
        check_product<T, C>(matmul, 17, 5, 33, trans_a, trans_b, add, 3, input_unit);
      }
  for (Add add : {Add::No, Add::Accumulate, Add::Addend})
    check_product<T, C>(matmul, 9, 11, 0, false, true, add, 2);
}
TEST(GpuMatmul, F64) { check_all<double, double>(); }
TEST(GpuMatmul, F32) { check_all<float, float>(); }
TEST(GpuMatmul, Tf32) { check_all<float, float>(0x1p-9, true); }
TEST(GpuMatmul, Bf16ToF32) { check_all<Bf16, float>(); }
TEST(GpuMatmul, Bf16ToBf16) { check_all<Bf16, Bf16>(); }
TEST(GpuMatmul, F16ToF32) { check_all<F16, float>(); }
TEST(GpuMatmul, F16ToF16) { check_all<F16, F16>(); }

TEST(GpuMatmul, TunedChoicesAreKeptInAFile) {
  const auto path = std::filesystem::temp_directory_path() / "quintet-matmul-tuned-test.txt";
  std::filesystem::remove(path);
  const GemmArgs args{.trans_b = true,
                      .m = 512,
                      .n = 768,
                      .k = 1024,
                      .lda = 1024,
                      .ldb = 1024,
                      .ldc = 768,
                      .a_type = base::DType::BF16,
                      .b_type = base::DType::BF16,
                      .c_type = base::DType::BF16};
  Matmul first;
  first.load(path);  // none there yet
  const double time = first.tune(args, Matmul::kWorkspaceBytes, nullptr);
  EXPECT_GT(time, 0);
  EXPECT_EQ(first.tune(args, Matmul::kWorkspaceBytes, nullptr), time) << "a known problem is not timed again";
  first.save(path);
  Matmul second;
  second.read_tuned("another GPU, cublasLt 1 | " + first.tuned().substr(first.tuned().find(" | ") + 3));
  second.read_tuned("nonsense\n\n | | | \n");
  EXPECT_EQ(second.tuned_count(), 0);
  second.load(path);
  EXPECT_EQ(second.tuned_count(), 1);
  EXPECT_EQ(second.tuned(), first.tuned());
  // The stored algorithm computes the same result.
  check_product<Bf16, Bf16>(second, 512, 768, 1024, false, true, Add::No, 0);
  EXPECT_EQ(second.tuned_count(), 1);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
