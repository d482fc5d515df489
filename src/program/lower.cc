#include "program/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
#include "graph/fuse_adds.h"
#include "graph/words.h"
#include "program/lowering.h"

namespace quintet::program {

using graph::Dim;
using graph::InputKind;
using graph::Node;
using graph::NodeId;
using graph::OpDef;
using graph::Phase;
using graph::ValueId;
using layout::AtomList;
using layout::LocalGraph;

namespace {

constexpr std::string_view kLogits = "logits";  // the buffer of logits of which tokens are chosen

// Turns the nodes of one local graph into instructions.
class GraphLowering {
 public:
  GraphLowering(Emitter& emitter, GroupLowering& groups, const LocalGraph& local,
                const layout::Stages& stages, bool splits_backward = false)
      : e_(emitter),
        groups_(groups),
        local_(local),
        graph_(local.graph),
        stages_(stages),
        fused_(emitter.options().fuse_adds ? graph::fuse_adds(graph_) : graph::no_fused_adds(graph_)),
        splits_(splits_backward),
        places_(graph_.values().size()),
        last_use_(graph_.values().size(), -1) {
    // With W in separate bodies, all of it runs after B.
    for (const bool late : {false, true})
      for (size_t i = 0; i < graph_.nodes().size(); ++i) {
        if ((splits_backward && graph_.nodes()[i].phase == Phase::W) != late) continue;
        for (const ValueId in : graph_.nodes()[i].inputs) last_use_[in.index()] = static_cast<int>(i);
      }
    for (const graph::Param& p : graph_.params()) {
      const auto [group, segment] = groups_.find(graph_.value(p.value).name);
      if (segment == nullptr) continue;  // on another pipeline rank
      params_[p.value] = {group, segment};
      int contribution = 0;
      for (const ValueId g : p.grads) {
        const int node = graph_.value(g).producer.value;
        if (!is_here(graph_.nodes()[static_cast<size_t>(node)])) continue;
        grads_[g] = {group, segment, contribution++};
        int& last = last_contribution_.try_emplace(group, node).first->second;
        if (runs_after(node, last)) last = node;
      }
    }
    for (size_t i = 0; i < graph_.step_sums.size(); ++i)
      step_sums_.emplace(graph_.step_sums[i].value, static_cast<int>(i));
    for (const Node& node : graph_.nodes())
      if (node.op == &graph::kSample) sampled_ = node.inputs[0];
    find_transfers();
  }

  // One body: the nodes of a chunk whose phase is in `phases`.
  void lower(BodyKind kind, int chunk, const std::set<Phase>& phases) {
    const bool forward = phases.contains(Phase::F);
    e_.begin(kind, chunk);
    if (forward && chunk == 0) load_batch();
    std::vector<int> nodes;
    std::vector<GroupLowering::Use> uses;
    std::vector<char> wanted(groups_.groups().size(), 0);
    for (int i = 0; i < static_cast<int>(graph_.nodes().size()); ++i) {
      const Node& node = graph_.nodes()[static_cast<size_t>(i)];
      if (!is_here(node) || stages_.chunk_of_block(node.block) != chunk) continue;
      const bool now = phases.contains(node.phase);
      if (now) nodes.push_back(i);
      for (const ValueId in : node.inputs) {
        const auto param = params_.find(in);
        if (param == params_.end()) continue;
        if (now)
          uses.push_back({param->second.first, node.block, i});
        else if (forward)
          wanted[static_cast<size_t>(param->second.first)] = 1;
      }
    }
    groups_.begin_pass(uses, forward, std::move(wanted));
    const schedule::Home here{e_.stage_rank(), chunk};
    for (const Transfer& t : transfers_)
      if (t.waits_for_backward() && t.from == here && phases.contains(t.phase)) send(t);
    for (const Transfer& t : transfers_)
      if (t.to == here && phases.contains(t.phase))
        e_.receive(place(t.value, t.block), t.from.rank, t.phase == Phase::F, t.like());
    for (size_t k = 0; k < nodes.size();) {
      const Node& first = graph_.nodes()[static_cast<size_t>(nodes[k])];
      const auto joins = [&](const Node& n) {
        return (first.row_group >= 0 && n.row_group == first.row_group) ||
               (first.repeat >= 0 && n.repeat == first.repeat);
      };
      size_t end = k + 1;
      while (end < nodes.size() && joins(graph_.nodes()[static_cast<size_t>(nodes[end])])) ++end;
      for (size_t j = k; j < end; ++j) groups_.before_node(nodes[j]);
      const std::vector<int> group(nodes.begin() + static_cast<ptrdiff_t>(k),
                                   nodes.begin() + static_cast<ptrdiff_t>(end));
      if (first.row_group >= 0)
        lower_row_group(group);
      else if (first.repeat >= 0)
        lower_repeated(group);
      else
        lower_node(nodes[k], whole_);
      for (size_t j = k; j < end; ++j) {
        send_results(nodes[j]);
        groups_.after_node(nodes[j]);
        for (const auto& [g, last] : last_contribution_)
          if (last == nodes[j]) groups_.reduce_grads(g);
      }
      k = end;
    }
  }

