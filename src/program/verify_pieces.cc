// Pieces of matrices (program/matrix_pieces.h): they lie inside their buffers, matrices are whole, and what
// is exchanged fits.
#include <algorithm>
#include <array>
#include <map>

#include "program/matrix_pieces.h"
#include "program/verify_internal.h"

namespace quintet::program::verifier {
namespace {

void check_whole(const Instr& instr, std::string_view attribute, size_t width, const Where& where) {
  const graph::AttrValue* value = instr.attrs.find(attribute);
  const auto* numbers = value ? std::get_if<std::vector<int64_t>>(value) : nullptr;
  if (!numbers || numbers->size() % width != 0) fail(where, "{} are not whole", attribute);
}

void check_inside(const Program& p, const Where& where, int64_t first, int64_t count, const Operand& o) {
  if (first < 0 || count < 1 || first + count > o.type.count())
    fail(where, "a piece at elements {} to {} of {}, which has {}", first, first + count,
         p.buffer(o.buffer).name, o.type.count());
}

}  // namespace

// Of each group a gather has gradient and momentum, an update one or two results: the group's first stands
// for it.
void check_flat_pieces(const Program& p, const Instr& instr, const Where& where) {
  const bool gathers = instr.op == &graph::kGatherDirections;
  if (instr.in.size() < 3 || instr.out.empty()) fail(where, "has {} operands", instr.in.size());
  const Operand& buffer = gathers ? instr.out[0] : instr.in[0];
  std::vector<Operand> groups(instr.out);
  if (gathers) groups.assign(instr.in.begin(), instr.in.end() - 1);
  size_t each = 2;
  if (!gathers && (groups.size() == 1 || groups[1].type.dtype == groups[0].type.dtype)) each = 1;
  const size_t applied = instr.attrs.find("decay_ramp") != nullptr ? 4 : 3;  // operands
  if (groups.size() % each != 0 || (gathers && instr.out.size() != 1) ||
      (!gathers && instr.in.size() != applied))
    fail(where, "{} operands of groups of {}, and a buffer of pieces", groups.size(), each);
  for (size_t i = 0; i < groups.size(); ++i)
    if (groups[i].type.count() != groups[i / each * each].type.count() ||
        groups[i].type.dtype != groups[i % each].type.dtype)
      fail(where, "{} is {}, which is not like the rest of its group", p.buffer(groups[i].buffer).name,
           graph::to_string(groups[i].type));
  check_whole(instr, "ranges", 5, where);
  std::vector<std::array<int64_t, 3>> written;  // group, begin, end
  for (const FlatPiece& piece : flat_pieces(instr.attrs)) {
    if (piece.operand < 0 || piece.operand >= static_cast<int64_t>(groups.size() / each))
      fail(where, "a piece of group {} of {}", piece.operand, groups.size() / each);
    check_inside(p, where, piece.first, piece.count, groups[static_cast<size_t>(piece.operand) * each]);
    check_inside(p, where, piece.at, piece.count, buffer);
    const int64_t begin = gathers ? piece.at : piece.first;
    written.push_back({gathers ? 0 : piece.operand, begin, begin + piece.count});
  }
  std::sort(written.begin(), written.end());
  for (size_t i = 1; i < written.size(); ++i)
    if (written[i][0] == written[i - 1][0] && written[i][1] < written[i - 1][2])
      fail(where, "two pieces are written at element {}", written[i][1]);
}

void check_matrix_pieces(const Program& p, const Instr& instr, const Where& where) {
  for (const char* attr : {"rows", "columns", "matrices", "scale"})
    if (!instr.attrs.find(attr)) fail(where, "has no attribute {}", attr);
  if (instr.in.size() != 1 || instr.out.size() != 1 || instr.in[0].buffer != instr.out[0].buffer ||
      instr.in[0].offset_bytes != instr.out[0].offset_bytes || instr.in[0].type != instr.out[0].type)
    fail(where, "does not work on one buffer in place");
  const int64_t rows = instr.attrs.integer("rows"), columns = instr.attrs.integer("columns"),
                matrices = instr.attrs.integer("matrices");
  if (rows < 1 || columns < 1 || matrices < 1) fail(where, "{} matrices of {} x {}", matrices, rows, columns);
  check_whole(instr, "ranges", 7, where);
  std::map<int64_t, int64_t> elements;
  for (const MatrixPiece& piece : matrix_pieces(instr.attrs)) {
    check_inside(p, where, piece.at, piece.count, instr.in[0]);
    if (piece.slot < 0 || piece.slot >= matrices)
      fail(where, "a piece of matrix {} of {}", piece.slot, matrices);
    const int64_t last = piece.width < 1 ? rows : piece.row + (piece.first + piece.count - 1) / piece.width;
    if (piece.row < 0 || piece.column < 0 || piece.first < 0 || piece.column + piece.width > columns ||
        last >= rows)
      fail(where, "a piece from ({}, {}) to row {} of matrices of {} x {}", piece.row, piece.column, last,
           rows, columns);
    elements[piece.slot] += piece.count;
  }
  for (const auto& [slot, count] : elements)
    if (count != rows * columns)
      fail(where, "matrix {} has {} of its {} elements", slot, count, rows * columns);
}

void check_exchanged_pieces(const Program& p, const Instr& instr, const Where& where) {
  const Collective& c = instr.collective;
  const Communicator& comm = p.comms[c.comm.index()];
  if (instr.in.size() != 1 || instr.out.size() != 1)
    fail(where, "an exchange has one operand and one result");
  const Operand &in = instr.in[0], &out = instr.out[0];
  const auto name = [&](const Operand& o) { return p.buffer(o.buffer).name; };
  for (const Operand* o : {&in, &out})
    if (o->type.dtype != c.dtype)
      fail(where, "{} is {}, the message {}", name(*o), base::to_string(o->type.dtype),
           base::to_string(c.dtype));
  const auto begin = [&](const Operand& o) { return p.buffer(o.buffer).offset + o.offset_bytes; };
  if (std::max(begin(in), begin(out)) < std::min(begin(in) + in.bytes(), begin(out) + out.bytes()))
    fail(where, "{} overlaps the result", name(in));
  for (const char* attr : {"back", "holders"})
    if (!instr.attrs.find(attr)) fail(where, "has no attribute {}", attr);
  check_whole(instr, "shares", 3, where);
  const PieceExchange e = piece_exchange(instr.attrs);
  const int64_t members = static_cast<int64_t>(comm.members.size());
  if (e.holders < 1 || members % e.holders != 0) fail(where, "{} holders among {} ranks", e.holders, members);
  for (size_t i = 0; i < e.shares.size(); ++i) {
    const PieceExchange::Share& s = e.shares[i];
    if (s.holder < 0 || s.holder >= e.holders || s.owner < 0 || s.owner >= members || s.count < 1)
      fail(where, "{} elements of holder {} of {} for owner {} of {}", s.count, s.holder, e.holders, s.owner,
           members);
    if (i > 0 && std::pair(s.holder, s.owner) <= std::pair(e.shares[i - 1].holder, e.shares[i - 1].owner))
      fail(where, "shares are not sorted by holder and owner");
  }
  const int64_t sent = e.sent(comm.position, members).total,
                received = e.received(comm.position, members).total;
  if (sent > in.type.count())
    fail(where, "sends {} elements of {}, which has {}", sent, name(in), in.type.count());
  if (received > out.type.count() || out.type.count() != c.count)
    fail(where, "receives {} elements; {} has room for {}, the message for {}", received, name(out),
         out.type.count(), c.count);
}

}  // namespace quintet::program::verifier
