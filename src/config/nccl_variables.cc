#include "config/nccl_variables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace quintet::config {
namespace {

enum class Takes : uint8_t {
  Text,     // a name, a list of names, a file
  Integer,  // from `least` to `most`
  Choice,   // one of `words`, in any case
  List,     // some of them with commas; ^ before the first excludes them
  Level,    // one of `words`, or an integer of old versions
};

struct Known {
  std::string_view name;
  NcclScope scope;
  Takes takes;
  int64_t least = 0, most = 0;
  std::string_view words = {};  // with blanks
  std::string_view meaning;
};

constexpr auto kAll = NcclScope::Everywhere, kHost = NcclScope::OneHost, kNet = NcclScope::SeveralHosts,
               kLog = NcclScope::Messages;
constexpr std::string_view kPaths = "LOC PIX PXB PHB SYS", kNvlPaths = "LOC NVL PIX PXB PHB SYS";

constexpr Known kKnown[] = {
    {"NCCL_ALGO", kAll, Takes::List, 0, 0, "Ring Tree CollnetDirect CollnetChain NVLS NVLSTree PAT",
     "algorithms that collectives may use; by default the fastest by NCCL's model"},
    {"NCCL_PROTO", kAll, Takes::List, 0, 0, "LL LL128 Simple",
     "protocols that messages may use; LL128 is correct only on systems where NCCL selects it itself"},
    {"NCCL_BUFFSIZE",
     kAll,
     Takes::Integer,
     1024,
     int64_t{1} << 30,
     {},
     "bytes of a channel's buffer (4194304)"},
    {"NCCL_NTHREADS", kAll, Takes::Choice, 0, 0, "64 128 256 512", "threads of a block of NCCL's kernels"},
    {"NCCL_MIN_NCHANNELS",
     kAll,
     Takes::Integer,
     1,
     64,
     {},
     "fewest blocks that a collective takes from the GPU"},
    {"NCCL_MAX_NCHANNELS",
     kAll,
     Takes::Integer,
     1,
     64,
     {},
     "most blocks that a collective takes from the GPU"},
    {"NCCL_MIN_CTAS", kAll, Takes::Integer, 1, 64, {}, "the same as NCCL_MIN_NCHANNELS, of newer versions"},
    {"NCCL_MAX_CTAS", kAll, Takes::Integer, 1, 64, {}, "the same as NCCL_MAX_NCHANNELS, of newer versions"},
    {"NCCL_CGA_CLUSTER_SIZE", kAll, Takes::Integer, 0, 8, {}, "blocks of a cluster, on Hopper and later"},
    {"NCCL_LAUNCH_MODE", kAll, Takes::Choice, 0, 0, "PARALLEL GROUP",
     "how kernels of several GPUs are launched"},
    {"NCCL_COMM_BLOCKING", kAll, Takes::Integer, 0, 1, {}, "whether calls wait until they are issued"},
    {"NCCL_LOCAL_REGISTER",
     kAll,
     Takes::Integer,
     0,
     1,
     {},
     "whether buffers may be registered by the program"},
    {"NCCL_GRAPH_REGISTER",
     kAll,
     Takes::Integer,
     0,
     1,
     {},
     "whether buffers of captured graphs are registered"},
    {"NCCL_CUMEM_ENABLE", kAll, Takes::Integer, -2, 1, {}, "whether memory is allocated by cuMem"},
    {"NCCL_RUNTIME_CONNECT", kAll, Takes::Integer, 0, 1, {}, "whether ranks connect at their first call"},
    {"NCCL_TOPO_FILE",
     kAll,
     Takes::Text,
     0,
     0,
     {},
     "file that describes the machine instead of its own detection"},
    {"NCCL_GRAPH_FILE", kAll, Takes::Text, 0, 0, {}, "file with rings and trees instead of its own search"},
    {"NCCL_CONF_FILE", kAll, Takes::Text, 0, 0, {}, "file with more variables"},
    {"NCCL_HOSTID",
     kAll,
     Takes::Text,
     0,
     0,
     {},
     "name of the host; different ones let processes share a GPU"},
    {"NCCL_IGNORE_CPU_AFFINITY", kAll, Takes::Integer, 0, 1, {}, "whether threads may leave the job's cores"},
    {"NCCL_P2P_DISABLE",
     kHost,
     Takes::Integer,
     0,
     1,
     {},
     "1: GPUs do not reach each other by NVLink or PCIe"},
    {"NCCL_P2P_LEVEL", kHost, Takes::Level, 0, 5, kNvlPaths,
     "how far apart GPUs may reach each other directly"},
    {"NCCL_P2P_NVL_CHUNKSIZE",
     kHost,
     Takes::Integer,
     1024,
     int64_t{1} << 30,
     {},
     "bytes of a message over NVLink"},
    {"NCCL_SHM_DISABLE",
     kHost,
     Takes::Integer,
     0,
     1,
     {},
     "1: ranks of a host use the network, not its memory"},
    {"NCCL_NVLS_ENABLE",
     kHost,
     Takes::Integer,
     0,
     2,
     {},
     "sums inside NVLink switches; 2: if they are available"},
    {"NCCL_MNNVL_ENABLE",
     kAll,
     Takes::Integer,
     0,
     2,
     {},
     "NVLink between hosts (NVL72); 2: if it is available"},
    {"NCCL_SOCKET_IFNAME", kNet, Takes::Text, 0, 0, {}, "interfaces of IP traffic, and of set-up"},
    {"NCCL_SOCKET_FAMILY", kNet, Takes::Choice, 0, 0, "AF_INET AF_INET6", "IPv4 or IPv6"},
    {"NCCL_SOCKET_NTHREADS",
     kNet,
     Takes::Integer,
     1,
     16,
     {},
     "threads of each network connection over sockets"},
    {"NCCL_NSOCKS_PERTHREAD", kNet, Takes::Integer, 1, 16, {}, "sockets of each such thread"},
    {"NCCL_SOCKET_RETRY_CNT", kNet, Takes::Integer, 0, 10000, {}, "attempts to connect"},
    {"NCCL_SOCKET_RETRY_SLEEP_MSEC",
     kNet,
     Takes::Integer,
     0,
     100000,
     {},
     "milliseconds between such attempts"},
    {"NCCL_CROSS_NIC", kNet, Takes::Integer, 0, 2, {}, "whether a ring may use different ports on its hosts"},
    {"NCCL_COLLNET_ENABLE",
     kNet,
     Takes::Integer,
     0,
     1,
     {},
     "sums inside the network (SHARP), with its plugin"},
    {"NCCL_NET", kNet, Takes::Text, 0, 0, {}, "the network to use: IB, Socket or a plugin's name"},
    {"NCCL_NET_PLUGIN", kNet, Takes::Text, 0, 0, {}, "library of a network plugin"},
    {"NCCL_NET_GDR_LEVEL", kNet, Takes::Level, 0, 5, kPaths,
     "how far from its GPU a port may read GPU memory"},
    {"NCCL_NET_GDR_READ", kNet, Takes::Integer, 0, 1, {}, "whether sends, too, read GPU memory directly"},
    {"NCCL_NET_SHARED_BUFFERS", kNet, Takes::Integer, 0, 1, {}, "whether messages of a port share buffers"},
    {"NCCL_OOB_NET_ENABLE", kNet, Takes::Integer, 0, 1, {}, "whether set-up uses the fast network"},
    {"NCCL_IB_DISABLE", kNet, Takes::Integer, 0, 1, {}, "1: sockets instead of InfiniBand or RoCE"},
    {"NCCL_IB_HCA", kNet, Takes::Text, 0, 0, {}, "adapters to use: prefixes, = for exact names, ^ excludes"},
    {"NCCL_IB_TIMEOUT", kNet, Takes::Integer, 1, 22, {}, "time-out of a message: 4.096 us x 2^value (20)"},
    {"NCCL_IB_RETRY_CNT", kNet, Takes::Integer, 0, 7, {}, "attempts to send a message (7)"},
    {"NCCL_IB_GID_INDEX", kNet, Takes::Integer, -1, 255, {}, "index of the address on RoCE; -1: selected"},
    {"NCCL_IB_ADDR_FAMILY", kNet, Takes::Choice, 0, 0, "AF_INET AF_INET6", "family of RoCE addresses"},
    {"NCCL_IB_ADDR_RANGE", kNet, Takes::Text, 0, 0, {}, "range of RoCE addresses"},
    {"NCCL_IB_ROCE_VERSION_NUM", kNet, Takes::Integer, 1, 2, {}, "version of RoCE (2)"},
    {"NCCL_IB_SL", kNet, Takes::Integer, 0, 15, {}, "service level of InfiniBand"},
    {"NCCL_IB_TC", kNet, Takes::Integer, 0, 255, {}, "traffic class of RoCE"},
    {"NCCL_IB_AR_THRESHOLD",
     kNet,
     Takes::Integer,
     0,
     int64_t{1} << 30,
     {},
     "bytes from which routing is adaptive"},
    {"NCCL_IB_ADAPTIVE_ROUTING", kNet, Takes::Integer, 0, 1, {}, "adaptive routing of the fabric"},
    {"NCCL_IB_QPS_PER_CONNECTION", kNet, Takes::Integer, 1, 128, {}, "queues between two ports"},
    {"NCCL_IB_SPLIT_DATA_ON_QPS",
     kNet,
     Takes::Integer,
     0,
     1,
     {},
     "whether a message is cut over these queues"},
    {"NCCL_IB_PCI_RELAXED_ORDERING",
     kNet,
     Takes::Integer,
     0,
     2,
     {},
     "relaxed order on PCIe; 2: if available"},
    {"NCCL_IB_CUDA_SUPPORT",
     kNet,
     Takes::Integer,
     0,
     1,
     {},
     "of old versions; NCCL_NET_GDR_LEVEL replaces it"},
    {"NCCL_IB_MERGE_NICS", kNet, Takes::Integer, 0, 1, {}, "whether ports of one adapter count as one"},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", kNet, Takes::Integer, 0, 1, {}, "whether faults of the fabric end calls"},
    {"NCCL_DEBUG", kLog, Takes::Choice, 0, 0, "VERSION WARN INFO TRACE", "what NCCL writes"},
    {"NCCL_DEBUG_SUBSYS", kLog, Takes::List, 0, 0,
     "INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC CALL PROXY NVLS BOOTSTRAP REG PROFILE RAS ALL",
     "of which parts it writes"},
    {"NCCL_DEBUG_FILE",
     kLog,
     Takes::Text,
     0,
     0,
     {},
     "file that it writes to; %h is the host, %p the process"},
};

std::vector<std::string> words_of(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return words;
}

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return lower(x) == lower(y);
  });
}

