// The machines of a plan: so many nodes of so many accelerators, and the links between them.
#pragma once

#include <string>
#include <string_view>

#include "hardware/accelerator.h"

namespace quintet::hardware {

// One direction of one device's port.
struct Link {
  std::string name, title;
  double bytes_per_s = 0;    // per direction
  double latency_s = 0;      // of one message between neighbours
  double efficiency = 0.85;  // of the bandwidth that large collectives reach
};

// How software uses the machine: one small set of terms per stack (stacks.toml), never per run. 1 or 0 means
// "as the program and the accelerator say".
struct Stack {
  std::string name = "quintet";
  double matmul = 1;     // factor on the accelerator's matmul efficiency
  double attention = 1;  // factor on its attention efficiency
  double memory = 1;     // factor on the bytes of memory-bound kernels (unfused software moves more)
  double network = 1;    // factor on the links' efficiency
  double hidden = 1;     // share of communication that may run beside computation where the program allows
  double launch_seconds = 0;  // per kernel, beyond the accelerator's
  double step_seconds = 0;    // per step, host time that nothing hides
};

struct Cluster {
  Accelerator accelerator;
  int nodes = 1;
  int per_node = 8;  // accelerators of a node; rank r lies on node r / per_node
  int domain = 8;    // neighbours joined by `inner`: at least per_node only for racks such as NVL72
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
};

// "2x8 rtx-pro-6000, ib-hdr", "16384 h100", "2048x8 h100 ib-ndr", "nvl72 x 8 gb200", or the path of a TOML
// file that quintet doctor --probe writes. A UserError names what was not understood and what is nearest.
Cluster parse_cluster(std::string_view phrase_or_path);

// By name, with the nearest names in the UserError.
const Accelerator& find_accelerator(std::string_view name);
const Link& find_link(std::string_view name);
const Stack& find_stack(std::string_view name);

}  // namespace quintet::hardware
