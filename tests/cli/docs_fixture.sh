# What the commands of a page of docs/ need, in the current folder, beside the copies of recipes/, docs/, src/ and README.md
# that every page has. Sourced by sh with $PAGE (its path below docs/) and $QUINTET.

# A model of one block, whose steps take less than a millisecond: recipe NAME STEPS [more lines of TOML].
recipe() {
  name=$1 steps=$2; shift 2
  printf '%s\n' "name = \"$name\"" '[model]' 'family = "llama"' 'layers = 2' 'embed = 8' 'ffn = 16' 'heads = 2' \
    '[data]' 'path = "README.md"' 'seq_len = 8' '[batch]' 'global = 4' 'micro = 1' '[optimizer]' 'lr = 1e-3' '[run]' \
    "steps = $steps" 'threads = 1' "$@"
}
run() { "$QUINTET" train "$@" --sample 0 >/dev/null; }

case $PAGE in
  data.md)
    sed -i 's/^steps = .*/steps = 20/' recipes/tiny.toml
    head -c 3000 README.md > docs/start.md
    tail -c 3000 README.md > docs/end.md
    cp README.md LICENSE
    mkdir my-shards  # as nanoGPT writes them: 16-bit ids below 256
    for n in 1 2; do head -c 3000 README.md | sed 's/./&\x00/g' | tr -d '\n' > my-shards/shard$n.bin; done ;;
  checkpoints.md)
    recipe x 500 '[checkpoint]' 'keep = 9' > recipe.toml
    recipe a 400 '[checkpoint]' 'every = 100' 'keep = 9' > a.toml
    sed -i 's/^lr = .*/&\nema = 0.9/' a.toml
    run a.toml
    sed 's/^name = .*/name = "other"/; s/^steps = .*/steps = 401/' a.toml > other.toml
    recipe tune 2 > tune.toml
    recipe wide 2 | sed 's/^layers = .*/layers = 3\nvocab = 300/' > wide.toml
    sed 's/^name = .*/name = "plain"/; s/^steps = .*/steps = 401/; /^ema/d' a.toml > plain.toml ;;
  schedules.md)
    recipe x 2 | sed 's/^layers = .*/layers = 8/' > recipe.toml
    cp recipe.toml small.toml ;;
  planning.md)
    recipe x 2 '[parallel]' 'dp_shard = 16' | sed 's/^global = .*/global = 16/' > recipe.toml ;;
  generate.md)
    "$QUINTET" tokenizer train README.md --vocab 300 --out tokenizer.json >/dev/null
    recipe small 2 | sed 's/^layers = .*/&\nvocab = 300/; s/^path = .*/&\ntokenizer = "tokenizer.json"/' > small.toml
    run small.toml
    mkdir models
    "$QUINTET" export runs/small --to hf models/Llama-3.2-1B >/dev/null
    printf 'The \nA \n' > questions.txt
    printf '{"text": "The end."}\n' > texts.jsonl
    printf '{"context": "The ", "choices": ["end.", "start."], "answer": 0}\n' > tasks.jsonl ;;
  huggingface.md)
    recipe small 2 > small.toml
    run small.toml
    "$QUINTET" export runs/small --to hf Llama-3.2-1B >/dev/null
    printf '%s\n' 'name = "tune"' '[model]' 'hf = "Llama-3.2-1B"' '[data]' 'path = "README.md"' \
      'seq_len = 8' '[batch]' 'global = 4' '[optimizer]' 'lr = 1e-3' '[run]' 'steps = 1000' > tune.toml
    cp tune.toml recipe.toml ;;
  reports.md)
    recipe other 3 > other.toml
    run other.toml ;;
esac
[ -e recipe.toml ] || recipe x 2 > recipe.toml
