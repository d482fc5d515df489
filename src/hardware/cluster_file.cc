// Clusters as TOML files, written by `quintet doctor --probe` or by hand.
#include "hardware/tables.h"

namespace quintet::hardware {
namespace {

// A link by name, or a table of changes to the link that `base` names (or to an empty one).
void read_link_of(TomlReader& reader, std::string_view key, Link& link) {
  if (!reader.has(key)) {
    std::string unused;
    reader.text(key, unused);  // marks the key as known
    return;
  }
  if (!reader.is_table(key)) {
    std::string name;
    reader.text(key, name);
    link = find_link(name);
    return;
  }
  TomlReader inner(*reader.table(key), fmt::format("{}.{}", reader.where(), key));
  std::string name = link.name;
  const LinkKind kind = link.kind;
  inner.text("name", name);
  const std::vector<Link>& known = links();
  const auto found = std::find_if(known.begin(), known.end(), [&](const Link& l) { return l.name == name; });
  if (found != known.end())
    link = *found;
  else
    link = Link{.name = name, .title = name, .kind = kind};
  read_link(inner, link, nullptr);
  inner.finish();
}

class Writer {
 public:
  void section(std::string_view name) { text_ += fmt::format("\n[{}]\n", name); }
  void line(std::string_view key, double value) { text_ += fmt::format("{} = {}\n", key, number(value)); }
  void line(std::string_view key, int value) { text_ += fmt::format("{} = {}\n", key, value); }
  void line(std::string_view key, const std::string& value) {
    text_ += fmt::format("{} = {}\n", key, quoted(value));
  }
  void comment(std::string_view text) { text_ += fmt::format("# {}\n", text); }