 private:
  // A value that one virtual stage computes and another, on another rank, reads.
  struct Transfer {
    ValueId value;
    int node, block;    // of the producer
    Phase made, phase;  // F: with the forward bodies, else with the backward bodies
    int to_stage;
    schedule::Home from, to;
    // A gradient that the head computes in its forward pass and an earlier stage reads in its backward pass.
    bool waits_for_backward() const { return made == Phase::F && phase == Phase::B; }
    Instr like() const {
      const std::string note = fmt::format("%{} to stage {}", value.value, to_stage);
      return {.values = {value}, .phase = phase, .block = block, .note = note};
    }
  };

  // In time: a schedule may separate W from B.
  bool runs_after(int node, int other) const {
    const auto key = [&](int n) {
      return std::pair(splits_ && graph_.nodes()[static_cast<size_t>(n)].phase == Phase::W, n);
    };
    return key(node) > key(other);
  }

  bool is_here(const Node& node) const { return stages_.rank_of_block(node.block) == e_.stage_rank(); }

  // Every rank has the inputs of its micro-batches: a part of one is sliced where it is read, not sent.
  bool is_part_of_input(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    if (!producer.valid() || graph_.nodes()[producer.index()].op != &graph::kSlice) return false;
    return graph_.value(graph_.nodes()[producer.index()].inputs[0]).kind == graph::ValueKind::Input;
  }

  void find_transfers() {
    std::set<std::pair<ValueId, int>> seen;
    const auto home_of = [&](int stage) {
      return schedule::Home{stages_.rank_of[static_cast<size_t>(stage)],
                            stages_.chunk_of[static_cast<size_t>(stage)]};
    };
    for (const Node& reader : graph_.nodes()) {
      const int to = stages_.of_block[static_cast<size_t>(reader.block)];
      for (const ValueId v : reader.inputs) {
        const NodeId producer = graph_.value(v).producer;
        if (!producer.valid() || grads_.contains(v) || is_part_of_input(v)) continue;
        const Node& writer = graph_.nodes()[producer.index()];
        const int from = stages_.of_block[static_cast<size_t>(writer.block)];
        const schedule::Home from_home = home_of(from), to_home = home_of(to);
        if (from_home.rank == to_home.rank || !seen.emplace(v, to).second) continue;
        QUINTET_CHECK(writer.phase != Phase::W, "a parameter's gradient is sent between stages");
        const Phase phase = writer.phase == Phase::F && from < to ? Phase::F : Phase::B;
        transfers_.push_back({v, producer.value, writer.block, writer.phase, phase, to, from_home, to_home});
      }
    }
    std::sort(transfers_.begin(), transfers_.end(), [](const Transfer& a, const Transfer& b) {
      return std::tuple(a.node, a.value, a.to_stage) < std::tuple(b.node, b.value, b.to_stage);
    });
  }

  void send_results(int node) {
    for (const Transfer& t : transfers_)
      if (t.from.rank == e_.stage_rank() && t.node == node && !t.waits_for_backward()) send(t);
  }
  void send(const Transfer& t) { e_.send(place(t.value, t.block), t.to.rank, t.phase == Phase::F, t.like()); }

  struct Rows {  // the rows of a row group's chunk; count < 0: all
    int64_t first = 0, count = -1;
  };
  struct GradPlace {
    int group;
    const layout::Segment* segment;
    int contribution;
  };

  void load_batch() {
    Instr load{.kind = InstrKind::LoadBatch, .note = "load batch"};
    for (const InputPlace& input : e_.program().inputs) {
      const ValueId v = graph_.find(input.spec);
      if (v.valid()) load.out.push_back({input.buffer, 0, graph_.type(v)});
    }
    e_.emit(std::move(load));
  }

  // The location of a value. Values get their buffer when they are first written.
  Operand place(ValueId id, int block) {
    if (const auto param = params_.find(id); param != params_.end())
      return groups_.param(param->second.first, *param->second.second, block);
    if (const auto grad = grads_.find(id); grad != grads_.end())
      return groups_.grad(grad->second.group, *grad->second.segment);
    Operand& operand = places_[id.index()];
    if (operand.buffer.valid()) return operand;
    const graph::Value& v = graph_.value(id);
    if (id == graph_.loss) return operand = e_.scalar(scalars::kLoss);
    if (v.kind == graph::ValueKind::Input) {
      if (v.input.kind == InputKind::Seed) return operand = e_.scalar(scalars::kSeed);
      if (v.input.kind == InputKind::DropoutKey) return operand = e_.scalar(scalars::kDropoutKey);
      if (v.input.kind == InputKind::LossScale) {
        const bool shares = e_.program().has_scalar(scalars::kAuxiliarySeed);
        return operand = e_.scalar(shares ? scalars::kAuxiliarySeed : scalars::kLossScale);
      }
      for (const InputPlace& input : e_.program().inputs)
        if (input.spec == v.input) return operand = {input.buffer, 0, v.type};
      base::fail_internal("no buffer for input {}", v.name);
    }
    if (graph::is_cache(v) || id == sampled_ || v.name == graph::kScaleState)
      return operand = {e_.buffer_named(id == sampled_ ? kLogits : v.name), 0, v.type};
    if (id == graph_.logits && e_.program().result.valid()) return operand = {e_.program().result, 0, v.type};
    if (v.kind == graph::ValueKind::State) return operand = e_.state(v.name);
    if (const int sum = step_sum(id); sum >= 0)
      return operand = {e_.program().sums, e_.program().step_sums[static_cast<size_t>(sum)].first * 8,
                        v.type};
    const Node& producer = graph_.nodes()[v.producer.index()];
    if (is_part_of_input(id)) return operand = slice_of(producer);
    const bool moved = producer.op->dims == nullptr;
    graph::Type type = v.type;
    if (chunk_local_.contains(id)) set_rows(type, id, chunk_rows_);
    const BufferId buffer =
        e_.add_buffer(fmt::format("%{}.{}", id.value, producer.op->name), type.bytes(),
                      moved ? MemoryClass::Communication : MemoryClass::Activations, Scope::Body);
    if (id == graph_.logits) e_.program().result = buffer;
    return operand = {buffer, 0, type};
  }

