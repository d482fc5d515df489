// Ranks as MPI processes. Defined by mpi/ where MPI was found at configure time, else by mpi_missing/, whose
// functions throw a UserError that says what to install.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace quintet::comm {

bool mpi_available();

// Initialises MPI with full thread support (an error when the library does not grant it) and finalises it
// when destroyed. At most one per process, made and destroyed by the same thread. Destroyed while an
// exception unwinds, it ends the job by MPI_Abort instead: finalising would wait for ranks that wait for this
// one.
std::unique_ptr<World> make_mpi_world();

// body(world) on this process's rank. A rank that throws prints who it is and why, and ends the job by
// MPI_Abort.
void run_mpi_world(const std::function<void(World&)>& body);

}  // namespace quintet::comm
