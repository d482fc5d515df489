#include "hardware/catalogue.h"

#include "hardware/embedded.h"
#include "hardware/tables.h"

namespace quintet::hardware {

std::string_view to_string(LinkKind kind) {
  constexpr std::string_view names[] = {"inner", "network", "host", "disk"};
  return names[static_cast<size_t>(kind)];
}

namespace {

void read_flops(TomlReader& reader, std::string_view key, std::array<double, kNumArithmetics>& flops) {
  const toml::table* table = reader.table(key);
  if (table == nullptr) return;
  TomlReader inner(*table, fmt::format("{}.{}", reader.where(), key));
  for (int a = 0; a < kNumArithmetics; ++a)
    inner.number(to_string(static_cast<Arithmetic>(a)), flops[static_cast<size_t>(a)], 1e12);
  inner.finish();
}

LinkKind kind_from(const std::string& name, const std::string& where) {
  for (const LinkKind kind : {LinkKind::Inner, LinkKind::Network, LinkKind::Host, LinkKind::Disk})
    if (to_string(kind) == name) return kind;
  base::fail_user("{}: kind is '{}'; expected inner, network, host or disk", where, name);
}

Vendor vendor_named(const std::string& name, const std::string& where) {
  if (const std::optional<Vendor> vendor = vendor_from(name)) return *vendor;
  base::fail_user("{}: vendor is '{}'; expected nvidia, amd, intel, google, aws, cpu or nothing", where,
                  name);
}

void add_names(Names& names, const std::string& name, const std::vector<std::string>& aliases, size_t entry) {
  names.aliases.push_back(name);
  names.entry.push_back(entry);
  for (const std::string& alias : aliases) {
    names.aliases.push_back(alias);
    names.entry.push_back(entry);
  }
}

// The tables of a file in file order; toml++ sorts them by name.
std::vector<std::pair<std::string, const toml::table*>> in_order(const toml::table& file,
                                                                 const char* source) {
  std::vector<std::pair<std::string, const toml::table*>> all;
  for (const auto& [key, node] : file) {
    QUINTET_CHECK(node.is_table(), "{}: {} is not a table", source, key.str());
    all.emplace_back(std::string(key.str()), node.as_table());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second->source().begin.line < b.second->source().begin.line;
  });
  return all;
}

Catalogue read_catalogue() {
  Catalogue all;
  const toml::table accelerators = toml::parse(kAcceleratorsToml, std::string_view("accelerators.toml"));
  for (const auto& [name, table] : in_order(accelerators, "accelerators.toml")) {
    TomlReader reader(*table, "accelerators.toml: " + name);
    Accelerator a;
    Quoted quoted{name, {}, 0, false};
    read_accelerator(reader, a, &quoted);
    a.name = name;
    add_names(all.accelerator_names, name, reader.texts("aliases"), all.accelerators.size());
    reader.finish();
    all.accelerators.push_back(std::move(a));
    all.quoted_accelerators.push_back(std::move(quoted));
  }
  const toml::table links = toml::parse(kLinksToml, std::string_view("links.toml"));
  for (const auto& [name, table] : in_order(links, "links.toml")) {
    TomlReader reader(*table, "links.toml: " + name);
    Link link;
    Quoted quoted{name, {}, 0, false};
    read_link(reader, link, &quoted);
    link.name = name;
    add_names(all.link_names, name, reader.texts("aliases"), all.links.size());
    reader.finish();
    all.links.push_back(std::move(link));
    all.quoted_links.push_back(std::move(quoted));
  }
  const toml::table stacks = toml::parse(kStacksToml, std::string_view("stacks.toml"));
  for (const auto& [name, table] : in_order(stacks, "stacks.toml")) {
    TomlReader reader(*table, "stacks.toml: " + name);
    Stack stack;
    read_stack(reader, stack);
    stack.name = name;
    if (table->contains("fitted_on")) all.fitted_stacks.push_back(stack.name);
    add_names(all.stack_names, name, reader.texts("aliases"), all.stacks.size());
    reader.finish();
    all.stacks.push_back(std::move(stack));
  }
  const toml::table prices = toml::parse(kPricesToml, std::string_view("prices.toml"));
  TomlReader reader(prices, "prices.toml");
  const toml::table* site = reader.table("site");
  const toml::table* list = reader.table("price");
  reader.finish();
  QUINTET_CHECK(site != nullptr && list != nullptr, "prices.toml lacks a site or a price table");
  TomlReader site_reader(*site, "prices.toml: site");
  site_reader.number("pue", all.site.pue);
  site_reader.text("pue_source", all.site.pue_source);
  site_reader.number("carbon_kg_per_kwh", all.site.carbon_kg_per_kwh);
  site_reader.text("carbon_source", all.site.carbon_source);
  site_reader.text("date", all.site.date);
  site_reader.finish();
  for (const auto& [name, table] : in_order(*list, "prices.toml")) {
    TomlReader entry(*table, "prices.toml: " + name);
    Price price;
    entry.number("usd_per_hour", price.usd_per_hour);
    entry.text("what", price.what);
    entry.text("source", price.source);
    entry.text("date", price.date);
    entry.finish();
    all.prices.emplace_back(name, std::move(price));
  }
  return all;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  return out;
}

template <class T>
const T& find(std::string_view what, std::string_view name, const Names& names,
              const std::vector<T>& entries) {
  const std::string wanted = lower(name);
  for (size_t i = 0; i < names.aliases.size(); ++i)
    if (names.aliases[i] == wanted) return entries[names.entry[i]];
  // Names that contain the given word are near too: "rtx" or "mi3".
  std::vector<std::string> near;
  if (const auto nearest = base::nearest_word(wanted, names.aliases)) near.push_back(*nearest);
  for (const std::string& alias : names.aliases)
    if (near.size() < 4 && wanted.size() >= 2 && alias.find(wanted) != std::string::npos)
      near.push_back(alias);
  std::vector<std::string> known;
  for (const T& entry : entries) known.push_back(entry.name);
  base::fail_user("unknown {} '{}'{}; known: {}", what, name,
                  near.empty() ? "" : fmt::format(" (did you mean '{}'?)", fmt::join(near, "', '")),
                  fmt::join(known, ", "));
}

}  // namespace

