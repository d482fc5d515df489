#include "comm/call_order.h"

#include "comm/hash.h"

namespace quintet::comm {

void CallOrder::add(const Call& call, int rank, int size) {
  const bool message = call.kind == CallKind::Send || call.kind == CallKind::Recv;
  if (message && size != 2) return;
  ++calls_;
  uint64_t what = 0;
  for (const uint64_t field :
       {static_cast<uint64_t>(message ? CallKind::Send : call.kind), static_cast<uint64_t>(call.dtype),
        static_cast<uint64_t>(call.op), message ? 0 : static_cast<uint64_t>(call.peer + 1),
        static_cast<uint64_t>(call.count)})
    what = mixed(what, field);
  uint64_t& order = message ? messages_[call.kind == CallKind::Send ? rank : call.peer] : all_;
  order = mixed(order, what);
}

uint64_t CallOrder::hash() const { return mixed(mixed(mixed(0, all_), messages_[0]), messages_[1]); }

}  // namespace quintet::comm
