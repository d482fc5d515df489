// The machines of a plan: nodes of accelerators and the links between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hardware/accelerator.h"

namespace quintet::hardware {

enum class LinkKind : uint8_t { Inner, Network, Host, Disk };
std::string_view to_string(LinkKind kind);

// One direction of one device's port.
struct Link {
  std::string name, title;
  LinkKind kind = LinkKind::Inner;
  double bytes_per_s = 0;    // per direction
  double latency_s = 0;      // per message between neighbours
  double efficiency = 0.85;  // fraction of the bandwidth that large collectives reach
  double in_network = 0;     // fraction of the bandwidth at which a reducing switch returns an all-reduce
  std::string source, date;
  double effective_bytes_per_s() const { return bytes_per_s * efficiency; }
  friend bool operator==(const Link&, const Link&) = default;
};

inline constexpr const char* kEngineStack = "quintet";  // this engine

// How software uses the machine: one small set of terms per stack (stacks.toml), never per run. 1 or 0 means
// the accelerator's own figure.
struct Stack {
  std::string name = kEngineStack;
  std::string title = "Quintet";
  double matmul = 1;     // factor on the accelerator's matmul efficiency
  double grouped = 1;    // additional factor for grouped GEMMs
  double attention = 1;  // factor on its attention efficiency
  double memory = 1;     // factor on the bytes of memory-bound kernels (unfused software moves more)
  double network = 1;    // factor on the links' efficiency
  double hidden = 1;     // fraction of communication that may overlap with compute where the program allows
  // Fraction of tensor-parallel communication that overlaps, piece by piece, with the adjacent matmuls.
  double tensor_hidden = 0;
  // Attention kernels were written for the previous generation (Efficiency::older_attention).
  bool older_attention = false;
  // Attention weights are written to memory and, unless recomputed, kept for the backward pass.
  bool unfused_attention = false;
  // Rows for several experts of a domain cross the network once and are copied there.
  bool dispatch_once = false;
  double launch_seconds = 0;  // per kernel, in addition to the accelerator's
  double route_seconds = 0;   // per block with experts: the host waits for the row counts
  double step_seconds = 0;    // per step: host time that nothing hides
  double reserved = 1;        // memory the allocator reserves relative to what it uses, as the driver sees it
  bool is_engine() const { return name == kEngineStack; }
  friend bool operator==(const Stack&, const Stack&) = default;
};

struct Cluster {
  Accelerator accelerator;
  int nodes = 1;
  int per_node = 8;  // accelerators per node; rank r is on node r / per_node
  int domain = 8;    // accelerators joined by `inner`: more than per_node only for racks such as NVL72
  Link inner;        // within a domain
  Link outer;        // between domains, per network port
  double ports_per_device = 1;  // network ports of a node divided by its accelerators
  int64_t host_bytes = 0;       // memory of a node
  Link host;                    // device to host
  Link disk;                    // host to NVMe, per node; bytes_per_s 0: none
  double price_per_hour = 0;    // per accelerator, in USD; 0: unknown
  std::string price_source;
  double pue = 1.2;
  double carbon_kg_per_kwh = 0.4;
  int world() const { return nodes * per_node; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// Parses a phrase, or reads a TOML file (a path that ends in .toml or contains a slash). A phrase starts with
// a number and an accelerator, followed by what differs from the defaults, separated by commas or spaces:
//   "16384 h100"                   that many accelerators in default nodes
//   "2x8 rtx-pro-6000, ib-hdr"     nodes x accelerators per node, and the link between nodes
//   "8x8 a100-80gb, 4 opa-100"     4 network ports per node
//   "8 h100, pcie-5, nvme-gen4"    links are placed by their kind
//   "64x8 h100-sxm, roce-400, price 2.5, pue 1.1, carbon 0.05, host 2TB, domain 8, memory 80GB, 800Gbps/node"
// Throws UserError naming the word that was not understood and the nearest known one.
Cluster parse_cluster(std::string_view phrase_or_path);

// Writes the file that parse_cluster reads back as the same cluster (up to the rounding of units), and reads
// it.
std::string print_cluster(const Cluster& cluster);
Cluster parse_cluster_text(std::string_view toml, const std::string& source_name);

// "2 nodes of 8 NVIDIA H100 SXM 80 GB, NVLink 4 inside, InfiniBand NDR between".
std::string describe(const Cluster& cluster);

// `world` accelerators in default nodes (fewer than a node: one smaller node) with default links and the
// catalogue's price. `per_node` 0: the default. Throws UserError if the world does not fill its nodes.
Cluster make_cluster(const Accelerator& accelerator, int world, int per_node = 0);

// By name or alias. The UserError lists the nearest names.
const Accelerator& find_accelerator(std::string_view name);
const Link& find_link(std::string_view name);
const Stack& find_stack(std::string_view name);

// In catalogue order.
const std::vector<Accelerator>& accelerators();
const std::vector<Link>& links();
const std::vector<Stack>& stacks();

struct Price {
  double usd_per_hour = 0;  // per accelerator; 0: unknown
  std::string what, source, date;
};
Price price_of(std::string_view accelerator);

}  // namespace quintet::hardware
