#include "schedule/check.h"

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <map>
#include <tuple>

#include "base/error.h"
#include "schedule/order.h"

namespace quintet::schedule {
namespace {

using base::fail_user;

void check_shape(const Schedule& s) {
  if (s.stages < 1 || s.chunks < 1 || s.micro_batches < 1)
    fail_user("schedule {}: needs at least 1 stage, 1 chunk and 1 micro-batch; has {}, {} and {}", s.name,
              s.stages, s.chunks, s.micro_batches);
  constexpr int64_t kMaxActions = 100'000'000;  // F actions; a typo in a file must not exhaust memory
  if (static_cast<int64_t>(s.stages) * s.chunks > kMaxActions / s.micro_batches)
    fail_user("schedule {}: {} stages of {} chunks and {} micro-batches exceed the limit of {} forwards",
              s.name, s.stages, s.chunks, s.micro_batches, kMaxActions);
  if (static_cast<int>(s.ranks.size()) != s.stages)
    fail_user("schedule {}: {} stages, but actions for {} ranks", s.name, s.stages, s.ranks.size());
  if (s.placement == Placement::VShape && s.chunks != 2)
    fail_user("schedule {}: the V placement requires 2 chunks per rank, not {}", s.name, s.chunks);
  if (!s.max_in_flight.empty() && static_cast<int>(s.max_in_flight.size()) != s.stages)
    fail_user("schedule {}: max_in_flight has {} numbers for {} ranks", s.name, s.max_in_flight.size(),
              s.stages);
}

// Positions of F, B, W and BW of one (chunk, micro-batch) in a rank's list; -1: absent.
using Places = std::array<int, 4>;

void check_rank(const Schedule& s, int rank) {
  const std::vector<Action>& actions = s.ranks[rank];
  std::vector<Places> places(static_cast<size_t>(s.chunks) * s.micro_batches, Places{-1, -1, -1, -1});
  for (int i = 0; i < static_cast<int>(actions.size()); ++i) {
    const Action& a = actions[i];
    if (a.chunk < 0 || a.chunk >= s.chunks || a.micro < 0 || a.micro >= s.micro_batches)
      fail_user("schedule {}: rank {}: {} is out of range; there are {} chunks and {} micro-batches", s.name,
                rank, to_text(a), s.chunks, s.micro_batches);
    if (!s.splits_backward && (a.kind == Kind::B || a.kind == Kind::W))
      fail_user("schedule {}: rank {}: {} splits a backward, but the schedule declares none split", s.name,
                rank, to_text(a));
    int& place = places[a.chunk * s.micro_batches + a.micro][static_cast<int>(a.kind)];
    if (place >= 0) fail_user("schedule {}: rank {}: {} appears twice", s.name, rank, to_text(a));
    place = i;
    if (!a.with_next) continue;
    const bool last = i + 1 == static_cast<int>(actions.size());
    if (a.kind != Kind::F || last || (actions[i + 1].kind != Kind::B && actions[i + 1].kind != Kind::BW))
      fail_user(
          "schedule {}: rank {}: {} is marked as mixed with the next action, but only an F and a B or BW can "
          "be",
          s.name, rank, to_text(a));
  }
  for (int chunk = 0; chunk < s.chunks; ++chunk)
    for (int micro = 0; micro < s.micro_batches; ++micro) {
      const auto [f, b, w, bw] = places[chunk * s.micro_batches + micro];
      const auto name = [&](Kind kind) { return to_text(Action{kind, chunk, micro}); };
      if (f < 0) fail_user("schedule {}: rank {}: {} is missing", s.name, rank, name(Kind::F));
      if (bw >= 0 && (b >= 0 || w >= 0))
        fail_user("schedule {}: rank {}: {} and {} compute the same gradients", s.name, rank, name(Kind::BW),
                  name(b >= 0 ? Kind::B : Kind::W));
      if (bw < 0 && b < 0 && w < 0)
        fail_user("schedule {}: rank {}: {} is missing{}", s.name, rank, name(Kind::BW),
                  s.splits_backward ? fmt::format(" (or {} and {})", name(Kind::B), name(Kind::W)) : "");
      if (bw < 0 && b < 0) fail_user("schedule {}: rank {}: {} is missing", s.name, rank, name(Kind::B));
      if (bw < 0 && w < 0) fail_user("schedule {}: rank {}: {} is missing", s.name, rank, name(Kind::W));
      if ((bw >= 0 ? bw : b) < f)
        fail_user("schedule {}: rank {}: {} comes before {}", s.name, rank,
                  name(bw >= 0 ? Kind::BW : Kind::B), name(Kind::F));
      if (bw < 0 && w < b)
        fail_user("schedule {}: rank {}: {} comes before {}", s.name, rank, name(Kind::W), name(Kind::B));
    }
}

// Messages per channel, in the order in which one end processes them. A message is identified by the virtual
// stage that receives it and its micro-batch.
using Channel = std::tuple<int, int, bool>;  // from, to, forward
using Message = std::pair<int, int>;
using Channels = std::map<Channel, std::vector<Message>>;

void check_channels(const Schedule& s) {
  Channels sent, used;
  for (int rank = 0; rank < s.stages; ++rank)
    for (const Action& a : s.ranks[rank]) {
      if (a.kind == Kind::W) continue;
      const bool forward = a.kind == Kind::F;
      const int stage = s.stage_of(rank, a.chunk), to = stage + (forward ? 1 : -1),
                from = stage - (forward ? 1 : -1);
      const auto exists = [&](int other) { return other >= 0 && other < s.virtual_stages(); };
      if (exists(to) && s.home_of(to).rank != rank)
        sent[{rank, s.home_of(to).rank, forward}].emplace_back(to, a.micro);
      if (exists(from) && s.home_of(from).rank != rank)
        used[{s.home_of(from).rank, rank, forward}].emplace_back(stage, a.micro);
    }
  for (const auto& [channel, messages] : sent) {
    const auto& [from, to, forward] = channel;
    const std::vector<Message>& wanted = used.at(channel);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i] == wanted[i]) continue;
      const Kind kind = forward ? Kind::F : Kind::B;
      const auto name = [&](const Message& m) {
        return to_text(Action{kind, s.home_of(m.first).chunk, m.second});
      };
      fail_user("schedule {}: rank {} runs {} next, but rank {} first sends the input of {}", s.name, to,
                name(wanted[i]), from, name(messages[i]));
    }
  }
}

void check_promise(const Schedule& s) {
  if (s.max_in_flight.empty()) return;
  for (int rank = 0; rank < s.stages; ++rank) {
    int held = 0;
    for (const Action& a : s.ranks[rank]) {
      if (a.kind == Kind::F && ++held > s.max_in_flight[rank])
        fail_user("schedule {}: rank {}: at {} it holds {} activations, but promises at most {}", s.name,
                  rank, to_text(a), held, s.max_in_flight[rank]);
      if (a.kind == Kind::W || a.kind == Kind::BW) --held;
    }
  }
}

}  // namespace

void check(const Schedule& s) {
  check_shape(s);
  for (int rank = 0; rank < s.stages; ++rank) check_rank(s, rank);
  if (const std::optional<std::string> stuck = walk(s, [](int, int) {}))
    fail_user("schedule {}: {}", s.name, *stuck);
  check_channels(s);
  check_promise(s);
}

}  // namespace quintet::schedule
