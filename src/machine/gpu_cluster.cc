#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "hardware/catalogue.h"
#include "machine/fit_efficiency.h"
#include "machine/gpu_probe.h"
#include "machine/measured_rates.h"

namespace quintet::machine {
namespace {

using hardware::Arithmetic;

std::string in_units(double value, std::string_view unit) { return with_prefix(value, unit, 4); }

// A device that is not in the catalogue: peaks are the best rates measured.
hardware::Accelerator unknown_device(const GpuProbe& p) {
  hardware::Accelerator a;
  a.vendor = hardware::Vendor::Nvidia;
  a.memory_bytes_per_s = p.memory.best;
  a.units = std::max(1, p.gpu.units);
  for (const auto& [kind, rate] : {std::pair{Arithmetic::BF16, p.bf16},
                                   {Arithmetic::F16, p.bf16},
                                   {Arithmetic::TF32, p.tf32},
                                   {Arithmetic::F32, p.f32},
                                   {Arithmetic::F64, p.f64}})
    a.dense_flops[static_cast<size_t>(kind)] = rate.best;
  a.link = "pcie-5";
  a.network = "ib-ndr";
  a.host = "pcie-5";
  return a;
}

}  // namespace

const hardware::Accelerator* find_by_device_name(const std::string& device) {
  const std::string lower = base::lower_case(device);
  const hardware::Catalogue& all = hardware::catalogue();
  const hardware::Accelerator* found = nullptr;
  size_t longest = 0;
  for (size_t i = 0; i < all.accelerator_names.aliases.size(); ++i) {
    const std::string& alias = all.accelerator_names.aliases[i];
    if (alias.size() <= longest || lower.find(alias) == std::string::npos) continue;
    longest = alias.size();
    found = &all.accelerators[all.accelerator_names.entry[i]];
  }
  return found;
}

hardware::Cluster cluster_of(const GpuProbe& p, const MachineFacts& facts, const std::string& date) {
  const hardware::Accelerator* known = find_by_device_name(p.gpu.name);
  hardware::Accelerator a = known != nullptr ? *known : unknown_device(p);
  a.name = known != nullptr ? known->name + "-probed" : "probed-gpu";
  a.title = p.gpu.name;
  a.memory_bytes = p.gpu.memory_bytes;
  a.runtime_bytes = p.runtime_bytes();
  a.per_node = p.ranks_per_host;
  a.host_bytes_per_device = facts.memory_bytes / p.ranks_per_host;
  a.source += fmt::format("{}quintet doctor --probe", a.source.empty() ? "" : "; memory: ");
  a.date = date;
  a.efficiency_source = "quintet doctor --probe";
  hardware::Efficiency& e = a.efficiency;
  e.launch_seconds = p.launch_seconds;
  e.memory = share_of(p.memory.median, a.memory_bytes_per_s);
  const double size = p.matmul_size;
  if (size > 0) {
    const hardware::Matmul large{.m = size, .n = size, .k = size, .bytes = 3 * 2 * size * size};
    e.matmul = fit_matmul(a, large, 2 * size * size * size / p.bf16.median);
  }
  if (p.attention_keys > 0) {
    // The rates do not depend on the number of heads, once the chip is full.
    hardware::Attention attention{.flops = 1e12, .keys = p.attention_keys};
    e.attention_forward = fit_attention(a, attention, attention.flops / p.attention_forward.median);
    attention.backward = true;
    e.attention_backward = fit_attention(a, attention, attention.flops / p.attention_backward.median);
  }

  hardware::Cluster c = hardware::make_cluster(a, p.world, p.ranks_per_host);
  c.host_bytes = facts.memory_bytes;
  c.host = measured_link("probed-host", "host to device and back", hardware::LinkKind::Host,
                         std::min(p.to_device_bytes_per_s, p.to_host_bytes_per_s), 1e-5, date);
  if (p.link.ranks > 1 && p.world == p.ranks_per_host)
    c.inner = measured_link("probed-inner", fmt::format("{} GPUs on one host", p.link.ranks),
                            hardware::LinkKind::Inner, p.link.bytes_per_s, p.link.latency_seconds, date);
  if (p.link.ranks > 1 && p.world != p.ranks_per_host)
    c.outer = measured_link("probed-network", fmt::format("{} GPUs on {} hosts", p.world, c.nodes),
                            hardware::LinkKind::Network, p.link.bytes_per_s / c.ports_per_device,
                            p.link.latency_seconds, date);
  return c;
}

std::optional<hardware::Cluster> cluster_of(const std::vector<GpuFacts>& gpus, int64_t ranks,
                                            const MachineFacts& facts, std::string& reason) {
  if (std::ssize(gpus) < ranks) {
    reason = fmt::format("{} GPU{} for {} ranks", gpus.size(), gpus.size() == 1 ? "" : "s", ranks);
    return std::nullopt;
  }
  const std::string& name = gpus.front().name;
  for (int64_t i = 1; i < ranks; ++i)
    if (const std::string& other = gpus[static_cast<size_t>(i)].name; other != name) {
      reason = fmt::format("different models, {} and {}", name, other);
      return std::nullopt;
    }
  const hardware::Accelerator* known = find_by_device_name(name);
  if (known == nullptr) {
    reason = fmt::format("{} is not in the catalogue", name);
    return std::nullopt;
  }
  hardware::Accelerator a = *known;
  a.memory_bytes = gpus.front().memory_bytes;
  hardware::Cluster cluster = hardware::make_cluster(a, static_cast<int>(ranks), static_cast<int>(ranks));
  cluster.host_bytes = facts.memory_bytes;
  return cluster;
}

std::string describe(const std::vector<GpuFacts>& gpus) {
  std::string text;
  for (size_t i = 0; i < gpus.size(); ++i)
    text += fmt::format("GPU {:<8}{}, {}, compute capability {}.{}, {} multiprocessors\n", i, gpus[i].name,
                        base::human_bytes(gpus[i].memory_bytes), gpus[i].major, gpus[i].minor, gpus[i].units);
  return text;
}

std::string describe(const GpuProbe& p) {
  const hardware::Accelerator* known = find_by_device_name(p.gpu.name);
  std::string text =
      fmt::format("measured    {} rank{} on {} GPU{} per host, {}; rates of the slowest rank\n", p.world,
                  p.world == 1 ? "" : "s", p.gpus, p.gpus == 1 ? "" : "s", p.gpu.name);
  const auto flops = [&](std::string_view name, const Rate& r, Arithmetic kind) {
    if (r.median <= 0) return;
    const double peak = known != nullptr ? known->dense(kind) : 0;
    text += fmt::format("matmul {:<5}{}, best {}{}\n", name, in_units(r.median, "FLOP/s"),
                        in_units(r.best, "FLOP/s"),
                        peak > 0 ? fmt::format(" ({:.0f} % of the dense peak)", 100 * r.best / peak) : "");
  };
  flops("bf16", p.bf16, Arithmetic::BF16);
  flops("tf32", p.tf32, Arithmetic::TF32);
  flops("f32", p.f32, Arithmetic::F32);
  flops("f64", p.f64, Arithmetic::F64);
  if (p.attention_keys > 0)
    text += fmt::format("attention   forward {}, backward {} (bf16, causal, {:.0f} tokens, head size 128)\n",
                        in_units(p.attention_forward.median, "FLOP/s"),
                        in_units(p.attention_backward.median, "FLOP/s"), p.attention_keys);
  text += fmt::format("memory      {} read and written\n", in_units(p.memory.median, "B/s"));
  text += fmt::format("host        {} to the device, {} back\n", in_units(p.to_device_bytes_per_s, "B/s"),
                      in_units(p.to_host_bytes_per_s, "B/s"));
  text += fmt::format("launch      {:.2f} us from kernel to kernel in a graph\n", p.launch_seconds * 1e6);
  if (p.link.ranks > 1)
    text += fmt::format("link        {} each way, {:.1f} us per hop, {} ranks\n",
                        in_units(p.link.bytes_per_s, "B/s"), p.link.latency_seconds * 1e6, p.link.ranks);
  text += fmt::format("runtime     {} outside the plan: {} in use before, {} for libraries\n",
                      base::human_bytes(p.runtime_bytes()), base::human_bytes(p.context_bytes),
                      base::human_bytes(p.libraries_bytes));
  return text;
}

}  // namespace quintet::machine
