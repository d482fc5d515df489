// The collectives as plain messages between the members, pair by pair.
//
// all_reduce: little data goes whole to every member, and each reduces all of it; much data is cut into one
// slice a member, reduced by its owner (reduce_scatter) and gathered. Both sum in member order: the same
// bits. Each byte crosses the wire 2 (n-1)/n times per member, the least possible.
#pragma once

#include "comm/communicator.h"
#include "comm/mpi/transfer.h"

namespace quintet::comm::mpi {

class MpiCommunicator final : public Communicator {
 public:
  // The MPI communicator stays the world's.
  MpiCommunicator(Recorder& recorder, std::string name, int rank, std::vector<base::RankId> members,
                  Channel channel);

 private:
  void do_all_reduce(const Call& call, void* data) override;
  void do_all_gather(const Call& call, const void* send, void* recv) override;
  void do_reduce_scatter(const Call& call, const void* send, void* recv) override;
  void do_all_to_all(const Call& call, const void* send, void* recv) override;
  void do_all_to_all_v(const Call& call, const Exchange& exchange) override;
  void do_broadcast(const Call& call, void* data) override;
  void do_send(const Call& call, const void* data) override;
  void do_recv(const Call& call, void* data) override;
  void do_barrier(const Call& call) override;

  // Elements [begins[j], begins[j + 1]) of send are reduced by member j; mine go to `result`, block by block.
  // `reduced` is called after each with its place in the slice, in bytes; the last blocks may be shorter.
  void reduce_slices(Transfer& transfer, const Call& call, const void* send,
                     const std::vector<int64_t>& begins, void* result,
                     const std::function<void(int64_t first, int64_t bytes)>& reduced);
  void all_reduce_small(const Call& call, void* data);
  char* scratch(int64_t bytes);

  Channel channel_;
  std::vector<char> scratch_;
};

}  // namespace quintet::comm::mpi
