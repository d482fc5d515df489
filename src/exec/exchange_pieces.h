// The exchange of pieces of matrices with their owners (program::CollectiveKind::Exchange): its attributes
// say what goes where.
#pragma once

#include "comm/communicator.h"
#include "exec/operands.h"
#include "program/matrix_pieces.h"

namespace quintet::exec {

// `exchange` refers to the two sides.
struct PiecesOfMember {
  program::PieceExchange::Side sent, received;
  comm::Exchange exchange;
};

inline PiecesOfMember plan_pieces(const Operands& b, int position, int members) {
  const program::PieceExchange plan = program::piece_exchange(b.instr->attrs);
  PiecesOfMember p{.sent = plan.sent(position, members), .received = plan.received(position, members)};
  p.exchange = {.send = b.in[0],
                .send_offsets = p.sent.offsets,
                .send_counts = p.sent.counts,
                .recv = b.out[0],
                .recv_offsets = p.received.offsets,
                .recv_counts = p.received.counts};
  return p;
}

}  // namespace quintet::exec
