// Whether the issues match the calls, and waits point backwards.
#include <map>

#include "program/verify_internal.h"

namespace quintet::program::verifier {

void check_issues(const Program& p, const Expanded& e) {
  const std::string where = fmt::format("rank {}", p.rank);
  if (e.num_streams != static_cast<int>(p.streams.size()))
    fail(where, "{} streams expanded of {}", e.num_streams, p.streams.size());
  // Bodies that do the same for different slots count as one.
  std::map<std::pair<BodyKind, int>, char> begun, ended;
  std::vector<int> length(p.streams.size(), 0);
  size_t k = 0;
  for (size_t c = 0; c < e.calls.size(); ++c) {
    const Call& call = e.calls[c];
    const std::string here = fmt::format("rank {}, call {}", p.rank, c);
    if (call.body < 0 || static_cast<size_t>(call.body) >= p.bodies.size())
      fail(here, "there is no body {}", call.body);
    const Body& body = p.bodies[static_cast<size_t>(call.body)];
    const std::pair<BodyKind, int> b = {body.kind, body.chunk};
    if (call.first == static_cast<bool>(begun[b]))
      fail(here, "is marked wrongly as first, or not as first, of its body");
    if (ended[b]) fail(here, "follows the call marked as last of its body");
    begun[b] = 1;
    ended[b] = call.last;
    for (size_t i = 0; i < body.instrs.size(); ++i) {
      const Instr& instr = body.instrs[i];
      if (!takes_part(instr, call)) continue;
      const std::string_view missing = "is not issued in its turn";
      if (k >= e.issues.size()) fail(name_of(p, call.body, static_cast<int>(i)), "{}", missing);
      const Issue& issue = e.issues[k++];
      if (issue.call != static_cast<int>(c) || issue.body != call.body || issue.instr != static_cast<int>(i))
        fail(name_of(p, call.body, static_cast<int>(i)), "{}", missing);
      int& position = length[instr.stream.index()];
      if (issue.position != position)
        fail(name_of(p, issue), "is at position {} of its stream, not {}", issue.position, position);
      if (issue.num_waits < 0 || issue.first_wait < 0 ||
          static_cast<size_t>(issue.first_wait) + static_cast<size_t>(issue.num_waits) > e.waits.size())
        fail(name_of(p, issue), "has waits outside the list");
      for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
        const Wait& wait = e.waits[static_cast<size_t>(w)];
        if (!wait.stream.valid() || wait.stream.index() >= length.size() || wait.position < 0 ||
            wait.position >= length[wait.stream.index()])
          fail(name_of(p, issue), "waits for position {} of stream {}, which is not issued before it",
               wait.position, wait.stream);
      }
      ++position;
    }
  }
  for (const auto& [b, has_begun] : begun)
    if (has_begun && !ended[b]) fail(where, "no call of body {} is marked as its last", to_string(b.first));
  if (k != e.issues.size()) fail(where, "{} issues, the calls have {}", e.issues.size(), k);
}

}  // namespace quintet::program::verifier
