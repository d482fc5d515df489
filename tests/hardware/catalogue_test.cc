// The catalogue's figures agree with each other and with vendors' figures.
#include "hardware/catalogue.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "hardware/cost.h"

namespace quintet::hardware {
namespace {

TEST(Catalogue, HasEveryAcceleratorAndLinkOfTheList) {
  for (const char* name :
       {"a100-40gb",   "a100-80gb", "a800",     "v100-32gb",    "h100-sxm", "h100-pcie",   "h100-96gb-500w",
        "h800",        "h200-sxm",  "gh200",    "b100",         "b200",     "gb200-nvl72", "b300",
        "gb300-nvl72", "mi300x",    "mi325x",   "mi355x",       "gaudi-3",  "trainium-2",  "tpu-v5p",
        "tpu-v6e",     "rtx-4090",  "rtx-5090", "rtx-pro-6000", "cpu"})
    EXPECT_EQ(find_accelerator(name).name, name);
  for (const char* name :
       {"nvlink-2", "nvlink-3",     "nvlink-4",  "nvlink-5",    "xgmi-3",      "pcie-3",       "pcie-4",
        "pcie-5",   "ib-hdr",       "ib-ndr",    "ib-xdr",      "roce-100",    "roce-200",     "roce-400",
        "opa-100",  "slingshot-11", "efa-400",   "ethernet-10", "ethernet-25", "ethernet-100", "ici-v5p",
        "ici-v6e",  "nvme-gen4",    "nvme-gen5", "host-memory"})
    EXPECT_EQ(find_link(name).name, name);
  EXPECT_EQ(find_link("nvswitch").name, "nvlink-4");
  EXPECT_EQ(find_accelerator("H100").name, "h100-sxm");
}

TEST(Catalogue, EveryFigureHasItsSourceAndDate) {
  const auto dated = [](const std::string& date) {
    return date.size() == 7 && date[4] == '-' && date >= "2010-01" && date <= "2027-01";
  };
  for (const Accelerator& a : accelerators()) {
    EXPECT_GT(a.source.size(), 8u) << a.name;
    EXPECT_GT(a.efficiency_source.size(), 7u) << a.name;
    EXPECT_TRUE(dated(a.date)) << a.name;
  }
  for (const Link& link : links()) {
    EXPECT_GT(link.source.size(), 7u) << link.name;
    EXPECT_TRUE(dated(link.date)) << link.name;
  }
  for (const auto& [name, price] : catalogue().prices) {
    EXPECT_EQ(find_accelerator(name).name, name);
    EXPECT_GT(price.usd_per_hour, 0) << name;
    EXPECT_GT(price.source.size(), 5u) << name;
    EXPECT_TRUE(dated(price.date)) << name;
  }
  EXPECT_TRUE(dated(catalogue().site.date));
  EXPECT_GE(catalogue().site.pue, 1);
}

TEST(Catalogue, NamesAndAliasesAreDistinct) {
  for (const Names* names :
       {&catalogue().accelerator_names, &catalogue().link_names, &catalogue().stack_names}) {
    std::set<std::string> seen;
    for (const std::string& alias : names->aliases) EXPECT_TRUE(seen.insert(alias).second) << alias;
  }
}

TEST(Catalogue, DensePeaksAreHalfOfQuotedSparseOnes) {
  int compared = 0;
  for (size_t i = 0; i < accelerators().size(); ++i) {
    const Accelerator& a = accelerators()[i];
    for (int k = 0; k < kNumArithmetics; ++k) {
      const double sparse = catalogue().quoted_accelerators[i].sparse_flops[static_cast<size_t>(k)];
      if (sparse == 0) continue;
      EXPECT_NEAR(a.dense_flops[static_cast<size_t>(k)] / sparse, 0.5, 0.001)
          << a.name << " " << to_string(static_cast<Arithmetic>(k));
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
  // Blackwell Ultra's sparse FP4 is not twice the dense one, so it must not be quoted as such.
  EXPECT_GT(find_accelerator("b300").dense(Arithmetic::FP4),
            1.4 * find_accelerator("b200").dense(Arithmetic::FP4));
}

TEST(Catalogue, LinksAreStoredPerDirection) {
  int halved = 0;
  for (size_t i = 0; i < links().size(); ++i) {
    const Quoted& quoted = catalogue().quoted_links[i];
    if (quoted.link_bytes_per_s == 0) continue;
    EXPECT_DOUBLE_EQ(links()[i].bytes_per_s, quoted.link_bytes_per_s / (quoted.both_directions ? 2 : 1))
        << links()[i].name;
    halved += quoted.both_directions;
  }
  EXPECT_GT(halved, 10);
  EXPECT_DOUBLE_EQ(find_link("nvlink-4").bytes_per_s, 450e9);
  EXPECT_DOUBLE_EQ(find_link("nvlink-5").bytes_per_s, 900e9);
  EXPECT_DOUBLE_EQ(find_link("nvlink-3").bytes_per_s, 300e9);
  EXPECT_DOUBLE_EQ(find_link("ib-hdr").bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(find_link("ib-ndr").bytes_per_s, 50e9);
}

TEST(Catalogue, FiguresAreOrderedAsPhysicsHasThem) {
  for (const Accelerator& a : accelerators()) {
    const auto peak = [&](Arithmetic k) { return a.dense(k); };
    if (peak(Arithmetic::F16) > 0 && peak(Arithmetic::BF16) > 0) {
      EXPECT_EQ(peak(Arithmetic::F16), peak(Arithmetic::BF16)) << a.name;
    }
    if (peak(Arithmetic::FP8) > 0) {
      EXPECT_GE(peak(Arithmetic::FP8), peak(Arithmetic::BF16)) << a.name;
    }
    if (peak(Arithmetic::FP4) > 0) {
      EXPECT_GE(peak(Arithmetic::FP4), peak(Arithmetic::FP8)) << a.name;
    }
    EXPECT_GE(a.system_watts, a.watts) << a.name;
    EXPECT_GT(a.runtime_bytes, 0) << a.name;
    EXPECT_LT(a.runtime_bytes, a.memory_bytes / 10) << a.name;
    EXPECT_EQ(find_link(a.link).kind, LinkKind::Inner) << a.name;
    EXPECT_EQ(find_link(a.network).kind, LinkKind::Network) << a.name;
    EXPECT_EQ(find_link(a.host).kind, LinkKind::Host) << a.name;
    if (a.domain != 0) {
      EXPECT_GT(a.domain, a.per_node) << a.name;
    }
  }
}

TEST(Catalogue, UnknownNamesTeach) {
  const auto message = [](auto&& call) {
    try {
      call();
    } catch (const base::UserError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message([] { find_accelerator("h10"); }).find("did you mean 'h100"), std::string::npos);
  EXPECT_NE(message([] { find_accelerator("rtx"); }).find("rtx-4090"), std::string::npos);
  EXPECT_NE(message([] { find_link("ib-ndrr"); }).find("did you mean 'ib-ndr'"), std::string::npos);
  EXPECT_NE(message([] { find_stack("megatorn"); }).find("did you mean 'megatron'"), std::string::npos);
}

}  // namespace
}  // namespace quintet::hardware
