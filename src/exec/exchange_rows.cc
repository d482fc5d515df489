#include "exec/exchange_rows.h"

#include <span>

namespace quintet::exec {

RowExchange plan_rows(const Operands& b, int group, const RowCounts& counts) {
  const graph::Attrs& attrs = b.instr->attrs;
  const int64_t experts = attrs.integer("experts"), copies = attrs.integer("copies");
  const size_t members = static_cast<size_t>(group);
  RowExchange rows;
  rows.plan.resize(4 * members);
  const auto part = [&](size_t i) { return std::span<int64_t>(rows.plan).subspan(i * members, members); };
  const auto out_at = part(0), out_count = part(1), in_at = part(2), in_count = part(3);
  rows.exchange = {.send = b.in[0],
                   .send_offsets = out_at,
                   .send_counts = out_count,
                   .recv = b.out[0],
                   .recv_offsets = in_at,
                   .recv_counts = in_count};
  if (b.in.size() == 1) {
    for (size_t m = 0; m < members; ++m) {
      out_at[m] = static_cast<int64_t>(m) / copies * experts;
      in_at[m] = static_cast<int64_t>(m) * experts;
      out_count[m] = in_count[m] = experts;
    }
    rows.dtype = b.instr->collective.dtype;
    return rows;
  }
  const graph::Type& type = b.in_type(0);
  rows.dtype = type.dtype;
  const int64_t width = type.size(0) == 0 ? 0 : type.count() / type.size(0);
  const int64_t slots = (attrs.integer("back") ? b.out_type(0).size(0) / copies : type.size(0)) * width;
  const int64_t pad = attrs.integer("pad");
  const auto count_of = [&](const int32_t* list, int64_t i) { return pad > 0 ? pad : int64_t{list[i]}; };
  int64_t sent = 0, arrived = 0;
  for (size_t m = 0; m < members; ++m) {
    const int64_t owner = static_cast<int64_t>(m) / copies, copy = static_cast<int64_t>(m) % copies;
    int64_t mine = 0, theirs = 0;
    for (int64_t x = 0; x < experts; ++x) {
      mine += count_of(counts.send, owner * experts + x);
      theirs += count_of(counts.received, static_cast<int64_t>(m) * experts + x);
    }
    out_at[m] = sent * width;
    out_count[m] = mine * width;
    in_at[m] = arrived * width;
    in_count[m] = theirs * width;
    if (copy == copies - 1) sent += mine;  // all copies get the same rows
    arrived += theirs;
  }
  if (!attrs.integer("back")) return rows;
  // Return direction: received rows are sent back, each copy's rows into a separate block.
  for (size_t m = 0; m < members; ++m) out_at[m] += static_cast<int64_t>(m) % copies * slots;
  std::swap(rows.exchange.send_offsets, rows.exchange.recv_offsets);
  std::swap(rows.exchange.send_counts, rows.exchange.recv_counts);
  return rows;
}

void exchange_rows(const Operands& b, comm::Communicator& comm) {
  const bool counted = b.in.size() > 1;
  const RowExchange rows = plan_rows(
      b, comm.size(),
      counted ? RowCounts{.send = b.input<int32_t>(1), .received = b.input<int32_t>(2)} : RowCounts{});
  const comm::Exchange& e = rows.exchange;
  comm.all_to_all_v(e.send, e.send_offsets, e.send_counts, e.recv, e.recv_offsets, e.recv_counts, rows.dtype);
}

}  // namespace quintet::exec
