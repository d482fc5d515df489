// The CUDA backend as the rest of the room sees it. Defined by cuda/ in builds with QUINTET_CUDA, else by
// cuda_missing/, whose functions throw a UserError that says what to do. What its kernels need is known in
// every build: cuda_sizes/.
#pragma once

#include "exec/executor.h"

namespace quintet::exec::cuda {

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options);
void require_device();
// Free memory of device `index`, modulo their number, times their number; 0 when there is none. The others
// are left alone: asking a device takes some of its memory.
int64_t available_memory_bytes(int64_t index);

}  // namespace quintet::exec::cuda
