#!/usr/bin/env python3
"""Writes tests/golden/chat/cases.json and expected.json with transformers (make test-hf installs it into build/hf-venv):

  build/hf-venv/bin/python tests/golden/make_chat.py

cases.json has conversations; expected.json has, for each template under templates/, what transformers renders for each of
them, or that it refuses, and what Jinja makes of each of EXPRESSIONS in transformers' environment."""

import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

HERE = pathlib.Path(__file__).resolve().parent / "chat"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather at a place.\nSlow.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City, \"quoted\" & <tagged>"},
                "days": {"type": "integer"},
                "units": {"type": "string", "enum": ["C", "F"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "where": {"type": "object", "properties": {"lat": {"type": ["number", "null"]}}, "required": ["lat"]},
                "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
            "required": ["place"],
        },
        "return": {"type": "string"},
    },
}
CASES = {
    "simple": {"messages": [{"role": "user", "content": "Hello, world!"}, {"role": "assistant", "content": "Hi there."}]},
    "system": {
        "messages": [
            {"role": "system", "content": "  You are terse.  "},
            {"role": "user", "content": "What is 2+2?"},
            {"role": "assistant", "content": "4"},
        ]
    },
    "prompt": {
        "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "And now?\n"}],
        "add_generation_prompt": True,
    },
    "multi_turn": {
        "messages": [
            {"role": "user", "content": "Ünïcödé 漢字 🙂"},
            {"role": "assistant", "content": "<think>\nhm\n</think>\n\nOne <b>&amp;</b>"},
            {"role": "user", "content": "  spaces kept?  "},
            {"role": "assistant", "content": "Two\nlines", "reasoning_content": "thought about it"},
        ]
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "Use tools."},
            {"role": "user", "content": "Weather in Zürich?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2, "ok": True, "x": None, "f": 1.50}}},
                    {"id": "2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"place\": \"Bern\"}"}},
                ],
            },
            {"role": "tool", "name": "get_weather", "tool_call_id": "1", "content": "{\"t\": 12.5}"},
            {"role": "tool", "name": "get_weather", "tool_call_id": "2", "content": "rain"},
            {"role": "assistant", "content": "12.5 °C and rain."},
        ],
        "tools": [WEATHER],
    },
    "parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "what?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        ],
        "kwargs": {"custom_flag": "on", "date_string": "26 Jul 2024", "enable_thinking": False},
    },
    "documents": {
        "messages": [{"role": "user", "content": "Summarise."}],
        "documents": [{"title": "T1", "text": "A long text that will be cut here."}, {"title": "T2", "text": "Short"}],
        "add_generation_prompt": True,
        "kwargs": {"date_string": "1 Jan 2025", "enable_thinking": False, "reasoning_effort": "high"},
    },
    "wrong_order": {"messages": [{"role": "assistant", "content": "first"}, {"role": "critic", "content": "unknown role"}]},
}

# Each is a template of its own, rendered with x = 3, s = "Hello World", l = [3, 1, 2], d = {"a": 1, "b": {"c": [1, 2]}}.
EXPRESSIONS = (HERE / "expressions.txt").read_text(encoding="utf-8").split("\n")[:-1]
VARIABLES = {"x": 3, "s": "Hello World", "l": [3, 1, 2], "d": {"a": 1, "b": {"c": [1, 2]}, "items": "an item", "e": None}, "f": 2.5}


def drop_none(messages):
    return [{key: value for key, value in message.items() if value is not None} for message in messages]


def render(source, case):
    """What tokenizer.apply_chat_template renders, and the spans of generation blocks in UTF-8 bytes."""
    def run(mask):
        return render_jinja_template(
            [drop_none(case["messages"])], tools=case.get("tools"), documents=case.get("documents"), chat_template=source,
            return_assistant_tokens_mask=mask, add_generation_prompt=case.get("add_generation_prompt", False), **SPECIAL,
            **case.get("kwargs", {}))
    try:
        text = run(False)[0][0]
    except Exception as error:
        return {"error": str(error)}
    with_mask = run(True)
    assert with_mask[0][0] == text
    spans = [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in with_mask[1][0]]
    return {"text": text, "generations": spans}


def expression(source):
    try:
        return {"text": _compile_jinja_template(source).render(**VARIABLES)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def expected():
    templates = {path.stem: path.read_bytes().decode() for path in sorted((HERE / "templates").glob("*.jinja"))}
    return {
        "templates": {name: {case: render(source, CASES[case]) for case in CASES} for name, source in templates.items()},
        "expressions": [expression(source) for source in EXPRESSIONS],
    }


def main():
    (HERE / "cases.json").write_text(json.dumps(CASES, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (HERE / "expected.json").write_text(json.dumps(expected(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
