#include "sim/durations.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "graph/ops/attention.h"
#include "program/ledger.h"
#include "sim/time_breakdown.h"

namespace quintet::sim {

using graph::Dim;
using graph::Type;
using hardware::Arithmetic;
using hardware::CollectiveShape;
using program::Collective;
using program::CollectiveKind;
using program::Instr;
using program::InstrKind;

namespace {

bool has_dim(const Type& t, Dim d) {
  return std::any_of(t.dims.begin(), t.dims.end(), [&](const graph::DimSize& s) { return s.name == d; });
}

// The most keys that a query sees.
double keys_of(const Instr& instr) {
  const int64_t seq_len = instr.attrs.integer("seq_len"), window = instr.attrs.integer("window");
  return static_cast<double>(window > 0 ? std::min(window, seq_len) : seq_len);
}

// The keys that a query sees on average, where a sequence is one document.
double mean_keys_of(const Instr& instr) {
  if (graph::sees_both_sides(instr.attrs)) return keys_of(instr);
  const double most = keys_of(instr), seq_len = static_cast<double>(instr.attrs.integer("seq_len"));
  return (most * (most + 1) / 2 + (seq_len - most) * most) / seq_len;
}

// Narrow operands are converted from wide ones: two bytes read, one written, and one more written transposed
// for the backward matmuls. The forward matmul converts both of its operands; the input gradient converts the
// output gradient; the weight gradient finds all its operands converted.
double narrowed_bytes(const graph::OpDef& op, const std::vector<Type>& in, const graph::Gemm& gemm) {
  constexpr double kPerElement = 4;
  if (op.op_class == graph::OpClass::Router || op.pass == graph::OpPass::WeightGradient) return 0;
  const double first = static_cast<double>(in[0].count());
  const double weights = op.pass == graph::OpPass::Forward ? gemm.groups * gemm.n * gemm.k : 0;
  return kPerElement * (first + weights);
}

CollectiveShape shape_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return CollectiveShape::AllReduce;
    case CollectiveKind::AllGather:
      return CollectiveShape::AllGather;
    case CollectiveKind::ReduceScatter:
      return CollectiveShape::ReduceScatter;
    case CollectiveKind::AllToAll:
    case CollectiveKind::AllToAllV:
    case CollectiveKind::Exchange:
      return CollectiveShape::AllToAll;
    case CollectiveKind::Send:
    case CollectiveKind::Recv:
      return CollectiveShape::Message;
  }
  base::fail_internal("unknown collective");
}

// With padded experts the counts are known in advance.
bool waits_for_counts(const Instr& i) { return i.op == &graph::kRoute && i.attrs.integer("pad") == 0; }

}  // namespace

WorkClass class_of(const graph::OpDef& op) {
  if (op.gemm != nullptr) return WorkClass::Matmul;
  return op.op_class == graph::OpClass::Attention ? WorkClass::Attention : WorkClass::Other;
}

Arithmetic arithmetic_of(base::DType dtype) {
  switch (dtype) {
    case base::DType::BF16:
      return Arithmetic::BF16;
    case base::DType::F16:
      return Arithmetic::F16;
    case base::DType::F64:
      return Arithmetic::F64;
    case base::DType::E4M3:
    case base::DType::E5M2:
      return Arithmetic::FP8;
    default:
      return Arithmetic::F32;
  }
}

