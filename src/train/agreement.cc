#include "train/agreement.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/codes.h"
#include "config/print.h"
#include "program/verify.h"

namespace quintet::train {

using base::DType;
using base::Hash;

namespace {

// Canonical TOML, one key a line.
std::string recipe_text(config::Recipe recipe) {
  recipe.run.threads = 0;  // a host's own
  return config::to_toml(recipe);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Of the first n lines, for every n.
std::vector<Hash> prefix_hashes(const std::vector<std::string>& lines) {
  std::vector<Hash> hashes(1);
  for (const std::string& line : lines)
    hashes.push_back(base::hash_of(fmt::format("{:x},{:x},{}", hashes.back().low, hashes.back().high, line)));
  return hashes;
}

// Two ranks that exchange data of equal size; rank 0 sends first.
class PeerExchange {
 public:
  PeerExchange(comm::World& world, int peer)
      : comm_(world.world()), peer_(peer), first_(world.rank().value == 0) {}

  int64_t swap(int64_t mine) {
    int64_t theirs = 0;
    pass(&mine, &theirs, 1, DType::I64);
    return theirs;
  }
  Hash swap(const Hash& mine) {
    const int64_t out[2] = {static_cast<int64_t>(mine.low), static_cast<int64_t>(mine.high)};
    int64_t in[2] = {};
    pass(out, in, 2, DType::I64);
    return {static_cast<uint64_t>(in[0]), static_cast<uint64_t>(in[1])};
  }
  std::string swap(const std::string& mine) {
    std::string theirs(static_cast<size_t>(swap(static_cast<int64_t>(mine.size()))), '\0');
    const auto send = [&] { comm_.send(mine.data(), static_cast<int64_t>(mine.size()), DType::U8, peer_); };
    const auto receive = [&] {
      comm_.recv(theirs.data(), static_cast<int64_t>(theirs.size()), DType::U8, peer_);
    };
    exchange(send, receive);
    return theirs;
  }

 private:
  template <class Send, class Receive>
  void exchange(const Send& send, const Receive& receive) {
    if (first_) send();
    receive();
    if (!first_) send();
  }
  void pass(const void* out, void* in, int64_t count, DType dtype) {
    exchange([&] { comm_.send(out, count, dtype, peer_); }, [&] { comm_.recv(in, count, dtype, peer_); });
  }

  comm::Communicator& comm_;
  const int peer_;
  const bool first_;
};

struct Difference {
  std::vector<std::string> lines;  // this rank's, up to and with the one that differs
  std::string mine, theirs;        // empty: there is no further line
};

Difference first_difference(PeerExchange& peer, const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  const std::vector<Hash> hashes = prefix_hashes(lines);
  const int64_t count = static_cast<int64_t>(lines.size()), their_count = peer.swap(count);
  int64_t same = 0, most = std::min(count, their_count);
  while (same < most) {
    const int64_t middle = same + (most - same + 1) / 2;
    const Hash& mine = hashes[static_cast<size_t>(middle)];
    if (peer.swap(mine) == mine)
      same = middle;
    else
      most = middle - 1;
  }
  Difference d;
  d.mine = same < count ? lines[static_cast<size_t>(same)] : std::string();
  d.theirs = peer.swap(d.mine);
  lines.resize(static_cast<size_t>(std::min(same + 1, count)));
  d.lines = std::move(lines);
  return d;
}

// "optimizer.lr is 0.001 on rank 0 and 0.002 on rank 5"
std::string recipe_difference(const Difference& d, int peer) {
  const auto split = [](const std::string& line) {
    const size_t at = line.find(" = ");
    return at == std::string::npos ? std::pair(line, std::string())
                                   : std::pair(line.substr(0, at), line.substr(at + 3));
  };
  const auto [key, mine] = split(d.mine);
  const auto [their_key, theirs] = split(d.theirs);
  if (key != their_key || mine.empty())
    return fmt::format("its text is '{}' on rank 0 and '{}' on rank {}", d.mine, d.theirs, peer);
  std::string section;
  for (const std::string& line : d.lines)
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2) + ".";
  return fmt::format("{}{} is {} on rank 0 and {} on rank {}", section, key, mine, theirs, peer);
}

// "instruction 17 of forward is [...] on rank 0 and [...] on rank 5"
std::string program_difference(const Difference& d, int peer) {
  std::string where = "the program's header";
  size_t body = 0;
  for (size_t i = 0; i + 1 < d.lines.size(); ++i)
    if (d.lines[i].starts_with("body ")) body = i + 1;
  if (body > 0 && d.lines.back().starts_with("  ")) {
    const std::string& header = d.lines[body - 1];
    where = fmt::format("instruction {} of {}", d.lines.size() - 1 - body,
                        header.substr(header.find(' ', 5) + 1));
  }
  const auto shown = [](const std::string& line) {
    return line.empty() ? std::string("missing")
                        : fmt::format("[{}]", line.substr(line.find_first_not_of(' ')));
  };
  return fmt::format("{} is {} on rank 0 and {} on rank {}", where, shown(d.mine), shown(d.theirs), peer);
}

// On rank 0 and on the lowest rank that differs from it.
[[noreturn]] void explain(const config::Recipe& recipe, const compiler::CompileOptions& options,
                          comm::World& world, int peer, bool recipes_differ, int place) {
  PeerExchange exchange(world, peer);
  const bool first = world.rank().value == 0;
  if (const int64_t theirs = exchange.swap(int64_t{recipes_differ}); first) recipes_differ = theirs != 0;
  if (const int64_t theirs = exchange.swap(int64_t{place}); first) place = static_cast<int>(theirs);
  if (recipes_differ) {
    const Difference d = first_difference(exchange, recipe_text(recipe));
    if (first)
      config::fail_coded(
          config::kRanksAgree,
          "ranks were started with different recipes: {}. Start all ranks with the same recipe and "
          "the same overrides",
          recipe_difference(d, peer));
  } else {
    const Difference d = first_difference(exchange, compiler::class_text(recipe, options, place));
    if (first)
      config::fail_coded(
          config::kRanksAgree,
          "ranks compiled different programs from the same recipe: {}. Start all ranks from the same build, "
          "with the same model{}",
          program_difference(d, peer),
          recipe.memory.recompute == config::RecomputeKind::Fit
              ? "; with memory.recompute = \"fit\" also with the same run.threads on every host"
              : "");
  }
  world.world().barrier();  // rank 0 ends the job
  base::fail_internal("rank 0 continued although rank {} differs", world.rank());
}

}  // namespace

Hash recipe_hash(const config::Recipe& recipe) { return base::hash_of(recipe_text(recipe)); }

std::vector<Hash> verified_classes(const config::Recipe& recipe, const compiler::CompileOptions& options,
                                   const compiler::Compiled& mine, int threads) {
  std::vector<base::RankId> others = mine.layout.mesh.group(base::RankId(0), mine.layout.pipeline);
  others.erase(others.begin());
  compiler::CompileOptions other = options;
  other.fit = mine.fit;
  const compiler::Ranks ranks = others.empty() ? compiler::Ranks{.layout = mine.layout}
                                               : compiler::compile_ranks(recipe, other, others, threads);
  std::vector<Hash> hashes = {mine.class_hash};
  std::vector<const program::Program*> programs = {&mine.program};
  // By kind of run: a step, an evaluation, the variants of a step.
  std::vector<std::vector<const program::Expanded*>> runs = {{&mine.step}, {&mine.evaluate}};
  for (const program::Expanded& e : mine.variants) runs.push_back({&e});
  for (const compiler::RankProgram& r : ranks.program) {
    hashes.push_back(r.class_hash);
    programs.push_back(&r.program);
    runs[0].push_back(&r.step);
    runs[1].push_back(&r.evaluate);
    for (size_t v = 0; v < r.variants.size(); ++v) runs[2 + v].push_back(&r.variants[v]);
  }
  for (const std::vector<const program::Expanded*>& expanded : runs)
    program::verify_classes(programs, expanded, [&](base::RankId rank) {
      return mine.layout.mesh.index(rank, mine.layout.pipeline);
    });
  return hashes;
}

int64_t agreement_bytes(int64_t classes) {
  return (1 + classes) * static_cast<int64_t>(sizeof(Hash)) + 2 * static_cast<int64_t>(sizeof(int64_t));
}

void agree_on_program(const config::Recipe& recipe, const compiler::CompileOptions& options,
                      const compiler::Compiled& mine, comm::World& world, int threads) {
  const bool first = world.rank().value == 0;
  const Hash own_recipe = recipe_hash(recipe);
  const size_t classes = static_cast<size_t>(mine.layout.mesh.size(mine.layout.pipeline));
  // Ranks with different recipes may not even count the same classes.
  int64_t count = static_cast<int64_t>(classes);
  world.world().broadcast(&count, 1, DType::I64, 0);
  std::vector<Hash> table(static_cast<size_t>(1 + count));
  if (first) {
    const std::vector<Hash> found = verified_classes(recipe, options, mine, threads);
    table[0] = own_recipe;
    std::copy(found.begin(), found.end(), table.begin() + 1);
  }
  world.world().broadcast(table.data(), 2 * (1 + count), DType::I64, 0);
  const size_t place = static_cast<size_t>(mine.layout.mesh.index(world.rank(), mine.layout.pipeline));
  const bool recipes_differ = own_recipe != table[0];
  const bool differs =
      recipes_differ || place >= static_cast<size_t>(count) || mine.class_hash != table[1 + place];
  // The lowest that differs; the others wait for the end of the job.
  int64_t lowest = differs ? world.size() - world.rank().value : 0;
  world.world().all_reduce(&lowest, 1, DType::I64, comm::ReduceOp::Max);
  if (lowest == 0) return;
  const int other = world.size() - static_cast<int>(lowest);
  if (first || other == world.rank().value)
    explain(recipe, options, world, first ? other : 0, recipes_differ, static_cast<int>(place));
  world.world().barrier();
  base::fail_internal("rank 0 continued although rank {} differs", other);
}

void agree(comm::World& world, const std::exception_ptr& failure) {
  int64_t lowest = failure ? world.size() - world.rank().value : 0;
  world.world().all_reduce(&lowest, 1, base::DType::I64, comm::ReduceOp::Max);
  if (lowest == 0) return;
  if (world.size() - world.rank().value == lowest) std::rethrow_exception(failure);
  world.world().barrier();
}

}  // namespace quintet::train
