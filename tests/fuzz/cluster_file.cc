// Clusters as TOML files.
#include "fuzz/target.h"
#include "hardware/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  return fuzz::run([&] {
    const hardware::Cluster cluster = hardware::parse_cluster_text(fuzz::text_of(data, size), "fuzzed");
    fuzz::require(cluster.world() > 0, "a cluster without devices");
    hardware::parse_cluster_text(hardware::print_cluster(cluster), "printed");
  });
}