std::optional<int64_t> integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string one_of(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string problem_of(const Known& k, const std::string& value) {
  const std::vector<std::string> words = words_of(k.words, ' ');
  const auto is_known = [&](std::string_view w) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& x) { return same_word(x, w); });
  };
  const auto refuse = [&](const std::string& got) {
    const auto guess = base::nearest_word(got, words);
    return fmt::format("\"{}\" is none of {}{}", got, one_of(words),
                       guess ? fmt::format("; did you mean {}?", *guess) : "");
  };
  switch (k.takes) {
    case Takes::Text:
      return value.empty() ? "is empty" : "";
    case Takes::Integer: {
      const auto n = integer(value);
      if (n && *n >= k.least && *n <= k.most) return "";
      return fmt::format("\"{}\" is not an integer from {} to {}", value, k.least, k.most);
    }
    case Takes::Choice:
      return is_known(value) ? "" : refuse(value);
    case Takes::Level: {
      const auto n = integer(value);
      if (is_known(value) || (n && *n >= k.least && *n <= k.most)) return "";
      return refuse(value);
    }
    case Takes::List: {
      std::string_view list = value;
      if (list.find(':') != std::string_view::npos)
        return "";  // by function: "allreduce:tree;broadcast:ring"
      if (list.starts_with('^')) list.remove_prefix(1);
      const std::vector<std::string> given = words_of(list, ',');
      if (given.empty()) return fmt::format("names none of {}", one_of(words));
      for (const std::string& w : given)
        if (!is_known(w)) return refuse(w);
      return "";
    }
  }
  return "";
}

