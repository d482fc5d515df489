// The GEMM driver's interface to an instruction set: the shape of its register tile and its functions.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/matmul/gemm.h"

namespace quintet::kernels {

// A panel holds mr rows of op(A) (or nr columns of op(B)) over a block of k, in groups of k_a (k_b)
// consecutive k: element (row r, k p) is at (p / k_a * mr + r) * k_a + p % k_a. Rows and k past the matrix
// are zeros, k up to a multiple of k_step.
struct TileShape {
  int mr, nr;
  int k_a, k_b;
  int k_step;
  int packed_size;     // Bytes of a packed element.
  int64_t mc, nc, kc;  // Largest block of m (per thread), n and k; multiples of mr, nr and k_step.
};

// Blocks are chosen so that a B panel stays in L1 (32 KiB and more), a thread's A block in half of L2 (1 MiB
// and more), and the shared B block in L3.
constexpr TileShape tile_shape(GemmIsa isa, base::DType type) {
  const bool f64 = type == base::DType::F64, bf16 = type == base::DType::BF16;
  switch (isa) {
    case GemmIsa::Portable:
      return f64 ? TileShape{4, 4, 1, 1, 1, 8, 256, 2048, 256} : TileShape{4, 8, 1, 1, 1, 4, 256, 2048, 256};
    case GemmIsa::Avx2:
      return f64 ? TileShape{6, 8, 1, 1, 1, 8, 192, 2048, 256} : TileShape{6, 16, 1, 1, 1, 4, 384, 4096, 256};
    case GemmIsa::Amx:
      if (bf16) return TileShape{32, 32, 32, 2, 32, 2, 512, 4096, 512};
      [[fallthrough]];
    case GemmIsa::Avx512Bf16:
      if (bf16) return TileShape{14, 32, 2, 2, 2, 2, 448, 4096, 512};
      [[fallthrough]];
    case GemmIsa::Avx512:
      return f64 ? TileShape{14, 16, 1, 1, 1, 8, 168, 1024, 384}
                 : TileShape{14, 32, 1, 1, 1, 4, 224, 2048, 512};
  }
  return {};
}

// Largest tile of any set, in elements: the size of the buffer for tiles that extend past C.
constexpr int kMaxTile = 32 * 32;

struct TileKernel {
  TileShape shape;
  base::DType sum_type;  // f64 or f32: what `tile` writes.
  // Packs `rows` rows (at most mr) over k elements into one panel. `src` points at the first element; rows
  // are ld apart when k_contiguous, else consecutive k are.
  void (*pack_a)(const void* src, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel);
  void (*pack_b)(const void* src, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel);
  // C tile (mr x nr) = or += A panel * B panel over k, a multiple of k_step.
  void (*tile)(int64_t k, const void* a, const void* b, void* c, int64_t ldc, bool add);
  // Rounds rows x cols sums to the operands' narrow type (bf16, f16); adds what C holds first when `add`.
  void (*round)(const float* sums, int64_t ld, int64_t rows, int64_t cols, uint16_t* c, int64_t ldc,
                bool add);
  // Called on each thread before and after its tiles, unless null.
  void (*begin)();
  void (*end)();
};

// The kernels of a set, by type of the operands.
struct TileKernels {
  TileKernel f64, f32, bf16, f16;
  constexpr const TileKernel* of(base::DType type) const {
    return type == base::DType::F64   ? &f64
           : type == base::DType::F32 ? &f32
           : type == base::DType::F16 ? &f16
                                      : &bf16;
  }
};

// The kernels of one set for operands of one type; null when the set was not compiled in.
const TileKernel* portable_kernel(base::DType type);
const TileKernel* avx2_kernel(base::DType type);
const TileKernel* avx512_kernel(base::DType type);
const TileKernel* avx512bf16_kernel(base::DType type);
const TileKernel* amx_kernel(base::DType type);

// The kernels of the set in use.
const TileKernel& tile_kernel(base::DType type);

}  // namespace quintet::kernels