Durations::Durations(const program::Program& program, const Machine& machine)
    : program_(program), machine_(machine) {
  for (const program::Communicator& c : program.comms) {
    spreads_.push_back(hardware::spread_of(c.members, machine.cluster));
    tensor_.push_back(!c.moves_experts() && c.axes() == std::vector{layout::Axis::Tp});
    experts_.push_back(c.moves_experts());
  }
  for (const program::Body& body : program.bodies)
    for (const Instr& i : body.instrs)
      if (i.kind == InstrKind::Compute && i.op == &graph::kRoute)
        choices_ = static_cast<double>(i.attrs.integer("choices"));
  // A rank sends as many rows as it receives on average; on the way back they are all present, including the
  // copies made by ranks that share an expert.
  std::map<int64_t, int64_t> sent;
  for (const program::Body& body : program.bodies)
    for (const Instr& i : body.instrs) {
      if (i.kind != InstrKind::Collective || i.collective.kind != CollectiveKind::AllToAllV) continue;
      const Type &from = i.in[0].type, &to = i.out[0].type;
      if (!has_dim(from, Dim::Routed) && !has_dim(to, Dim::Routed)) continue;
      const bool back = has_dim(from, Dim::Routed);
      int64_t& rows = sent[(back ? from : to).size(0)];
      rows = std::max(rows, (back ? to : from).size(0));
    }
  std::set<int64_t> splits;  // bounds past which rows take further passes
  for (const program::Body& body : program.bodies)
    for (const Instr& i : body.instrs)
      if (i.op == &graph::kSplitRows) splits.insert(i.attrs.integer("rows"));
  for (const auto& [bound, rows] : sent) {
    const int64_t all = std::llround(machine.imbalance * static_cast<double>(rows));
    expected_rows_[bound] = std::clamp<int64_t>(all, 1, std::max<int64_t>(bound, 1));
    if (all <= bound || !splits.contains(bound)) continue;
    further_.passes = (all - bound + bound - 1) / bound;
    further_.rows = (all - bound + further_.passes - 1) / further_.passes;
  }
}

Type Durations::expected(Type type, bool repeated) const {
  for (graph::DimSize& d : type.dims)
    if (d.name == Dim::Routed)
      if (const auto it = expected_rows_.find(d.size); it != expected_rows_.end())
        d.size = repeated ? further_.rows : it->second;
  return type;
}

graph::Cost Durations::cost(const Instr& instr) const {
  if (expected_rows_.empty() || instr.kind != InstrKind::Compute || instr.op->cost == nullptr)
    return program::cost_of(instr);
  std::vector<Type> in, out;
  for (const program::Operand& o : instr.in) in.push_back(expected(o.type, instr.repeated));
  for (const program::Operand& o : instr.out) out.push_back(expected(o.type, instr.repeated));
  const graph::Cost once = instr.op->cost(in, out, instr.attrs);
  return {.flops = times(instr) * once.flops, .bytes = times(instr) * once.bytes};
}

double Durations::message_bytes(const Collective& c, const Instr& instr) const {
  const int members = spread(c.comm).members;
  if (c.kind != CollectiveKind::AllToAllV) return static_cast<double>(program::message_bytes(c, members));
  // The larger side at the expected number of rows: with copies, a row is sent several times.
  const auto bytes = [&](const program::Operand& o) {
    const Type t = expected(o.type, instr.repeated);
    return static_cast<double>(t.bytes());
  };
  return std::max(bytes(instr.in[0]), bytes(instr.out[0]));
}

double Durations::sent_bytes(const Instr& instr) const {
  const Collective& c = instr.collective;
  const int members = spread(c.comm).members;
  if (c.kind != CollectiveKind::AllToAllV) return program::sent_bytes(c, members);
  return times(instr) * message_bytes(c, instr) * (members - 1) / members;
}