  int step_sum(ValueId id) const {
    const auto sum = step_sums_.find(id);
    return sum == step_sums_.end() ? -1 : sum->second;
  }

  // This rank's part of several equal parts that are stored one after another.
  Operand slice_of(const Node& node) { return part_of(place(node.inputs[0], node.block), node); }
  Operand part_of(Operand part, const Node& node) {
    const auto& list = node.attrs.integers("atoms");
    part.type = graph_.type(node.outputs[0]);
    part.offset_bytes += e_.mesh().index(e_.rank(), AtomList(list.begin(), list.end())) * part.type.bytes();
    return part;
  }

  // The dim of token rows, last in transposed codes; -1: none.
  int rows_dim(ValueId id) const {
    const graph::Type& t = graph_.type(id);
    if (t.dims.empty()) return -1;
    if (t.dims[0].name == Dim::Tokens) return 0;
    return t.dims.back().name == Dim::Tokens ? t.num_dims() - 1 : -1;
  }
  bool has_rows(ValueId id) const { return rows_dim(id) >= 0; }
  // Token rows of an entry of that dim: those of a block in factors of transposed codes.
  int64_t rows_each(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    if (!producer.valid() || graph_.nodes()[producer.index()].op != &graph::kQuantizeBlocks) return 1;
    const Node& node = graph_.nodes()[producer.index()];
    const int factors = graph::quantize_results(node.attrs).transposed_factors;
    const bool is_blocked = factors >= 0 && node.outputs[static_cast<size_t>(factors)] == id;
    return is_blocked ? node.attrs.integer("block") : 1;
  }
  void set_rows(graph::Type& type, ValueId id, int64_t rows) const {
    QUINTET_CHECK(rows % rows_each(id) == 0, "%{} has factors of {} rows, not of {}", id, rows_each(id),
                  rows);
    type.dims[static_cast<size_t>(rows_dim(id))].size = rows / rows_each(id);
  }

  Operand view(ValueId id, const Rows& rows, int block) {
    Operand whole = place(id, block);
    if (rows.count < 0 || !has_rows(id)) return whole;
    const int dim = rows_dim(id);
    if (!chunk_local_.contains(id)) {
      // Rows of a transposed value are not contiguous: it exists for a chunk, or one chunk has all rows.
      QUINTET_CHECK(dim == 0 || rows.count == whole.type.size(dim), "a part of transposed %{} is read", id);
      whole.offset_bytes += rows.first / rows_each(id) * (whole.type.bytes() / whole.type.size(dim));
    }
    set_rows(whole.type, id, rows.count);
    return whole;
  }

