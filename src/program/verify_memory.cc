// Lifetimes, first writes and races, in one walk over the issues. The arena is split at every boundary of
// every view into pieces, so that a view is a run of pieces and all bytes of a piece share one history.
#include <algorithm>
#include <map>
#include <optional>

#include "layout/groups.h"
#include "program/verify_internal.h"

namespace quintet::program::verifier {
namespace {

// The order of rows and the origin of counts in an exchange between tokens and experts. Rows arrive in the
// order of their senders and must be regrouped before anything else reads them, and again before they are
// returned; both by the counts of their exchange.
struct Order {
  enum class Kind : uint8_t {
    Plain,
    BySender,    // rows as they arrived
    ForSenders,  // rows ready to be returned
    Received,    // counts of incoming rows
    Sent,        // operands only: counts that were not received
    Gathered,    // counts of all members
    Passes,      // how many passes they need
  } kind = Kind::Plain;
  BufferId counts;  // BySender, ForSenders
  friend bool operator==(const Order&, const Order&) = default;
};

struct Access {
  int first, last;  // pieces
  BufferId buffer;
  enum class Kind : uint8_t { Read, Write, Scratch } kind;  // nobody reads a scratch write
  bool flat;  // a range of a group buffer: padding between parameters may be unwritten
  graph::DType dtype;
  bool overwritten;  // never added to: token rows, and results in OpDef::overwritten
  Order order;
};

struct Piece {
  BufferId owner;                     // the buffer through which these bytes were last written
  std::optional<graph::DType> dtype;  // as written; none: before this program
  int generation = 0;                 // of that buffer
  int writer_stream = -1, writer_position = -1;
  Order order;
};

class MemoryWalk {
 public:
  MemoryWalk(const Program& p, const Expanded& e) : p_(p), e_(e), streams_(p.streams.size()) {
    find_cuts();
    find_accesses();
    pieces_.resize(cuts_.size());
    readers_.assign(cuts_.size() * streams_, -1);
    state_.resize(p.buffers.size());
    clocks_.resize(streams_);
    issue_at_.resize(streams_);
    clock_.resize(streams_);
    place_persistent();
    forget_step_values();
  }

  void run() {
    for (size_t k = 0; k < e_.issues.size(); ++k) {
      const Issue& issue = e_.issues[k];
      const Instr& instr = instr_of(p_, issue);
      const size_t s = instr.stream.index();
      advance_clock(issue, s);
      issue_at_[s].push_back(static_cast<int>(k));
      if (instr.kind == InstrKind::Free)
        free(issue, instr.frees);
      else
        access(issue, instr, s);
      if (k + 1 == e_.issues.size() || e_.issues[k + 1].call != issue.call) end_call(issue);
    }
  }

 private:
  struct State {
    bool live = false;
    int generation = 0;
    int call = -1, micro = -1;     // where it became live
    int freed_in = -1;             // call
    const Issue* issue = nullptr;  // the one that made it live
  };

  int64_t begin_of(const Operand& o) const { return p_.buffer(o.buffer).offset + o.offset_bytes; }
  int piece_at(int64_t byte) const {
    return static_cast<int>(std::lower_bound(cuts_.begin(), cuts_.end(), byte) - cuts_.begin());
  }

  static bool is_flat(const Operand& o) {
    return o.type.num_dims() == 1 && o.type.dims[0].name == graph::Dim::Flat;
  }

  static bool overwrites(const Instr& instr, int result) {
    const graph::Type& type = instr.out[static_cast<size_t>(result)].type;
    if (type.num_dims() > 0 && type.dims[0].name == graph::Dim::Tokens) return true;
    return instr.op && std::find(instr.op->overwritten.begin(), instr.op->overwritten.end(), result) !=
                           instr.op->overwritten.end();
  }

  static bool exchanges_rows(const Instr& instr) {
    return instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::AllToAllV &&
           instr.in.size() == 3;
  }

