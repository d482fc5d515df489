#include "chat/builtin_templates.h"

#include <utility>

namespace quintet::chat {
namespace {

// recipes/chat/chatml.jinja
constexpr std::string_view kChatMl =
    R"jinja({#- ChatML with generation markers: what the assistant writes, its end-of-turn token included, is trained. -#}
{%- if tools -%}
{{ '<|im_start|>system\nTools:\n' }}{% for tool in tools %}{{ tool | tojson ~ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}
{%- endif -%}
{%- for message in messages -%}
{{ '<|im_start|>' ~ message.role ~ '\n' }}
{%- if message.role == 'assistant' -%}
{% generation %}{{ message.content or '' }}{% for call in message.tool_calls or [] %}{{ '<tool_call>' ~ call.function | tojson ~ '</tool_call>' }}{% endfor %}{{ '<|im_end|>' }}{% endgeneration %}
{%- else -%}
{{ message.content ~ '<|im_end|>' }}
{%- endif -%}
{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
)jinja";

constexpr std::string_view kLlama3 = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{{ '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' -%}
{% generation %}{{ message.content | trim ~ '<|eot_id|>' }}{% endgeneration %}
{%- else -%}
{{ message.content | trim ~ '<|eot_id|>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif -%}
)jinja";

constexpr std::string_view kGemma = R"jinja({{- bos_token -}}
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{{ '<start_of_turn>model\n' }}{% generation %}{{ message.content | trim ~ '<end_of_turn>' }}{% endgeneration %}{{ '\n' }}
{%- elif message.role == 'user' -%}
{{ '<start_of_turn>user\n' ~ message.content | trim ~ '<end_of_turn>\n' }}
{%- else -%}
{{ raise_exception("the template 'gemma' has the roles user and assistant only") }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif -%}
)jinja";

constexpr std::string_view kMistral = R"jinja({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set ns.system = message.content ~ '\n\n' -%}
{%- elif message.role == 'user' -%}
{{ '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}
{%- set ns.system = '' -%}
{%- elif message.role == 'assistant' -%}
{% generation %}{{ ' ' ~ message.content | trim ~ eos_token }}{% endgeneration %}
{%- else -%}
{{ raise_exception("the template 'mistral' has the roles system, user and assistant only") }}
{%- endif -%}
{%- endfor -%}
)jinja";

constexpr std::string_view kPhi3 = R"jinja(
{%- for message in messages -%}
{{ '<|' ~ message.role ~ '|>\n' }}
{%- if message.role == 'assistant' -%}
{% generation %}{{ message.content ~ '<|end|>' }}{% endgeneration %}
{%- else -%}
{{ message.content ~ '<|end|>' }}
{%- endif -%}
{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif -%}
)jinja";

constexpr std::string_view kZephyr = R"jinja(
{%- for message in messages -%}
{{ '<|' ~ message.role ~ '|>\n' }}
{%- if message.role == 'assistant' -%}
{% generation %}{{ message.content ~ eos_token }}{% endgeneration %}
{%- else -%}
{{ message.content ~ eos_token }}
{%- endif -%}
{{ '\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif -%}
)jinja";

constexpr std::pair<std::string_view, std::string_view> kTemplates[] = {
    {"chatml", kChatMl},   {"gemma", kGemma}, {"llama3", kLlama3},
    {"mistral", kMistral}, {"phi3", kPhi3},   {"zephyr", kZephyr}};

}  // namespace

std::optional<std::string_view> builtin_template(std::string_view name) {
  for (const auto& [each, source] : kTemplates)
    if (each == name) return source;
  return std::nullopt;
}

std::vector<std::string_view> builtin_template_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, source] : kTemplates) names.push_back(name);
  return names;
}

}  // namespace quintet::chat