  void lower_node(int index, const Rows& rows) {
    const Node& node = graph_.nodes()[static_cast<size_t>(index)];
    if (fused_.absorbed[static_cast<size_t>(index)]) return;
    Instr instr{.op = node.op, .attrs = node.attrs, .phase = node.phase, .block = node.block};
    if (node.op->dims == nullptr) return lower_transition(node, rows, std::move(instr));
    for (const ValueId in : node.inputs) instr.in.push_back(view(in, rows, node.block));
    const int add = fused_.add_of[static_cast<size_t>(index)];
    if (add >= 0) instr.in.push_back(addend(node, index, add));
    if (node.op == &graph::kCacheAppend || node.op == &graph::kCachedAttention)
      for (const auto& [o, i] : node.op->in_place) {
        if (static_cast<size_t>(o) >= node.outputs.size()) continue;
        places_[node.outputs[static_cast<size_t>(o)].index()] =
            place(node.inputs[static_cast<size_t>(i)], node.block);
      }
    else if (node.repeat >= 0 && node.inputs.size() == 3 &&
             (node.op == &graph::kUnpack || node.op == &graph::kUnpackWeights))
      places_[node.outputs[0].index()] = place(node.inputs[2], node.block);  // every pass adds to it
    else if (add < 0)
      share_memory(node, index);
    int num_grads = 0;
    std::vector<ValueId> outputs = node.outputs;
    if (add >= 0) outputs[0] = graph_.nodes()[static_cast<size_t>(add)].outputs[0];
    for (const ValueId out : outputs) {
      instr.out.push_back(view(out, rows, node.block));
      instr.values.push_back(out);
      if (const auto grad = grads_.find(out); grad != grads_.end()) {
        const Accumulate mode = groups_.grad_accumulate(grad->second.group, grad->second.contribution);
        if (num_grads++ > 0 && mode != instr.accumulate)
          base::fail_user(
              "[{}] of block {} computes the gradients of several parameters at once, but only some of them "
              "are used by other layers too: share all of them or none",
              node.op->name, node.block);
        instr.accumulate = mode;
      }
      if (out == graph_.loss) instr.accumulate = Accumulate::NotFirstCall;
      if (step_sum(out) >= 0) instr.accumulate = Accumulate::Always;  // zeroed when the step begins
    }
    // Results without rows are sums over all chunks.
    const bool sums =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId out) { return !has_rows(out); });
    if (rows.first > 0 && sums) instr.accumulate = Accumulate::Always;
    for (const layout::Division& d : local_.divisions[static_cast<size_t>(index)]) {
      const int64_t begin = e_.mesh().index(e_.rank(), d.atoms) * d.local;
      instr.parts.push_back(
          {d.key, begin, d.local, std::clamp<int64_t>(d.global - begin, 0, d.local), d.global});
    }
    e_.emit(std::move(instr));
  }

  // The addend that a node adds to its result (see graph/fuse_adds.h). The sum takes over its bytes when no
  // later node reads them.
  Operand addend(const Node& producer, int index, int add) {
    const Node& sum = graph_.nodes()[static_cast<size_t>(add)];
    const ValueId other = sum.inputs[sum.inputs[0] == producer.outputs[0] ? 1 : 0], out = sum.outputs[0];
    const Operand term = place(other, producer.block);
    bool alone = graph_.value(other).kind == graph::ValueKind::Result && last_use_[other.index()] == add &&
                 !viewed_.contains(term.buffer) && !grads_.contains(other) &&
                 !places_[out.index()].buffer.valid();
    alone = alone && made_in(other) == producer.repeat;
    for (int n = index + 1; n < add && alone; ++n)
      for (const ValueId in : graph_.nodes()[static_cast<size_t>(n)].inputs) alone = alone && in != other;
    if (alone) {
      places_[out.index()] = term;
      last_use_[other.index()] = -1;  // taken
    }
    return term;
  }

  // The repeated nodes to which the producer of a value belongs.
  int made_in(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer.valid() ? graph_.nodes()[producer.index()].repeat : -1;
  }

  // An output takes over the bytes of an input that is not read afterwards, where the op allows it.
  void share_memory(const Node& node, int index) {
    for (const auto& [o, i] : node.op->in_place) {
      // Pairs with an operand or a result that this node does not have.
      if (static_cast<size_t>(i) >= node.inputs.size() || static_cast<size_t>(o) >= node.outputs.size())
        continue;
      const ValueId out = node.outputs[static_cast<size_t>(o)], in = node.inputs[static_cast<size_t>(i)];
      Operand& target = places_[out.index()];
      if (target.buffer.valid() || grads_.contains(out)) continue;
      if (out == graph_.logits || out == sampled_) continue;  // in a buffer that others read
      const Operand& source = places_[in.index()];
      const bool own =
          graph_.value(in).kind == graph::ValueKind::Result && source.buffer.valid() && in != graph_.loss;
      if (!own || last_use_[in.index()] != index || viewed_.contains(source.buffer) || grads_.contains(in))
        continue;
      if (made_in(in) != node.repeat) continue;  // the next pass reads it again
      if (graph_.type(in) != graph_.type(out) || chunk_local_.contains(in) != chunk_local_.contains(out))
        continue;
      target = source;
      last_use_[in.index()] = -1;  // taken
    }
  }

