// The exchange of rows between tokens and experts (program::CollectiveKind::AllToAllV): what goes where is
// read from the counts when it runs.
#pragma once

#include "comm/communicator.h"
#include "exec/operands.h"

namespace quintet::exec {

// Member m of the group is (expert rank m / copies, copy m % copies); it owns experts [e * E, (e + 1) * E) of
// expert rank e. `send` counts this rank's rows by expert, `received` what each member sends it by own
// expert.
void exchange_rows(const Operands& operands, comm::Communicator& comm);

}  // namespace quintet::exec