void read_efficiency(TomlReader& inner, Efficiency& e) {
  inner.number("matmul", e.matmul);
  inner.number("matmul_fp8", e.matmul_fp8);
  inner.number("matmul_fp4", e.matmul_fp4);
  inner.number("attention_forward", e.attention_forward);
  inner.number("attention_backward", e.attention_backward);
  inner.number("older_attention", e.older_attention);
  inner.number("half_head_forward", e.half_head_forward);
  inner.number("half_head_backward", e.half_head_backward);
  inner.number("memory", e.memory);
  inner.number("cache_mb", e.cache_bytes, 1e6);
  inner.number("cache_speed", e.cache_speed);
  inner.number("half_gflop", e.half_flops, 1e9);
  inner.number("half_k", e.half_k);
  inner.number("launch_us", e.launch_seconds, 1e-6);
  for (const double share : {e.matmul, e.matmul_fp8, e.matmul_fp4, e.attention_forward, e.attention_backward,
                             e.older_attention, e.memory})
    if (share <= 0 || share > 1)
      base::fail_user("{}: a fraction of the peak is {}; it must be above 0 and at most 1", inner.where(),
                      share);
}

void read_stack(TomlReader& reader, Stack& stack) {
  std::string unused;
  reader.text("title", stack.title);
  reader.number("matmul", stack.matmul);
  reader.number("grouped", stack.grouped);
  reader.number("attention", stack.attention);
  reader.number("memory", stack.memory);
  reader.number("network", stack.network);
  reader.number("hidden", stack.hidden);
  reader.number("tensor_hidden", stack.tensor_hidden);
  reader.flag("older_attention", stack.older_attention);
  reader.flag("unfused_attention", stack.unfused_attention);
  reader.flag("dispatch_once", stack.dispatch_once);
  reader.number("launch_us", stack.launch_seconds, 1e-6);
  reader.number("route_us", stack.route_seconds, 1e-6);
  reader.number("step_ms", stack.step_seconds, 1e-3);
  reader.number("reserved", stack.reserved);
  reader.texts("fitted_on");
  reader.text("source", unused);
  reader.text("date", unused);
  if (stack.network <= 0 || stack.network > 1)
    base::fail_user(
        "{}: network is {}; it is the fraction of the links' efficiency that software reaches, above 0 and "
        "at most 1 (communication that overlaps with compute is `hidden`)",
        reader.where(), stack.network);
  if (stack.hidden > 1 || stack.tensor_hidden > 1)
    base::fail_user(
        "{}: hidden is {} and tensor_hidden is {}; both are fractions of communication, at most 1",
        reader.where(), stack.hidden, stack.tensor_hidden);
  if (stack.reserved < 1)
    base::fail_user("{}: reserved is {}; it must be at least 1: an allocator holds what it uses",
                    reader.where(), stack.reserved);
  if (stack.matmul <= 0 || stack.attention <= 0 || stack.memory <= 0)
    base::fail_user("{}: matmul is {}, attention {} and memory {}; all must be above 0", reader.where(),
                    stack.matmul, stack.attention, stack.memory);
}

