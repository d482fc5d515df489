#include "chat/mask.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "chat/jinja/text.h"
#include "tokenizer/unicode.h"

namespace quintet::chat {
namespace {

// How far a cut may be from the next place where tokens end, in characters.
constexpr int kFarthest = 256;

// Tokens that end before a cut, and those that begin before its other side: equal if no token crosses it.
struct Boundary {
  size_t before = 0, after = 0;
};

bool is_prefix(const std::vector<int32_t>& part, const std::vector<int32_t>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// A part of a text whose tokens are the first ones of the whole text ends where a token ends.
Boundary find_boundary(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                       const std::vector<int32_t>& ids, size_t cut) {
  const auto tokens_before = [&](size_t at) -> std::optional<size_t> {
    const std::vector<int32_t> part = tokenizer.encode(text.substr(0, at));
    if (at == text.size()) return ids.size();
    return is_prefix(part, ids) ? std::optional(part.size()) : std::nullopt;
  };
  if (const auto exact = tokens_before(cut)) return {*exact, *exact};
  Boundary boundary;
  size_t at = cut;
  for (int i = 0;; ++i) {
    if (i == kFarthest)
      base::fail_user("no token ends within {} characters before byte {} of the text", i, cut);
    at = tokenizer::last_char(text.substr(0, at));
    const auto count = at == 0 ? std::optional<size_t>(0) : tokens_before(at);
    if (!count) continue;
    boundary.before = *count;
    break;
  }
  at = cut;
  for (int i = 0;; ++i) {
    if (i == kFarthest)
      base::fail_user("no token ends within {} characters after byte {} of the text", i, cut);
    at += static_cast<size_t>(tokenizer::utf8_length(text[at]));
    const auto count = tokens_before(at);
    if (!count) continue;
    boundary.after = *count;
    return boundary;
  }
}

std::string excerpt(std::string_view text, size_t at) {
  size_t begin = at > 20 ? at - 20 : 0;
  while (begin < at && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) ++begin;
  const std::string piece(text.substr(begin, at - begin + 20));
  return base::printable(jinja::repr_of(jinja::Value::string(piece)));
}

size_t common_length(std::string_view a, std::string_view b) {
  size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  while (at > 0 && at < a.size() && (static_cast<uint8_t>(a[at]) & 0xC0) == 0x80) --at;
  return at;
}

Json first_messages(const Json& messages, size_t count) {
  Json first = Json::array();
  for (size_t i = 0; i < count; ++i) first.push_back(messages[i]);
  return first;
}

class ConversationSpans {
 public:
  ConversationSpans(const ChatTemplate& chat_template, const Example& example, const RenderOptions& options,
                    const Rendering& full)
      : template_(chat_template), example_(example), options_(options), full_(full) {}

  // The trained parts of the text, for the messages with a flag.
  std::vector<Span> of(const std::vector<uint8_t>& trained) const {
    return template_.has_generation() ? from_generation(trained) : from_prefixes(trained);
  }

 private:
  Rendering render(size_t messages, bool prompt) const {
    RenderOptions options = options_;
    options.add_generation_prompt = prompt;
    try {
      return template_.render(first_messages(example_.messages, messages), example_.tools, options);
    } catch (const base::UserError& error) {
      base::fail_user(
          "the first {} of {} messages cannot be rendered alone, which finding the trained tokens needs, "
          "because the template has no generation blocks: {}",
          messages, example_.messages.size(), error.what());
    }
  }

  std::vector<Span> from_generation(const std::vector<uint8_t>& trained) const {
    std::vector<Span> all;
    for (const Span& span : full_.generations)
      if (span.begin < span.end) all.push_back(span);
    // The message of each block matters only if some messages are left out.
    bool everything = true;
    for (size_t i = 0; i < trained.size(); ++i)
      everything = everything && (trained[i] != 0 || example_.messages[i]["role"] != "assistant");
    if (everything) return all;
    std::vector<Span> chosen;
    size_t before = 0;
    for (size_t i = 0; i < trained.size(); ++i) {
      if (example_.messages[i]["role"] != "assistant") continue;
      const Rendering part = i + 1 == trained.size() ? full_ : render(i + 1, false);
      const size_t after = part.generations.size();
      if (after < before || after > full_.generations.size())
        base::fail_user(
            "message {}: the template writes fewer generation blocks for a conversation than for its "
            "beginning, so that they cannot be told apart",
            i + 1);
      for (size_t block = before; block < after; ++block)
        if (trained[i] != 0 && full_.generations[block].begin < full_.generations[block].end)
          chosen.push_back(full_.generations[block]);
      before = after;
    }
    return chosen;
  }

  std::vector<Span> from_prefixes(const std::vector<uint8_t>& trained) const {
    std::vector<Span> spans;
    for (size_t i = 0; i < trained.size(); ++i) {
      if (trained[i] == 0) continue;
      const std::string with = i + 1 == trained.size() ? full_.text : render(i + 1, false).text;
      if (!full_.text.starts_with(with)) {
        const size_t at = common_length(with, full_.text);
        base::fail_user(
            "message {}: the template renders it differently when other messages follow: {} alone, {} in the "
            "whole conversation. Its tokens cannot be found by comparing; train the last message only "
            "(--loss last), or use a template with {{% generation %}} blocks",
            i + 1, excerpt(with, at), excerpt(full_.text, at));
      }
      const std::string before = render(i, true).text;
      if (!with.starts_with(before)) {
        const size_t at = common_length(before, with);
        base::fail_user(
            "message {}: the template's generation prompt is not how the message begins: {} in the prompt, "
            "{} in the message. Use a template with {{% generation %}} blocks",
            i + 1, excerpt(before, at), excerpt(with, at));
      }
      if (before.size() < with.size()) spans.push_back({before.size(), with.size()});
    }
    return spans;
  }

  const ChatTemplate& template_;
  const Example& example_;
  const RenderOptions& options_;
  const Rendering& full_;
};

bool is_blank(const tokenizer::Tokenizer& tokenizer, int32_t id) {
  return !tokenizer.is_special(id) && jinja::strip(tokenizer.decode({&id, 1})).empty();
}

// Counts trained parts and those that end a turn. Where `trim`, blanks after the token that ends a turn, such
// as ChatML's line break, are not trained: nobody generates them.
void look_at_ends(const ChatTokenizer& tokenizer, const std::string& end_text, bool trim, Encoded& encoded) {
  const tokenizer::Tokenizer& tokens = tokenizer.tokens();
  for (size_t begin = 0; begin < encoded.ids.size(); ++begin) {
    if (encoded.trained[begin] == 0) continue;
    size_t end = begin;
    while (end < encoded.ids.size() && encoded.trained[end] != 0) ++end;
    ++encoded.turns;
    size_t last = end;
    while (last > begin && is_blank(tokens, encoded.ids[last - 1])) --last;
    if (!end_text.empty()) {
      const std::string text = tokens.decode(std::span(encoded.ids).subspan(begin, end - begin));
      encoded.ended += text.ends_with(end_text) || jinja::strip(text, jinja::Side::Right).ends_with(end_text);
    } else if (last > begin && tokenizer.ends_turn(encoded.ids[last - 1])) {
      ++encoded.ended;
      if (trim)
        std::fill(encoded.trained.begin() + static_cast<int64_t>(last),
                  encoded.trained.begin() + static_cast<int64_t>(end), uint8_t{0});
    }
    begin = end;
  }
}

// Plain text, with the token that the tokenizer puts before a sequence unless the text has it.
Encoded encode_plain(const ChatTokenizer& tokenizer, const std::string& text, size_t trained_from) {
  Encoded encoded;
  encoded.text = text;
  encoded.ids = tokenizer.tokens().encode(text);
  const std::vector<Span> spans = {{trained_from, text.size()}};
  encoded.trained = flag_tokens(tokenizer.tokens(), text, encoded.ids, spans, encoded.straddling);
  std::vector<int32_t> framed;
  tokenizer.tokens().encode(text, framed, true);
  const auto at = std::search(framed.begin(), framed.end(), encoded.ids.begin(), encoded.ids.end());
  const auto added = at == framed.end() ? 0 : at - framed.begin();
  if (added > 0 && !(added == 1 && !encoded.ids.empty() && encoded.ids[0] == framed[0])) {
    encoded.ids.insert(encoded.ids.begin(), framed.begin(), at);
    encoded.trained.insert(encoded.trained.begin(), static_cast<size_t>(added), uint8_t{0});
  }
  return encoded;
}

// Models have seen one token at the beginning of a text.
void require_one_begin(const ChatTokenizer& tokenizer, const Encoded& encoded) {
  const std::string begin = tokenizer.special("bos_token");
  const auto id = begin.empty() ? std::nullopt : tokenizer.tokens().id(begin);
  if (id && encoded.ids.size() > 1 && encoded.ids[0] == *id && encoded.ids[1] == *id)
    base::fail_user(
        "the conversation begins with '{}' twice, and models are trained with one: take it out of the "
        "template, or of the text",
        base::printable(begin));
}

void require_trained(const Encoded& encoded, const char* why) {
  if (std::find(encoded.trained.begin(), encoded.trained.end(), 1) == encoded.trained.end())
    base::fail_user("no token would be trained: {}", why);
}

}  // namespace

std::vector<uint8_t> flag_tokens(const tokenizer::Tokenizer& tokenizer, std::string_view text,
                                 const std::vector<int32_t>& ids, const std::vector<Span>& spans,
                                 int64_t& straddling) {
  std::vector<uint8_t> flags(ids.size(), 0);
  std::vector<size_t> cuts = {0};
  for (const Span& span : spans)
    for (const size_t cut : {span.begin, span.end})
      if (cut > cuts.back()) cuts.push_back(cut);
  if (cuts.back() < text.size()) cuts.push_back(text.size());
  // Most cuts are next to special tokens, where tokenizing the parts gives the same tokens as the whole.
  std::vector<Boundary> boundaries = {{0, 0}};
  std::vector<int32_t> joined;
  for (size_t i = 1; i < cuts.size(); ++i) {
    tokenizer.encode(text.substr(cuts[i - 1], cuts[i] - cuts[i - 1]), joined);
    boundaries.push_back({joined.size(), joined.size()});
  }
  if (joined != ids)
    for (size_t i = 1; i < cuts.size(); ++i) {
      boundaries[i] = cuts[i] == text.size() ? Boundary{ids.size(), ids.size()}
                                             : find_boundary(tokenizer, text, ids, cuts[i]);
      straddling += boundaries[i].before != boundaries[i].after;
    }
  const auto at = [&](size_t cut) {
    return boundaries[static_cast<size_t>(std::lower_bound(cuts.begin(), cuts.end(), cut) - cuts.begin())];
  };
  for (const Span& span : spans) {
    if (span.begin == span.end) continue;
    std::fill(flags.begin() + static_cast<int64_t>(at(span.begin).before),
              flags.begin() + static_cast<int64_t>(at(span.end).after), uint8_t{1});
  }
  return flags;
}

Encoded encode_example(const ChatTokenizer& tokenizer, const Example& example, const MaskOptions& options) {
  Encoded encoded;
  if (example.messages.empty()) {
    std::string text = example.prompt + example.completion;
    const std::string eos = tokenizer.special("eos_token");
    if (!eos.empty() && !text.ends_with(eos)) text += eos;
    if (example.completion.empty() && options.loss != Loss::All)
      base::fail_user("no token would be trained: the completion is empty");
    encoded = encode_plain(tokenizer, text, options.loss == Loss::All ? 0 : example.prompt.size());
    require_one_begin(tokenizer, encoded);
    require_trained(encoded, "the completion has no tokens");
    look_at_ends(tokenizer, options.end_of_turn, false, encoded);
    if (eos.empty() && options.end_of_turn.empty() && encoded.ended == 0)
      base::fail_user(
          "no token ends the completion: tokenizer_config.json beside the tokenizer does not exist or has no "
          "\"eos_token\". Add it, or name the text that ends completions (--end-of-turn, "
          "data.chat.end_of_turn)");
    return encoded;
  }
  const ChatTemplate& chat_template = tokenizer.chat_template(!example.tools.is_null());
  RenderOptions render;
  render.variables = example.variables;
  render.wall_seconds = options.wall_seconds;
  render.spans = options.loss != Loss::All;
  const Rendering full = chat_template.render(example.messages, example.tools, render);
  encoded.text = full.text;
  encoded.ids = tokenizer.tokens().encode(full.text);
  require_one_begin(tokenizer, encoded);
  if (options.loss == Loss::All) {
    encoded.trained.assign(encoded.ids.size(), 1);
    encoded.turns = 1;
    encoded.ended = !options.end_of_turn.empty()
                        ? full.text.find(options.end_of_turn) != std::string::npos
                        : std::any_of(encoded.ids.begin(), encoded.ids.end(),
                                      [&](int32_t id) { return tokenizer.ends_turn(id); });
    require_trained(encoded, "the rendered conversation is empty");
    return encoded;
  }
  std::vector<uint8_t> trained = example.trainable;
  if (options.loss == Loss::Last) {
    const auto last = std::find(trained.rbegin(), trained.rend(), 1);
    const auto keep = trained.rend() - last - 1;  // -1 if there is none
    for (int64_t i = 0; i < static_cast<int64_t>(trained.size()); ++i)
      trained[static_cast<size_t>(i)] = i == keep;
  }
  if (std::find(trained.begin(), trained.end(), 1) == trained.end())
    base::fail_user("no token would be trained: the flags of the messages leave none of the assistant's");
  const std::vector<Span> spans = ConversationSpans(chat_template, example, render, full).of(trained);
  encoded.trained = flag_tokens(tokenizer.tokens(), full.text, encoded.ids, spans, encoded.straddling);
  require_trained(encoded, "the template writes nothing for the messages of the assistant");
  look_at_ends(tokenizer, options.end_of_turn, !chat_template.has_generation(), encoded);
  return encoded;
}

Encoded encode_prompt(const ChatTokenizer& tokenizer, const Example& example, const MaskOptions& options) {
  if (example.messages.empty()) {
    Encoded plain = encode_plain(tokenizer, example.prompt, example.prompt.size());
    require_one_begin(tokenizer, plain);
    return plain;
  }
  RenderOptions render;
  render.add_generation_prompt = true;
  render.variables = example.variables;
  render.wall_seconds = options.wall_seconds;
  Encoded encoded;
  encoded.text =
      tokenizer.chat_template(!example.tools.is_null()).render(example.messages, example.tools, render).text;
  encoded.ids = tokenizer.tokens().encode(encoded.text);
  require_one_begin(tokenizer, encoded);
  encoded.trained.assign(encoded.ids.size(), 0);
  return encoded;
}

}  // namespace quintet::chat
