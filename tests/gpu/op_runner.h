// Runs single ops through the kernels of the CPU and of the GPU: what an instruction does, without a
// program.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/scratch.h"
#include "gpu/device.h"
#include "support/op_runner.h"

namespace quintet::tests {

// An op with its operands; results have initial contents, and may alias operands.
struct OpRun {
  const graph::OpDef* op;
  graph::Attrs attrs;
  std::vector<HostTensor> in, out;
  std::vector<std::pair<size_t, size_t>> in_place = {};  // (result, operand)
  std::vector<program::Part> parts = {};
  bool accumulate = false;
};

// Real tensors in another dtype, and their values.
inline HostTensor to_dtype(const HostTensor& t, graph::DType dtype) {
  if (!t.is_real() || dtype == graph::DType::F64) return t;
  graph::Type type = t.type;
  type.dtype = dtype;
  HostTensor out(type);
  for (int64_t i = 0; i < type.count(); ++i) {
    if (dtype == graph::DType::F32)
      reinterpret_cast<float*>(out.bytes.data())[i] = static_cast<float>(t.real()[i]);
    else if (dtype == graph::DType::F16)
      reinterpret_cast<base::F16*>(out.bytes.data())[i] = base::F16(static_cast<float>(t.real()[i]));
    else
      reinterpret_cast<base::Bf16*>(out.bytes.data())[i] = base::Bf16(static_cast<float>(t.real()[i]));
  }
  return out;
}
inline HostTensor to_f64(const HostTensor& t) {
  const graph::DType from = t.type.dtype;
  if (from != graph::DType::F32 && from != graph::DType::BF16 && from != graph::DType::F16) return t;
  graph::Type type = t.type;
  type.dtype = graph::DType::F64;
  HostTensor out(type);
  const std::byte* const bytes = t.bytes.data();
  for (int64_t i = 0; i < type.count(); ++i)
    out.real()[i] = from == graph::DType::F32 ? reinterpret_cast<const float*>(bytes)[i]
                    : from == graph::DType::F16
                        ? static_cast<float>(reinterpret_cast<const base::F16*>(bytes)[i])
                        : static_cast<float>(reinterpret_cast<const base::Bf16*>(bytes)[i]);
  return out;
}

inline program::Instr instruction_of(const OpRun& run) {
  program::Instr instr{.op = run.op, .attrs = run.attrs, .parts = run.parts};
  for (const HostTensor& t : run.in) instr.in.push_back({program::BufferId(0), 0, t.type});
  for (const HostTensor& t : run.out) instr.out.push_back({program::BufferId(0), 0, t.type});
  if (run.accumulate) instr.accumulate = program::Accumulate::Always;
  return instr;
}

inline std::vector<HostTensor> run_on_cpu(OpRun run) {
  device::ThreadPool pool(1);
  program::Instr instr = instruction_of(run);
  instr.workspace_bytes = exec::cpu::workspace_bytes(instr, 1);
  std::vector<std::byte> workspace(static_cast<size_t>(instr.workspace_bytes + 64));
  exec::cpu::Bound bound;
  bound.instr = &instr;
  bound.pool = &pool;
  bound.workspace =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  for (HostTensor& t : run.in) bound.in.push_back(t.bytes.data());
  for (HostTensor& t : run.out) bound.out.push_back(t.bytes.data());
  for (const auto& [result, operand] : run.in_place) bound.out[result] = bound.in[operand];
  exec::cpu::find_kernel(*run.op).run(bound, run.accumulate);
  for (const auto& [result, operand] : run.in_place) run.out[result].bytes = run.in[operand].bytes;
  return run.out;
}

// Runs twice, to check that the bits are equal (unless they need not be): the second time with what the first
// prepare() has found.
inline std::vector<HostTensor> run_on_gpu(const OpRun& run, exec::cuda::Libraries& libraries,
                                          bool same_bits = true) {
  using kernels::cuda::test::Device;
  using kernels::cuda::test::require;
  program::Instr instr = instruction_of(run);
  instr.workspace_bytes = exec::cuda_scratch_bytes(instr);
  const exec::cuda::Kernel& kernel = exec::cuda::find_kernel(*run.op);
  std::vector<HostTensor> results[2];
  for (std::vector<HostTensor>& result : results) {
    std::vector<std::unique_ptr<Device<uint8_t>>> in, out;
    const auto upload = [](const HostTensor& t) {
      auto device = std::make_unique<Device<uint8_t>>(static_cast<int64_t>(t.bytes.size()));
      require(cudaMemcpy(device->data(), t.bytes.data(), t.bytes.size(), cudaMemcpyHostToDevice));
      return device;
    };
    exec::cuda::Bound bound;
    bound.instr = &instr;
    bound.libraries = &libraries;
    Device<uint8_t> workspace(instr.workspace_bytes);
    bound.workspace = reinterpret_cast<std::byte*>(workspace.data());
    for (const HostTensor& t : run.in) {
      in.push_back(upload(t));
      bound.in.push_back(reinterpret_cast<std::byte*>(in.back()->data()));
    }
    for (const HostTensor& t : run.out) {
      out.push_back(upload(t));
      bound.out.push_back(reinterpret_cast<std::byte*>(out.back()->data()));
    }
    for (const auto& [to, from] : run.in_place) bound.out[to] = bound.in[from];
    if (kernel.prepare != nullptr) kernel.prepare(bound);
    kernel.run(bound, run.accumulate);
    require(cudaDeviceSynchronize());
    result = run.out;
    for (size_t i = 0; i < result.size(); ++i)
      require(
          cudaMemcpy(result[i].bytes.data(), bound.out[i], result[i].bytes.size(), cudaMemcpyDeviceToHost));
  }
  for (size_t i = 0; same_bits && i < results[0].size(); ++i)
    EXPECT_EQ(results[0][i].bytes, results[1][i].bytes) << "result " << i << " differs between two runs";
  return results[0];
}

inline exec::cuda::Libraries& libraries() {
  static exec::cuda::Libraries instance({.tune = false});
  return instance;
}

// Numbers within one rounding to their dtype (or several, or to a narrower one in between), and within some
// hundred roundings of the arithmetic (whose terms are as large as the largest result); counts exactly. If
// the expected value was rounded to its dtype too, the two may differ by a whole step of it.
inline void expect_close(const HostTensor& got, const HostTensor& want, graph::DType dtype,
                         const std::string& what, int roundings = 1,
                         graph::DType rounded_to = graph::DType::F64, bool both_rounded = false) {
  if (!want.is_real()) {
    EXPECT_EQ(got.bytes, want.bytes) << what;
    return;
  }
  const auto unit = [](graph::DType t) {
    return t == graph::DType::BF16  ? 0x1p-8
           : t == graph::DType::F16 ? 0x1p-11
           : t == graph::DType::F32 ? 0x1p-24
                                    : 0x1p-53;
  };
  const double rounding = std::max(unit(got.type.dtype), unit(rounded_to)) * (both_rounded ? 2 : 1);
  const double arithmetic = dtype == graph::DType::F64 ? 0x1p-53 : 0x1p-24;
  const HostTensor wide = to_f64(got);
  double largest = 0;
  for (int64_t i = 0; i < want.type.count(); ++i)
    if (std::isfinite(want.real()[i])) largest = std::max(largest, std::abs(want.real()[i]));
  int wrong = 0;
  for (int64_t i = 0; i < want.type.count() && wrong < 4; ++i) {
    const double w = want.real()[i], g = wide.real()[i];
    if (w == g || (std::isnan(w) && std::isnan(g))) continue;
    const double bound =
        rounding * (std::abs(w) + (roundings - 1) * largest) + 512 * arithmetic * (largest + 1);
    if (std::abs(w - g) <= bound) continue;
    ++wrong;
    ADD_FAILURE() << what << "[" << i << "] = " << g << ", expected " << w << ", off by " << std::abs(w - g)
                  << ", allowed " << bound;
  }
}

}  // namespace quintet::tests