  void lower_transition(const Node& node, const Rows& rows, Instr like) {
    const auto& list = node.attrs.integers("atoms");
    const AtomList atoms(list.begin(), list.end());
    const ValueId in = node.inputs[0], out = node.outputs[0];
    like.op = nullptr;
    like.attrs = {};
    // With the value, so that two messages of one size can be distinguished.
    like.note = fmt::format("{} %{}", node.op->name, in.value);
    if (node.op != &graph::kRingShift) like.values = {out};  // of several instructions, the last one's
    const auto reduction =
        node.attrs.find("reduce") ? graph::choice<graph::Reduction>(node.attrs) : graph::Reduction::Sum;
    if (node.op == &graph::kAllReduce) {  // the open terms are not used again: in place
      if (chunk_local_.contains(in)) chunk_local_.insert(out);
      places_[out.index()] = place(in, node.block);
      e_.all_reduce(view(in, rows, node.block), atoms, reduction, std::move(like));
    } else if (node.op == &graph::kAllGather) {
      const Operand from = view(in, rows, node.block), to = place(out, node.block);
      const int64_t before = sizes_before(from.type, node.attrs.integer("dim"));
      const Operand joined = before == 1 ? to : exchange_buffer(out, to);
      if (from.type.dims[0].name == Dim::Counts) return e_.gather_counts(from, to, atoms, std::move(like));
      e_.all_gather(from, joined, atoms, like);
      if (before > 1) e_.swap_blocks(joined, to, e_.mesh().size(atoms), before, std::move(like));
    } else if (node.op == &graph::kReduceScatter) {
      Operand from = view(in, rows, node.block);
      if (const int64_t before = sizes_before(from.type, node.attrs.integer("dim")); before > 1) {
        const Operand parts = exchange_buffer(out, from);
        e_.swap_blocks(from, parts, before, e_.mesh().size(atoms), like);
        from = parts;
      }
      e_.reduce_scatter(from, place(out, node.block), atoms, reduction, std::move(like));
    } else if (node.op == &graph::kAllToAll) {
      lower_all_to_all(node, atoms, std::move(like));
    } else if (node.op == &graph::kRingShift) {
      e_.ring_shift(place(in, node.block), place(out, node.block), atoms, std::move(like));
    } else if (node.op == &graph::kAllToAllV) {
      lower_exchange(node, atoms, std::move(like));
    } else if (node.op == &graph::kSlice) {
      const Operand whole = place(in, node.block);
      if (const int64_t before = sizes_before(whole.type, node.attrs.integer("dim")); before > 1) {
        const Operand parts = exchange_buffer(out, whole);
        e_.swap_blocks(whole, parts, before, e_.mesh().size(atoms), std::move(like));
        places_[out.index()] = part_of(parts, node);
        viewed_.insert(parts.buffer);
      } else {
        const Operand part = part_of(whole, node);
        places_[out.index()] = part;
        viewed_.insert(part.buffer);
      }
    } else if (node.op == &graph::kZeroUnlessFirst) {
      like.op = node.op;
      like.attrs = {{"keep", int64_t{e_.mesh().is_first(e_.rank(), atoms)}}};
      like.in = {view(in, rows, node.block)};
      like.out = {place(out, node.block)};
      e_.emit(std::move(like));
    } else {
      base::fail_internal("[{}] is not lowered yet", node.op->name);
    }
  }

  static int64_t sizes_before(const graph::Type& type, int64_t dim) {
    int64_t n = 1;
    for (int64_t d = 0; d < dim; ++d) n *= type.size(static_cast<int>(d));
    return n;
  }

  // A buffer like `shape` for data that a collective needs in another order.
  Operand exchange_buffer(ValueId id, const Operand& shape) {
    return {e_.add_buffer(fmt::format("%{}.exchange", id.value), shape.bytes(), MemoryClass::Communication,
                          Scope::Body),
            0, shape.type};
  }

  // Pieces of `split` are sent to the other ranks, and the pieces received are joined along `join`. The
  // collective itself sends contiguous pieces and stores those it receives one after another.
  void lower_all_to_all(const Node& node, const AtomList& atoms, Instr like) {
    const int64_t members = e_.mesh().size(atoms);
    const Operand to = place(node.outputs[0], node.block);
    Operand from = place(node.inputs[0], node.block), received = to;
    if (const int64_t before = sizes_before(from.type, node.attrs.integer("split")); before > 1) {
      const Operand pieces = exchange_buffer(node.outputs[0], from);
      e_.swap_blocks(from, pieces, before, members, like);
      from = pieces;
    }
    const int64_t before = sizes_before(to.type, node.attrs.integer("join"));
    if (before > 1) received = exchange_buffer(node.outputs[0], to);
    e_.all_to_all(from, received, atoms, like);
    if (before > 1) e_.swap_blocks(received, to, members, before, std::move(like));
  }

  // Rows to the ranks of their experts, or back; on a single rank they stay where they are.
  void lower_exchange(const Node& node, const AtomList& atoms, Instr like) {
    if (atoms.empty()) {
      Operand same = place(node.inputs[0], node.block);
      same.type = graph_.type(node.outputs[0]);
      places_[node.outputs[0].index()] = same;
      viewed_.insert(same.buffer);
      return;
    }
    like.attrs = node.attrs;
    std::vector<Operand> in;
    for (const ValueId v : node.inputs) in.push_back(place(v, node.block));
    e_.all_to_all_v(std::move(in), place(node.outputs[0], node.block), atoms, std::move(like));
  }

  // Nodes that run once for every pass after the first.
  void lower_repeated(const std::vector<int>& nodes) {
    const Node& head = graph_.nodes()[static_cast<size_t>(nodes[0])];
    QUINTET_CHECK(head.op == &graph::kNextPass, "[{}] is repeated without [next_pass]", head.op->name);
    e_.begin_repeat(place(head.inputs[0], head.block), place(head.outputs[0], head.block),
                    {.phase = head.phase, .block = head.block, .note = "further passes"});
    for (size_t i = 1; i < nodes.size(); ++i) lower_node(nodes[i], whole_);
    e_.end_repeat();
  }

