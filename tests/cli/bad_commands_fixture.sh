# Files that the commands of bad_commands.txt name, in the current folder. Sourced by sh.
mkdir folder hf hf_list hf_sizes checkpoint run chat
: > empty
: > empty.toml
printf 'a\0b' > binary.txt
printf a > short.txt
i=0; while [ $i -lt 200 ]; do printf 'hello world, this is a text. '; i=$((i + 1)); done > text.txt
printf 'hello\n' > words.jsonl
printf '[1, 2]\n' > list.jsonl
printf '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}\n' > chat.jsonl
printf '{"messages": "hi"}\n' > chat_text.jsonl
printf '\223NUMPY\001\000v\000{' > cut.npy
printf abc > odd.bin
printf 123 > tiny.safetensors
printf '\377\377\377\377\377\377\377\017{}' > huge.safetensors
printf 'PK\003\004garbage' > cut.pt
printf '\037\213garbage' > cut.gz
printf 'PAR1xxxxPAR1' > cut.parquet
printf '{"model": {"type": "BPE", "vocab": {}, "merges": []}}' > no_tokens.json
printf '{"model": 3}' > no_model.json
printf '\n\377\377\377\377\377' > cut.model
printf '!!!! 0\n' > cl100k_base.tiktoken
printf 'IQ== 0\n' > own.tiktoken
printf 'garbage\n' > schedule.txt
printf '[cluster]\nnodes = 0\n' > cluster.toml
printf 'nodes = "x\n' > no_toml.toml
printf 'a,b\n1\n' > table.csv
printf '1 2 x\n' > ids.txt
printf '{%% for x in %%}' > syntax.jinja
printf '{%% for i in range(100000000) %%}a{%% endfor %%}' > endless.jinja
printf '{"architectures": ["FooForCausalLM"], "model_type": "foo"}' > hf/config.json
printf '[]' > hf_list/config.json
printf '{"model_type": "llama", "hidden_size": -4, "num_attention_heads": 0, "num_hidden_layers": 1e30}' > hf_sizes/config.json
printf '{}' > checkpoint/manifest.json
printf 'x =' > run/recipe.toml
printf '{}' > run/run.json
printf '{"step": 1\n' > run/metrics.jsonl
printf '{}' > run/summary.json
printf 'name = "a\\u001b[31m"\n' > escape.toml
printf 'name: a\n' > yaml.toml
printf '{"name": 1}' > json.toml
printf '\377\376n\000' > utf16.toml
printf 'name = "a\n' > quote.toml
mkfifo fifo
ln -s /dev/zero zero
ln -s loop loop
cat > small.toml <<'RECIPE'
name = "small"
[model]
preset = "llama-tiny"
[data]
path = "text.txt"
seq_len = 32
[batch]
global = 2
micro = 1
[optimizer]
lr = 1e-3
[run]
steps = 2
RECIPE
