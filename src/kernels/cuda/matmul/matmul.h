// GEMM through cuBLASLt, with the meaning of kernels::GemmArgs on device pointers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "kernels/cuda/support/types.h"
#include "kernels/gemm_args.h"

namespace quintet::kernels::cuda {

// Codes with a scale for each block of 128 contracted elements, on Hopper: a_scale[k / 128 * m + row] and
// b_scale[k / 128 * n + row]; with square_b, a scale for each 128 x 128 of B, b_scale[row / 128 * (blocks of
// k, rounded up to fours) + k / 128].
struct BlockGemmArgs : GemmArgs {
  bool square_b = false;
};

// One per launching thread, on the device that is current when it is constructed.
//
// Each problem (sizes, strides, types, alignment, workspace) runs the algorithm that tune() found fastest, or
// else cuBLASLt's first heuristic choice. Algorithms that add partial results in a random order or round them
// to less than f32 are never used, so the bits depend on the problem and the algorithm alone.
//
class Matmul {
 public:
  // The scratch that cuBLASLt recommends on Hopper; less is legal and narrows the choice.
  static constexpr int64_t kWorkspaceBytes = 32 << 20;

  Matmul();
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // With tf32, GEMMs of f32 round their operands to 10 bits of mantissa. Off by default.
  void allow_tf32(bool allow);

  // Types: those of GemmArgs, codes from architecture 89 on. An addend
  // may be C itself. A bf16 C that is accumulated in place may see the result rounded to bf16 before the
  // addition: some of cuBLASLt's kernels add in memory. With a separate addend, or an f32 C, there is one
  // rounding. The workspace must be aligned to kWorkspaceAlignment, and must not be in use by another
  // stream.
  void run(const GemmArgs& args, void* workspace, int64_t workspace_bytes, Stream stream);
  void run(const BlockGemmArgs& args, void* workspace, int64_t workspace_bytes, Stream stream);

  // Times cuBLASLt's candidates for a problem on random operands of its own (args' pointers only give the
  // alignment) and keeps the fastest; does nothing when the problem is known already. Allocates and
  // synchronises: before training, never inside a step. Returns the microseconds of one GEMM.
  double tune(const GemmArgs& args, int64_t workspace_bytes, Stream stream);
  double tune(const BlockGemmArgs& args, int64_t workspace_bytes, Stream stream);

  // The result of tune() as text: one line per problem, after device and library version. Lines of another
  // device or version are ignored when read, so one file can serve several machines.
  std::string tuned() const;
  void read_tuned(std::string_view text);
  // The same through a file; a missing file is an empty one. Saving keeps other devices' lines.
  void load(const base::Path& path);
  void save(const base::Path& path) const;
  int64_t tuned_count() const;

 private:
  struct State;
  struct Call;  // of either kind
  void run(const Call& call, void* workspace, int64_t workspace_bytes, Stream stream);
  double tune(const Call& call, int64_t workspace_bytes, Stream stream);
  std::unique_ptr<State> state_;
};

}  // namespace quintet::kernels::cuda
