// Clusters as phrases. Phrases that may name a file are left out: cluster_file.cc covers those.
#include "fuzz/target.h"
#include "hardware/cluster.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quintet;
  const std::string_view phrase = fuzz::text_of(data, size);
  if (phrase.starts_with('/') || phrase.starts_with('.') || phrase.ends_with(".toml")) return 0;
  return fuzz::run([&] {
    const hardware::Cluster cluster = hardware::parse_cluster(phrase);
    fuzz::require(cluster.world() > 0, "a cluster without devices");
    hardware::parse_cluster_text(hardware::print_cluster(cluster), "printed");
  });
}
