#!/usr/bin/env python3
"""`quintet eval` against lm-evaluation-harness (make test-hf).

  lm_eval_test.py QUINTET [--work FOLDER] [--write-golden]

A tiny Llama with random weights and a byte-level BPE tokenizer, saved by transformers. The same lines are evaluated by `quintet eval` and by
lm-eval's own tasks (multiple_choice, loglikelihood_rolling), in f32: accuracies must be equal, perplexities to 1e-5. Then log-probabilities of
`quintet generate --score` against lm-eval's loglikelihood of the same tokens. --write-golden writes a smaller model, fewer lines and lm-eval's
results to tests/hf/lm_eval, which make test reads.
"""

import argparse
import json
import math
import os
import pathlib
import random
import shutil
import subprocess

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("quintet")
parser.add_argument("--work", default="build/hf-lm-eval")
parser.add_argument("--write-golden", action="store_true")
options = parser.parse_args()
ROOT = pathlib.Path(__file__).resolve().parents[2]
work = pathlib.Path(options.work).resolve()
quintet = str(pathlib.Path(options.quintet).resolve())
MAX_LENGTH = 128
SMALL = options.write_golden
failed = []


def run(*arguments):
    done = subprocess.run([quintet, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"quintet {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(what, ours, theirs, tolerance):
    error = abs(ours - theirs) / max(abs(theirs), 1e-30)
    good = ours == theirs or error <= tolerance
    print(f"{'ok  ' if good else 'FAIL'} {what:18} {ours:.8g} lm-eval {theirs:.8g}", flush=True)
    if not good:
        failed.append(what)


def make_model():
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    folder = work / "model"
    run("tokenizer", "train", ROOT / "docs", "--vocab", 300 if SMALL else 400, "--special", "<|end|>", "--out", work / "tokenizer.json")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(work / "tokenizer.json"), eos_token="<|end|>")
    width = 16 if SMALL else 64
    config = transformers.LlamaConfig(hidden_size=width, intermediate_size=width + 32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                      vocab_size=len(tokenizer), max_position_embeddings=256)
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(torch.randn(p.shape) / math.sqrt(p.shape[-1]))
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


def tasks_of(words):
    """Lines whose contexts end with spaces or are long, and choices of several lengths, some not ASCII."""
    rng = random.Random(7)

    def some(low, high):
        return " ".join(rng.choice(words) for _ in range(rng.randint(low, high)))

    texts = [{"text": some(1, 120)} for _ in range(12)] + [{"text": "  spaces \n at both ends "}, {"text": "one"}]
    questions = []
    for i in range(60):
        choices = [some(1, 6) + ("é" * rng.randint(0, 3) if i % 4 == 0 else "") for _ in range(rng.randint(2, 5))]
        questions.append({"context": some(1, 70 if i % 5 == 0 else 9) + (" " if i % 7 == 0 else ""), "choices": choices,
                          "answer": rng.randrange(len(choices))})
    return texts, questions


def write(name, rows):
    path = work / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def main():
    folder, model, tokenizer = make_model()
    words = (ROOT / "docs/architecture.md").read_text().split()
    texts, questions = tasks_of(words)
    if SMALL:
        texts, questions = texts[:4] + texts[-2:], questions[:25]
    text_file, question_file = write("texts.jsonl", texts), write("questions.jsonl", questions)
    lm = HFLM(pretrained=model, tokenizer=tokenizer, max_length=MAX_LENGTH, batch_size=1, device="cpu")

    def theirs(task, file, **config):
        task_config = {"task": task, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}}, "test_split": "test", **config}
        return lm_eval.simple_evaluate(model=lm, tasks=[task_config], bootstrap_iters=0)["results"][task]

    metrics = [{"metric": m, "aggregation": "mean", "higher_is_better": True} for m in ("acc", "acc_norm")]
    choices = theirs("choices", question_file, output_type="multiple_choice", doc_to_text="{{context}}", doc_to_choice="choices",
                     doc_to_target="answer", metric_list=metrics)
    ours = json.loads(run("eval", folder, question_file, "--max-length", MAX_LENGTH, "--dtype", "f32", "--device", "cpu", "--json"))["choices"]
    check("acc", ours["acc"], choices["acc,none"], 0)
    check("acc_norm", ours["acc_norm"], choices["acc_norm,none"], 0)

    result = theirs("rolling", text_file, output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
                    metric_list=[{"metric": m} for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")])
    ours = json.loads(run("eval", folder, text_file, "--max-length", MAX_LENGTH, "--dtype", "f32", "--device", "cpu", "--json"))["text"]
    for metric in ("word_perplexity", "byte_perplexity", "bits_per_byte"):
        check(metric, ours[metric], result[metric + ",none"], 1e-5)

    if SMALL:
        golden = ROOT / "tests/hf/lm_eval"
        shutil.rmtree(golden, ignore_errors=True)
        golden.mkdir()
        for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(folder / name, golden)
        shutil.copy(text_file, golden), shutil.copy(question_file, golden)
        expected = {"max_length": MAX_LENGTH, "acc": choices["acc,none"], "acc_norm": choices["acc_norm,none"],
                    **{m: result[m + ",none"] for m in ("word_perplexity", "byte_perplexity", "bits_per_byte")}}
        (golden / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    short = [t for t in texts if len(tokenizer.encode(t["text"])) <= MAX_LENGTH]
    lines = [json.loads(line) for line in run("generate", folder, "--score", write("short.jsonl", short), "--dtype", "f32", "--device", "cpu").splitlines()]
    for line, row in list(zip(lines, short))[:4]:
        ids = tokenizer.encode(row["text"])
        if len(ids) < 2:
            continue
        (value, _), = lm._loglikelihood_tokens([(("", ""), ids[:1], ids[1:])])
        check("score", line["log_prob"], value, 1e-5)
    raise SystemExit("differs: " + ", ".join(failed) if failed else 0)


main()
