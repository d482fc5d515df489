// The row exchange between tokens and experts (program::CollectiveKind::AllToAllV): sizes are read from the
// counts when it runs.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "exec/operands.h"

namespace quintet::exec {

// The counts that decide the sizes: `send` is this rank's rows by expert, `received` what each member sends
// it by own expert. Both are in host memory; null when they are not read: every expert is padded to the same
// number of rows, or the counts themselves are exchanged.
struct RowCounts {
  const int32_t* send = nullptr;
  const int32_t* received = nullptr;
};

// An all_to_all_v. `exchange` refers to `plan`.
struct RowExchange {
  std::vector<int64_t> plan;
  comm::Exchange exchange;
  base::DType dtype = base::DType::F32;
};

// Member m of the group is (expert rank m / copies, copy m % copies); it owns experts [e * E, (e + 1) * E) of
// expert rank e.
RowExchange plan_rows(const Operands& operands, int members, const RowCounts& counts);

void exchange_rows(const Operands& operands, comm::Communicator& comm);

}  // namespace quintet::exec