  static bool holds_counts(const graph::Type& t) {
    return t.num_dims() == 1 && t.dims[0].name == graph::Dim::Counts;
  }

  // The order in which an instruction needs its operands, and leaves its results.
  static Order needed_order(const Instr& instr, size_t operand) {
    if (exchanges_rows(instr)) {
      if (operand > 0 && instr.attrs.integer("pad") > 0) return {};  // all counts are equal
      if (operand == 1) return {Order::Kind::Sent, {}};
      if (operand == 2) return {Order::Kind::Received, {}};
      if (instr.attrs.integer("back")) return {Order::Kind::ForSenders, instr.in[2].buffer};
    }
    if (instr.op == &graph::kRegroup && operand == 0 && !instr.attrs.integer("inverse"))
      return {Order::Kind::BySender, instr.in[1].buffer};
    if (instr.op == &graph::kSplitRows && operand == 1) return {Order::Kind::Gathered, {}};
    if (instr.kind == InstrKind::Repeat) return {Order::Kind::Passes, {}};
    return {};
  }
  static Order made_order(const Instr& instr, size_t result) {
    if (instr.op == &graph::kSplitRows && result == 2) return {Order::Kind::Received, {}};
    if (instr.op == &graph::kSplitRows && result == 3) return {Order::Kind::Passes, {}};
    if (instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::AllGather &&
        holds_counts(instr.out[0].type))
      return {Order::Kind::Gathered, {}};
    if (exchanges_rows(instr) && !instr.attrs.integer("back"))
      return {Order::Kind::BySender, instr.in[2].buffer};
    if (instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::AllToAllV &&
        instr.in.size() == 1)
      return {Order::Kind::Received, {}};
    if (instr.op == &graph::kRegroup && instr.attrs.integer("inverse"))
      return {Order::Kind::ForSenders, instr.in[1].buffer};
    return {};
  }
  static bool fits(const Order& has, const Order& needed) {
    if (needed.kind == Order::Kind::Plain)
      return has.kind != Order::Kind::BySender && has.kind != Order::Kind::ForSenders;
    if (needed.kind == Order::Kind::Sent) return has.kind == Order::Kind::Plain;
    return has == needed;
  }
  std::string describe(const Order& order) const {
    static constexpr const char* kNames[] = {
        "plain",       "rows by sender",        "rows for their senders", "received counts",
        "sent counts", "counts of all members", "a number of passes"};
    const std::string by = order.counts.valid() ? " by " + p_.buffer(order.counts).name : "";
    return kNames[static_cast<size_t>(order.kind)] + by;
  }

  void find_cuts() {
    element_bytes_.assign(p_.buffers.size(), 0);
    std::vector<char> whole(p_.buffers.size(), 0);  // split already at both ends
    for (const Body& body : p_.bodies)
      for (const Instr& instr : body.instrs) {
        for (const auto* list : {&instr.in, &instr.out})
          for (const Operand& o : *list) {
            element_bytes_[o.buffer.index()] = base::size_of(o.type.dtype);
            const int64_t bytes = o.bytes();
            if (o.offset_bytes == 0 && bytes == p_.buffer(o.buffer).bytes) {
              if (whole[o.buffer.index()]) continue;
              whole[o.buffer.index()] = 1;
            }
            cuts_.push_back(begin_of(o));
            cuts_.push_back(begin_of(o) + bytes);
          }
        if (instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::ReduceScatter &&
            is_flat(instr.in[0]))
          shards_ =
              std::max(shards_, static_cast<int>(p_.comms[instr.collective.comm.index()].members.size()));
        if (instr.workspace_bytes > 0)
          cuts_.push_back(p_.buffer(p_.workspace).offset + instr.workspace_bytes);
      }
    // Replicas that share a shard's optimizer state split it once more.
    for (const GroupSlot& s : p_.slots)
      if (holds_gradients(s) && s.count > 0)
        shards_ = std::max(shards_,
                           static_cast<int>(p_.buffer(s.buffer).bytes / (s.count * base::size_of(s.dtype))));
    for (const Buffer& b : p_.buffers)
      if (b.scope == Scope::Persistent) {
        cuts_.push_back(b.offset);
        cuts_.push_back(b.offset + b.bytes);
      }
    for (const GroupSlot& s : p_.slots)
      for (const int64_t byte : own_range(s)) cuts_.push_back(byte);
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }

