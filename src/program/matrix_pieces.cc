#include "program/matrix_pieces.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"

namespace quintet::program {

namespace {

// Calls fn with each row of `width` numbers.
template <class Fn>
void each_row(const std::vector<int64_t>& numbers, size_t width, const Fn& fn) {
  QUINTET_CHECK(numbers.size() % width == 0, "{} numbers do not form rows of {}", numbers.size(), width);
  for (size_t i = 0; i < numbers.size(); i += width) fn(&numbers[i]);
}

}  // namespace

std::vector<int64_t> to_attribute(std::span<const FlatPiece> pieces) {
  std::vector<int64_t> numbers;
  for (const FlatPiece& p : pieces) numbers.insert(numbers.end(), {p.operand, p.first, p.count, p.at, p.row});
  return numbers;
}

std::vector<FlatPiece> flat_pieces(const graph::Attrs& attrs) {
  std::vector<FlatPiece> pieces;
  each_row(attrs.integers("ranges"), 5, [&](const int64_t* n) {
    pieces.push_back({n[0], n[1], n[2], n[3], n[4]});
  });
  return pieces;
}

std::vector<int64_t> to_attribute(std::span<const MatrixPiece> pieces) {
  std::vector<int64_t> numbers;
  for (const MatrixPiece& p : pieces)
    numbers.insert(numbers.end(), {p.at, p.slot, p.row, p.column, p.width, p.first, p.count});
  return numbers;
}

std::vector<MatrixPiece> matrix_pieces(const graph::Attrs& attrs) {
  std::vector<MatrixPiece> pieces;
  each_row(attrs.integers("ranges"), 7, [&](const int64_t* n) {
    pieces.push_back({n[0], n[1], n[2], n[3], n[4], n[5], n[6]});
  });
  return pieces;
}

graph::Attrs to_attributes(const PieceExchange& e) {
  std::vector<int64_t> shares;
  for (const PieceExchange::Share& s : e.shares) shares.insert(shares.end(), {s.holder, s.owner, s.count});
  return {{"back", int64_t{e.back}}, {"holders", e.holders}, {"shares", std::move(shares)}};
}

PieceExchange piece_exchange(const graph::Attrs& attrs) {
  PieceExchange e{.holders = attrs.integer("holders"), .back = attrs.integer("back") != 0, .shares = {}};
  each_row(attrs.integers("shares"), 3, [&](const int64_t* n) { e.shares.push_back({n[0], n[1], n[2]}); });
  return e;
}

PieceExchange::Side PieceExchange::as_holder(int64_t position, int64_t members) const {
  Side side{.offsets = std::vector<int64_t>(static_cast<size_t>(members), 0),
            .counts = std::vector<int64_t>(static_cast<size_t>(members), 0)};
  for (const Share& s : shares) {
    if (s.holder != position % holders || (!back && s.owner / holders != position / holders)) continue;
    side.offsets[static_cast<size_t>(s.owner)] = side.total;
    side.counts[static_cast<size_t>(s.owner)] = s.count;
    side.total += s.count;
  }
  return side;
}

PieceExchange::Side PieceExchange::as_owner(int64_t position, int64_t members) const {
  Side side{.offsets = std::vector<int64_t>(static_cast<size_t>(members), 0),
            .counts = std::vector<int64_t>(static_cast<size_t>(members), 0)};
  for (const Share& s : shares) {
    if (s.owner != position) continue;
    const int64_t run = position / holders * holders;
    const int64_t begin = back ? s.holder : run + s.holder, end = back ? members : begin + 1;
    for (int64_t m = begin; m < end; m += holders) {
      side.offsets[static_cast<size_t>(m)] = side.total;
      side.counts[static_cast<size_t>(m)] = s.count;
    }
    side.total += s.count;
  }
  return side;
}

bool deals_unevenly(const Program& program) {
  const auto shares_differ = [](const PieceExchange& exchange, int64_t members) {
    std::vector<int64_t> owned(static_cast<size_t>(members)), held(static_cast<size_t>(exchange.holders));
    for (const PieceExchange::Share& s : exchange.shares) {
      owned[static_cast<size_t>(s.owner)] += s.count;
      held[static_cast<size_t>(s.holder)] += s.count;
    }
    const auto differ = [](const std::vector<int64_t>& list) {
      return std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) != list.end();
    };
    return differ(owned) || differ(held);
  };
  // Where all owners have the same number of elements, one that has the most matrices of every shape has what
  // all the others have.
  const auto has_fewer = [](const Instr& i) {
    std::set<int64_t> slots;
    for (const MatrixPiece& p : matrix_pieces(i.attrs)) slots.insert(p.slot);
    return static_cast<int64_t>(slots.size()) < i.attrs.integer("matrices");
  };
  for (const Body& body : program.bodies)
    for (const Instr& i : body.instrs) {
      if (i.kind == InstrKind::Compute && i.op == &graph::kNewtonSchulz && has_fewer(i)) return true;
      if (i.kind != InstrKind::Collective || i.collective.kind != CollectiveKind::Exchange) continue;
      const auto members = static_cast<int64_t>(program.comms[i.collective.comm.index()].members.size());
      if (shares_differ(piece_exchange(i.attrs), members)) return true;
    }
  return false;
}

PieceExchange::Side PieceExchange::sent(int64_t position, int64_t members) const {
  return back ? as_owner(position, members) : as_holder(position, members);
}
PieceExchange::Side PieceExchange::received(int64_t position, int64_t members) const {
  return back ? as_holder(position, members) : as_owner(position, members);
}

}  // namespace quintet::program
