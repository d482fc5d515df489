#include "tools/bisect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/f16.h"
#include "base/row_order.h"
#include "checkpoint/reader.h"
#include "config/environment.h"
#include "config/names.h"
#include "tools/assemble_tensors.h"
#include "train/resume.h"
#include "train/saved_state.h"

namespace quintet::tools {

using base::DType;
using graph::Node;
using graph::ValueId;
using layout::AtomList;

namespace {

// A value of a micro-batch.
struct ShownValue {
  int micro = 0;
  ValueId value;
  friend auto operator<=>(const ShownValue&, const ShownValue&) = default;
};

struct ShownPiece {
  std::string op;  // that wrote it last
  bool received = false;
  std::vector<double> values;
};

bool is_compared(const graph::Type& t) {
  const bool floats =
      t.dtype == DType::F64 || t.dtype == DType::F32 || t.dtype == DType::BF16 || t.dtype == DType::F16;
  return floats &&
         std::none_of(t.dims.begin(), t.dims.end(), [](const auto& d) { return graph::is_ragged(d.name); });
}

double size_of_all(const std::vector<double>& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

double gap_between(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

// Whether an instruction that adds to sums adds to this result: those with token rows, and some others, it
// overwrites.
bool adds_up(const graph::Graph& local, const program::Instr& instr, size_t result) {
  const graph::Type& type = local.type(instr.values[result]);
  for (const graph::DimSize& d : type.dims)
    if (d.name == graph::Dim::Tokens) return false;
  if (instr.op == nullptr) return false;
  const std::vector<int>& list = instr.op->overwritten;
  return std::find(list.begin(), list.end(), static_cast<int>(result)) == list.end();
}

// Ring attention: a hop's result holds the keys seen so far, or is a term of another rank's keys. Only the
// last hop's is a value of the model.
bool is_under_way(const graph::Graph& g, const Node& node, ValueId value) {
  const auto made_by = [&](ValueId v, const graph::OpDef& op) {
    const graph::NodeId producer = g.value(v).producer;
    return producer.valid() && g.nodes()[producer.index()].op == &op;
  };
  if (node.op == &graph::kAdd)
    return std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId in) { return made_by(in, graph::kRingShift); });
  if (node.op == &graph::kAttentionHopDx && value != node.outputs[0]) return true;
  if (node.op != &graph::kAttentionHop && node.op != &graph::kAttentionHopDx) return false;
  return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& reader) {
    return reader.op == node.op &&
           std::find(reader.inputs.begin(), reader.inputs.end(), value) != reader.inputs.end();
  });
}

// What every rank of a run computed.
class Recording {
 public:
  explicit Recording(int64_t ranks) : ranks_(static_cast<size_t>(ranks)) {}

  // Called on every rank before its first step.
  void attach(train::Rank& rank) {
    OfRank& own = ranks_[rank.world().rank().index()];
    own.local = &rank.compiled().local.graph;
    if (rank.world().rank().value == 0) {
      layout_ = rank.compiled().layout;
      local_ = rank.compiled().local;
      logical_ = rank.compiled().logical;
    }
    const bool observes = rank.executor().observe(
        [&own](const program::Instr& instr, const program::Call& call, std::span<std::byte* const> out,
               std::span<const std::vector<std::byte>> before) { own.take(instr, call, out, before); });
    QUINTET_CHECK(observes, "the backend does not show results");
  }
  const layout::Layout& layout() const { return layout_; }
  const layout::LocalGraph& local() const { return local_; }
  const graph::Graph& logical() const { return logical_; }
  size_t ranks() const { return ranks_.size(); }
  const ShownPiece* find(size_t rank, const ShownValue& key) const {
    const auto it = ranks_[rank].pieces.find(key);
    return it == ranks_[rank].pieces.end() ? nullptr : &it->second;
  }
  int micro_batches() const {
    int count = 0;
    for (const OfRank& r : ranks_)
      for (const auto& [key, piece] : r.pieces) count = std::max(count, key.micro + 1);
    return count;
  }

