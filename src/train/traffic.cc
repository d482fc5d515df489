#include "train/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/machine.h"
#include "base/provenance.h"
#include "base/text.h"
#include "train/gather_texts.h"

namespace quintet::train {

using comm::CallKind;
using program::CollectiveKind;

namespace {

CallKind call_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::AllReduce:
      return CallKind::AllReduce;
    case CollectiveKind::AllGather:
      return CallKind::AllGather;
    case CollectiveKind::ReduceScatter:
      return CallKind::ReduceScatter;
    case CollectiveKind::AllToAll:
      return CallKind::AllToAll;
    case CollectiveKind::AllToAllV:
    case CollectiveKind::Exchange:
      return CallKind::AllToAllV;
    case CollectiveKind::Send:
      return CallKind::Send;
    case CollectiveKind::Recv:
      return CallKind::Recv;
  }
  base::fail_internal("a collective of no kind");
}

// Further passes of experts run as often as routing demands.
std::set<size_t> repeated(const program::Program& p) {
  std::set<size_t> comms;
  for (const program::Body& body : p.bodies)
    for (const program::Instr& instr : body.instrs)
      if (instr.repeated && instr.kind == program::InstrKind::Collective)
        comms.insert(instr.collective.comm.index());
  return comms;
}

}  // namespace

void TrafficLedger::ran(const program::Expanded& expanded) { ++runs_[&expanded]; }

std::map<std::pair<size_t, CallKind>, comm::CallTotals> TrafficLedger::planned() const {
  std::map<std::pair<size_t, CallKind>, comm::CallTotals> all;
  for (const auto& [expanded, times] : runs_) {
    auto known = ledgers_.find(expanded);
    if (known == ledgers_.end())
      known = ledgers_.emplace(expanded, program::make_ledger(program_, *expanded)).first;
    for (const program::LedgerRow& row : known->second.rows) {
      comm::CallTotals& total = all[{row.comm.index(), call_of(row.kind)}];
      total.kind = call_of(row.kind);
      total.calls += times * row.collectives;
      total.bytes += times * row.message_bytes;
    }
  }
  return all;
}

bool TrafficLedger::require_planned(const exec::Executor& executor) const {
  const auto counted = executor.traffic();
  if (counted.empty() || lost_) return !lost_ && program_.comms.empty();
  const auto expected = planned();
  const std::set<size_t> varying = repeated(program_);
  for (size_t c = 0; c < counted.size(); ++c) {
    if (varying.contains(c)) continue;
    std::map<CallKind, comm::CallTotals> here;
    for (const comm::CallTotals& t : counted[c]) here[t.kind] = t;
    for (const auto& [key, plan] : expected)
      if (key.first == c) here.try_emplace(key.second, comm::CallTotals{.kind = key.second});
    for (const auto& [kind, count] : here) {
      const auto it = expected.find({c, kind});
      const comm::CallTotals plan = it == expected.end() ? comm::CallTotals{} : it->second;
      const bool same_bytes = kind == CallKind::AllToAllV || count.bytes == plan.bytes;
      QUINTET_CHECK(
          count.calls == plan.calls && same_bytes,
          "rank {}: communicator '{}' ({}): {} in {} calls of {} bytes, but the plan has {} calls of {} "
          "bytes",
          program_.rank, program_.comms[c].name(), axes_text(program_.comms[c]), to_string(kind), count.calls,
          count.bytes, plan.calls, plan.bytes);
    }
  }
  return true;
}

std::vector<TrafficRow> TrafficLedger::rows(const exec::Executor& executor,
                                            const std::vector<int64_t>& process_of,
                                            const std::vector<int64_t>& host_of) const {
  std::vector<std::pair<size_t, comm::CallTotals>> totals;
  const auto counted = executor.traffic();
  for (size_t c = 0; c < counted.size(); ++c)
    for (const comm::CallTotals& t : counted[c]) totals.emplace_back(c, t);
  if (counted.empty())
    for (const auto& [key, t] : planned()) totals.emplace_back(key.first, t);
  std::map<std::tuple<std::string, CallKind, int, bool, bool>, TrafficRow> rows;
  for (const auto& [c, t] : totals) {
    const program::Communicator& comm = program_.comms[c];
    const int members = static_cast<int>(comm.members.size());
    const auto together = [&](const std::vector<int64_t>& of) {
      return std::all_of(comm.members.begin(), comm.members.end(),
                         [&](base::RankId r) { return of[r.index()] == of[comm.members.front().index()]; });
    };
    TrafficRow row{.group = axes_text(comm),
                   .kind = t.kind,
                   .members = members,
                   .one_process = together(process_of),
                   .one_host = together(host_of)};
    TrafficRow& sum =
        rows.try_emplace({row.group, row.kind, members, row.one_process, row.one_host}, row).first->second;
    sum.calls += t.calls;
    sum.bytes += t.bytes;
    sum.sent_bytes +=
        t.kind == CallKind::Recv ? 0 : static_cast<double>(t.bytes) * comm::bus_factor(t.kind, members);
    sum.seconds += t.seconds;
    sum.waiting += t.waiting;
  }
  std::vector<TrafficRow> list;
  for (auto& [key, row] : rows) list.push_back(std::move(row));
  return list;
}