// What a pair of variables makes of one of them.
void check_together(std::vector<NcclVariable>& list) {
  const auto find = [&](std::string_view name) -> NcclVariable* {
    const auto it = std::find_if(list.begin(), list.end(), [&](const auto& v) { return v.name == name; });
    return it == list.end() || !it->problem.empty() ? nullptr : &*it;
  };
  const auto is = [&](std::string_view name, std::string_view value) {
    const NcclVariable* const v = find(name);
    return v != nullptr && v->value == value;
  };
  const auto has_no_effect = [&](std::string_view name, std::string_view because) {
    if (NcclVariable* const v = find(name)) v->problem = fmt::format("has no effect with {}", because);
  };
  if (is("NCCL_IB_DISABLE", "1"))
    for (NcclVariable& v : list)
      if (v.name.starts_with("NCCL_IB_") && v.name != "NCCL_IB_DISABLE" && v.problem.empty())
        v.problem = "has no effect with NCCL_IB_DISABLE=1";
  if (is("NCCL_P2P_DISABLE", "1")) has_no_effect("NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE=1");
  const auto ordered = [&](std::string_view least, std::string_view most) {
    NcclVariable *const a = find(least), *const b = find(most);
    if (a != nullptr && b != nullptr && *integer(a->value) > *integer(b->value))
      a->problem = fmt::format("{} exceeds {}={}", a->value, b->name, b->value);
  };
  ordered("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS");
  ordered("NCCL_MIN_CTAS", "NCCL_MAX_CTAS");
  NcclVariable *const sockets = find("NCCL_NSOCKS_PERTHREAD"), *const threads = find("NCCL_SOCKET_NTHREADS");
  constexpr int64_t kMostSockets = 64;
  if (sockets != nullptr && threads != nullptr &&
      *integer(sockets->value) * *integer(threads->value) > kMostSockets)
    sockets->problem = fmt::format("{} sockets of {} threads exceed the {} of a connection", sockets->value,
                                   threads->value, kMostSockets);
  if (is("NCCL_COMM_BLOCKING", "1"))
    find("NCCL_COMM_BLOCKING")->problem = "lets calls wait inside NCCL, where run.timeout cannot end them";
  if (is("NCCL_NVLS_ENABLE", "0"))
    if (NcclVariable* const algo = find("NCCL_ALGO"); algo != nullptr && !algo->value.starts_with('^'))
      for (const std::string& w : words_of(algo->value, ','))
        if (same_word(w, "NVLS") || same_word(w, "NVLSTree"))
          algo->problem = fmt::format("{} needs NCCL_NVLS_ENABLE, which is 0", w);
  if (find("NCCL_DEBUG") == nullptr)
    for (const char* name : {"NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"})
      has_no_effect(name, "NCCL_DEBUG not set");
}

}  // namespace