  void find_accesses() {
    for (const Body& body : p_.bodies) {
      auto& starts = starts_.emplace_back();
      for (const Instr& instr : body.instrs) {
        starts.push_back(accesses_.size());
        const auto add = [&](const Operand& o, Access::Kind kind, bool overwritten, Order order) {
          const int64_t bytes = o.bytes();
          if (bytes == 0) return;
          const int64_t begin = begin_of(o);
          accesses_.push_back({piece_at(begin), piece_at(begin + bytes), o.buffer, kind, is_flat(o),
                               o.type.dtype, overwritten, order});
        };
        // Zeroing what it does not keep reads nothing.
        const bool clears = instr.op == &graph::kZeroUnlessFirst && instr.attrs.find("keep") != nullptr &&
                            instr.attrs.integer("keep") == 0;
        for (size_t i = 0; i < instr.in.size() && !clears; ++i)
          add(instr.in[i], Access::Kind::Read, false, needed_order(instr, i));
        for (size_t i = 0; i < instr.out.size(); ++i)
          add(instr.out[i], Access::Kind::Write, overwrites(instr, static_cast<int>(i)),
              made_order(instr, i));
        if (instr.workspace_bytes > 0) {
          const int64_t begin = p_.buffer(p_.workspace).offset;
          accesses_.push_back({piece_at(begin),
                               piece_at(begin + instr.workspace_bytes),
                               p_.workspace,
                               Access::Kind::Scratch,
                               false,
                               graph::DType::U8,
                               false,
                               {}});
        }
      }
      starts.push_back(accesses_.size());
    }
  }

  // Persistent buffers are live from the start and hold what earlier steps, or the host, left there.
  void place_persistent() {
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& b = p_.buffers[i];
      if (b.scope != Scope::Persistent || b.bytes == 0) continue;
      const BufferId id(static_cast<int32_t>(i));
      state_[i].live = true;
      occupy(id, fmt::format("rank {}", p_.rank));
      set_owner(b.offset, b.offset + b.bytes, id);
    }
  }

  // Inputs arrive with each batch and gradients restart in each step; of parameters that are gathered in
  // place only the rank's own range is up to date.
  void forget_step_values() {
    const auto forget = [&](BufferId id) {
      const Buffer& b = p_.buffer(id);
      set_owner(b.offset, b.offset + b.bytes, BufferId());
    };
    for (const InputPlace& input : p_.inputs) forget(input.buffer);
    for (size_t i = 0; i < p_.buffers.size(); ++i)
      if (p_.buffers[i].scope == Scope::Persistent && p_.buffers[i].memory_class == MemoryClass::Gradients)
        forget(BufferId(static_cast<int32_t>(i)));
    for (const GroupSlot& s : p_.slots)
      if (const std::vector<int64_t> own = own_range(s); !own.empty()) {
        forget(s.buffer);
        set_owner(own[0], own[1], s.buffer);
      }
  }

  // Bytes of the rank's own range in a parameter buffer that holds more than that; empty when it holds no
  // more.
  std::vector<int64_t> own_range(const GroupSlot& s) const {
    if (s.role != graph::Role::Weight || element_bytes_[s.buffer.index()] == 0) return {};
    const Buffer& b = p_.buffer(s.buffer);
    const int64_t bytes = s.count * base::size_of(s.dtype);
    if (bytes == b.bytes) return {};
    return {b.offset + s.offset_bytes, b.offset + s.offset_bytes + bytes};
  }

