// The CUDA backend as the rest of the room sees it. Defined by cuda/ in builds with QUINTET_CUDA, else by
// cuda_missing/, which has no executor and says what to do. What its kernels need is known in every build:
// cuda_scratch/.
#pragma once

#include "exec/executor.h"

namespace quintet::exec::cuda {

// Empty where programs can run here.
std::optional<Missing> missing();
// Only where nothing is missing.
std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options);
// Of device `index`, modulo their number. The others are left alone: asking a device takes some of its
// memory.
SharedMemory shared_memory(int64_t index, int64_t ranks_here);

}  // namespace quintet::exec::cuda
