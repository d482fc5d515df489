// Accelerators, links and software of a published row.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "published/map_run.h"

namespace quintet::published {
namespace {

// Column text that identifies an accelerator; the first match wins.
struct KnownGpu {
  std::string_view word, also;  // both must occur; `also` may be empty
  std::string_view accelerator;
  int per_node = 8;
  int domain = 8;
};
constexpr std::array kKnownGpus = {
    KnownGpu{"GB300", "", "gb300", 4, 64},
    KnownGpu{"GB200", "", "gb200", 4, 64},
    KnownGpu{"B300", "", "b300"},
    KnownGpu{"B200", "power limited", "b200-limited"},
    KnownGpu{"B200", "", "b200"},
    KnownGpu{"Blackwell", "", "b200"},
    KnownGpu{"GH200", "", "gh200", 4, 4},
    KnownGpu{"H200", "", "h200"},
    KnownGpu{"H800", "", "h800"},
    KnownGpu{"H100", "500W", "h100-96gb-500w"},
    KnownGpu{"H100", "95GiB", "h100-96gb-500w"},
    KnownGpu{"H100", "", "h100-sxm"},
    KnownGpu{"A800", "", "a800"},
    KnownGpu{"A100", "40GB", "a100-40gb"},
    KnownGpu{"A100", "", "a100-80gb"},
    KnownGpu{"V100", "", "v100-32gb", 16, 16},
    KnownGpu{"MI300X", "", "mi300x"},
    KnownGpu{"MI325X", "", "mi325x"},
    KnownGpu{"MI355X", "", "mi355x"},
};

// Column text that identifies the network of a node.
struct Network {
  std::string_view word, link;
  double ports_per_device;
};
constexpr std::array kNetworks = {
    Network{"OPA", "opa-100", 0.5},      Network{"4x100Gb", "roce-100", 0.5},
    Network{"400Gbps", "roce-100", 0.5}, Network{"800Gbps", "roce-100", 1},
    Network{"2Tb/s", "roce-200", 1.25},  Network{"1600Gbps", "roce-200", 1},
    Network{"3200Gbps", "roce-400", 1},
};

}  // namespace

hardware::Cluster map_cluster(const PublishedRun& row, const Source& source, Notes& notes) {
  const KnownGpu* known = nullptr;
  for (const KnownGpu& c : kKnownGpus)
    if (contains(row.gpu, c.word) && contains(row.gpu, c.also)) {
      known = &c;
      break;
    }
  if (known == nullptr) throw Unmodelled(fmt::format("no accelerator '{}' in the catalogue", row.gpu));
  std::string_view name = known->accelerator;
  if (!source.h100.empty() && name == "h100-sxm") {
    name = source.h100;
    notes.note("H100 as the 96 GB part shown in the source's logs");
  }
  if (contains(row.gpu, "not named")) notes.missing("GPU not named: B200");

  hardware::Cluster c;
  c.accelerator = hardware::find_accelerator(name);
  const int gpus = static_cast<int>(row.gpus.value_or(1));
  c.per_node = std::min(gpus, known->per_node);
  if (gpus % c.per_node != 0)
    throw Unmodelled(fmt::format("{} GPUs do not fill nodes of {}", gpus, c.per_node));
  c.nodes = gpus / c.per_node;
  c.domain = std::min(gpus, known->domain);
  c.inner = hardware::find_link(c.accelerator.link);
  std::string_view network = source.network;
  if (network.empty() || (network == "ib-ndr" && !c.accelerator.network.empty()))
    network = c.accelerator.network;
  c.ports_per_device = source.ports_per_device;
  for (const Network& n : kNetworks)
    if (contains(row.gpu, n.word)) {
      network = n.link;
      c.ports_per_device = n.ports_per_device;
    }
  c.outer = hardware::find_link(network);
  return c;
}

std::string map_stack(const PublishedRun& row, const Source& source) {
  std::string stack(source.stack);
  if (stack == "torchtitan-compile" && contains(row.precision, "eager")) return "torchtitan";
  if (stack == "torchtitan-compile" && contains(row.precision, "rowwise")) return "torchtitan-rowwise";
  if (stack == "torchtitan-compile" && contains(row.precision, "asyncTP")) return "torchtitan-async-tp";
  if (!source.dualpipe_stack.empty() && contains(row.schedule, "DualPipe"))
    return std::string(source.dualpipe_stack);
  // Releases of Megatron-Bridge differ in whole features (CUDA graphs, fused dispatch): each is its own
  // stack.
  if (stack == "megatron-bridge") {
    // Experts with biases and clamped activations take a separate path.
    if (contains(row.model, "GPT-OSS")) return "megatron-bridge-gpt-oss";
    if (contains(row.source, " 25.")) return "megatron-bridge-25";
    if (contains(row.source, " 26.02") || contains(row.source, " 26.04")) return "megatron-bridge-26.02";
    return "megatron-bridge-26.06";
  }
  return stack;
}

}  // namespace quintet::published
