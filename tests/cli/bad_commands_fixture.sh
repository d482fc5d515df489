# Files that the commands of bad_commands/*.txt name, in the current folder. Sourced by sh with $QUINTET.
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
# Names that a run writes, taken by something that is not a file.
mkdir taken taken_folder taken_link taken_lock taken_recipe taken_checkpoints d_special
mkfifo taken/metrics.jsonl taken_lock/.lock taken_recipe/recipe.toml taken_checkpoints/checkpoints d_special/a.txt
mkdir taken_folder/report.html
ln -s nowhere taken_link/run.json
# Files of folders that are read.
mkdir -p hf_fifo tokens_folder/tokens.bin tokens_folder/manifest.json checkpoint_fifo/checkpoints/step-00000001
mkfifo hf_fifo/config.json checkpoint_fifo/checkpoints/step-00000001/manifest.json
printf step-00000001 > checkpoint_fifo/checkpoints/latest
# Recipes that are too deep, too long, or of another shape.
{ printf a; head -c 50000 /dev/zero | sed 's/\x0/.a/g'; echo ' = 1'; } > deep_key.toml
{ printf 'a = '; head -c 100000 /dev/zero | tr '\0' '['; } > deep_value.toml
{ head -c 1000000 /dev/zero | tr '\0' k; echo ' = 1'; } > long_key.toml
head -c 5000000 /dev/zero | tr '\0' '#' > long.toml
printf '[modell]\nlayers = 2\n' > section.toml
printf '[modell]\n' > empty_section.toml
printf 'name = "x"\nmodel = 3\n' > value_section.toml
printf 'name = "x"\n[[model]]\nlayers = 2\n' > list_section.toml
printf 'name = "x"\n[model]\nlayers = 2\n[model]\n' > twice.toml
printf 'name = "a\0b"\n' > nul.toml
printf 'name = "a"\n\342\200\256key = 1\n' > reversed.toml
printf '{"a": "x"}\n' > other_field.jsonl
{ printf '{"text": '; head -c 100000 /dev/zero | tr '\0' '['; printf '\n'; } > deep.jsonl
printf '{"text": "\377"}\n' > not_utf8.jsonl
printf '{"text": 3}\n' > number.jsonl
printf 'schedule x\nstages 999999999\nchunks 1\nmicro_batches 4\nplacement looped\n0: 0F0\n' > schedule_huge.txt
printf 'schedule x\nstages -2\nchunks 1\nmicro_batches 4\nplacement looped\n0: 0F0\n' > schedule_negative.txt
printf '%s' '99999999999999999999' > ids_huge.txt
printf '%s' '-1 -2' > ids_negative.txt
head=$(printf '{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,4]}}')
{ printf '\112\0\0\0\0\0\0\0'; printf '%s1234' "$head"; } > product.safetensors
# A finished run of two steps.
"$QUINTET" train small.toml --run-dir goodrun --sample 0 >/dev/null