 private:
  struct OfRank {
    std::mutex mutex;
    const graph::Graph* local = nullptr;
    std::map<ShownValue, ShownPiece> pieces;

    void take(const program::Instr& instr, const program::Call& call, std::span<std::byte* const> out,
              std::span<const std::vector<std::byte>> before) {
      if (call.micro < 0 || instr.repeated) return;
      for (size_t i = 0; i < std::min(instr.values.size(), out.size()); ++i) {
        const ValueId value = instr.values[i];
        const graph::Type& type = instr.out[i].type;
        // A chunk of rows is a part of the value.
        if (!value.valid() || !is_compared(type) || type.count() != local->type(value).count()) continue;
        const std::lock_guard lock(mutex);
        ShownPiece& piece = pieces[{call.micro, value}];
        piece.received = instr.kind == program::InstrKind::Collective &&
                         instr.collective.kind == program::CollectiveKind::Recv;
        piece.op = instr.kind == program::InstrKind::Compute ? instr.op->name
                                                             : program::to_string(instr.collective.kind);
        piece.values.resize(static_cast<size_t>(type.count()));
        for (int64_t e = 0; e < type.count(); ++e) {
          const double now = element_of(out[i], type.dtype, e);
          // Some layouts add up micro-batches, others start from zero: what this one adds is compared.
          if (i < before.size() && adds_up(*local, instr, i))
            piece.values[static_cast<size_t>(e)] += now - element_of(before[i].data(), type.dtype, e);
          else
            piece.values[static_cast<size_t>(e)] = now;
        }
      }
    }
  };

  std::vector<OfRank> ranks_;
  layout::Layout layout_{.mesh = layout::Mesh({})};
  layout::LocalGraph local_;
  graph::Graph logical_;
};

// Logical values by what they are: the same text in two graphs means the same op on the same values. A
// recomputed value is what it was computed as before.
std::vector<std::string> meanings_of(const graph::Graph& g) {
  std::vector<std::string> list(g.values().size());
  for (size_t v = 0; v < list.size(); ++v) {
    const graph::Value& value = g.values()[v];
    if (value.kind == graph::ValueKind::Input)
      list[v] = "input " + graph::to_string(value.input);
    else if (value.kind != graph::ValueKind::Result)
      list[v] = "stored " + value.name;
  }
  for (const Node& node : g.nodes()) {
    std::string text = std::string(node.op->name) + graph::to_string(node.attrs);
    for (const ValueId in : node.inputs) text += " " + list[in.index()];
    const base::Hash hash = base::hash_of(text);
    for (size_t o = 0; o < node.outputs.size(); ++o)
      list[node.outputs[o].index()] = fmt::format("{:x} {:x} {}", hash.high, hash.low, o);
  }
  return list;
}

// The pieces of one value that belong together: one per group of ranks that each hold a whole copy of it.
struct WholeCopy {
  std::string op;
  bool received = false;
  std::vector<int> ranks;
  std::vector<double> values;
};

class PieceAssembler {
 public:
  PieceAssembler(const Recording& run, int64_t seq_len, int64_t sequences)
      : run_(run), mesh_(run.layout().mesh), seq_len_(seq_len), sequences_(sequences) {}

  std::vector<WholeCopy> copies(const ShownValue& key) const {
    const layout::Placement& at = run_.local().placements[key.value.index()];
    const ValueId origin = run_.local().origin[key.value.index()];
    const graph::Type &global = run_.logical().type(origin), &local = run_.local().graph.type(key.value);
    AtomList divided = at.partial;
    for (const AtomList& atoms : at.dims) divided = layout::set_union(divided, atoms);
    const AtomList same = layout::without(run_.layout().everything(), divided);
    std::map<int, WholeCopy> copies;
    for (size_t r = 0; r < run_.ranks(); ++r) {
      const ShownPiece* const piece = run_.find(r, key);
      if (piece == nullptr) continue;
      const base::RankId rank(static_cast<int32_t>(r));
      WholeCopy& whole = copies[mesh_.index(rank, same)];
      whole.op = piece->op;
      whole.received = piece->received;
      whole.ranks.push_back(rank.value);
      whole.values.resize(static_cast<size_t>(global.count()));
      add(whole.values, piece->values, at, global, local, rank);
    }
    std::vector<WholeCopy> list;
    for (auto& [place, whole] : copies) list.push_back(std::move(whole));
    // What a stage receives departs after what another one computed.
    std::stable_partition(list.begin(), list.end(), [](const WholeCopy& w) { return !w.received; });
    return list;
  }