std::vector<NcclVariable> explain_nccl(const std::map<std::string, std::string>& variables) {
  std::vector<NcclVariable> list;
  for (const auto& [name, value] : variables) {
    if (name.starts_with("TORCH_NCCL_")) {
      list.push_back({.name = name, .value = value, .meaning = "a variable of PyTorch", .problem = {}});
      list.back().problem = "has no effect: only PyTorch reads it; run.timeout is the time-out here";
      continue;
    }
    if (!name.starts_with("NCCL_")) continue;
    NcclVariable v{.name = name, .value = value, .meaning = {}, .problem = {}};
    const auto known =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == name; });
    if (known != std::end(kKnown)) {
      v.meaning = known->meaning;
      v.scope = known->scope;
      v.problem = problem_of(*known, value);
    } else {
      std::vector<std::string> names;
      for (const Known& k : kKnown) names.emplace_back(k.name);
      const auto guess = base::nearest_word(name, names);
      v.problem = fmt::format("is not a variable of NCCL that this version knows{}",
                              guess ? fmt::format("; did you mean {}?", *guess) : "");
    }
    if (name == "NCCL_TIMEOUT") v.problem = "is not a variable of NCCL; the time-out of a run is run.timeout";
    list.push_back(std::move(v));
  }
  check_together(list);
  return list;
}

std::vector<NcclVariable> nccl_variables() { return explain_nccl(environment_variables("NCCL_")); }

std::map<std::string, std::string> parse_variables(const std::string& text, const std::string& file) {
  std::map<std::string, std::string> all;
  int number = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    ++number;
    const auto trim = [](std::string_view s) {
      while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
      while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r' || s.back() == ';'))
        s.remove_suffix(1);
      return s;
    };
    line = trim(line);
    if (line.starts_with("export ")) line = trim(line.substr(7));
    if (line.empty() || line.starts_with('#')) continue;
    const size_t equals = line.find('=');
    const std::string_view name = line.substr(0, std::min(equals, line.size()));
    const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (equals == std::string_view::npos || !is_name)
      base::fail_user("{}:{}: expected NAME=value or a comment, got \"{}\"", file, number,
                      base::printable(line.substr(0, 60)));
    std::string_view value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'')) {
      const size_t close = value.find(value.front(), 1);
      if (close == std::string_view::npos)
        base::fail_user("{}:{}: the value of {} has no closing quote", file, number, name);
      value = value.substr(1, close - 1);
    } else if (const size_t comment = value.find(" #"); comment != std::string_view::npos) {
      value = trim(value.substr(0, comment));
    }
    all[std::string(name)] = std::string(value);
  }
  return all;
}

std::string_view to_string(NcclScope scope) {
  switch (scope) {
    case NcclScope::Everywhere:
      return "everywhere";
    case NcclScope::OneHost:
      return "within a host";
    case NcclScope::SeveralHosts:
      return "between hosts";
    case NcclScope::Messages:
      return "messages";
  }
  return "";
}

}  // namespace quintet::config
