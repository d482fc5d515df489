// Ranks as MPI processes. Defined by mpi/ if MPI was found at configure time, otherwise by mpi_missing/,
// whose functions throw a UserError that says what to install.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace quintet::comm {

bool mpi_available();
// The library that ranks run with: "Open MPI 4.1.4"; empty without MPI.
std::string mpi_version();

// Initialises MPI with full thread support (an error if the library does not provide it) and finalises it on
// destruction. At most one per process, created and destroyed by the same thread. If destroyed while an
// exception unwinds, it ends the job with MPI_Abort instead: finalising would wait for ranks that wait for
// this one.
std::unique_ptr<World> make_mpi_world();

// Runs body(world) on this process's rank. If it throws, prints the rank and the reason and ends the job with
// MPI_Abort.
void run_mpi_world(const std::function<void(World&)>& body);

// From then on `report` is called with the exception before the job ends, on the rank that ends it.
void report_mpi_failures(std::function<void(const std::exception&)> report);

}  // namespace quintet::comm