  void set_owner(int64_t begin, int64_t end, BufferId id) {
    for (int k = piece_at(begin), last = piece_at(end); k < last; ++k) {
      pieces_[static_cast<size_t>(k)].owner = id;
      pieces_[static_cast<size_t>(k)].generation = 0;
    }
  }

  // After this, clock_[t] is the last position of stream t that is complete before the issue starts.
  void advance_clock(const Issue& issue, size_t s) {
    std::vector<int>& history = clocks_[s];
    if (history.empty())
      std::fill(clock_.begin(), clock_.end(), -1);
    else
      std::copy(history.end() - static_cast<ptrdiff_t>(streams_), history.end(), clock_.begin());
    for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
      const Wait& wait = e_.waits[static_cast<size_t>(w)];
      const int* then = &clocks_[wait.stream.index()][static_cast<size_t>(wait.position) * streams_];
      for (size_t t = 0; t < streams_; ++t) clock_[t] = std::max(clock_[t], then[t]);
    }
    history.insert(history.end(), clock_.begin(), clock_.end());
    history[history.size() - streams_ + s] = issue.position;
  }

  void access(const Issue& issue, const Instr& instr, size_t s) {
    const Call& call = e_.calls[static_cast<size_t>(issue.call)];
    const bool adds = accumulates(instr, call);
    const auto& starts = starts_[static_cast<size_t>(issue.body)];
    const size_t end = starts[static_cast<size_t>(issue.instr) + 1];
    for (size_t i = starts[static_cast<size_t>(issue.instr)]; i < end; ++i) {
      const Access& a = accesses_[i];
      touch(issue, call, a.buffer);
      if (a.kind == Access::Kind::Read || (a.kind == Access::Kind::Write && adds && !a.overwritten))
        check_written(issue, a);
      if (a.kind == Access::Kind::Read)
        read(issue, a, s);
      else
        write(issue, a, s);
    }
  }

  void read(const Issue& issue, const Access& a, size_t s) {
    for (int k = a.first; k < a.last; ++k) {
      const Piece& piece = pieces_[static_cast<size_t>(k)];
      if (piece.writer_stream >= 0 && piece.writer_position > seen(piece.writer_stream, s, issue))
        fail_race(issue, a, k, piece.writer_stream, piece.writer_position);
      readers_[static_cast<size_t>(k) * streams_ + s] = issue.position;
    }
  }

  // Only the last write and the reads since then need comparing: earlier accesses were compared with that
  // write, and happens-before is transitive.
  void write(const Issue& issue, const Access& a, size_t s) {
    const int generation = state_[a.buffer.index()].generation;
    for (int k = a.first; k < a.last; ++k) {
      Piece& piece = pieces_[static_cast<size_t>(k)];
      if (piece.writer_stream >= 0 && piece.writer_position > seen(piece.writer_stream, s, issue))
        fail_race(issue, a, k, piece.writer_stream, piece.writer_position);
      int* readers = &readers_[static_cast<size_t>(k) * streams_];
      for (size_t t = 0; t < streams_; ++t) {
        if (readers[t] > seen(static_cast<int>(t), s, issue))
          fail_race(issue, a, k, static_cast<int>(t), readers[t]);
        readers[t] = -1;
      }
      piece.writer_stream = static_cast<int>(s);
      piece.writer_position = issue.position;
      piece.owner = a.kind == Access::Kind::Scratch ? BufferId() : a.buffer;
      piece.generation = generation;
      piece.dtype = a.dtype;
      piece.order = a.order;
    }
  }

  // The last position of stream t that happens before this issue of stream s, its own operands included.
  int seen(int t, size_t s, const Issue& issue) const {
    return static_cast<size_t>(t) == s ? issue.position : clock_[static_cast<size_t>(t)];
  }

