#include "chat/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "chat/builtin_templates.h"

namespace quintet::chat {
namespace {

Json read_json(const base::Path& path) {
  if (!base::file_exists(path)) return Json::object();
  const std::string text = base::read_file(path);
  Json json = base::parse_ordered_json(text);
  if (json.is_discarded())
    base::fail_user("'{}' is {}", base::printable(path.string()), base::json_fault(text));
  if (!json.is_object()) base::fail_user("'{}' is not a JSON object", base::printable(path.string()));
  return json;
}

// A token is a text, or an object with its text.
std::string token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return "";
}

// The sources of templates by name; files override what tokenizer_config.json has.
std::vector<std::pair<std::string, std::string>> template_sources(const base::Path& folder,
                                                                  const Json& config) {
  std::vector<std::pair<std::string, std::string>> sources;
  if (base::file_exists(folder / "chat_template.jinja"))
    sources.emplace_back("default", base::read_file(folder / "chat_template.jinja"));
  if (base::directory_exists(folder / "additional_chat_templates"))
    for (const base::Path& file : base::list_files(folder / "additional_chat_templates"))
      if (file.extension() == ".jinja") sources.emplace_back(file.stem().string(), base::read_file(file));
  if (!sources.empty()) return sources;
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return sources;
  if (found->is_string()) {
    sources.emplace_back("default", found->get<std::string>());
  } else if (found->is_array()) {
    for (const Json& each : *found) {
      if (!each.is_object() || !each.contains("name") || !each.contains("template") ||
          !each["name"].is_string() || !each["template"].is_string())
        base::fail_user("tokenizer_config.json: a chat template of the list has no name or no template");
      sources.emplace_back(each["name"].get<std::string>(), each["template"].get<std::string>());
    }
  } else {
    base::fail_user("tokenizer_config.json: the chat template is neither a text nor a list");
  }
  return sources;
}

}  // namespace

ChatTokenizer::ChatTokenizer(const std::string& path, const std::string& chosen)
    : path_(path), tokenizer_(tokenizer::load_tokenizer(path)) {
  const base::Path folder = base::directory_exists(path) ? base::Path(path) : base::Path(path).parent_path();
  const bool bytes = tokenizer::names_byte_tokenizer(path);
  const Json config = bytes ? Json::object() : read_json(folder / "tokenizer_config.json");
  const Json map = bytes ? Json::object() : read_json(folder / "special_tokens_map.json");
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    for (const Json* from : {&config, &map}) {
      const std::string text = from->contains(name) ? token_text((*from)[name]) : "";
      if (text.empty()) continue;
      special_.emplace_back(name, text);
      break;
    }
  if (const std::string eos = special("eos_token"); !eos.empty()) eos_ = tokenizer_->id(eos);

  auto sources = bytes ? decltype(template_sources(folder, config)){} : template_sources(folder, config);
  if (!chosen.empty()) {
    const auto named =
        std::find_if(sources.begin(), sources.end(), [&](const auto& each) { return each.first == chosen; });
    const auto built_in = builtin_template(chosen);
    if (named == sources.end() && !base::file_exists(chosen) && !built_in) {
      std::string names;
      for (const auto& [name, source] : sources) names += (names.empty() ? "" : ", ") + name;
      base::fail_user("'{}' is neither a file nor a chat template of '{}'; its templates: {}; built in: {}",
                      base::printable(chosen), base::printable(path), names.empty() ? "none" : names,
                      fmt::join(builtin_template_names(), ", "));
    }
    sources = {{"default", named != sources.end()      ? named->second
                           : base::file_exists(chosen) ? base::read_file(chosen)
                                                       : std::string(*built_in)}};
  }
  for (const auto& [name, source] : sources) templates_.emplace_back(name, ChatTemplate(source, special_));
}

uint64_t ChatTokenizer::templates_hash() const {
  std::string all;
  for (const auto& [name, each] : templates_) all += name + '\0' + each.source() + '\0';
  return base::hash_of(all).low;
}

const ChatTemplate& ChatTokenizer::chat_template(bool with_tools) const {
  const ChatTemplate* plain = nullptr;
  for (const auto& [name, each] : templates_) {
    if (with_tools && name == "tool_use") return each;
    if (name == "default") plain = &each;
  }
  if (plain != nullptr) return *plain;
  if (templates_.empty())
    base::fail_user(
        "the tokenizer '{}' has no chat template; expected chat_template.jinja or tokenizer_config.json with "
        "one beside it; --chat-template (data.chat.template in a recipe) names a file or a built-in one, "
        "such as chatml",
        base::printable(path_));
  base::fail_user(
      "the tokenizer '{}' has several chat templates and no default; choose one with --chat-template {} "
      "(data.chat.template in a recipe)",
      base::printable(path_), templates_[0].first);
}

std::string ChatTokenizer::special(std::string_view name) const {
  for (const auto& [each, text] : special_)
    if (each == name) return text;
  return "";
}

bool ChatTokenizer::ends_turn(int32_t id) const { return id == eos_ || tokenizer_->is_special(id); }

}  // namespace quintet::chat
