// Quantisation to 8-bit formats (base/fp8.h), and GEMMs on codes, on the CPU.
#pragma once

#include "device/thread_pool.h"
#include "kernels/quantize_args.h"

namespace quintet::kernels::cpu {

void quantize(const QuantizeArgs& args, device::ThreadPool& pool);
void quantize_blocks(const QuantizeBlocksArgs& args, device::ThreadPool& pool);

// Codes are decoded and descaled, which is exact, into scratch of the type that the GEMM multiplies: bf16 for
// codes of one byte, else theirs.
int64_t scaled_gemm_workspace_bytes(const ScaledGemmArgs& args, int threads);
void scaled_gemm(const ScaledGemmArgs& args, void* workspace, int64_t workspace_bytes,
                 device::ThreadPool& pool);

// Row s of the history has `length` magnitudes. Scale s of the n becomes the largest power of two that keeps
// them at most largest[s], or initial[s] while all are 0. The reciprocals follow the scales; elements are
// `stride` apart, with zeros between them.
template <class T>
void delayed_scales(const double* history, int64_t length, std::span<const double> largest,
                    std::span<const double> initial, int64_t stride, T* scales);

// Entry `slot` of each row of the history becomes the largest of its amaxes, or 0 if one is not finite.
void record_amax(const double* amax, std::span<const int64_t> rows, int64_t slot, int64_t length,
                 int64_t num_rows, double* history);

}  // namespace quintet::kernels::cpu