  // The shortest digits that read back as the same value, always a TOML float.
  static std::string number(double value) {
    std::string digits = fmt::format("{}", value);
    if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
    return digits;
  }
  static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
    return out + '"';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void write_link(Writer& w, std::string_view section, const Link& link) {
  w.section(section);
  w.line("name", link.name);
  w.line("title", link.title);
  w.line("kind", std::string(to_string(link.kind)));
  w.line("gb_per_s", link.bytes_per_s / 1e9);
  w.line("latency_us", link.latency_s / 1e-6);
  w.line("efficiency", link.efficiency);
  w.line("in_network", link.in_network);
  w.line("source", link.source);
  w.line("date", link.date);
}

}  // namespace

Cluster parse_cluster_text(std::string_view text, const std::string& source) {
  toml::table file;
  try {
    file = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    base::fail_user("{}:{}:{}: not TOML: {}", source, at.line, at.column, error.description());
  }
  TomlReader top(file, source);
  const toml::table* cluster_table = top.table("cluster");
  const toml::table* accelerator_table = top.table("accelerator");
  if (cluster_table == nullptr)
    base::fail_user(
        "{}: no [cluster] table; a minimal file is\n[cluster]\naccelerator = \"h100-sxm\"\nnodes = "
        "2\nper_node = 8",
        source);
  TomlReader reader(*cluster_table, source + ": [cluster]");
  std::string name = "accelerator of this file";
  reader.text("accelerator", name);
  Accelerator accelerator;
  if (accelerator_table == nullptr || reader.has("accelerator")) {
    if (!reader.has("accelerator"))
      base::fail_user("{}: [cluster] has no accelerator = \"NAME\", and there is no [accelerator] table",
                      source);
    const std::vector<Accelerator>& known = accelerators();
    const bool own =
        accelerator_table != nullptr &&
        std::none_of(known.begin(), known.end(), [&](const Accelerator& a) { return a.name == name; });
    if (own)
      accelerator.name = accelerator.title = name;
    else
      accelerator = find_accelerator(name);
  } else {
    accelerator.name = accelerator.title = name;
  }
  if (accelerator_table != nullptr) {
    if (accelerator.link.empty()) accelerator.link = "pcie-5";
    if (accelerator.network.empty()) accelerator.network = "ethernet-25";
    if (accelerator.host.empty()) accelerator.host = "host-pcie-5";
    TomlReader inner(*accelerator_table, source + ": [accelerator]");
    read_accelerator(inner, accelerator, nullptr);
    inner.finish();
  }
  int nodes = 1, per_node = accelerator.per_node;
  reader.count("nodes", nodes);
  reader.count("per_node", per_node);
  if (nodes < 1 || per_node < 1)
    base::fail_user("{}: [cluster] has {} nodes of {}; both must be at least 1", source, nodes, per_node);
  if (static_cast<int64_t>(nodes) * per_node > (1 << 24))
    base::fail_user("{}: [cluster] has {} nodes of {}: the limit is 2^24 accelerators", source, nodes,
                    per_node);
  Cluster cluster = make_cluster(accelerator, nodes * per_node, per_node);
  reader.count("domain", cluster.domain);
  reader.number("ports_per_device", cluster.ports_per_device);
  reader.bytes("host_gib", cluster.host_bytes, 1 << 30);
  reader.number("price_per_hour", cluster.price_per_hour);
  reader.text("price_source", cluster.price_source);
  reader.number("pue", cluster.pue);
  reader.number("carbon_kg_per_kwh", cluster.carbon_kg_per_kwh);
  reader.finish();
  read_link_of(top, "inner", cluster.inner);
  read_link_of(top, "outer", cluster.outer);
  read_link_of(top, "host", cluster.host);
  read_link_of(top, "disk", cluster.disk);
  top.finish();
  if (cluster.domain < 1 || cluster.ports_per_device <= 0 || cluster.pue < 1)
    base::fail_user("{}: [cluster] needs domain >= 1, ports_per_device > 0 and pue >= 1; found {}, {} and {}",
                    source, cluster.domain, cluster.ports_per_device, cluster.pue);
  if (cluster.inner.bytes_per_s <= 0 || cluster.outer.bytes_per_s <= 0 || cluster.host.bytes_per_s <= 0)
    base::fail_user("{}: the links inner, outer and host need gb_per_s above 0", source);
  return cluster;
}

std::string print_cluster(const Cluster& c) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  Writer w;
  w.comment("A cluster for quintet plan --cluster FILE.toml. Rates are per direction; peaks are dense.");
  w.section("cluster");
  w.line("accelerator", c.accelerator.name);
  w.line("nodes", c.nodes);
  w.line("per_node", c.per_node);
  w.line("domain", c.domain);
  w.line("ports_per_device", c.ports_per_device);
  w.line("host_gib", static_cast<double>(c.host_bytes) / kGiB);
  w.line("price_per_hour", c.price_per_hour);
  w.line("price_source", c.price_source);
  w.line("pue", c.pue);
  w.line("carbon_kg_per_kwh", c.carbon_kg_per_kwh);
  const Accelerator& a = c.accelerator;
  w.section("accelerator");
  w.line("title", a.title);
  w.line("vendor", std::string(to_string(a.vendor)));
  w.line("memory_mib", static_cast<double>(a.memory_bytes) / kMiB);
  w.line("memory_gb_per_s", a.memory_bytes_per_s / 1e9);
  w.line("units", a.units);
  w.line("tile", a.tile);
  w.line("watts", a.watts);
  w.line("system_watts", a.system_watts);
  w.line("runtime_mib", static_cast<double>(a.runtime_bytes) / kMiB);
  w.line("per_node", a.per_node);
  w.line("link", a.link);
  w.line("domain", a.domain);
  w.line("network", a.network);
  w.line("ports_per_device", a.ports_per_device);
  w.line("host", a.host);
  w.line("host_gib_per_device", static_cast<double>(a.host_bytes_per_device) / kGiB);
  w.line("source", a.source);
  w.line("date", a.date);
  w.line("efficiency_source", a.efficiency_source);
  w.section("accelerator.dense_tflops");
  for (int i = 0; i < kNumArithmetics; ++i)
    if (const auto kind = static_cast<Arithmetic>(i); a.dense(kind) > 0)
      w.line(to_string(kind), a.dense(kind) / 1e12);
  const Efficiency& e = a.efficiency;
  w.section("accelerator.efficiency");
  w.line("matmul", e.matmul);
  w.line("matmul_fp8", e.matmul_fp8);
  w.line("matmul_fp4", e.matmul_fp4);
  w.line("attention_forward", e.attention_forward);
  w.line("attention_backward", e.attention_backward);
  w.line("older_attention", e.older_attention);
  w.line("half_head_forward", e.half_head_forward);
  w.line("half_head_backward", e.half_head_backward);
  w.line("memory", e.memory);
  w.line("cache_mb", e.cache_bytes / 1e6);
  w.line("cache_speed", e.cache_speed);
  w.line("half_gflop", e.half_flops / 1e9);
  w.line("half_k", e.half_k);
  w.line("launch_us", e.launch_seconds / 1e-6);
  write_link(w, "inner", c.inner);
  write_link(w, "outer", c.outer);
  write_link(w, "host", c.host);
  write_link(w, "disk", c.disk);
  return w.take();
}

}  // namespace quintet::hardware
