#include "config/context_parallel.h"

#include <fmt/format.h>

#include <numeric>

#include "base/error.h"

namespace quintet::config {
namespace {

constexpr int64_t kSmallChunk = 512;  // token rows

struct Widths {
  int64_t qk, v;  // of one head
};

Widths head_widths(const Model& m) {
  if (m.mla.kv_rank > 0) return {m.mla.nope_dim + m.mla.rope_dim, m.mla.v_dim};
  return {m.head_dim, m.head_dim};
}

}  // namespace

int64_t ulysses_ranks(const Parallel& p, ContextMethod method) {
  if (p.cp == 1) return 1;
  if (method == ContextMethod::Ulysses) return p.cp;
  return method == ContextMethod::UlyssesRing ? p.ulysses : 1;
}

ContextMethod windowed_method(const Parallel& p) {
  return p.cp_method_windowed == ContextMethod::Auto ? p.cp_method : p.cp_method_windowed;
}

int64_t attention_heads(const Model& m) {
  return m.family == Family::Custom ? base::demanded(m.demands, base::Dim::Heads) : m.heads;
}

int64_t attention_kv_heads(const Model& m) {
  if (m.family == Family::Custom) return base::demanded(m.demands, base::Dim::KvHeads);
  return m.mla.kv_rank > 0 ? m.heads : m.kv_heads;
}

int64_t kv_heads_per_rank(const Parallel& p, int64_t kv_heads) {
  return kv_heads % p.tp == 0 ? kv_heads / p.tp : 1;
}

int64_t ulysses_kv_ranks(const Parallel& p, int64_t kv_heads, ContextMethod method) {
  return std::gcd(ulysses_ranks(p, method), kv_heads_per_rank(p, kv_heads));
}

bool heads_divide(const Parallel& p, const Model& m, int64_t u) {
  const int64_t kv = kv_heads_per_rank(p, attention_kv_heads(m));
  return attention_heads(m) % (p.tp * u) == 0 && (kv % u == 0 || u % kv == 0);
}

double context_elements_sent(const Parallel& p, const Model& m, int64_t u) {
  QUINTET_CHECK(attention_heads(m) % (p.tp * u) == 0, "{} heads are not divisible by tp {} x ulysses {}",
                attention_heads(m), p.tp, u);
  const Widths width = head_widths(m);
  const int64_t heads = attention_heads(m) / p.tp, kv = kv_heads_per_rank(p, attention_kv_heads(m));
  const auto both = static_cast<double>(width.qk + width.v);
  const auto n = static_cast<double>(u);
  return static_cast<double>(heads) * both * (n - 1) / n + static_cast<double>(kv) * both *
                                                               static_cast<double>(p.cp - 1) /
                                                               static_cast<double>(std::gcd(u, kv));
}

int64_t largest_ulysses(const Parallel& p, const Model& m) {
  for (int64_t u = p.cp / 2; u > 1; --u)
    if (p.cp % u == 0 && heads_divide(p, m, u)) return u;
  return 1;
}

ContextMethod choose_context_method(const Parallel& p, const Model& m, const Data& data) {
  QUINTET_CHECK(p.cp > 1, "parallel.cp must be greater than 1");
  const double plain = context_elements_sent(p, m, 1);
  if (heads_divide(p, m, p.cp)) {
    if (context_elements_sent(p, m, p.cp) < plain) return ContextMethod::Ulysses;
  } else if (const int64_t u = largest_ulysses(p, m); u > 1 && context_elements_sent(p, m, u) < plain) {
    return ContextMethod::UlyssesRing;
  }
  return data.seq_len / (2 * p.cp) < kSmallChunk ? ContextMethod::Gather : ContextMethod::Ring;
}

std::string why_context_method(const Parallel& p, const Model& m, const Data& data) {
  const auto sends = [&](int64_t u) { return fmt::format("{:.6g}", context_elements_sent(p, m, u)); };
  const int64_t heads = attention_heads(m) / p.tp, kv = kv_heads_per_rank(p, attention_kv_heads(m)),
                chunk = data.seq_len / (2 * p.cp);
  const int64_t u = heads_divide(p, m, p.cp) ? p.cp : largest_ulysses(p, m);
  switch (choose_context_method(p, m, data)) {
    case ContextMethod::Ulysses:
      return fmt::format(
          "cp {} divides {} heads, and ulysses sends {} elements per row and layer, gather and ring {}", p.cp,
          heads, sends(u), sends(1));
    case ContextMethod::UlyssesRing:
      return fmt::format(
          "cp {} does not divide {}, {} does and sends {} elements per row and layer, gather and ring {}",
          p.cp, heads % p.cp != 0 ? fmt::format("{} heads", heads) : fmt::format("{} KV heads", kv), u,
          sends(u), sends(1));
    default:
      break;
  }
  const std::string exchange =
      m.family == Family::Custom ? "head widths of a custom model are unknown"
      : u == 1                   ? fmt::format("no factor of cp {} divides {} heads{}", p.cp, heads,
                             kv == heads ? "" : fmt::format(" and matches {} KV heads", kv))
               : fmt::format("exchanging heads sends no less ({} elements per row and layer instead of {})",
                             sends(u), sends(1));
  return fmt::format("{}, and chunks of {} rows are {}", exchange, chunk,
                     chunk < kSmallChunk ? "too small for a ring to hide its transfers"
                                         : "large enough for a ring to hide its transfers");
}

}  // namespace quintet::config