 private:
  void add(std::vector<double>& whole, const std::vector<double>& piece, const layout::Placement& at,
           const graph::Type& global, const graph::Type& local, base::RankId rank) const {
    const size_t dims = local.dims.size();
    std::vector<int64_t> index(dims, 0);
    for (const double x : piece) {
      int64_t place = 0;
      bool padding = false;
      for (size_t d = 0; d < dims; ++d) {
        const int64_t i = mesh_.index(rank, at.dims[d]) * local.dims[d].size + index[d];
        padding |= i >= global.dims[d].size;
        place = place * global.dims[d].size + (local.dims[d].name == graph::Dim::Tokens ? row(i) : i);
      }
      if (!padding) {
        double& to = whole[static_cast<size_t>(place)];
        if (at.partial.empty())
          to = x;
        else
          to = at.reduction == graph::Reduction::Max ? std::max(to, x) : to + x;
      }
      for (size_t d = dims; d-- > 0;) {
        if (++index[d] < local.dims[d].size) break;
        index[d] = 0;
      }
    }
  }

  // The row of a micro-batch in the order of one rank, from that of all context ranks.
  int64_t row(int64_t i) const {
    const int64_t ranks = run_.layout().context.ranks;
    if (ranks == 1) return i;
    if (order_.empty()) {
      const base::RowOrder whole{
          .seq_len = seq_len_, .sequences = sequences_, .ranks = ranks, .count = ranks};
      order_.resize(static_cast<size_t>(whole.rows()));
      for (int64_t s = 0; s < sequences_; ++s)
        for (int64_t p = 0; p < seq_len_; ++p)
          order_[static_cast<size_t>(whole.row_in_whole(s, p))] = s * seq_len_ + p;
    }
    const auto rows = static_cast<int64_t>(order_.size());
    return i / rows * rows + order_[static_cast<size_t>(i % rows)];
  }

  const Recording& run_;
  const layout::Mesh& mesh_;
  int64_t seq_len_, sequences_;
  mutable std::vector<int64_t> order_;
};

std::string_view pass_name(const Node& node) {
  return node.phase == graph::Phase::F   ? "forward"
         : node.phase == graph::Phase::B ? "backward"
                                         : "weight gradients";
}

// Compares the values of two recordings in the order of the layout's program.
class DepartureSearch {
 public:
  DepartureSearch(const config::Recipe& recipe, const Recording& layout, const Recording& one,
                  const LayoutRun& run, double tolerance)
      : layout_(layout),
        one_(one),
        run_(run),
        tolerance_(tolerance),
        pieces_(layout, recipe.data.seq_len, recipe.batch.micro),
        reference_(one, recipe.data.seq_len, recipe.batch.micro * recipe.parallel.dp()),
        meanings_(meanings_of(layout.logical())) {
    const std::vector<std::string> theirs = meanings_of(one.logical());
    const layout::LocalGraph& local = one.local();
    for (size_t v = 0; v < local.graph.values().size(); ++v)
      if (v < local.origin.size() && local.origin[v].valid())
        same_.try_emplace(theirs[local.origin[v].index()], ValueId(static_cast<int32_t>(v)));
  }

  std::optional<Departure> run(Bisection& result) {
    for (int micro = 0; micro < layout_.micro_batches(); ++micro) {
      equal_.clear();
      for (const Node& node : layout_.local().graph.nodes())
        for (const ValueId out : node.outputs)
          if (auto found = compare({micro, out}, node, result)) return found;
    }
    return std::nullopt;
  }