  void check_written(const Issue& issue, const Access& a) const {
    const int generation = state_[a.buffer.index()].generation;
    const auto written = [&](int k) {
      const Piece& piece = pieces_[static_cast<size_t>(k)];
      return piece.owner == a.buffer && piece.generation == generation;
    };
    for (int k = a.first; k < a.last; ++k) {
      if (written(k)) {
        const std::optional<graph::DType> dtype = pieces_[static_cast<size_t>(k)].dtype;
        if (dtype && *dtype != a.dtype)
          fail(name_of(p_, issue), "{} is read as {}, but was written as {}", p_.buffer(a.buffer).name,
               base::to_string(a.dtype), base::to_string(*dtype));
        if (const Order& has = pieces_[static_cast<size_t>(k)].order;
            a.kind == Access::Kind::Read && !fits(has, a.order))
          fail(name_of(p_, issue), "reads {} as {}, but it holds {}", p_.buffer(a.buffer).name,
               describe(a.order), describe(has));
        continue;
      }
      int end = k + 1;
      while (end < a.last && !written(end)) ++end;
      if (!is_padding(a, cuts_[static_cast<size_t>(k)], cuts_[static_cast<size_t>(end)]))
        fail_unwritten(issue, a, k, end);
      k = end;
    }
  }

  // Group buffers have padding after a parameter, up to a multiple of kSegmentAlign elements or of the blocks
  // of a group's states, and at the end, up to equal ranges for all shards. It is never written in a
  // gradient, and no result depends on it.
  bool is_padding(const Access& a, int64_t begin, int64_t end) const {
    const Buffer& b = p_.buffer(a.buffer);
    if (!a.flat || b.memory_class != MemoryClass::Gradients) return false;
    int64_t block = layout::kSegmentAlign;
    for (const GroupSlot& s : p_.slots) block = std::max(block, s.block);
    for (const int64_t align : {layout::kSegmentAlign, block}) {
      const int64_t unit = align * base::size_of(a.dtype);
      if (end == b.offset + b.bytes ? begin > b.offset && end - begin < unit * shards_
                                    : (end - b.offset) % unit == 0 && end - begin < unit)
        return true;
    }
    return false;
  }

  void touch(const Issue& issue, const Call& call, BufferId id) {
    const Buffer& b = p_.buffer(id);
    if (b.scope == Scope::Persistent) return;
    State& st = state_[id.index()];
    if (st.live) {
      if (b.scope == Scope::Micro && st.micro != call.micro)
        fail(name_of(p_, issue), "{} still holds data of micro-batch {}", b.name, st.micro);
      return;
    }
    if (st.freed_in == issue.call) fail(name_of(p_, issue), "{} is used after it was freed", b.name);
    st.live = true;
    ++st.generation;
    st.call = issue.call;
    st.micro = call.micro;
    st.issue = &issue;
    count_live(b, 1);
    occupy(id, name_of_lazily(issue));
  }

  struct LazyName {
    const Program& p;
    const Issue& issue;
    operator std::string() const { return name_of(p, issue); }
  };
  LazyName name_of_lazily(const Issue& issue) const { return {p_, issue}; }

  template <class Where>
  void occupy(BufferId id, const Where& where) {
    const Buffer& b = p_.buffer(id);
    if (b.bytes == 0) return;
    const auto next = occupied_.lower_bound(b.offset);
    const auto clash = [&](BufferId other) {
      const Buffer& o = p_.buffer(other);
      fail(std::string(where), "{} at bytes {} to {} overlaps {} at {} to {}, which is live", b.name,
           b.offset, b.offset + b.bytes, o.name, o.offset, o.offset + o.bytes);
    };
    if (next != occupied_.end() && next->first < b.offset + b.bytes) clash(next->second);
    if (next != occupied_.begin())
      if (const BufferId before = std::prev(next)->second;
          p_.buffer(before).offset + p_.buffer(before).bytes > b.offset)
        clash(before);
    occupied_.emplace_hint(next, b.offset, id);
  }

  void free(const Issue& issue, BufferId id) {
    State& st = state_[id.index()];
    const Buffer& b = p_.buffer(id);
    if (!st.live) {
      if (st.freed_in == issue.call) fail(name_of(p_, issue), "{} is freed twice", b.name);
      fail(name_of(p_, issue), "{} is freed in a call that does not use it", b.name);
    }
    st.live = false;
    st.freed_in = issue.call;
    count_live(b, -1);
    if (b.bytes > 0) occupied_.erase(b.offset);
  }