void read_accelerator(TomlReader& reader, Accelerator& a, Quoted* quoted) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  reader.text("title", a.title);
  std::string vendor(to_string(a.vendor));
  reader.text("vendor", vendor);
  a.vendor = vendor_named(vendor, reader.where());
  reader.bytes("memory_mib", a.memory_bytes, kMiB);
  reader.number("memory_gb_per_s", a.memory_bytes_per_s, 1e9);
  read_flops(reader, "dense_tflops", a.dense_flops);
  reader.count("units", a.units);
  reader.count("tile", a.tile);
  reader.number("watts", a.watts);
  reader.number("system_watts", a.system_watts);
  reader.bytes("runtime_mib", a.runtime_bytes, kMiB);
  reader.count("per_node", a.per_node);
  reader.text("link", a.link);
  reader.count("domain", a.domain);
  reader.text("network", a.network);
  reader.number("ports_per_device", a.ports_per_device);
  reader.text("host", a.host);
  reader.bytes("host_gib_per_device", a.host_bytes_per_device, kGiB);
  if (const toml::table* table = reader.table("efficiency")) {
    TomlReader inner(*table, reader.where() + ".efficiency");
    read_efficiency(inner, a.efficiency);
    inner.finish();
  }
  reader.text("source", a.source);
  reader.text("date", a.date);
  reader.text("efficiency_source", a.efficiency_source);
  if (quoted != nullptr) read_flops(reader, "quoted_sparse_tflops", quoted->sparse_flops);
  if (a.memory_bytes <= 0 || a.memory_bytes_per_s <= 0 || a.units < 1 || a.tile < 1 || a.per_node < 1)
    base::fail_user("{}: memory_mib, memory_gb_per_s, units, tile and per_node must be above 0",
                    reader.where());
}

void read_link(TomlReader& reader, Link& link, Quoted* quoted) {
  std::string kind(to_string(link.kind));
  reader.text("title", link.title);
  reader.text("kind", kind);
  link.kind = kind_from(kind, reader.where());
  reader.number("gb_per_s", link.bytes_per_s, 1e9);
  reader.number("latency_us", link.latency_s, 1e-6);
  reader.number("efficiency", link.efficiency);
  reader.number("in_network", link.in_network);
  reader.text("source", link.source);
  reader.text("date", link.date);
  if (link.efficiency <= 0 || link.efficiency > 1 || link.in_network > 1)
    base::fail_user(
        "{}: efficiency is {} and in_network is {}; both are fractions of the bandwidth, at most 1",
        reader.where(), link.efficiency, link.in_network);
  if (quoted == nullptr) return;
  std::string directions;
  reader.number("quoted_gb_per_s", quoted->link_bytes_per_s, 1e9);
  reader.text("quoted", directions);
  quoted->both_directions = directions == "both";
}

const Catalogue& catalogue() {
  static const Catalogue all = read_catalogue();
  return all;
}

const std::vector<Accelerator>& accelerators() { return catalogue().accelerators; }
const std::vector<Link>& links() { return catalogue().links; }
const std::vector<Stack>& stacks() { return catalogue().stacks; }

const Accelerator& find_accelerator(std::string_view name) {
  return find("accelerator", name, catalogue().accelerator_names, accelerators());
}
const Link& find_link(std::string_view name) { return find("link", name, catalogue().link_names, links()); }
const Stack& find_stack(std::string_view name) {
  return find("software stack", name, catalogue().stack_names, stacks());
}

Price price_of(std::string_view accelerator) {
  for (const auto& [name, price] : catalogue().prices)
    if (name == accelerator) return price;
  return {};
}

}  // namespace quintet::hardware