  // Nodes that run chunk by chunk over token rows: values used only inside exist for one chunk at a time.
  void lower_row_group(const std::vector<int>& nodes) {
    int64_t total = 0;
    const auto inside = [&](NodeId n) {
      return n.valid() && std::find(nodes.begin(), nodes.end(), n.value) != nodes.end();
    };
    for (const int n : nodes)
      for (const ValueId out : graph_.nodes()[static_cast<size_t>(n)].outputs)
        if (has_rows(out)) total = graph_.type(out).size(rows_dim(out)) * rows_each(out);
    const int64_t chunk = graph_.row_chunk > 0 ? std::min(graph_.row_chunk, total) : total;
    for (const int n : nodes) {
      for (const ValueId out : graph_.nodes()[static_cast<size_t>(n)].outputs) {
        if (!has_rows(out)) continue;
        bool local = out != graph_.logits;
        for (size_t m = 0; m < graph_.nodes().size() && local; ++m)
          for (const ValueId in : graph_.nodes()[m].inputs)
            if (in == out && !inside(NodeId(static_cast<int32_t>(m)))) local = false;
        if (!local || chunk == total) continue;
        chunk_local_.insert(out);
      }
    }
    chunk_rows_ = chunk;
    for (int64_t first = 0; first < total; first += chunk)
      for (const int n : nodes) lower_node(n, {first, std::min(chunk, total - first)});
  }

  Emitter& e_;
  GroupLowering& groups_;
  const LocalGraph& local_;
  const graph::Graph& graph_;
  const layout::Stages& stages_;
  const Rows whole_;
  const graph::FusedAdds fused_;
  const bool splits_;  // W is in separate bodies
  std::vector<Operand> places_;
  std::map<ValueId, std::pair<int, const layout::Segment*>> params_;
  std::map<ValueId, GradPlace> grads_;
  std::map<int, int> last_contribution_;  // group -> node
  std::map<ValueId, int> step_sums_;
  std::vector<Transfer> transfers_;  // in the order of their producers
  ValueId sampled_;                  // logits of which a token is chosen
  std::set<ValueId> chunk_local_;
  int64_t chunk_rows_ = 0;
  std::vector<int> last_use_;  // by value: the last node that reads it
  std::set<BufferId> viewed_;  // buffers that contain another value
};

// Sorts communicators, so that all ranks create them in the same order.
void sort_comms(Program& p) {
  std::vector<size_t> order(p.comms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return std::pair(p.comms[i].members, p.comms[i].name()); };
  std::ranges::sort(order, {}, key);
  std::vector<Communicator> sorted;
  std::vector<CommId> now(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    sorted.push_back(std::move(p.comms[order[i]]));
    now[order[i]] = CommId(static_cast<int32_t>(i));
  }
  p.comms = std::move(sorted);
  for (Body& body : p.bodies)
    for (Instr& instr : body.instrs)
      if (instr.kind == InstrKind::Collective) instr.collective.comm = now[instr.collective.comm.index()];
}

// Inputs and results of the run, then the scalars that outlive a step. The step may ask the host for more
// inputs than every step does.
std::vector<ScalarDecl> scalar_table(const std::vector<graph::StateDecl>& states,
                                     const layout::FlatStep* step, bool has_shares) {
  using Kind = ScalarKind;
  const auto scalar = [](std::string_view name, Kind kind, graph::DType dtype = graph::DType::F64,
                         double initial = 0) {
    return ScalarDecl{.name = std::string(name), .kind = kind, .dtype = dtype, .initial = initial};
  };
  std::vector<ScalarDecl> table = {scalar(scalars::kCount, Kind::Input),
                                   scalar(scalars::kLearningRate, Kind::Input),
                                   scalar(scalars::kDropoutKey, Kind::Input, graph::DType::I64)};
  for (const std::string_view name : {scalars::kDecayRatio, scalars::kLossLimit, scalars::kNormLimit})
    if (step != nullptr && std::any_of(step->graph.values().begin(), step->graph.values().end(),
                                       [&](const graph::Value& v) { return v.name == name; }))
      table.push_back(scalar(name, Kind::Input));
  if (has_shares) table.push_back(scalar(scalars::kStepShare, Kind::Input));
  for (const std::string_view name : {scalars::kSeed, scalars::kLoss, scalars::kSumSquares, scalars::kNorm,
                                      scalars::kClipScale, scalars::kOk})
    table.push_back(scalar(name, Kind::Result));
  if (has_shares) table.push_back(scalar(scalars::kAuxiliarySeed, Kind::Result));
  for (const graph::StateDecl& s : states)
    if (s.role == graph::Role::Scalar) table.push_back(scalar(s.name, Kind::State, s.type.dtype, s.initial));
  return table;
}

// Auxiliary losses are means over the micro-batches of a whole step: smaller ones scale them.
bool has_shares(const Graphs& graphs) {
  if (graphs.train == nullptr || graphs.variants.empty()) return false;
  const std::vector<graph::Value>& values = graphs.train->graph.values();
  return std::any_of(values.begin(), values.end(), [](const graph::Value& v) {
    return v.kind == graph::ValueKind::Input && v.input.kind == InputKind::LossScale;
  });
}

