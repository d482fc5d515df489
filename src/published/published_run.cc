#include "published/published_run.h"

#include <fmt/format.h>

#include <charconv>

#include "published/csv.h"

namespace quintet::published {
namespace {

template <class T>
std::optional<T> number(const std::string& text, std::string_view column, std::string& problem) {
  if (text.empty()) return std::nullopt;
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size() || !(value >= 0)) {
    problem = fmt::format("{} is '{}', not a number", column, text);
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::vector<PublishedRun> read_published_runs(std::string_view text, std::string_view name) {
  const Csv table = parse_csv(text, name);
  std::vector<PublishedRun> runs;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    PublishedRun r;
    const auto words = [&](std::string_view column) { return table.at(i, column); };
    r.id = words("id");
    const auto whole = [&](std::string_view column) {
      return number<int64_t>(words(column), column, r.problem);
    };
    const auto real = [&](std::string_view column) {
      return number<double>(words(column), column, r.problem);
    };
    r.source = words("source");
    r.model = words("model");
    r.gpu = words("gpu");
    r.precision = words("precision");
    r.ffn = words("ffn");
    r.kv_heads = words("kv_heads");
    r.fsdp = words("fsdp");
    r.sp = words("sp");
    r.schedule = words("schedule");
    r.micro_batch = words("micro_batch");
    r.global_batch = words("global_batch");
    r.recompute = words("recompute");
    r.verified = words("verified");
    r.layers = whole("layers");
    r.hidden = whole("hidden");
    r.heads = whole("heads");
    r.vocab = whole("vocab");
    r.seq = whole("seq");
    r.gpus = whole("gpus");
    r.dp = whole("dp");
    r.tp = whole("tp");
    r.pp = whole("pp");
    r.vpp = whole("vpp");
    r.cp = whole("cp");
    r.ep = whole("ep");
    r.tokens_per_s = real("tokens_per_s_per_gpu");
    r.tflops = real("tflops_per_gpu");
    r.mfu = real("mfu");
    r.memory_gib = real("mem_gib_per_gpu");
    runs.push_back(std::move(r));
  }
  return runs;
}

double flops_per_token(const config::Model& m, int64_t seq_len, FlopCount count) {
  const double embed = static_cast<double>(m.embed), heads = static_cast<double>(m.heads);
  const double kv = static_cast<double>(m.kv_heads), dim = static_cast<double>(m.head_dim);
  const double matrices = m.family == config::Family::Llama ? 3 : 2;  // a gated feed-forward layer has three
  double attention = embed * dim * (2 * heads + 2 * kv);              // weights of Q, K, V and the output
  double scored = heads * dim * 2;                                    // per key: scores and weighted values
  if (m.mla.kv_rank > 0) {
    const config::Mla& a = m.mla;
    const double nope = static_cast<double>(a.nope_dim), rope = static_cast<double>(a.rope_dim);
    const double v = static_cast<double>(a.v_dim), rank = static_cast<double>(a.kv_rank);
    const double q_rank = static_cast<double>(a.q_rank);
    attention = q_rank > 0 ? embed * q_rank + q_rank * heads * (nope + rope) : embed * heads * (nope + rope);
    attention += embed * (rank + rope) + rank * heads * (nope + v) + heads * v * embed;
    scored = heads * (nope + rope + v);
  }
  double keys = static_cast<double>(seq_len);
  if (m.sliding_window > 0) {  // average number of keys per query
    const double w = static_cast<double>(m.sliding_window);
    keys = w >= keys ? keys : 2 * (w - w * w / (2 * keys));
  }
  double blocks = 0;
  for (int64_t b = 0; b < m.layers; ++b) {
    const config::Moe& x = m.moe;
    const double ffn = x.in_block(b) ? static_cast<double>(x.top_k * x.ffn + x.shared_ffn) * 3 * embed +
                                           static_cast<double>(x.experts) * embed
                                     : static_cast<double>(m.ffn) * matrices * embed;
    blocks += attention + ffn + scored * keys * (count == FlopCount::Causal ? 0.5 : 1);
  }
  const double head = static_cast<double>(m.vocab) * embed;
  return (count == FlopCount::Hardware ? 8 : 6) * blocks + 6 * head;
}

}  // namespace quintet::published
