#include "compiler/size_limit.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/limits.h"

namespace quintet::compiler {

void require_sane_micro_batch(const config::Recipe& r) {
  const int64_t micro = r.batch.micro, seq = r.data.seq_len, cp = std::max<int64_t>(1, r.parallel.cp);
  const double tokens = static_cast<double>(micro) * static_cast<double>(seq) / static_cast<double>(cp);
  if (tokens <= static_cast<double>(config::kMaxTokensPerMicroBatch)) return;
  const int64_t meant = std::max<int64_t>(1, r.batch.global / seq);
  base::fail_user(
      "a micro-batch of {} x {} tokens has {} tokens on each rank; the limit is {}. batch.global{} counts "
      "sequences, not tokens: did you mean {} ({} tokens)?",
      base::thousands(micro), base::thousands(seq), base::human_count(tokens),
      base::thousands(config::kMaxTokensPerMicroBatch),
      r.batch.accumulation == 1 ? fmt::format(" = {}", r.batch.global) : std::string(), meant,
      base::thousands(meant * seq));
}

}  // namespace quintet::compiler