// In a pipeline several micro-batches are in flight at once, each with its own inputs. Entries share them:
// the largest decides.
void add_inputs(Emitter& e, const graph::Graph& graph) {
  const Scope scope = e.layout().pipeline.empty() ? Scope::Persistent : Scope::Body;
  Program& p = e.program();
  for (const graph::Value& v : graph.values()) {
    if (v.kind != graph::ValueKind::Input || v.type.num_dims() == 0) continue;
    const auto known =
        std::find_if(p.inputs.begin(), p.inputs.end(), [&](const auto& i) { return i.spec == v.input; });
    if (known == p.inputs.end()) {
      p.inputs.push_back({v.input, 0, e.add_buffer(v.name, v.type.bytes(), MemoryClass::Inputs, scope)});
    } else {
      int64_t& bytes = p.buffer(known->buffer).bytes;
      bytes = std::max(bytes, v.type.bytes());
    }
  }
}

// What outlives an entry, one buffer for all of them: caches, and what the host reads.
void add_kept(Emitter& e, const std::vector<const LocalGraph*>& entries) {
  std::map<std::string_view, int64_t> bytes;
  int64_t result = 0;
  for (const LocalGraph* entry : entries) {
    const graph::Graph& g = entry->graph;
    for (const graph::Value& v : g.values())
      if (graph::is_cache(v)) bytes[v.name] = v.type.bytes();
    for (const Node& node : g.nodes())
      if (node.op == &graph::kSample)
        bytes[kLogits] = std::max(bytes[kLogits], g.type(node.inputs[0]).bytes());
    result = std::max(result, g.type(g.logits).bytes());
  }
  for (const auto& [name, size] : bytes)
    e.add_buffer(std::string(name), size, MemoryClass::Activations, Scope::Persistent);
  if (result > 0)
    e.program().result = e.add_buffer("result", result, MemoryClass::Activations, Scope::Persistent);
}

void add_states(Emitter& e, const graph::Graph& graph) {
  Program& p = e.program();
  for (const graph::Value& v : graph.values())
    if (v.name == graph::kScaleState)  // made in every step: not saved
      e.add_buffer(v.name, v.type.bytes(), MemoryClass::Inputs, Scope::Persistent);
    else if (v.kind == graph::ValueKind::State && !graph::is_cache(v))
      p.states.push_back(
          {v.name,
           {e.add_buffer(v.name, v.type.bytes(), MemoryClass::Parameters, Scope::Persistent), 0, v.type}});
  int64_t first = 0;
  for (const graph::StepSum& sum : graph.step_sums) {
    const graph::Type& type = graph.type(sum.value);
    QUINTET_CHECK(type.dtype == graph::DType::F64, "step sum {} is {}", to_string(sum.kind), to_string(type));
    p.step_sums.push_back({sum.kind, sum.block, first, type.count(), sum.scale});
    first += type.count();
  }
  if (first > 0) p.sums = e.add_buffer("sums", first * 8, MemoryClass::Inputs, Scope::Persistent);
}

// Bodies of micro-batches, by chunk.
struct MicroBodies {
  std::vector<int> forward, backward, weight;  // weight: empty unless split off
};

// Adds the calls of micro-batches: the schedule's for this pipeline rank, or one after another.
void add_calls(std::vector<Call>& calls, const schedule::Schedule* schedule, int stage_rank, int accumulation,
               const MicroBodies& bodies) {
  const size_t begin = calls.size();
  if (schedule == nullptr) {
    for (int m = 0; m < accumulation; ++m)
      for (const int body : {bodies.forward[0], bodies.backward[0]}) calls.push_back({body, m, false, false});
  } else {
    for (const schedule::Action& a : schedule->ranks[static_cast<size_t>(stage_rank)]) {
      const size_t c = static_cast<size_t>(a.chunk);
      if (a.kind == schedule::Kind::F) calls.push_back({bodies.forward[c], a.micro, false, false});
      if (a.kind == schedule::Kind::B || a.kind == schedule::Kind::BW)
        calls.push_back({bodies.backward[c], a.micro, false, false});
      const bool weights = a.kind == schedule::Kind::W || a.kind == schedule::Kind::BW;
      if (weights && !bodies.weight.empty()) calls.push_back({bodies.weight[c], a.micro, false, false});
    }
  }
  std::map<int, size_t> first, last;
  for (size_t i = begin; i < calls.size(); ++i) first.try_emplace(calls[i].body, i), last[calls[i].body] = i;
  for (const auto& [body, i] : first) calls[i].first = true;
  for (const auto& [body, i] : last) calls[i].last = true;
}

// The Step body as far as the sum of squares.
int add_measure(Program& p, int step_body) {
  Body body{.kind = BodyKind::Measure, .instrs = {}};
  for (const Instr& instr : p.bodies[static_cast<size_t>(step_body)].instrs) {
    if (instr.op == &graph::kClipScale) break;
    body.instrs.push_back(instr);
  }
  p.bodies.push_back(std::move(body));
  return static_cast<int>(p.bodies.size()) - 1;
}

