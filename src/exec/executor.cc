#include "exec/executor.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file_system.h"
#include "base/machine.h"
#include "exec/cpu/executor.h"
#include "exec/cuda_backend.h"
#include "exec/decode/cuda_attention.h"
#include "exec/decode/scratch.h"

namespace quintet::exec {

std::span<std::byte> Executor::staging(int64_t bytes) {
  staging_ = {};  // first: both may not fit
  staging_.resize(static_cast<size_t>(bytes));
  static_assert(static_cast<int64_t>(base::HugePages<std::byte>::kAlign) % base::kDirectBytes == 0,
                "a disk reads staging memory itself");
  return staging_;
}

void Executor::stage(std::span<const Staged> copies) {
  for (const Staged& copy : copies)
    std::memcpy(staging_.data() + copy.to, read(copy.from).data(), static_cast<size_t>(copy.from.bytes));
}

void Executor::note_touched(const program::Program& program, int64_t top) {
  QUINTET_CHECK(top <= program.arena_bytes,
                "rank {}: a kernel wrote {} bytes past the planned arena of {} bytes", program.rank,
                top - program.arena_bytes, program.arena_bytes);
  measured_ = std::max(measured_, top);
}

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options) {
  require_device(options.device);
  if (options.device == Device::Cuda) return cuda::make_executor(program, world, options);
  return std::make_unique<cpu::CpuExecutor>(program, world, options);
}

std::function<int64_t(const program::Instr&)> workspace_of(Device device, int threads,
                                                           std::vector<OpKernels> kernels) {
  if (device == Device::Cpu)
    return [threads, kernels = std::move(kernels)](const program::Instr& i) {
      return cpu::workspace_bytes(i, threads, kernels);
    };
  return [kernels = std::move(kernels)](const program::Instr& i) {
    for (const OpKernels& k : kernels)
      if (k.op == i.op) return k.cuda_scratch != nullptr ? k.cuda_scratch(i) : 0;
    return cuda_scratch_bytes(i);
  };
}

std::string remark_on(Device device, const program::Instr& instr) {
  return device == Device::Cuda ? cuda::remark_on(instr) : std::string();
}

std::optional<Missing> missing(Device device) {
  return device == Device::Cuda ? cuda::missing() : std::nullopt;
}

void require_device(Device device) {
  if (const auto m = missing(device))
    base::fail_user("run.device is \"cuda\", but {}: {}; or use run.device = \"cpu\"", m->why, m->remedy);
}

SharedMemory shared_memory(Device device, int64_t index, int64_t ranks_here) {
  return device == Device::Cuda ? cuda::shared_memory(index, ranks_here)
                                : SharedMemory{base::available_memory_bytes(), ranks_here};
}

}  // namespace quintet::exec
