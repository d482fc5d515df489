#!/usr/bin/env python3
"""Chat data against transformers: texts, ids and masks of assistant tokens.

  chat_test.py QUINTET --work DIR

1. tests/golden/chat/expected.json is what the installed transformers gives.
2. For every template with and without generation blocks, `quintet data show --json` has the ids of apply_chat_template, and the mask of
   return_assistant_tokens_mask where the template has generation blocks.
3. Case mappings and classes of all characters are those of Python's str."""

import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("make_chat", ROOT / "tests/golden/make_chat.py")
golden = importlib.util.module_from_spec(spec)
spec.loader.exec_module(golden)

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|return|>", "<|end|>", "<|call|>"]
failures = 0


def check(good, what):
    global failures
    if not good:
        failures += 1
        print("FAILED:", what)


def train_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    trainer = trainers.BpeTrainer(vocab_size=1500, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(folder)
    return fast


def show(quintet, data, folder, template, *options):
    command = [quintet, "data", "show", str(data), "-n", "1000", "--json", "--tokenizer", str(folder), "--chat-template", str(template), *options]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        return None, result.stderr
    return [json.loads(line) for line in result.stdout.split("\n") if line], ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quintet")
    parser.add_argument("--work", required=True)
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)

    expected = json.loads((golden.HERE / "expected.json").read_text(encoding="utf-8"))
    now = golden.expected()
    for name, cases in now["templates"].items():
        check(expected["templates"].get(name) == cases, f"golden of {name}: run tests/golden/make_chat.py")
    for source, one, other in zip(golden.EXPRESSIONS, expected["expressions"], now["expressions"]):
        check(one.get("text") == other.get("text"), f"golden of {source}")

    fast = train_tokenizer(work / "tokenizer")
    compared = masks = 0
    for path in sorted((golden.HERE / "templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        marked = "generation" in source and "{%" in source and "endgeneration" in source
        for name, case in golden.CASES.items():
            theirs = expected["templates"][path.stem][name]
            if "error" in theirs or not any(m["role"] == "assistant" for m in case["messages"]) or case.get("documents"):
                continue
            data = work / "case.jsonl"
            # Arguments that are JSON text become objects in Quintet: the same conversation for both.
            messages = json.loads(json.dumps(case["messages"]))
            for message in messages:
                for call in message.get("tool_calls") or []:
                    if isinstance(call["function"]["arguments"], str):
                        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            kwargs = case.get("kwargs", {})
            data.write_text(json.dumps({"messages": messages, "tools": case.get("tools"), "chat_template_kwargs": kwargs}) + "\n")
            rendered = fast.apply_chat_template(
                messages, tools=case.get("tools"), chat_template=source, tokenize=True, return_dict=True,
                return_assistant_tokens_mask=marked, **kwargs)
            ours, error = show(arguments.quintet, data, work / "tokenizer", path, "--loss", "all")
            check(ours is not None, f"{path.stem}, {name}: {error}")
            if ours:
                compared += 1
                check(ours[0]["ids"] == rendered["input_ids"], f"{path.stem}, {name}: ids")
            if marked and 1 in rendered["assistant_masks"]:
                ours, error = show(arguments.quintet, data, work / "tokenizer", path)
                check(ours is not None, f"{path.stem}, {name}: {error}")
                if ours:
                    masks += 1
                    check(ours[0]["trained"] == rendered["assistant_masks"], f"{path.stem}, {name}: mask")
    print(f"{compared} conversations have transformers' ids, {masks} of them its assistant mask")

    # All characters that JSON can hold, and what Python's str makes of them.
    text = "".join(chr(c) + " " for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
    changes = ["upper", "lower", "title", "capitalize", "swapcase", "casefold"]
    data = work / "characters.jsonl"
    for change in changes:
        template = work / "case.jinja"
        template.write_text("{% for m in messages %}{{ m.content." + change + "() }}</s>{% endfor %}")
        parts = [text[i:i + 200000] for i in range(0, len(text), 200000)]
        data.write_text("".join(json.dumps({"messages": [{"role": "assistant", "content": part}]}) + "\n" for part in parts))
        ours, error = show(arguments.quintet, data, work / "tokenizer", template, "--loss", "all")
        check(ours is not None, f"{change}: {error}")
        for mine, part in zip(ours or [], parts):
            theirs = getattr(part, change)() + "</s>"
            if mine["text"] != theirs:
                wrong = [(a, b) for a, b in zip(mine["text"].split(" "), theirs.split(" ")) if a != b][:5]
                check(False, f"{change}: {wrong}")
    print("characters: " + ", ".join(changes))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