 private:
  // The value that one rank computed for the same logical value; null: it has none, or none that is shown.
  const std::vector<double>* of_one_rank(const ShownValue& key) {
    const std::vector<ValueId>& origins = layout_.local().origin;
    if (key.value.index() >= origins.size() || !origins[key.value.index()].valid()) return nullptr;
    const auto theirs = same_.find(meanings_[origins[key.value.index()].index()]);
    if (theirs == same_.end()) return nullptr;
    const ShownValue at{key.micro, theirs->second};
    if (one_.find(0, at) == nullptr) return nullptr;
    const auto [it, is_new] = wholes_.try_emplace(at);
    if (is_new) it->second = reference_.copies(at).front().values;
    return &it->second;
  }

  // Norms of what a node reads, as one rank computed it.
  double size_of_inputs(const ShownValue& key, const Node& node) {
    std::vector<double> sizes;
    for (const ValueId in : node.inputs) {
      if (const std::vector<double>* const x = of_one_rank({key.micro, in}))
        sizes.push_back(size_of_all(*x));
      else if (const Tensor* const w = find(run_.initial, layout_.local().graph.value(in).name))
        sizes.push_back(size_of_all(w->values));
    }
    std::sort(sizes.rbegin(), sizes.rend());
    if (sizes.empty()) return 0;
    return sizes[0] * (sizes.size() > 1 ? sizes[1] : 1);
  }

  std::optional<Departure> compare(const ShownValue& key, const Node& node, Bisection& result) {
    const std::vector<double>* const expected = of_one_rank(key);
    const std::vector<WholeCopy> copies =
        expected == nullptr || is_under_way(layout_.local().graph, node, key.value) ? std::vector<WholeCopy>()
                                                                                    : pieces_.copies(key);
    if (copies.empty()) {
      if (is_compared(layout_.local().graph.type(key.value))) {
        ++result.skipped;
        ++result.skipped_ops[std::string(node.op->name)];
      }
      return std::nullopt;
    }
    ++result.compared;
    const double size = size_of_all(*expected);
    for (const WholeCopy& copy : copies) {
      const double apart = gap_between(copy.values, *expected);
      if (apart <= tolerance_ * size) continue;
      const double scale = std::max(size, size_of_inputs(key, node));
      if (apart <= tolerance_ * scale) continue;
      if (!std::isfinite(size)) continue;  // both overflow: the step is skipped
      return describe(key, node, copy, size > 0 ? apart / size : apart,
                      size > 0 ? tolerance_ * scale / size : tolerance_);
    }
    equal_.insert(key.value);
    return std::nullopt;
  }

  Departure describe(const ShownValue& key, const Node& node, const WholeCopy& copy, double error,
                     double tolerance) const {
    const layout::LocalGraph& local = layout_.local();
    const graph::Type& global = layout_.logical().type(local.origin[key.value.index()]);
    Departure d{
        .op = copy.op,
        .value = fmt::format("%{} {}", key.value.value, graph::to_string(global)),
        .phase = std::string(pass_name(node)),
        .block = node.block,
        .micro = key.micro,
        .placement = layout::to_string(local.placements[key.value.index()], global, layout_.layout().mesh),
        .ranks = copy.ranks,
        .error = error,
        .tolerance = tolerance,
        .inputs = {},
        .skipped = {}};
    const std::string& name = layout_.logical().value(local.origin[key.value.index()]).name;
    if (!name.empty()) d.value += " " + name;
    std::set<ValueId> seen;
    for (const ValueId in : node.inputs) {
      const graph::Value& v = local.graph.value(in);
      const std::string text = v.kind == graph::ValueKind::Result ? fmt::format("%{}", in.value) : v.name;
      d.inputs.push_back(fmt::format("{} {}", text,
                                     equal_.contains(in)                  ? "agrees"
                                     : v.kind == graph::ValueKind::Result ? "is not compared"
                                                                          : "is given"));
      list_skipped(in, seen, d.skipped);
    }
    return d;
  }

