#include "exec/exchange_rows.h"

#include <span>
#include <vector>

namespace quintet::exec {

void exchange_rows(const Operands& b, comm::Communicator& comm) {
  const graph::Attrs& attrs = b.instr->attrs;
  const int64_t experts = attrs.integer("experts"), copies = attrs.integer("copies");
  const size_t members = static_cast<size_t>(comm.size());
  std::vector<int64_t> plan(4 * members);
  const auto part = [&](size_t i) { return std::span<int64_t>(plan).subspan(i * members, members); };
  const auto out_at = part(0), out_count = part(1), in_at = part(2), in_count = part(3);
  if (b.in.size() == 1) {  // the counts themselves
    for (size_t m = 0; m < members; ++m) {
      out_at[m] = static_cast<int64_t>(m) / copies * experts;
      in_at[m] = static_cast<int64_t>(m) * experts;
      out_count[m] = in_count[m] = experts;
    }
    return comm.all_to_all_v(b.in[0], out_at, out_count, b.out[0], in_at, in_count,
                             b.instr->collective.dtype);
  }
  const graph::Type& type = b.in_type(0);
  const int64_t width = type.size(0) == 0 ? 0 : type.count() / type.size(0);
  const int32_t *send = b.input<int32_t>(1), *received = b.input<int32_t>(2);
  const int64_t slots = (attrs.integer("back") ? b.out_type(0).size(0) / copies : type.size(0)) * width;
  int64_t sent = 0, arrived = 0;
  for (size_t m = 0; m < members; ++m) {
    const int64_t owner = static_cast<int64_t>(m) / copies, copy = static_cast<int64_t>(m) % copies;
    int64_t mine = 0, theirs = 0;
    for (int64_t x = 0; x < experts; ++x) {
      mine += send[owner * experts + x];
      theirs += received[static_cast<int64_t>(m) * experts + x];
    }
    out_at[m] = sent * width;
    out_count[m] = mine * width;
    in_at[m] = arrived * width;
    in_count[m] = theirs * width;
    if (copy == copies - 1) sent += mine;  // all copies get the same rows
    arrived += theirs;
  }
  if (!attrs.integer("back"))
    return comm.all_to_all_v(b.in[0], out_at, out_count, b.out[0], in_at, in_count, type.dtype);
  // Back: each copy's rows into a block of their own.
  for (size_t m = 0; m < members; ++m) out_at[m] += static_cast<int64_t>(m) % copies * slots;
  comm.all_to_all_v(b.in[0], in_at, in_count, b.out[0], out_at, out_count, type.dtype);
}

}  // namespace quintet::exec