void add_variants(Program& p, const Graphs& graphs, int stage_rank, const MicroBodies& bodies) {
  const Call begin = p.calls.front(), step = p.calls.back();
  int measure = -1;
  for (const VariantOptions& v : graphs.variants) {
    if (v.measures && measure < 0) measure = add_measure(p, step.body);
    StepVariant variant{.micro_batches = v.accumulation, .measures = v.measures, .calls = {begin}};
    add_calls(variant.calls, v.schedule, stage_rank, v.accumulation, bodies);
    variant.calls.push_back({v.measures ? measure : step.body, -1, true, true});
    p.variants.push_back(std::move(variant));
  }
}

}  // namespace

Program lower(const Graphs& graphs, const layout::Layout& layout, const LowerOptions& options) {
  Program program{.rank = options.rank, .world = layout.mesh.world()};
  program.streams.push_back({"compute"});
  Emitter e(program, layout, options);
  program.scalar_table = scalar_table(*graphs.states, graphs.step, has_shares(graphs));
  program.scalars = e.add_buffer("scalars", static_cast<int64_t>(program.scalar_table.size()) * kScalarBytes,
                                 MemoryClass::Inputs, Scope::Persistent);
  program.workspace = e.add_buffer("workspace", 0, MemoryClass::Workspace, Scope::Persistent);
  const LocalGraph* const first = graphs.train   ? graphs.train
                                  : graphs.infer ? graphs.infer
                                                 : graphs.entries.front();
  add_inputs(e, first->graph);
  add_states(e, first->graph);
  for (const LocalGraph* entry : graphs.entries) add_inputs(e, entry->graph);
  add_kept(e, graphs.entries);
  // States of the optimizer that belong to no parameter: every rank has them.
  for (const graph::StateDecl& s : *graphs.states)
    if (s.param.empty() && (s.role == graph::Role::Moment || s.role == graph::Role::Amax))
      program.states.push_back(
          {s.name,
           {e.add_buffer(s.name, s.type.bytes(), memory_class_of(s.role), Scope::Persistent), 0, s.type}});
  GroupLowering groups(e, *graphs.groups, *graphs.states);

  const layout::Stages& stages = *graphs.stages;
  const int chunks = graphs.schedule ? graphs.schedule->chunks : 1;
  if (graphs.infer) {
    GraphLowering(e, groups, *graphs.infer, stages).lower(BodyKind::Infer, 0, {Phase::F});
    program.calls.push_back({e.current_body(), 0, true, true});
  }
  for (const LocalGraph* entry : graphs.entries) {
    GraphLowering(e, groups, *entry, stages).lower(BodyKind::Infer, 0, {Phase::F});
    program.variants.push_back(
        {.micro_batches = 1, .measures = false, .calls = {{e.current_body(), 0, true, true}}});
  }
  if (graphs.train) {
    lower_begin(e, graphs.train->graph);
    program.calls.push_back({e.current_body(), -1, true, true});
    const bool split = graphs.schedule && graphs.schedule->splits_backward;
    GraphLowering train(e, groups, *graphs.train, stages, split);
    MicroBodies bodies{
        .forward = {}, .backward = std::vector<int>(static_cast<size_t>(chunks)), .weight = {}};
    for (int c = 0; c < chunks; ++c) {
      train.lower(BodyKind::Forward, c, {Phase::F});
      bodies.forward.push_back(e.current_body());
    }
    for (int c = chunks; c-- > 0;) {
      train.lower(BodyKind::Backward, c, split ? std::set{Phase::B} : std::set{Phase::B, Phase::W});
      bodies.backward[static_cast<size_t>(c)] = e.current_body();
    }
    // A schedule may delay W until after the B of other chunks: what W reads lives through all of them.
    if (split) bodies.weight.resize(static_cast<size_t>(chunks));
    for (int c = static_cast<int>(bodies.weight.size()); c-- > 0;) {
      train.lower(BodyKind::Weight, c, {Phase::W});
      bodies.weight[static_cast<size_t>(c)] = e.current_body();
    }
    add_calls(program.calls, graphs.schedule, e.stage_rank(), options.accumulation, bodies);
    lower_update(e, groups, *graphs.step);
    program.calls.push_back({e.current_body(), -1, true, true});
    add_variants(program, graphs, e.stage_rank(), bodies);
  }
  if (graphs.evaluate) {
    if (!layout.pipeline.empty()) {
      lower_evaluate_begin(e);
      program.eval_calls.push_back({e.current_body(), -1, true, true});
    }
    GraphLowering evaluate(e, groups, *graphs.evaluate, stages);
    for (int c = 0; c < chunks; ++c) {
      evaluate.lower(BodyKind::Evaluate, c, {Phase::F});
      program.eval_calls.push_back({e.current_body(), 0, true, true});
    }
    lower_evaluate_end(e);
    program.eval_calls.push_back({e.current_body(), -1, true, true});
  }
  sort_comms(program);
  return program;
}

}  // namespace quintet::program