std::vector<GroupTraffic> gather_traffic(const TrafficLedger& ledger, const exec::Executor& executor,
                                         comm::World& world) {
  const auto id_of = [](const std::string& text) {
    return static_cast<int64_t>(base::checksum_of(std::as_bytes(std::span(text))));
  };
  const int64_t mine[2] = {id_of(base::host_name()), id_of(base::process_name())};
  std::vector<int64_t> all(2 * static_cast<size_t>(world.size()));
  world.world().all_gather(mine, all.data(), 2, base::DType::I64);
  std::vector<int64_t> hosts, processes;
  for (size_t r = 0; r < all.size(); r += 2) hosts.push_back(all[r]), processes.push_back(all[r + 1]);

  nlohmann::json own = nlohmann::json::array();
  for (const TrafficRow& r : ledger.rows(executor, processes, hosts))
    own.push_back({r.group, to_string(r.kind),
                   r.one_process ? "memory"
                   : r.one_host  ? "host"
                                 : "network",
                   r.members, r.calls, r.bytes, r.sent_bytes, r.seconds, r.waiting});
  const std::vector<std::string> texts = gather_texts(world, own.dump());
  std::vector<GroupTraffic> list;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    for (const nlohmann::json& r : nlohmann::json::parse(texts[rank])) {
      const auto same = [&](const GroupTraffic& g) {
        return g.group == r[0] && g.call == r[1] && g.link == r[2] && g.members == r[3];
      };
      auto g = std::find_if(list.begin(), list.end(), same);
      if (g == list.end())
        g = list.insert(
            g, {.group = r[0], .call = r[1], .link = r[2], .transport = world.transport(), .members = r[3]});
      ++g->ranks;
      g->calls = std::max(g->calls, r[4].get<int64_t>());
      g->bytes = std::max(g->bytes, r[5].get<int64_t>());
      g->sent_bytes += r[6].get<double>();
      g->seconds += r[7].get<double>();
      g->waiting += r[8].get<double>();
      if (r[8].get<double>() > g->longest_wait)
        g->longest_wait = r[8], g->longest_wait_rank = static_cast<int64_t>(rank);
    }
  for (GroupTraffic& g : list) {
    const double ranks = static_cast<double>(g.ranks), working = g.seconds - g.waiting;
    // Of all ranks together: both are sums.
    if (working > 0 && g.sent_bytes > 0) {
      g.bus_bandwidth = g.sent_bytes / working;
      double factor = 1;
      for (int k = 0; k <= static_cast<int>(CallKind::Barrier); ++k)
        if (g.call == to_string(static_cast<CallKind>(k)))
          factor = comm::bus_factor(static_cast<CallKind>(k), static_cast<int>(g.members));
      g.bandwidth = factor > 0 ? g.bus_bandwidth / factor : 0;
    }
    g.seconds /= ranks;
    g.waiting /= ranks;
  }
  std::sort(list.begin(), list.end(), [](const GroupTraffic& a, const GroupTraffic& b) {
    return std::tie(a.group, a.call, a.link, a.members) < std::tie(b.group, b.call, b.link, b.members);
  });
  return list;
}

std::vector<std::string> traffic_lines(const std::vector<GroupTraffic>& traffic) {
  if (traffic.empty()) return {};
  constexpr size_t kShown = 3;
  double sent = 0, seconds = 0, waiting = 0;
  std::vector<const GroupTraffic*> order;
  for (const GroupTraffic& g : traffic) {
    sent += g.sent_bytes, seconds += g.seconds, waiting += g.waiting;
    order.push_back(&g);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto* a, const auto* b) { return a->seconds > b->seconds; });
  std::vector<std::string> lines = {
      fmt::format("{} sent by all ranks", base::human_bytes(static_cast<int64_t>(sent)))};
  if (seconds > 0) lines[0] += fmt::format("; {:.2f} s in calls per rank, {:.2f} waiting", seconds, waiting);
  for (size_t i = 0; i < std::min(order.size(), kShown) && seconds > 0; ++i) {
    const GroupTraffic& g = *order[i];
    lines.push_back(
        fmt::format("{} {}: {} calls, {:.2f} s", g.group, g.call, base::thousands(g.calls), g.seconds));
    if (g.bus_bandwidth > 0) lines.back() += fmt::format(", bus {:.2f} GB/s", g.bus_bandwidth * 1e-9);
  }
  return lines;
}

}  // namespace quintet::train
