#include "config/place_paths.h"

#include <fmt/format.h>

#include <filesystem>

#include "config/environment.h"
#include "config/schedule_traits.h"
#include "tokenizer/tokenizer.h"

namespace quintet::config {

std::string with_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::string home = environment("HOME").value_or("");
  return home.empty() ? path : home + path.substr(1);
}

std::string_view scheme_of(std::string_view text) {
  const size_t end = text.find("://");
  const bool is_scheme = end != std::string_view::npos && end > 0 &&
                         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+.-") == end;
  return is_scheme ? text.substr(0, end) : std::string_view();
}

namespace {
constexpr const char* kNamedRule = "run.dir and checkpoint.dir name folders";

// What a run writes would be training data when it is continued.
void refuse_data_folder(const Recipe& r, const char* key, const std::string& folder, Report& report) {
  const auto plain = [](const std::string& path) {
    return std::filesystem::absolute(path + "/").lexically_normal();
  };
  const auto check = [&](const std::vector<std::string>& paths, const char* data) {
    for (const std::string& path : paths)
      if (!path.empty() && plain(path) == plain(folder))
        return report.add(
            kNamedRule, key,
            fmt::format("\"{}\" is also {}: what a run writes there would become data", folder, data),
            "leave it out");
  };
  if (folder.empty()) return;
  check(r.data.path, "data.path");
  for (const BlendSet& set : r.data.blend) check(set.path, "a path of data.blend");
  for (const EvalSet& set : r.eval.sets) check(set.path, "a path of eval.sets");
}
}  // namespace

void place_paths(Recipe& r, const base::Path& folder, const std::function<bool(const char* key)>& in_file,
                 const std::function<bool(const char* key)>& in_override, Report& report) {
  namespace fs = std::filesystem;
  const auto absolute = [&](const char* key, const std::string& text) {
    if (text.empty()) return text;  // reported by a rule
    if (const std::string_view scheme = scheme_of(text); !scheme.empty()) {
      // As a path it would be the folder "s3:" of the working directory.
      report.add("paths are of mounted file systems", key,
                 fmt::format("\"{}\" is an address; remote file systems are not supported yet", text),
                 scheme == "file" ? fmt::format("\"{}\"", text.substr(scheme.size() + 3))
                                  : "a path where it is mounted, or where a copy is");
      return text;
    }
    const base::Path path(with_home(text));
    const base::Path placed = fs::absolute(in_file(key) ? folder / path : path).lexically_normal();
    // The likeliest mistake, reported before "no data": the path is relative to the working directory.
    const bool is_output = key == std::string_view("run.dir") || key == std::string_view("checkpoint.dir");
    std::error_code none;
    if (in_file(key) && !is_output && path.is_relative() && !fs::exists(placed, none) &&
        fs::exists(path, none))
      report.add(
          "paths are relative to the recipe", key,
          fmt::format("\"{}\" is relative to the recipe's folder, where it does not exist; it exists in "
                      "the working directory",
                      text),
          fmt::format(
              "\"{}\"",
              fs::absolute(path).lexically_relative(fs::absolute(folder).lexically_normal()).string()));
    return placed.string();
  };
  for (std::string& path : r.data.path) path = absolute("data.path", path);
  for (BlendSet& set : r.data.blend)
    for (std::string& path : set.path) path = absolute("data.blend", path);
  for (EvalSet& set : r.eval.sets)
    for (std::string& path : set.path) path = absolute("eval.sets", path);
  if (const std::string& by = r.data.curriculum.by; !by.empty() && by != "length")
    r.data.curriculum.by = absolute("data.curriculum.by", by);
  r.data.routes = absolute("data.routes", r.data.routes);
  if (std::string& file = r.data.chat.chat_template;
      file.find('/') != std::string::npos || file.ends_with(".jinja"))
    file = absolute("data.chat.template", file);
  if (!tokenizer::names_byte_tokenizer(r.data.tokenizer))
    r.data.tokenizer = absolute("data.tokenizer", r.data.tokenizer);
  constexpr const char* kEmpty = "is empty; it must name a folder";
  if (in_file("run.dir") || in_override("run.dir")) {
    if (r.run.dir.empty()) report.add(kNamedRule, "run.dir", kEmpty, "leave it out");
    r.run.dir = absolute("run.dir", r.run.dir);
    if (!r.run.dir.empty() && fs::path(r.run.dir).relative_path().empty())  // "//" too
      report.add(kNamedRule, "run.dir", "is \"/\", the root of all files; it must name a folder of its own",
                 "leave it out");
  }
  // Resolved recipes have an empty one for the run folder; in --set it is a shell variable without a value.
  if (in_override("checkpoint.dir") && r.checkpoint.dir.empty())
    report.add(kNamedRule, "checkpoint.dir", kEmpty, "leave it out");
  r.checkpoint.dir = absolute("checkpoint.dir", r.checkpoint.dir);
  refuse_data_folder(r, "run.dir", r.run.dir, report);
  refuse_data_folder(r, "checkpoint.dir", r.checkpoint.dir, report);
  if (const auto file = schedule_file(r.parallel.schedule); file && !file->empty())
    r.parallel.schedule = "file:" + absolute("parallel.schedule", *file);
}

}  // namespace quintet::config