double Durations::compute_seconds(const Instr& instr) const {
  const hardware::Accelerator& device = machine_.cluster.accelerator;
  graph::Cost c = cost(instr);
  if (instr.repeated) c.flops /= times(instr), c.bytes /= times(instr);
  const WorkClass kind = class_of(*instr.op);
  if (kind == WorkClass::Other)
    return hardware::memory_seconds(c.bytes, device, machine_.stack) +
           (waits_for_counts(instr) ? machine_.stack.route_seconds : 0);
  const Arithmetic own = arithmetic_of(instr.in[0].type.dtype);
  if (kind == WorkClass::Attention) {
    const bool documents = machine_.visible_keys > 0 && instr.attrs.integer("packed") != 0;
    // Documents of one length n have (n + 1) / 2 visible keys on average.
    const double share = documents ? std::min(1.0, machine_.visible_keys / mean_keys_of(instr)) : 1,
                 keys = documents ? std::min(keys_of(instr), 2 * machine_.visible_keys) : keys_of(instr);
    return hardware::attention_seconds(
        {.flops = share * c.flops,
         .bytes = c.bytes,
         .head_dim = instr.in[0].type.size(2),
         .backward = instr.op->pass != graph::OpPass::Forward,
         .arithmetic = own,
         .keys = graph::sees_both_sides(instr.attrs) ? 0 : keys,
         .tensor_cores = !machine_.plain_attention || !machine_.plain_attention(instr),
         .documents = documents && share < 1},
        device, machine_.stack);
  }
  std::vector<Type> in, out;
  for (const program::Operand& o : instr.in) in.push_back(expected(o.type, instr.repeated));
  for (const program::Operand& o : instr.out) out.push_back(expected(o.type, instr.repeated));
  const graph::Gemm gemm = instr.op->gemm(in, out, instr.attrs);
  hardware::Matmul product{.m = gemm.m, .n = gemm.n, .k = gemm.k, .groups = gemm.groups};
  const bool narrow = machine_.matmul && instr.op != &graph::kNewtonSchulz && !has_dim(in[0], Dim::Vocab) &&
                      !has_dim(in[1], Dim::Vocab) && !has_dim(in[1], Dim::Routes) &&
                      !has_dim(in[0], Dim::Routes) && !has_dim(out[0], Dim::Routes);
  product.arithmetic = narrow ? *machine_.matmul : own;
  product.bytes = c.bytes;
  const double seconds = hardware::matmul_seconds(product, device, machine_.stack);
  if (!narrow || hardware::bytes_per_element(product.arithmetic) >= hardware::bytes_per_element(own))
    return seconds;
  const double made = narrowed_bytes(*instr.op, in, gemm);
  return made > 0 ? seconds + hardware::memory_seconds(made, device, machine_.stack) : seconds;
}

// Where rows for several experts of a domain cross the network once: a token leaves its domain once per other
// domain that holds one of its experts. Inside a domain, all copies are made.
double Durations::exchange_seconds(const Instr& instr) const {
  const Collective& c = instr.collective;
  const hardware::Spread& all = spread(c.comm);
  const double bytes = message_bytes(c, instr), domains = all.domains;
  const double leaving = choices_ * (1 - 1 / domains);
  const double reached = (domains - 1) * (1 - std::pow(1 - 1 / domains, choices_));
  const auto seconds = [&](double size, const hardware::Spread& spread) {
    return hardware::collective_seconds(shape_of(c.kind), size, spread, machine_.cluster, machine_.stack);
  };
  const hardware::Spread inside{.members = all.per_domain, .per_domain = all.per_domain, .domains = 1};
  return std::max(seconds(bytes * std::min(1.0, reached / leaving), all), seconds(bytes, inside));
}

Use Durations::use(const Instr& instr) const {
  const Collective& c = instr.collective;
  const hardware::Spread& s = spread(c.comm);
  if (s.members == 1) return {};
  const double latency = hardware::collective_cost(shape_of(c.kind), message_bytes(c, instr), s,
                                                   machine_.cluster, machine_.stack)
                             .latency_seconds;
  return {.link = s.domains > 1 ? 1 : 0,
          .latency = tensor_[c.comm.index()] ? latency * (1 - machine_.stack.tensor_hidden) : latency};
}

double Durations::operator()(const Instr& instr) const {
  return times(instr) == 0 ? 0 : times(instr) * seconds_once(instr);
}

double Durations::seconds_once(const Instr& instr) const {
  if (instr.kind == InstrKind::Compute) return compute_seconds(instr);
  if (instr.kind != InstrKind::Collective) return 0;
  const Collective& c = instr.collective;
  const hardware::Stack& stack = machine_.stack;
  if (stack.dispatch_once && experts_[c.comm.index()] && spread(c.comm).domains > 1 &&
      shape_of(c.kind) == CollectiveShape::AllToAll)
    return exchange_seconds(instr);
  const double seconds = hardware::collective_seconds(shape_of(c.kind), message_bytes(c, instr),
                                                      spread(c.comm), machine_.cluster, stack);
  return tensor_[c.comm.index()] ? seconds * (1 - stack.tensor_hidden) : seconds;
}

}  // namespace quintet::sim