  void count_live(const Buffer& b, int64_t change) {
    if (b.scope == Scope::Micro) live_micro_ += change;
    if (b.scope == Scope::Body) live_body_ += change;
  }

  // Nothing outlives its scope: a call for Body buffers, its micro-batch for Micro buffers.
  void end_call(const Issue& last) const {
    const BodyKind kind = p_.bodies[static_cast<size_t>(last.body)].kind;
    const bool micro_ends = last_call_of_micro(last.call);
    if (live_body_ == 0 && (live_micro_ == 0 || !micro_ends)) return;
    const int micro = e_.calls[static_cast<size_t>(last.call)].micro;
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& b = p_.buffers[i];
      if (!state_[i].live || b.scope == Scope::Persistent || b.scope == Scope::Step) continue;
      if (b.scope == Scope::Micro && (!micro_ends || state_[i].micro != micro)) continue;
      fail(fmt::format("rank {}, end of {} (call {})", p_.rank, to_string(kind), last.call),
           "{} is not freed; it was first used by {}", b.name, name_of(p_, *state_[i].issue));
    }
  }

  bool last_call_of_micro(int call) const {
    const int micro = e_.calls[static_cast<size_t>(call)].micro;
    for (size_t c = static_cast<size_t>(call) + 1; c < e_.calls.size(); ++c)
      if (e_.calls[c].micro == micro) return false;
    return true;
  }

  [[noreturn]] void fail_race(const Issue& issue, const Access& a, int piece, int stream,
                              int position) const {
    const int other = issue_at_[static_cast<size_t>(stream)][static_cast<size_t>(position)];
    fail(name_of(p_, issue), "race on bytes {} to {} of {}: nothing orders it after {}",
         cuts_[static_cast<size_t>(piece)], cuts_[static_cast<size_t>(piece) + 1], p_.buffer(a.buffer).name,
         name_of(p_, e_.issues[static_cast<size_t>(other)]));
  }

  [[noreturn]] void fail_unwritten(const Issue& issue, const Access& a, int first, int end) const {
    const Buffer& b = p_.buffer(a.buffer);
    const BufferId owner = pieces_[static_cast<size_t>(first)].owner;
    const std::string by = owner.valid() && owner != a.buffer
                               ? fmt::format("; {} was written there", p_.buffer(owner).name)
                               : std::string();
    fail(name_of(p_, issue), "{} is read at bytes {} to {} before it is written{}", b.name,
         cuts_[static_cast<size_t>(first)] - b.offset, cuts_[static_cast<size_t>(end)] - b.offset, by);
  }

  const Program& p_;
  const Expanded& e_;
  const size_t streams_;
  std::vector<int64_t> cuts_;           // piece k is bytes cuts_[k] to cuts_[k + 1]
  std::vector<int64_t> element_bytes_;  // by buffer, as its views have it; 0: never used
  std::vector<Access> accesses_;
  std::vector<std::vector<size_t>> starts_;  // by body and instruction: into accesses_
  std::vector<Piece> pieces_;
  std::vector<int> readers_;                // by piece and stream: last read since the last write
  std::vector<State> state_;                // by buffer
  std::map<int64_t, BufferId> occupied_;    // live buffers by offset
  std::vector<std::vector<int>> clocks_;    // by stream and position: what is complete once it is
  std::vector<std::vector<int>> issue_at_;  // by stream and position
  std::vector<int> clock_;                  // of the current issue, at its start
  int shards_ = 1;                          // into which group buffers are split
  int64_t live_micro_ = 0, live_body_ = 0;
};

}  // namespace

void check_memory(const Program& p, const Expanded& e) { MemoryWalk(p, e).run(); }

}  // namespace quintet::program::verifier
