// Matrices that are orthogonalized whole (layout/flat_step.h): pieces of their directions are sent to the
// owners, and those of the results are returned.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "program/lowering.h"
#include "program/matrix_pieces.h"

namespace quintet::program {

using layout::AtomList;
using layout::MatrixWindow;
using layout::OwnedMatrix;

namespace {

// One window on this rank.
class Window {
 public:
  Window(Emitter& e, const GroupLowering& groups, const MatrixUpdate& update, const MatrixWindow& window,
         int number)
      : e_(e),
        groups_(groups),
        update_(update),
        w_(window),
        atoms_(layout::concat(window.copies, window.pieces)),
        members_(e.mesh().group(e.rank(), atoms_)),
        position_(e.mesh().index(e.rank(), atoms_)),
        holders_(e.mesh().size(window.pieces)),
        name_(fmt::format("matrices{}", number)) {
    by_owner_.resize(members_.size());
    for (size_t i = 0; i < w_.matrices.size(); ++i)
      by_owner_[static_cast<size_t>(w_.matrices[i].owner)].push_back(i);
    plan_exchange();
  }

  bool is_exchanged() const { return members_.size() > 1; }

  // Directions to their owners.
  void open() {
    const BufferId packed = add_buffer(is_exchanged() ? "sent" : "pieces", packed_);
    Instr gather{.op = &graph::kGatherDirections,
                 .attrs = {{"momentum", update_.attrs.real("momentum")},
                           {"nesterov", update_.attrs.integer("nesterov")},
                           {"ranges", to_attribute(flat_pieces(/*all_owners=*/false))}},
                 .out = {view(packed, packed_)},
                 .note = "gather " + name_};
    for (const int group : w_.groups) {
      const MatrixUpdate::Group& g = update_.groups.at(group);
      gather.in.insert(gather.in.end(), {g.gradient, g.momentum});
    }
    gather.in.push_back(e_.scalar(scalars::kClipScale));
    e_.emit(std::move(gather));
    owned_ = packed;
    if (!is_exchanged()) return;
    owned_ = add_buffer("owned", received_);
    exchange(view(packed, packed_), view(owned_, received_), /*back=*/false);
  }

  // One instruction for each shape and scale.
  void orthogonalize() {
    std::map<std::tuple<int64_t, int64_t, double>, int64_t> shapes;  // -> matrices of one owner at most
    for (const OwnedMatrix& m : w_.matrices) {
      int64_t& most = shapes[{m.rows, m.columns, m.scale}];
      most = std::max<int64_t>(most, m.slot + 1);
    }
    const std::map<size_t, std::vector<MatrixPiece>> pieces = owned_pieces();
    for (const auto& [shape, matrices] : shapes) {
      const auto& [rows, columns, scale] = shape;
      std::vector<MatrixPiece> own;
      for (const auto& [i, list] : pieces) {
        const OwnedMatrix& m = w_.matrices[i];
        if (m.rows == rows && m.columns == columns && m.scale == scale)
          own.insert(own.end(), list.begin(), list.end());
      }
      const Operand buffer = view(owned_, received_);
      e_.emit({.op = &graph::kNewtonSchulz,
               .attrs = {{"rows", rows},
                         {"columns", columns},
                         {"matrices", matrices},
                         {"scale", scale},
                         {"ranges", to_attribute(own)}},
               .in = {buffer},
               .out = {buffer},
               .note = "orthogonalize " + name_});
    }
  }

  void send_back() {
    returned_buffer_ = owned_;
    if (!is_exchanged()) return;
    returned_buffer_ = add_buffer("returned", returned_);
    exchange(view(owned_, received_), view(returned_buffer_, returned_), /*back=*/true);
  }

  void close() {
    Instr apply{
        .op = &graph::kApplyDirections,
        .attrs = {{"weight_decay", update_.attrs.real("weight_decay")},
                  {"ranges", to_attribute(flat_pieces(/*all_owners=*/true))}},
        .in = {view(returned_buffer_, returned_), e_.scalar(scalars::kLearningRate), e_.scalar(scalars::kOk)},
        .note = "update " + name_};
    if (update_.attrs.find("decay_ramp")) {
      apply.in.push_back(e_.scalar(scalars::kDecayRatio));
      apply.attrs.set("decay_ramp", int64_t{1});
    }
    if (update_.attrs.find("groups")) apply.attrs.set("groups", update_.attrs.reals("groups"));
    for (const int group : w_.groups) {
      const std::vector<Operand>& weights = update_.groups.at(group).weights;
      apply.out.insert(apply.out.end(), weights.begin(), weights.end());
    }
    e_.emit(std::move(apply));
  }

 private:
  // What the holder at a position has of a matrix.
  struct Held {
    int64_t first = 0, count = 0;  // elements of its box, row by row
    int64_t at = 0;                // in its range of the group
    int64_t row = 0, column = 0, width = 0;
  };
  Held held(const OwnedMatrix& m, size_t position) const {
    const layout::Mesh& mesh = e_.mesh();
    const RankId rank = members_[position];
    const int64_t rows = m.rows / mesh.size(m.row_atoms), columns = m.columns / mesh.size(m.column_atoms);
    const auto [first, count] = groups_.range_of(w_.groups[static_cast<size_t>(m.group)], rank);
    const int64_t begin = std::max(m.offset, first), end = std::min(m.offset + rows * columns, first + count);
    return {.first = begin - m.offset,
            .count = std::max<int64_t>(end - begin, 0),
            .at = begin - first,
            .row = mesh.index(rank, m.row_atoms) * rows,
            .column = mesh.index(rank, m.column_atoms) * columns,
            .width = columns};
  }

