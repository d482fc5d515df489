#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/error.h"
#include "base/text.h"
#include "schedule/generators.h"

namespace quintet::schedule {
namespace {

struct Named {
  int chunks;  // 0: any number
  Schedule (*make)(int p, int chunks, int m, int group);
};

const std::array<std::string, 9> kNames = {"gpipe", "1f1b",   "interleaved", "zb-h1",    "zb-h2",
                                           "zb-v",  "v-half", "v-min",       "dualpipev"};
const std::array<Named, 9> kNamed = {{
    {1, [](int p, int, int m, int) { return gpipe(p, m); }},
    {1, [](int p, int, int m, int) { return one_f_one_b(p, m); }},
    {0, [](int p, int chunks, int m, int group) { return interleaved(p, chunks, m, group); }},
    {1, [](int p, int, int m, int) { return zb_h1(p, m); }},
    {1, [](int p, int, int m, int) { return zb_h2(p, m); }},
    {2, [](int p, int, int m, int) { return zb_v(p, m); }},
    {2, [](int p, int, int m, int) { return v_half(p, m); }},
    {2, [](int p, int, int m, int) { return v_min(p, m); }},
    {2, [](int p, int, int m, int) { return dualpipev(p, m); }},
}};

}  // namespace

std::span<const std::string> schedule_names() { return kNames; }

// A minute of simulation.
constexpr int64_t kMaxForwards = int64_t{1} << 20;

Schedule make_schedule(std::string_view name, int p, int chunks, int m, int group) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != name) continue;
    const Named& named = kNamed[i];
    if (group != 0 && named.chunks != 0)
      base::fail_user("schedule {} has no groups of micro-batches; schedule interleaved has", name);
    if (named.chunks != 0 && chunks != 0 && chunks != named.chunks)
      base::fail_user("schedule {} requires {} chunk{} per stage; got {}", name, named.chunks,
                      named.chunks == 1 ? "" : "s", chunks);
    const int v = chunks != 0 ? chunks : named.chunks != 0 ? named.chunks : 2;
    if (const int64_t size = int64_t{p} * v * m; p > 0 && m > 0 && size > kMaxForwards)
      base::fail_user(
          "a schedule of {} stages x {} chunks x {} micro-batches = {} forwards is too large; the "
          "limit is {}",
          p, v, m, base::thousands(size), base::thousands(kMaxForwards));
    return named.make(p, chunks != 0 ? chunks : 2, m, group);
  }
  const std::optional<std::string> near = base::nearest_word(name, kNames);
  base::fail_user("unknown schedule '{}'{}; known schedules: {}", name,
                  near ? fmt::format(" (did you mean '{}'?)", *near) : "", fmt::join(kNames, ", "));
}

}  // namespace quintet::schedule
