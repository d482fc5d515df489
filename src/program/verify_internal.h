// Internal to room program: the parts of the verifier.
#pragma once

#include <fmt/format.h>

#include "base/error.h"
#include "program/expand.h"
#include "program/text.h"

namespace quintet::program::verifier {

// "rank 3, forward instruction 17 [tp      all_gather ...]"
inline std::string name_of(const Program& p, int body, int instr) {
  const Body& b = p.bodies[static_cast<size_t>(body)];
  return fmt::format("rank {}, {} instruction {} [{}]", p.rank, to_string(b.kind), instr,
                     to_text(p, b.instrs[static_cast<size_t>(instr)]));
}
inline std::string name_of(const Program& p, const Issue& issue) {
  return fmt::format("{} (call {})", name_of(p, issue.body, issue.instr), issue.call);
}

// An instruction's name, made where it is needed.
struct Where {
  const Program& p;
  int body, instr;
  operator std::string() const { return name_of(p, body, instr); }  // NOLINT(google-explicit-constructor)
};

template <class... Args>
[[noreturn]] void fail(const std::string& where, fmt::format_string<Args...> text, Args&&... args) {
  throw base::InternalError(
      fmt::format("program: {}: {}", where, fmt::format(text, std::forward<Args>(args)...)));
}

// verify.cc: what can be checked on one instruction or table alone.
void check_tables(const Program& p);
void check_instructions(const Program& p);
// verify_pieces.cc: pieces of matrices in gather_directions and apply_directions, in newton_schulz and in
// exchanges.
void check_flat_pieces(const Program& p, const Instr& instr, const Where& where);
void check_matrix_pieces(const Program& p, const Instr& instr, const Where& where);
void check_exchanged_pieces(const Program& p, const Instr& instr, const Where& where);
// verify_repeats.cc: what is repeated for further passes of experts.
void check_repeats(const Program& p);
// verify_issues.cc: issues against calls.
void check_issues(const Program& p, const Expanded& e);
// verify_memory.cc: the effect of the sequence of issues on memory.
void check_memory(const Program& p, const Expanded& e);

}  // namespace quintet::program::verifier
