#include "tokenizer/post_processor.h"

#include "tokenizer/json_field.h"

namespace quintet::tokenizer {
namespace {

// The ids of a template such as [CLS] $A [SEP]: those before the sequence and those after it.
Frame from_template(const Json& description) {
  const std::string where = "post_processor";
  const Json tokens = json_field_or<Json>(description, "special_tokens", Json::object(), where);
  Frame frame;
  bool after = false;
  for (const Json& item : json_list(description, "single", where)) {
    if (item.is_object() && item.contains("Sequence")) {
      if (after) base::fail_user("tokenizer file: post_processor.single names its sequence twice");
      after = true;
      continue;
    }
    const Json special = json_field<Json>(item, "SpecialToken", where);
    const auto name = json_field<std::string>(special, "id", where);
    const auto ids =
        json_field<std::vector<int32_t>>(json_field<Json>(tokens, name.c_str(), where), "ids", where);
    auto& side = after ? frame.after : frame.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  return frame;
}

// ["[CLS]", 101]
int32_t paired_id(const Json& description, const char* key) {
  const Json pair = json_field<Json>(description, key, "post_processor");
  if (!pair.is_array() || pair.size() != 2)
    base::fail_user("tokenizer file: post_processor.{} is not [token, id]", key);
  return json_as<int32_t>(pair[1], key);
}

}  // namespace

Frame make_frame(const Json& description) {
  if (description.is_null()) return {};
  const auto type = json_field<std::string>(description, "type", "post_processor");
  if (type == "ByteLevel") return {};  // only trims offsets
  if (type == "TemplateProcessing") return from_template(description);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {{paired_id(description, "cls")}, {paired_id(description, "sep")}};
  if (type == "Sequence") {
    Frame frame;
    for (const Json& step : json_list(description, "processors", "post_processor")) {
      const Frame outer = make_frame(step);
      frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
      frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
    }
    return frame;
  }
  base::fail_user(
      "tokenizer file: the post-processor '{}' is not supported; known: TemplateProcessing, ByteLevel, "
      "BertProcessing, RobertaProcessing, Sequence",
      base::printable(type));
}

}  // namespace quintet::tokenizer
