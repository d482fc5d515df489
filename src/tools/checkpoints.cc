#include "tools/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/printable.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "config/parse.h"
#include "train/resume.h"
#include "train/run_state.h"

namespace quintet::tools {
namespace {

using checkpoint::Entry;
using checkpoint::Json;
using checkpoint::Store;

Store store_at(const base::Path& path) {
  if (base::Path folder = train::find_store(path); !folder.empty()) return Store(std::move(folder));
  base::fail_user("'{}' {}", path.string(),
                  base::directory_exists(path) ? "contains no checkpoints" : "does not exist");
}

// That saved it: a rank may have a second file, of frozen parameters.
int64_t num_ranks(const checkpoint::Manifest& m) {
  int64_t ranks = 0;
  for (const checkpoint::ShardFile& file : m.files) ranks += file.name == checkpoint::shard_name(ranks);
  return ranks;
}

int64_t bytes_of(const Entry& entry) {
  int64_t bytes = 0;
  for (const base::Path& file : base::list_files(entry.folder)) bytes += base::size_of_file(file);
  return bytes;
}

// Bytes by kind of tensor: "weights", or the state's name after the slash.
std::map<std::string, int64_t> bytes_by_kind(const checkpoint::Manifest& m) {
  std::map<std::string, int64_t> kinds;
  for (const checkpoint::SavedTensor& t : m.tensors) {
    const size_t slash = t.info.name.find('/');
    kinds[slash == std::string::npos ? "weights" : t.info.name.substr(slash + 1)] += t.info.bytes();
  }
  return kinds;
}

// Text of a manifest, which may come from anywhere, and be piped to a terminal: it moves no cursor and adds
// no line.
std::string in_one_line(std::string_view text) {
  std::string out;
  for (const char c : base::printable(text))
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  return out;
}

// The same of JSON, which allows some control characters in its texts: U+007F to U+009F.
std::string with_escaped_controls(std::string_view json) {
  std::string out;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto first = static_cast<unsigned char>(json[i]);
    const unsigned second = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0;
    const bool is_c1 = first == 0xc2 && second < 0xa0;
    if (!is_c1 && first != 0x7f) {
      out += json[i];
      continue;
    }
    out += fmt::format("\\u{:04x}", is_c1 ? second : first);
    i += is_c1 ? 1 : 0;
  }
  return out;
}

}  // namespace

std::string list_checkpoints(const base::Path& path, bool json) {
  const Store store = store_at(path);
  Json list = Json::array();
  std::string text;
  std::vector<Entry> entries = store.list();
  for (Entry& entry : store.abandoned()) entries.push_back(std::move(entry));
  for (const Entry& entry : entries) {
    const int64_t bytes = bytes_of(entry);
    list.push_back({{"step", entry.step},
                    {"folder", entry.folder.string()},
                    {"complete", entry.complete},
                    {"set_aside", entry.set_aside},
                    {"bytes", bytes}});
    text +=
        fmt::format("{:>10}  {:>10}  {}{}{}\n", entry.step, base::human_bytes(bytes), entry.folder.string(),
                    entry.complete ? "" : "  (incomplete)", entry.set_aside ? "  (set aside)" : "");
  }
  return json ? base::json_text(list, 1) + "\n"
              : fmt::format("{:>10}  {:>10}  folder\n{}", "step", "bytes", text);
}

std::string show_checkpoint(const base::Path& path, bool tensors, bool json) {
  const checkpoint::Reader reader(train::find_checkpoint(path));
  const checkpoint::Manifest& m = reader.manifest();
  const std::string source = (reader.folder() / checkpoint::kManifestFile).string();
  const train::RunState state = train::parse_run_state(m.run, source);
  if (json) {
    Json root = {{"folder", reader.folder().string()},
                 {"step", m.step},
                 {"ranks", num_ranks(m)},
                 {"bytes", m.tensor_bytes()},
                 {"run", m.run}};
    if (tensors) {
      root["tensors"] = Json::array();
      for (const checkpoint::SavedTensor& t : m.tensors)
        root["tensors"].push_back({{"name", t.info.name},
                                   {"dtype", checkpoint::safetensors_name(t.info.dtype)},
                                   {"shape", t.info.shape},
                                   {"pieces", t.pieces.size()}});
    }
    return with_escaped_controls(base::json_text(root, 2)) + "\n";
  }
  const config::Recipe recipe = config::parse(state.recipe, {}, source);
  std::string text;
  const auto line = [&](const std::string& label, const std::string& value) {
    text += fmt::format("{:<12}{}\n", in_one_line(label), in_one_line(value));
  };
  line("checkpoint", reader.folder().string());
  line("run", fmt::format("{}, after step {} of {}", recipe.name, m.step, recipe.run.steps));
  line("loss", fmt::format("{:.4f}", state.summary.last_loss));
  line("saved by",
       fmt::format("{} rank{}, quintet {}", num_ranks(m), num_ranks(m) == 1 ? "" : "s", state.version));
  const auto fact = [&](const char* key) {
    const auto found = state.environment.find(key);
    return found == state.environment.end() || !found->is_string() ? std::string()
                                                                   : found->get<std::string>();
  };
  if (!fact("commit").empty()) line("commit", fmt::format("{}, {}", fact("commit"), fact("build")));
  if (!fact("host").empty())
    line("host", fmt::format("{}: {}, {}", fact("host"), fact("machine"), fact("device")));
  line("data", fmt::format("{} consumed, {} per epoch", base::counted(state.sequences, "sequence"),
                           base::thousands(state.data.samples)));
  for (const auto& [kind, bytes] : bytes_by_kind(m)) line(kind, base::human_bytes(bytes));
  line("in all", fmt::format("{} in {} tensors", base::human_bytes(m.tensor_bytes()), m.tensors.size()));
  if (tensors)
    for (const checkpoint::SavedTensor& t : m.tensors)
      text += fmt::format("  {} {} [{}], {} piece{}\n", in_one_line(t.info.name), to_string(t.info.dtype),
                          fmt::join(t.info.shape, ", "), t.pieces.size(), t.pieces.size() == 1 ? "" : "s");
  return text;
}

std::string verify_checkpoint(const base::Path& path, bool json) {
  checkpoint::Reader reader(train::find_checkpoint(path));
  const int64_t begin = base::now_ns(), bytes = reader.verify(), took = base::now_ns() - begin;
  const size_t tensors = reader.manifest().tensors.size();
  if (json)
    return base::json_text(Json{{"folder", reader.folder().string()},
                                {"good", true},
                                {"tensors", tensors},
                                {"bytes", bytes},
                                {"seconds", static_cast<double>(took) / 1e9}}) +
           "\n";
  return fmt::format("good: {}, {} tensors, {} read in {}\n", reader.folder().string(), tensors,
                     base::human_bytes(bytes), base::human_duration(took));
}

std::string prune_checkpoints(const base::Path& path, const checkpoint::Retention& retention, bool dry_run) {
  Store store = store_at(path);
  std::string text;
  std::vector<Entry> removable = store.removable(retention);
  for (Entry& entry : store.abandoned()) removable.push_back(std::move(entry));
  for (const Entry& entry : removable) {
    text += fmt::format("{} {} ({})\n", dry_run ? "would remove" : "removed", entry.folder.string(),
                        base::human_bytes(bytes_of(entry)));
    if (!dry_run) store.remove(entry);
  }
  return text.empty() ? "nothing to remove\n" : text;
}

}  // namespace quintet::tools