  // Ops between this value and those that agree.
  void list_skipped(ValueId value, std::set<ValueId>& seen, std::vector<std::string>& ops) const {
    const graph::Graph& g = layout_.local().graph;
    if (equal_.contains(value) || !g.value(value).producer.valid() || !seen.insert(value).second) return;
    const Node& node = g.nodes()[g.value(value).producer.index()];
    for (const ValueId in : node.inputs) list_skipped(in, seen, ops);
    const std::string op = fmt::format("{} of block {}", node.op->name, node.block);
    if (std::find(ops.begin(), ops.end(), op) == ops.end()) ops.push_back(op);
  }

  const Recording &layout_, &one_;
  const LayoutRun& run_;
  double tolerance_;
  PieceAssembler pieces_, reference_;
  std::vector<std::string> meanings_;
  std::map<std::string, ValueId> same_;  // in the local graph of one rank, by meaning
  std::map<ShownValue, std::vector<double>> wholes_;
  std::set<ValueId> equal_;  // of this micro-batch
};

// All values of the micro-batches agree: what lies between them and the first check that does not.
Departure outside(const Check& check, const LayoutRun& one) {
  using Kind = Check::Kind;
  Departure d{.op = {},
              .value = check.name,
              .phase = "step",
              .placement = {},
              .ranks = {},
              .inputs = {},
              .skipped = {}};
  d.error = check.error, d.tolerance = check.tolerance;
  switch (check.kind) {
    case Kind::InitialWeight:
      d.op = "initial weights";
      break;
    case Kind::Tokens:
      d.op = "count of valid tokens";
      break;
    case Kind::Loss:
      d.op = "sum of the loss over ranks";
      break;
    case Kind::Gradient:
      d.op = "reduction of the gradient over ranks or micro-batches";
      break;
    case Kind::GradientNorm:
      d.op = "norm of the gradients";
      break;
    case Kind::Sum:
      d.op = "sum over the step";
      break;
    case Kind::State:
      d.op = "update of a state";
      break;
    case Kind::Moment:
    case Kind::Weight: {
      d.op = "update";
      const auto settings = one.settings.find(check.param);
      if (settings != one.settings.end())
        d.op += fmt::format(" by {}", config::name_of(settings->second.kind));
      for (const Moments& m : one.moments)
        if (m.op != nullptr && find(m.tensors, check.param) != nullptr) {
          d.op = fmt::format("update [{}]", m.op->name);
          break;
        }
      break;
    }
    case Kind::Peak:
      d.op = "use of memory";
      break;
  }
  return d;
}

}  // namespace

Bisection bisect(const config::Recipe& recipe, const VerifyOptions& options) {
  if (train::device_of(recipe) != exec::Device::Cpu)
    base::fail_user(
        "verify --bisect reads every result, which only run.device = \"cpu\" shows, but run.device is "
        "\"cuda\"; add --set run.device=cpu");
  if (const auto launch = config::detect_launch(); launch && launch->world > 1)
    base::fail_user(
        "verify --bisect runs its ranks as threads of one process, but a launcher started {}; run it "
        "without the launcher",
        launch->world);
  const bool synthetic = options.synthetic || recipe.data.path.empty() || recipe.data.stream ||
                         recipe.data.format == config::DataFormat::Chat;
  const data::Dataset dataset = training_data(recipe, synthetic);
  const base::Path from = options.from.empty() ? base::Path() : train::find_checkpoint(options.from);
  const auto run = [&](const config::Recipe& r, Recording& recording, const LayoutOptions& how) {
    const data::Batches batches = training_batches(r, dataset, options.mask);
    LayoutOptions own = how;
    own.prepare = [&](train::Rank& rank) {
      if (!from.empty()) {
        checkpoint::Reader reader(from);
        train::load_state(rank, reader, train::LoadOptions{.weights_only = true});
      }
      recording.attach(rank);
    };
    return run_layout(r, batches, own);
  };
  // The same sequences in every micro-batch.
  config::Recipe single = on_one_rank(recipe);
  single.batch.micro = recipe.batch.micro * recipe.parallel.dp();
  single.batch.accumulation = recipe.batch.accumulation;
  Recording layout(recipe.parallel.world()), one(1);
  LayoutRun layout_run;
  std::exception_ptr failure;
  try {
    layout_run = run(recipe, layout,
                     {.steps = 1,
                      .poison = options.poison,
                      .threads = options.threads,
                      .model = options.model,
                      .disabled_passes = options.disabled_passes,
                      .log = options.log});
  } catch (
      const base::InternalError&) {  // copies differ, or ranks disagree: what came first is in the record
    failure = std::current_exception();
  }
  const LayoutRun one_run = run(single, one,
                                {.steps = 1,
                                 .threads = options.threads,
                                 .model = options.model,
                                 .disabled_passes = options.disabled_passes});
  Bisection result{.verified = compare(recipe, failure ? one_run : layout_run, one_run), .first = {}};
  result.verified.synthetic = synthetic;
  result.first = DepartureSearch(recipe, layout, one, one_run, result.verified.tolerance).run(result);
  if (failure && !result.first) std::rethrow_exception(failure);
  const Check* const check = result.verified.first_mismatch();
  // Initial weights and the number of tokens come before the micro-batches.
  if (check != nullptr &&
      (!result.first || check->kind == Check::Kind::InitialWeight || check->kind == Check::Kind::Tokens))
    result.first = outside(*check, one_run);
  return result;
}

