// `quintet bench comm`: how fast collectives between the ranks of a job are, by call, type and size.
//
// The payload is the whole buffer (all_reduce: count; others: the pieces of all ranks together; all_to_all_v:
// the mean over the ranks, each of which receives a quarter less or more than that from every peer). The
// bandwidth is payload / time, that of the bus the bytes that each rank must move / time
// (comm/call_totals.h), so that results are comparable across numbers of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace quintet::tools {

struct CommBenchOptions {
  int64_t ranks = 2;  // as threads, unless a launcher started processes
  std::vector<int64_t> bytes = {4 << 10, 1 << 20, 16 << 20};  // payloads
  std::vector<base::DType> dtypes = {base::DType::F32, base::DType::BF16};
  double seconds = 0.2;  // of each row
};

struct CommBenchRow {
  comm::CallKind call = comm::CallKind::AllReduce;
  base::DType dtype = base::DType::F32;
  int64_t bytes = 0;
  double median = 0, best = 0;              // seconds of the slowest rank
  double bandwidth = 0, bus_bandwidth = 0;  // of the median, bytes/s
};

struct CommBench {
  int64_t ranks = 0;
  std::string transport;
  std::vector<CommBenchRow> rows;
  bool is_first = true;  // false on ranks other than 0 of an MPI job, which report nothing
};

// UserError where the job has one rank, or a payload does not hold an element of every rank.
CommBench bench_comm(const CommBenchOptions& options);

std::string to_table(const CommBench& bench);
std::string to_json(const CommBench& bench);

}  // namespace quintet::tools
