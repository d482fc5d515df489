#include "hardware/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "hardware/catalogue.h"

namespace quintet::hardware {
namespace {

constexpr const char* kExample =
    "a cluster is a number, an accelerator and what differs from the defaults, such as \"2x8 h100, ib-ndr\" "
    "(nodes x accelerators per node), \"16384 h100\" or \"8x8 a100-80gb, 4 opa-100, price 1.5\" (4 ports per "
    "node), or the path of a .toml file";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The words of the phrase in lower case. A comma between digits and followed by three digits ("16,384") is a
// thousands separator.
std::vector<std::string> words_of(std::string_view phrase) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < phrase.size(); ++i) {
    const char c = phrase[i];
    if (c == ',' && i > 0 && is_digit(phrase[i - 1]) && i + 3 < phrase.size() && is_digit(phrase[i + 1]) &&
        is_digit(phrase[i + 2]) && is_digit(phrase[i + 3]) &&
        (i + 4 == phrase.size() || !is_digit(phrase[i + 4])))
      continue;
    if (c == ',' || c == ' ' || c == '\t' || c == '\n')
      words.emplace_back();
    else
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  std::erase(words, "");
  return words;
}

std::optional<double> number_of(std::string_view word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int> count_of(std::string_view word) {
  int value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// "80gb", "1.5tib": bytes.
std::optional<double> size_of(std::string_view word) {
  constexpr std::pair<std::string_view, double> units[] = {{"gib", 1024.0 * 1024 * 1024},
                                                           {"tib", 1024.0 * 1024 * 1024 * 1024},
                                                           {"mib", 1024.0 * 1024},
                                                           {"gb", 1e9},
                                                           {"tb", 1e12},
                                                           {"mb", 1e6}};
  for (const auto& [unit, bytes] : units)
    if (word.ends_with(unit))
      if (const auto value = number_of(word.substr(0, word.size() - unit.size())); value && *value > 0)
        return *value * bytes;
  return std::nullopt;
}

class Phrase {
 public:
  explicit Phrase(std::string_view text) : text_(text), words_(words_of(text)) {}

  Cluster read() {
    if (words_.empty()) fail("the phrase is empty");
    read_counts();
    if (at_ == words_.size()) fail("the accelerator is missing");
    const Accelerator& accelerator = find_accelerator(words_[at_++]);
    Cluster cluster =
        per_node_ == 0 ? make_cluster(accelerator, first_) : make_cluster(accelerator, product(), per_node_);
    while (at_ < words_.size()) read_change(cluster);
    return cluster;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    base::fail_user("cluster \"{}\": {}; {}", text_, why, kExample);
  }

  int product() const {
    const int64_t world = static_cast<int64_t>(first_) * per_node_;
    if (world > (1 << 24)) fail(fmt::format("{} accelerators exceed the limit of 2^24", world));
    return static_cast<int>(world);
  }

  void check_count(int count) const {
    if (count < 1 || count > (1 << 24)) fail(fmt::format("{} is not a count from 1 to 2^24", count));
  }

  // "8", "2x8", "2 x 8", "8x h100", "8xh100"; no number: one accelerator.
  void read_counts() {
    std::string& word = words_[0];
    if (word.size() > 1 && (word[0] == '-' || word[0] == '+') && is_digit(word[1]))
      fail(fmt::format("'{}' does not begin with a count from 1 to 2^24", word));
    size_t digits = 0;
    while (digits < word.size() && is_digit(word[digits])) ++digits;
    // A name such as 4090 starts with digits too.
    if (digits == 0 || (digits == word.size() && words_.size() == 1)) return;
    const auto first = count_of(std::string_view(word).substr(0, digits));
    if (!first) fail(fmt::format("'{}' is too large", word));
    std::string rest = word.substr(digits);
    size_t next = 1;
    if (rest.empty() && words_.size() > 1 && (words_[1] == "x" || words_[1] == "*")) {
      rest.assign(1, 'x');
      next = 2;
    }
    if (rest.empty()) {
      first_ = *first;
    } else if (rest[0] == 'x' || rest[0] == '*') {
      rest.erase(0, 1);
      if (rest.empty() && next < words_.size()) rest = words_[next++];
      const auto second = count_of(rest);
      const bool name_follows = next < words_.size() && !count_of(words_[next]);
      first_ = *first;
      if (second && (name_follows || next < words_.size())) {
        per_node_ = *second;
        check_count(per_node_);
      } else {
        words_[--next] = rest;  // the accelerator's name
      }
    } else {
      return;  // not a count: look it up as a name
    }
    check_count(first_);
    at_ = next;
  }

  const std::string& value_after(const std::string& key) {
    if (at_ == words_.size()) fail(fmt::format("'{}' must be followed by a value", key));
    return words_[at_++];
  }
  double number_after(const std::string& key) {
    const std::string& word = value_after(key);
    const auto value = number_of(word.starts_with('$') ? std::string_view(word).substr(1) : word);
    if (!value || *value < 0) fail(fmt::format("'{} {}': expected a number of at least 0", key, word));
    return *value;
  }
  static constexpr double kMostBytes = 0x1p60;
  int64_t size_after(const std::string& key) {
    const std::string& word = value_after(key);
    const auto bytes = size_of(word);
    if (!bytes || *bytes > kMostBytes)
      fail(fmt::format("'{} {}': expected a size such as 80GB or 2TiB", key, word));
    return std::llround(*bytes);
  }

  // "800gbps/node" or "400gbps/device": a network given by its rate.
  bool read_rate(const std::string& word, Cluster& cluster) {
    const size_t unit = word.find("gbps");
    if (unit == std::string::npos) return false;
    const auto rate = number_of(std::string_view(word).substr(0, unit));
    const std::string_view whose = std::string_view(word).substr(unit + 4);
    if (!rate || *rate <= 0 || (whose != "/node" && whose != "/device" && whose != "/gpu"))
      fail(fmt::format("'{}': a rate must be per node or per device, such as 800Gbps/node or 400Gbps/device",
                       word));
    const double per_device = *rate / 8 * 1e9 / (whose == "/node" ? cluster.per_node : 1);
    cluster.ports_per_device = per_device / cluster.outer.bytes_per_s;
    return true;
  }

  void set_link(const Link& link, Cluster& cluster, std::optional<int> ports) {
    if (ports && link.kind != LinkKind::Network)
      fail(fmt::format(
          "'{} {}': a number of ports applies only to links between nodes; {} is a link of kind {}", *ports,
          link.name, link.name, to_string(link.kind)));
    if (ports && *ports < 1) fail(fmt::format("'{} {}': a node has at least one port", *ports, link.name));
    std::string& before = links_[static_cast<size_t>(link.kind)];
    if (!before.empty())
      fail(fmt::format("'{}' and '{}' are both links of kind {}; a cluster has one", before, link.name,
                       to_string(link.kind)));
    before = link.name;
    switch (link.kind) {
      case LinkKind::Inner:
        cluster.inner = link;
        return;
      case LinkKind::Host:
        cluster.host = link;
        return;
      case LinkKind::Disk:
        cluster.disk = link;
        return;
      case LinkKind::Network:
        break;
    }
    // A link other than the default has at most one port per accelerator.
    if (ports)
      cluster.ports_per_device = static_cast<double>(*ports) / cluster.per_node;
    else if (link.name != cluster.outer.name)
      cluster.ports_per_device = std::min(1.0, cluster.ports_per_device);
    cluster.outer = link;
  }

  void read_change(Cluster& cluster) {
    const std::string word = words_[at_++];
    for (const char* once : {"price", "pue", "carbon", "host", "memory", "domain"})
      if (word == once && !given_.insert(word).second) fail(fmt::format("'{}' is given twice", word));
    if (word == "price") {
      cluster.price_per_hour = number_after(word);
      cluster.price_source = "given";
    } else if (word == "pue") {
      cluster.pue = number_after(word);
      if (cluster.pue < 1)
        fail(fmt::format("'pue {}': power usage effectiveness must be at least 1", cluster.pue));
    } else if (word == "carbon") {
      cluster.carbon_kg_per_kwh = number_after(word);
    } else if (word == "host") {
      cluster.host_bytes = size_after(word);
    } else if (word == "memory") {
      cluster.accelerator.memory_bytes = size_after(word);
    } else if (word == "domain") {
      const auto domain = count_of(value_after(word));
      if (!domain || *domain < 1) fail("'domain' must be followed by a number of accelerators");
      cluster.domain = *domain;
    } else if (!read_rate(word, cluster)) {
      read_link_word(word, cluster);
    }
  }

  void read_link_word(const std::string& word, Cluster& cluster) {
    std::optional<int> ports = count_of(word);
    std::string name = word;
    if (!ports && word.ends_with('x')) ports = count_of(std::string_view(word).substr(0, word.size() - 1));
    if (ports) {
      if (at_ < words_.size() && words_[at_] == "x") ++at_;
      if (at_ == words_.size())
        fail(fmt::format("'{}' must be followed by a link: it counts network ports", word));
      name = words_[at_++];
    }
    set_link(link_named(name), cluster, ports);
  }

  const Link& link_named(const std::string& word) const {
    try {
      return find_link(word);
    } catch (const base::UserError& e) {
      fail(fmt::format(
          "unknown word '{}': {}; other words are price, pue, carbon, host, memory, domain and rates "
          "such as 800Gbps/node",
          word, e.what()));
    }
  }

  std::string_view text_;
  std::vector<std::string> words_;
  std::set<std::string> given_;  // words that may occur once
  size_t at_ = 0;
  int first_ = 1, per_node_ = 0;
  std::array<std::string, 4> links_;  // given so far, by kind
};

}  // namespace

Cluster make_cluster(const Accelerator& accelerator, int world, int per_node) {
  QUINTET_CHECK(world >= 1 && per_node >= 0, "world {}, per node {}", world, per_node);
  if (per_node == 0) per_node = std::min(world, accelerator.per_node);
  if (world % per_node != 0)
    base::fail_user(
        "{} x {} does not fill nodes of {}: use {} or {}, or state the node size, such as \"{}x{} {}\"",
        world, accelerator.name, per_node, world / per_node * per_node, (world / per_node + 1) * per_node,
        (world + per_node - 1) / per_node, per_node, accelerator.name);
  Cluster cluster;
  cluster.accelerator = accelerator;
  cluster.nodes = world / per_node;
  cluster.per_node = per_node;
  cluster.domain = std::max(per_node, std::min(world, accelerator.domain));
  cluster.inner = find_link(accelerator.link);
  cluster.outer = find_link(accelerator.network);
  cluster.ports_per_device = accelerator.ports_per_device;
  cluster.host = find_link(accelerator.host);
  cluster.host_bytes = accelerator.host_bytes_per_device * per_node;
  cluster.disk = find_link("nvme-gen4");
  const Price price = price_of(accelerator.name);
  cluster.price_per_hour = price.usd_per_hour;
  if (price.usd_per_hour > 0)
    cluster.price_source = fmt::format("{}, {} ({})", price.source, price.what, price.date);
  cluster.pue = catalogue().site.pue;
  cluster.carbon_kg_per_kwh = catalogue().site.carbon_kg_per_kwh;
  return cluster;
}

Cluster parse_cluster(std::string_view phrase_or_path) {
  if (phrase_or_path.ends_with(".toml") || base::file_exists(base::Path(phrase_or_path)))
    return parse_cluster_text(base::read_file(base::Path(phrase_or_path)), std::string(phrase_or_path));
  return Phrase(phrase_or_path).read();
}

std::string describe(const Cluster& c) {
  const auto plural = [](int n, const char* word) {
    return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
  };
  std::string text =
      c.nodes == 1 ? fmt::format("{} x {}", c.per_node, c.accelerator.title)
                   : fmt::format("{} of {} x {}", plural(c.nodes, "node"), c.per_node, c.accelerator.title);
  if (c.world() > 1)
    text +=
        fmt::format("; {} joins {}", c.inner.title, c.domain == 1 ? "none" : plural(c.domain, "neighbour"));
  if (c.world() > c.domain)
    text += fmt::format("; {} between, {:g} ports per node", c.outer.title, c.ports_per_device * c.per_node);
  return text;
}

}  // namespace quintet::hardware
