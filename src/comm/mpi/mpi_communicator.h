// Collectives built from plain pairwise messages.
//
// all_reduce: small data is sent whole to every member, and each reduces all of it; large data is cut into
// one slice per member, reduced by its owner (reduce_scatter) and gathered. Both sum in member order: equal
// bits. Each byte crosses the wire 2 (n-1)/n times per member, the minimum.
#pragma once

#include "comm/communicator.h"
#include "comm/mpi/transfer.h"

namespace quintet::comm::mpi {

class MpiCommunicator final : public Communicator {
 public:
  // The MPI communicator remains owned by the world.
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

  // Member j reduces elements [begins[j], begins[j + 1]) of send; this member's go to `result`, block by
  // block. `reduced` is called after each block with its position in the slice, in bytes; the last block may
  // be shorter.
  void reduce_slices(Transfer& transfer, const Call& call, const void* send,
                     const std::vector<int64_t>& begins, void* result,
                     const std::function<void(int64_t first, int64_t bytes)>& reduced);
  void all_reduce_small(const Call& call, void* data);
  char* scratch(int64_t bytes);

  Channel channel_;
  std::vector<char> scratch_;
};

}  // namespace quintet::comm::mpi
