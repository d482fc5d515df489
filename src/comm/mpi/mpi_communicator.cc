#include "comm/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce.h"

namespace quintet::comm::mpi {
namespace {

// Total over all members: below this, a second exchange costs more than the bytes it saves.
constexpr int64_t kSmallBytes = 64 * 1024;
// Bytes received for reduction at a time, over all peers; two such halves are in flight. Together with the
// accumulated data they fit a core's private cache.
constexpr int64_t kScratchBytes = 1024 << 10;
// Messages of an uneven exchange in flight at once: their bookkeeping stays below 4 KiB.
constexpr size_t kWindow = 96;

const char* at(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

void copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

MpiCommunicator::MpiCommunicator(Recorder& recorder, std::string name, int rank,
                                 std::vector<base::RankId> members, Channel channel)
    : Communicator(recorder, std::move(name), rank, std::move(members)), channel_(std::move(channel)) {}

char* MpiCommunicator::scratch(int64_t bytes) {
  if (static_cast<int64_t>(scratch_.size()) < bytes) scratch_.resize(static_cast<size_t>(bytes));
  return scratch_.data();
}

void MpiCommunicator::do_all_reduce(const Call& call, void* data) {
  const int n = size();
  const int64_t width = size_of(call.dtype);
  if (call.count * width * n <= kSmallBytes) return all_reduce_small(call, data);
  std::vector<int64_t> begins(static_cast<size_t>(n) + 1);
  for (int j = 0; j <= n; ++j)
    begins[static_cast<size_t>(j)] = call.count / n * j + std::min<int64_t>(j, call.count % n);
  const auto begin = [&](int j) { return begins[static_cast<size_t>(j)] * width; };
  Transfer transfer(channel_, call);
  // A block is sent to the others as soon as it is reduced, while it is still cached. A member's result for a
  // block can arrive only after it has received our term, so the result may overwrite that term.
  reduce_slices(transfer, call, data, begins, at(data, begin(rank())), [&](int64_t first, int64_t bytes) {
    for (int k = 1; k < n; ++k) {
      const int to = (rank() + k) % n, from = (rank() - k + n) % n;
      const int64_t coming = std::clamp<int64_t>(begin(from + 1) - begin(from) - first, 0, bytes);
      const int64_t going = std::clamp<int64_t>(begin(rank() + 1) - begin(rank()) - first, 0, bytes);
      transfer.recv(at(data, begin(from) + first), coming, from);
      transfer.send(at(data, begin(rank()) + first), going, to);
    }
  });
  transfer.wait_all();
}

void MpiCommunicator::all_reduce_small(const Call& call, void* data) {
  const int n = size();
  const int64_t bytes = call.count * size_of(call.dtype);
  char* received = scratch(bytes * n);
  Transfer transfer(channel_, call);
  std::vector<const void*> sources(static_cast<size_t>(n));
  for (int k = 1; k < n; ++k) {
    const int from = (rank() - k + n) % n;
    transfer.recv(received + from * bytes, bytes, from);
    sources[static_cast<size_t>(from)] = received + from * bytes;
  }
  for (int k = 1; k < n; ++k) transfer.send(data, bytes, (rank() + k) % n);
  sources[static_cast<size_t>(rank())] = data;
  transfer.wait_all();
  reduce_in_order(sources.data(), n, &data, 1, call.count, call.dtype, call.op);
}

void MpiCommunicator::do_reduce_scatter(const Call& call, const void* send, void* recv) {
  std::vector<int64_t> begins(static_cast<size_t>(size()) + 1);
  for (size_t j = 0; j < begins.size(); ++j) begins[j] = static_cast<int64_t>(j) * call.count;
  Transfer transfer(channel_, call);
  reduce_slices(transfer, call, send, begins, recv, [](int64_t, int64_t) {});
}

void MpiCommunicator::reduce_slices(Transfer& transfer, const Call& call, const void* send,
                                    const std::vector<int64_t>& begins, void* result,
                                    const std::function<void(int64_t first, int64_t bytes)>& reduced) {
  const int n = size();
  const int64_t width = size_of(call.dtype);
  const auto begin = [&](int j) { return begins[static_cast<size_t>(j)]; };
  const auto length = [&](int j) { return begin(j + 1) - begin(j); };
  int64_t longest = 0;
  for (int j = 0; j < n; ++j) longest = std::max(longest, length(j));
  // All members cut all slices into the same blocks: a message is one block of one slice.
  const int64_t block = std::clamp(kScratchBytes / (n - 1), int64_t{32} << 10, Transfer::kMaxMessage) / width;
  const int64_t blocks = (longest + block - 1) / block;
  char* received = scratch(2 * (n - 1) * block * width);
  const auto place = [&](int64_t b, int k) { return received + ((b % 2) * (n - 1) + k - 1) * block * width; };
  const auto part = [&](int64_t b, int j) { return std::clamp<int64_t>(length(j) - b * block, 0, block); };

  const auto start = [&](int64_t b) {
    for (int k = 1; k < n; ++k) transfer.recv(place(b, k), part(b, rank()) * width, (rank() - k + n) % n);
    for (int k = 1; k < n; ++k) {
      const int to = (rank() + k) % n;
      transfer.send(at(send, (begin(to) + b * block) * width), part(b, to) * width, to);
    }
  };
  std::vector<const void*> sources(static_cast<size_t>(n));
  size_t passed_on = 0;  // requests that `reduced` made for the previous block
  for (int64_t b = 0; b < blocks; ++b) {
    if (b == 0) start(0);
    const size_t needed = transfer.started() - passed_on;
    if (b + 1 < blocks) start(b + 1);  // in flight while we reduce b
    transfer.wait_oldest(needed);
    for (int k = 1; k < n; ++k) sources[static_cast<size_t>((rank() - k + n) % n)] = place(b, k);
    sources[static_cast<size_t>(rank())] = at(send, (begin(rank()) + b * block) * width);
    void* target = at(result, b * block * width);
    reduce_in_order(sources.data(), n, &target, 1, part(b, rank()), call.dtype, call.op);
    passed_on = transfer.started();
    reduced(b * block * width, block * width);
    passed_on = transfer.started() - passed_on;
  }
}

void MpiCommunicator::do_all_gather(const Call& call, const void* send, void* recv) {
  const int n = size();
  const int64_t piece = call.count * size_of(call.dtype);
  Transfer transfer(channel_, call);
  for (int k = 1; k < n; ++k) {
    const int to = (rank() + k) % n, from = (rank() - k + n) % n;
    transfer.recv(at(recv, from * piece), piece, from);
    transfer.send(send, piece, to);
  }
  copy(at(recv, rank() * piece), send, piece);
  transfer.wait_all();
}

void MpiCommunicator::do_all_to_all(const Call& call, const void* send, void* recv) {
  const int n = size();
  const int64_t piece = call.count * size_of(call.dtype);
  Transfer transfer(channel_, call);
  for (int k = 1; k < n; ++k) {
    const int to = (rank() + k) % n, from = (rank() - k + n) % n;
    transfer.recv(at(recv, from * piece), piece, from);
    transfer.send(at(send, to * piece), piece, to);
  }
  copy(at(recv, rank() * piece), at(send, rank() * piece), piece);
  transfer.wait_all();
}

// Round k exchanges with the members k before and k after, piece by piece. In every round a member starts its
// sends together with its receives, and nobody waits for a later round before an earlier one, so rounds
// finish in order however few of them are in flight.
void MpiCommunicator::do_all_to_all_v(const Call& call, const Exchange& exchange) {
  const int n = size();
  const int64_t width = size_of(call.dtype);
  Transfer transfer(channel_, call);
  for (int k = 1; k < n; ++k) {
    const int to = (rank() + k) % n, from = (rank() - k + n) % n;
    const auto t = static_cast<size_t>(to), f = static_cast<size_t>(from);
    const int64_t in = exchange.recv_counts[f] * width, out = exchange.send_counts[t] * width;
    char* const target = in > 0 ? at(exchange.recv, exchange.recv_offsets[f] * width) : nullptr;
    const char* const source = out > 0 ? at(exchange.send, exchange.send_offsets[t] * width) : nullptr;
    const int64_t pieces = std::max(Transfer::pieces(in), Transfer::pieces(out));
    for (int64_t p = 0; p < pieces; ++p) {
      transfer.recv_piece(target, in, p, from);
      transfer.send_piece(source, out, p, to);
      if (transfer.started() >= kWindow) transfer.wait_oldest(kWindow / 2);
    }
  }
  copy_own_piece(call, exchange);
  transfer.wait_all();
}

// A binomial tree: in round k the members that have the data, at distances below 2^k from the root, each send
// it to the member 2^k further.
void MpiCommunicator::do_broadcast(const Call& call, void* data) {
  const int n = size(), root = call.peer, distance = (rank() - root + n) % n;
  const int64_t bytes = call.count * size_of(call.dtype);
  Transfer transfer(channel_, call);
  for (int step = 1; step < n; step *= 2) {
    if (distance >= step && distance < 2 * step) {
      transfer.recv(data, bytes, (rank() - step + n) % n);
      transfer.wait_all();
    } else if (distance < step && distance + step < n) {
      transfer.send(data, bytes, (rank() + step) % n);
    }
  }
  transfer.wait_all();
}

void MpiCommunicator::do_send(const Call& call, const void* data) {
  Transfer transfer(channel_, call);
  transfer.send(data, call.count * size_of(call.dtype), call.peer);
  transfer.wait_all();
}

void MpiCommunicator::do_recv(const Call& call, void* data) {
  Transfer transfer(channel_, call);
  transfer.recv(data, call.count * size_of(call.dtype), call.peer);
  transfer.wait_all();
}

// In each round every member signals the one at twice the previous distance; after log2 n rounds each has
// heard, directly or indirectly, from all.
void MpiCommunicator::do_barrier(const Call& call) {
  const int n = size();
  for (int step = 1; step < n; step *= 2) {
    Transfer transfer(channel_, call);
    transfer.await_signal((rank() - step + n) % n);
    transfer.signal((rank() + step) % n);
    transfer.wait_all();
  }
}

}  // namespace quintet::comm::mpi