std::string to_text(const Bisection& r) {
  const VerifyResult& v = r.verified;
  std::string text = fmt::format(
      "{} against one rank with the same micro-batches: {} ranks, {}, {}\n{} of {} values of micro-batches "
      "compared\n\n",
      v.layout, v.world, base::to_string(v.dtype), v.synthetic ? "synthetic tokens" : "the recipe's data",
      r.compared, r.compared + r.skipped);
  if (!r.skipped_ops.empty()) {
    std::string ops;
    for (const auto& [op, count] : r.skipped_ops)
      ops += fmt::format("{}{} {}", ops.empty() ? "" : ", ", op, count);
    text += fmt::format("not compared: {}\n\n", ops);
  }
  if (!r.first) return text + (r.pass() ? "PASS. No result departs from one rank's.\n" : "FAIL.\n");
  const Departure& d = *r.first;
  text += fmt::format("FAIL. First departure: {}", d.op);
  if (d.block >= 0) text += fmt::format(" of block {}, {}", d.block, d.phase);
  if (d.micro >= 0) text += fmt::format(", micro-batch {}", d.micro);
  text += fmt::format("\n  result      {}\n", d.value);
  if (!d.placement.empty()) text += fmt::format("  placement   {}\n", d.placement);
  if (!d.ranks.empty()) text += fmt::format("  on ranks    {}\n", fmt::join(d.ranks, ", "));
  text += fmt::format("  error       {:.3g} relative, tolerance {:.3g}\n", d.error, d.tolerance);
  for (size_t i = 0; i < d.inputs.size(); ++i)
    text += fmt::format("  {:<11} {}\n", i == 0 ? "it reads" : "", d.inputs[i]);
  if (!d.skipped.empty())
    text += fmt::format("  or in one of the ops between, whose results cannot be compared: {}\n",
                        fmt::join(d.skipped, ", "));
  if (v.dtype != DType::F64) text += "\n--dtype f64 is a sharper test: rounding hides small departures.\n";
  return text;
}

std::string to_json(const Bisection& r) {
  using Json = nlohmann::ordered_json;
  Json j = {{"pass", r.pass()},          {"layout", r.verified.layout},
            {"world", r.verified.world}, {"dtype", base::to_string(r.verified.dtype)},
            {"compared", r.compared},    {"not_compared", r.skipped},
            {"first_departure", Json()}};
  if (r.first) {
    const Departure& d = *r.first;
    Json& f = j["first_departure"] = {{"op", d.op},         {"value", d.value},         {"phase", d.phase},
                                      {"error", d.error},   {"tolerance", d.tolerance}, {"ranks", d.ranks},
                                      {"inputs", d.inputs}, {"skipped", d.skipped}};
    if (d.block >= 0) f["block"] = d.block;
    if (d.micro >= 0) f["micro_batch"] = d.micro;
    if (!d.placement.empty()) f["placement"] = d.placement;
  }
  return j.dump(2);
}

}  // namespace quintet::tools
