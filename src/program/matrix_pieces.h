// Pieces of matrices that are sent to the matrices' owners and back, as encoded in the attributes of
// gather_directions, newton_schulz, apply_directions and of the exchanges between them.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace quintet::program {

// Elements [first, first + count) of group `operand`, at `at` of the buffer of pieces. `row` is that of a
// FlatRange.
struct FlatPiece {
  int64_t operand = 0, first = 0, count = 0, at = 0, row = 0;
};
std::vector<int64_t> to_attribute(std::span<const FlatPiece> pieces);
std::vector<FlatPiece> flat_pieces(const graph::Attrs& attrs);

// At `at` of the buffer: elements [first, first + count), row by row, of a box that is `width` columns wide
// and begins at (row, column) of matrix `slot`.
struct MatrixPiece {
  int64_t at = 0, slot = 0, row = 0, column = 0, width = 1, first = 0, count = 0;
};
std::vector<int64_t> to_attribute(std::span<const MatrixPiece> pieces);
std::vector<MatrixPiece> matrix_pieces(const graph::Attrs& attrs);

// Who sends how much to whom: the same on all members of a communicator (CollectiveKind::Exchange). Members
// are holders of pieces and owners of matrices at the same time. Members whose positions are equal modulo
// `holders` hold the same pieces: an owner is sent those of its own run of `holders` members, and answers all
// runs.
struct PieceExchange {
  struct Share {
    int64_t holder = 0;  // position modulo `holders`
    int64_t owner = 0;   // position
    int64_t count = 0;   // elements
  };
  int64_t holders = 1;
  bool back = false;          // from owners to holders
  std::vector<Share> shares;  // by holder, then owner

  // By member, what one of them has for it or gets from it, one after another in its buffer.
  struct Side {
    std::vector<int64_t> offsets, counts;
    int64_t total = 0;  // elements of the buffer
  };
  Side sent(int64_t position, int64_t members) const;
  Side received(int64_t position, int64_t members) const;

 private:
  Side as_holder(int64_t position, int64_t members) const;
  Side as_owner(int64_t position, int64_t members) const;
};
// Whether some owner has fewer matrices than another: it uses only part of its buffers and scratch, which
// have one size on all ranks. All ranks of a class have the same answer.
bool deals_unevenly(const Program& program);

graph::Attrs to_attributes(const PieceExchange& exchange);
PieceExchange piece_exchange(const graph::Attrs& attrs);

}  // namespace quintet::program