  void plan_exchange() {
    exchange_.holders = holders_;
    for (int64_t h = 0; h < holders_; ++h)
      for (size_t owner = 0; owner < members_.size(); ++owner) {
        int64_t count = 0;
        for (const size_t i : by_owner_[owner]) count += held(w_.matrices[i], static_cast<size_t>(h)).count;
        if (count > 0) exchange_.shares.push_back({h, static_cast<int64_t>(owner), count});
      }
    // Buffers have the same size on all ranks.
    std::map<std::pair<int64_t, int64_t>, int64_t> packed;  // by holder and run of holders
    std::map<int64_t, int64_t> received, returned;          // by owner, by holder
    for (const PieceExchange::Share& s : exchange_.shares) {
      packed_ = std::max(packed_, packed[{s.holder, s.owner / holders_}] += s.count);
      received_ = std::max(received_, received[s.owner] += s.count);
      returned_ = std::max(returned_, returned[s.holder] += s.count);
    }
  }

  // This rank's pieces by owner, as the exchange has them: of the owners that it sends to, or of all.
  std::vector<FlatPiece> flat_pieces(bool all_owners) const {
    std::vector<FlatPiece> pieces;
    int64_t at = 0;
    for (size_t owner = 0; owner < members_.size(); ++owner) {
      if (!all_owners && static_cast<int64_t>(owner) / holders_ != position_ / holders_) continue;
      for (const size_t i : by_owner_[owner]) {
        const Held h = held(w_.matrices[i], static_cast<size_t>(position_));
        if (h.count == 0) continue;
        pieces.push_back({w_.matrices[i].group, h.at, h.count, at, w_.matrices[i].rates});
        at += h.count;
      }
    }
    return pieces;
  }

  // What this rank owns, by matrix: where the pieces of every holder are.
  std::map<size_t, std::vector<MatrixPiece>> owned_pieces() const {
    std::map<size_t, std::vector<MatrixPiece>> pieces;
    int64_t at = 0;
    for (int64_t h = 0; h < holders_; ++h)
      for (const size_t i : by_owner_[static_cast<size_t>(position_)]) {
        const Held piece = held(w_.matrices[i], static_cast<size_t>(h));
        if (piece.count == 0) continue;
        pieces[i].push_back(
            {at, w_.matrices[i].slot, piece.row, piece.column, piece.width, piece.first, piece.count});
        at += piece.count;
      }
    return pieces;
  }

  void exchange(const Operand& in, const Operand& out, bool back) {
    PieceExchange plan = exchange_;
    plan.back = back;
    Instr instr{.kind = InstrKind::Collective,
                .attrs = to_attributes(plan),
                .in = {in},
                .out = {out},
                .note = fmt::format("{} {} owners", name_, back ? "from" : "to")};
    instr.collective = {CollectiveKind::Exchange, e_.comm(atoms_, Traffic::State), out.type.count(), w_.dtype,
                        graph::Reduction::Sum};
    instr.stream = e_.stream_of(atoms_, Traffic::State);
    e_.emit(std::move(instr));
  }

  BufferId add_buffer(const char* what, int64_t count) {
    return e_.add_buffer(fmt::format("{}.{}", name_, what), count * base::size_of(w_.dtype),
                         MemoryClass::Communication, Scope::Body);
  }
  Operand view(BufferId buffer, int64_t count) const { return flat_view(buffer, 0, count, w_.dtype); }

  Emitter& e_;
  const GroupLowering& groups_;
  const MatrixUpdate& update_;
  const MatrixWindow& w_;
  const AtomList atoms_;
  const std::vector<RankId> members_;
  const int64_t position_, holders_;
  const std::string name_;
  std::vector<std::vector<size_t>> by_owner_;
  PieceExchange exchange_;
  int64_t packed_ = 0, received_ = 0, returned_ = 0;  // elements
  BufferId owned_, returned_buffer_;
};

}  // namespace

// Exchanges of neighbouring windows overlap Newton-Schulz: a window's pieces are in flight before the
// previous window is computed, and its results are waited for after the next one.
void lower_matrices(Emitter& e, const GroupLowering& groups, const MatrixUpdate& update,
                    const std::vector<MatrixWindow>& list) {
  std::vector<Window> windows;
  for (size_t i = 0; i < list.size(); ++i)
    windows.emplace_back(e, groups, update, list[i], static_cast<int>(i));
  Window *opened = nullptr, *returning = nullptr;
  const auto compute = [&](Window* next) {
    if (opened != nullptr) {
      opened->orthogonalize();
      opened->send_back();
    }
    if (returning != nullptr) returning->close();
    returning = std::exchange(opened, next);
  };
  for (Window& w : windows) {
    if (w.is_exchanged()) {
      w.open();
      compute(&w);
      continue;
    }
    w.open();
    w.orthogonalize();
    w.send_back();
    w.close();
  }
  compute(nullptr);
  compute(nullptr);
}

}  // namespace quintet::program
