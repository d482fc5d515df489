// The machines of a plan: so many nodes of so many accelerators, and the links between them.
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
  double latency_s = 0;      // of one message between neighbours
  double efficiency = 0.85;  // of the bandwidth that large collectives reach
  double in_network = 0;     // share of the bandwidth at which a switch that adds up returns an all-reduce
  std::string source, date;
  double effective_bytes_per_s() const { return bytes_per_s * efficiency; }
  friend bool operator==(const Link&, const Link&) = default;
};

// How software uses the machine: one small set of terms per stack (stacks.toml), never per run. 1 or 0 means
// "as the program and the accelerator say".
struct Stack {
  std::string name = "quintet";
  std::string title = "Quintet";
  double matmul = 1;     // factor on the accelerator's matmul efficiency
  double grouped = 1;    // a further one for products of several experts at once
  double attention = 1;  // factor on its attention efficiency
  double memory = 1;     // factor on the bytes of memory-bound kernels (unfused software moves more)
  double network = 1;    // factor on the links' efficiency
  double hidden = 1;     // share of communication that may run beside computation where the program allows
  // Share of tensor-parallel communication that runs inside the products beside it, piece by piece.
  double tensor_hidden = 0;
  // Attention kernels that were written for the accelerators before this one (Efficiency::older_attention).
  bool older_attention = false;
  // Attention weights are written to memory and, unless recomputed, kept for the backward pass.
  bool unfused_attention = false;
  // Rows that go to several experts of a domain cross the network once and are copied there.
  bool dispatch_once = false;
  double launch_seconds = 0;  // per kernel, beyond the accelerator's
  double route_seconds = 0;   // per block with experts: the host waits for how many rows come
  double step_seconds = 0;    // per step, host time that nothing hides
  double reserved = 1;        // memory that its allocator holds over what it uses, where the driver is asked
  friend bool operator==(const Stack&, const Stack&) = default;
};

struct Cluster {
  Accelerator accelerator;
  int nodes = 1;
  int per_node = 8;  // accelerators of a node; rank r lies on node r / per_node
  int domain = 8;    // neighbours joined by `inner`: more than per_node only for racks such as NVL72
  Link inner;        // within a domain
  Link outer;        // between domains, of one network port
  double ports_per_device = 1;  // network ports of a node over its accelerators
  int64_t host_bytes = 0;       // memory of a node
  Link host;                    // device to host
  Link disk;                    // host to NVMe, of a node; bytes_per_s 0: none
  double price_per_hour = 0;    // of one accelerator, in USD; 0: unknown
  std::string price_source;
  double pue = 1.2;
  double carbon_kg_per_kwh = 0.4;
  int world() const { return nodes * per_node; }
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// A phrase or the path of a TOML file (it ends in .toml or has a slash). A phrase begins with a number and an
// accelerator and goes on, after commas or spaces, with what is not usual:
//   "16384 h100"                   so many accelerators in usual nodes
//   "2x8 rtx-pro-6000, ib-hdr"     nodes x accelerators of each, and the link between nodes
//   "8x8 a100-80gb, 4 opa-100"     4 network ports a node
//   "8 h100, pcie-5, nvme-gen4"    links find their place by their kind
//   "64x8 h100-sxm, roce-400, price 2.5, pue 1.1, carbon 0.05, host 2TB, domain 8, memory 80GB, 800Gbps/node"
// A UserError names what was not understood and what is nearest.
Cluster parse_cluster(std::string_view phrase_or_path);

// The file that parse_cluster reads back as the same cluster (figures to a rounding of their unit), and its
// reading.
std::string print_cluster(const Cluster& cluster);
Cluster parse_cluster_text(std::string_view toml, const std::string& source_name);

// "2 nodes of 8 NVIDIA H100 SXM 80 GB, NVLink 4 inside, InfiniBand NDR between".
std::string describe(const Cluster& cluster);

// So many accelerators in usual nodes (fewer than a node: one smaller node), usual links, catalogue's price.
// `per_node` 0: the usual number. A UserError where the world does not fill its nodes.
Cluster make_cluster(const Accelerator& accelerator, int world, int per_node = 0);

// By name or alias, with the nearest names in the UserError.
const Accelerator& find_accelerator(std::string_view name);
const Link& find_link(std::string_view name);
const Stack& find_stack(std::string_view name);

// In the catalogue's order.
const std::vector<Accelerator>& accelerators();
const std::vector<Link>& links();
const std::vector<Stack>& stacks();

struct Price {
  double usd_per_hour = 0;  // of one accelerator; 0: unknown
  std::string what, source, date;
};
Price price_of(std::string_view accelerator);

}  // namespace quintet::hardware
