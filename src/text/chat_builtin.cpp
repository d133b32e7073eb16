#include "text/chat_builtin.h"

#include <array>

namespace ridge::text {

constinit const std::string_view kPlainChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

namespace {

// Opens each template: what its format has no place for is refused before anything is written.
constexpr std::string_view kCheck = R"({%- for message in messages -%}
    {%- if message.role not in roles -%}
        {{- raise_exception('messages[' ~ loop.index0 ~ '] has the role ' ~ message.role
                            ~ ', but those of this template are ' ~ roles | join(', ')) -}}
    {%- endif -%}
    {%- if message.content is not string -%}
        {{- raise_exception('the content of messages[' ~ loop.index0 ~ '] is no string, as this template needs it') -}}
    {%- endif -%}
{%- endfor -%}
)";

// <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] answer </s><s>[INST] ...
constexpr std::string_view kLlama2 = R"({%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = '<<SYS>>\n' ~ message.content ~ '\n<</SYS>>\n\n' -%}
    {%- elif message.role == 'user' -%}
        {{- bos_token ~ '[INST] ' ~ ns.system ~ message.content | trim ~ ' [/INST]' -}}
        {%- set ns.system = '' -%}
    {%- else -%}
        {{- ' ' ~ message.content | trim ~ ' ' ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
)";

// <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
constexpr std::string_view kLlama3 = R"({{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ message.content | trim ~ '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
)";

// <start_of_turn>user\n...<end_of_turn>\n<start_of_turn>model\n; what the system says opens the first question.
constexpr std::string_view kGemma = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = ns.system ~ message.content | trim ~ '\n\n' -%}
    {%- else -%}
        {%- set role = 'model' if message.role == 'assistant' else message.role -%}
        {{- '<start_of_turn>' ~ role ~ '\n' ~ ns.system ~ message.content | trim ~ '<end_of_turn>\n' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\n' -}}
{%- endif -%}
)";

// <s>[INST] user[/INST] answer</s>[INST] ...; what the system says opens the question behind it.
constexpr std::string_view kMistral = R"({{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- set ns.system = message.content ~ '\n\n' -%}
    {%- elif message.role == 'user' -%}
        {{- '[INST] ' ~ ns.system ~ message.content ~ '[/INST]' -}}
        {%- set ns.system = '' -%}
    {%- else -%}
        {{- ' ' ~ message.content | trim ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
)";

// <|role|>\ncontent<|end|>\n
constexpr std::string_view kPhi3 = R"({%- for message in messages -%}
    {{- '<|' ~ message.role ~ '|>\n' ~ message.content ~ '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\n' -}}
{%- endif -%}
)";

BuiltinTemplate checked(std::string_view name, std::string_view source, std::string_view further_role = "") {
    std::string roles = "{%- set roles = ['system', 'user', 'assistant'";
    if (!further_role.empty()) roles.append(", '").append(further_role).append("'");
    return {name, roles.append("] -%}\n").append(kCheck).append(source)};
}

}  // namespace

std::span<const BuiltinTemplate> builtin_templates() {
    static const std::array<BuiltinTemplate, 6> kTemplates{
        {checked("chatml", kPlainChatMl, "tool"), checked("llama2", kLlama2), checked("llama3", kLlama3, "ipython"),
         checked("gemma", kGemma), checked("mistral", kMistral), checked("phi3", kPhi3)}};
    return kTemplates;
}

std::string builtin_template_names() {
    std::string names;
    for (const BuiltinTemplate &t : builtin_templates()) names.append(names.empty() ? "" : ", ").append(t.name);
    return names;
}

}  // namespace ridge::text
