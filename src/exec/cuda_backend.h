// The interface of the CUDA backend. Implemented by cuda/ in builds with QUINTET_CUDA, otherwise by
// cuda_missing/, which has no executor and explains what to do. The scratch of its kernels is known in every
// build: decode/.
#pragma once

#include "exec/executor.h"

namespace quintet::exec::cuda {

// Empty if programs can run here.
std::optional<Missing> missing();
// Requires that nothing is missing.
std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options);
// For device `index`, modulo their number. Other devices are not touched: a query allocates some of a
// device's memory.
SharedMemory shared_memory(int64_t index, int64_t ranks_here);

}  // namespace quintet::exec::cuda
