// The rows of problem_codes() about rules of recipes. A new rule takes the next free number of its group;
// numbers are never reused.
#include "config/codes_table.h"

namespace quintet::config {
namespace {

constexpr ProblemCode kCodes[] = {
    // ---- Q10: the file and its keys
    {"Q1001", kIsToml,
     "A recipe is a TOML file: sections in brackets, then key = value. Strings need quotes, and a key may be "
     "given once."},
    {"Q1002", kOverridesAreKeyValue,
     "--set changes one key of the recipe, with its section: --set parallel.tp=4. The value is TOML; a word "
     "that is no TOML value is a string."},
    {"Q1010", "every key is known",
     "The recipe has a key that Quintet does not know. Nothing is ignored silently, so a misspelt key is an "
     "error. The nearest key, or what another system's name is called here, is suggested; 'quintet recipe' "
     "lists all keys.",
     "parallel.tensor_parallel=2", ""},
    {"Q1011", "values have the type of their key",
     "The value has another type than the key takes: a string for a number, or a word other than the "
     "allowed ones.",
     "model.layers=\"four\"", "model.layers=4"},
    {"Q1012", "numbers are within limits",
     "The number is outside the limits of its key, not finite, or missing where there is no default.",
     "parallel.zero=4", "parallel.zero=3"},
    {"Q1013", "this version supports the key",
     "The key or the word has a meaning, but this version cannot do it yet, or another key has replaced it.",
     "memory.offload=\"host\"", "memory.offload=\"none\""},
    {"Q1014", "paths are relative to the recipe",
     "Paths in a recipe are relative to the recipe's folder, so that it works from any working directory; "
     "paths in --set are relative to the working directory."},
    {"Q1015", "run.dir and checkpoint.dir name folders",
     "run.dir names the folder that the run writes to; without the key it is runs/NAME. checkpoint.dir names "
     "another one for the checkpoints. An empty name is mostly a shell variable without a value."},
    {"Q1016", "name is a valid file name",
     "The name of a run is used as a folder name: letters, digits, '-', '_' and '.'.", "name=\"a/b\"",
     "name=\"a-b\""},
    {"Q1017", "strings have no control characters",
     "Paths and names are printed in messages and logs, where a line break or an escape sequence would "
     "mislead. Texts that become tokens (data.template, data.end, data.chat.end_of_turn, data.fim, "
     "data.mlm.mask) may have line breaks and tabs.",
     "run.dir=\"runs\\nmine\"", "run.dir=\"runs/mine\""},
    {"Q1018", "paths are of mounted file systems",
     "A path with a scheme, such as s3:// or https://, is an address of a remote file system. Quintet reads "
     "and writes mounted file systems only: copy the data, or mount the bucket."},

    // ---- Q11: the model
    {"Q1101", "model.preset is a known preset",
     "A preset sets all sizes of a published model. Without a preset, give the sizes themselves.",
     "model.preset=\"llama3-9b\"", "model.preset=\"llama3-8b\""},
    {"Q1102", "model.family matches model.preset",
     "A preset belongs to one family; another family would read its sizes differently.",
     "model.family=\"gpt2\"", "model.family=\"llama\""},
    {"Q1103", "model.vocab covers the tokenizer",
     "Every token id needs a row in the embedding, so the vocabulary is at least as large as the "
     "tokenizer's.",
     "model.vocab=255", "model.vocab=256"},
    {"Q1104", "model.kv_heads divides model.heads",
     "Grouped-query attention shares each key and value head between equally many query heads.",
     "model.heads=6\nmodel.kv_heads=4\nmodel.head_dim=32", "model.kv_heads=3\nparallel.tp=1"},
    {"Q1105", "model.head_dim is even", "RoPE rotates pairs of features, so a head has an even number.",
     "model.head_dim=33", "model.head_dim=32"},
    {"Q1106", "model.head_dim = model.embed / model.heads",
     "model.head_dim is derived as embed / heads unless it is given, and the division must be exact.",
     "model.embed=130", "model.embed=128"},
    {"Q1107", "gpt2, bert: model.embed = heads x head_dim",
     "In GPT-2 and BERT the heads together are as wide as the residual stream.",
     "model.preset=\"gpt2-tiny\"\nmodel.head_dim=16", "model.head_dim=32"},
    {"Q1108", "gpt2, neox, bert: model.kv_heads = model.heads",
     "GPT-2, GPT-NeoX and BERT have no grouped-query attention.",
     "model.preset=\"gpt2-tiny\"\nmodel.kv_heads=2", "model.kv_heads=4"},
    {"Q1109", "llama keys are used only in family llama",
     "RoPE, sliding windows, experts and latent attention exist in family llama only; a key without effect "
     "is an error.",
     "model.preset=\"gpt2-tiny\"\nmodel.qk_norm=true", "model.qk_norm=false"},
    {"Q1110", "learned positions and dropout are used only in families gpt2 and bert",
     "Learned positions and dropout exist in families gpt2 and bert only; a key without effect is an error.",
     "model.dropout=0.1", "model.dropout=0"},
    {"Q1111", "data.seq_len fits model.max_positions",
     "GPT-2 and BERT have a learned row for each position, so no sequence is longer than "
     "model.max_positions.",
     "model.preset=\"gpt2-tiny\"\ndata.seq_len=1024", "data.seq_len=512"},
    {"Q1112", "model.rope_theta is greater than 1",
     "RoPE's frequencies are powers of 1 / theta and must decrease along the head.", "model.rope_theta=0.5",
     "model.rope_theta=10000"},
    {"Q1113", "model.rope_scaling keys match its kind",
     "Each kind of RoPE scaling reads its own keys; a key that the kind does not read has no effect.",
     "model.rope_scaling.factor=8",
     "model.rope_scaling.kind=\"llama3\"\nmodel.rope_scaling.original_positions=8192"},
    {"Q1114", "model.rope_scaling.original_positions is set",
     "RoPE scaling extends a context and needs its length before the extension.",
     "model.rope_scaling.kind=\"llama3\"", "model.rope_scaling.original_positions=8192"},
    {"Q1115", "model.rope_scaling limits are ordered",
     "The band of frequencies between the two limits is interpolated, so the lower limit is below the upper.",
     "model.preset=\"llama3-8b\"\nmodel.rope_scaling.low_freq_factor=5",
     "model.rope_scaling.low_freq_factor=1"},
    {"Q1116", "longrope has a factor for every rotated pair",
     "The frequencies of longrope are divided pair by pair, by one list for short sequences and one for "
     "long.",
     "model.rope_scaling.kind=\"longrope\"\nmodel.rope_scaling.original_positions=4096",
     "model.rope_scaling.kind=\"none\"\nmodel.rope_scaling.original_positions=0"},
    {"Q1117", "bert keys are used only in family bert",
     "Token types and masked tokens belong to the encoder; the other families predict the next token. A key "
     "without effect is an error.",
     "data.mlm.rate=0.15", "data.mlm.rate=0"},
    {"Q1118", "family bert runs on CPUs",
     "An encoder attends to tokens on both sides; attention on GPUs hides later ones so far.",
     "model.preset=\"bert-tiny\"\nrun.device=\"cuda\"", "run.device=\"cpu\""},
    {"Q1120", "model.moe keys require experts",
     "Keys of [model.moe] have no effect in a model without experts (model.moe.experts = 0).",
     "model.moe.top_k=2", "model.moe.top_k=0"},
    {"Q1121", "model.moe sizes are complete",
     "A model with experts needs the number per token and their inner width; latent experts are narrower "
     "than the residual stream; model.ffn applies to dense blocks only.",
     "model.preset=\"tiny-moe\"\nmodel.moe.top_k=9", "model.moe.top_k=8"},
    {"Q1122", "some block has experts",
     "first_dense and every select the blocks with experts, and at least one must remain.",
     "model.preset=\"tiny-moe\"\nmodel.moe.first_dense=4\nmodel.ffn=352", "model.moe.first_dense=3"},
    {"Q1123", "model.moe.groups match the experts",
     "Group-limited routing splits the experts into equal groups, and the groups kept for a token must hold "
     "at least top_k experts.",
     "model.preset=\"tiny-moe\"\nmodel.moe.groups=3", "model.moe.groups=2"},
    {"Q1124", "router keys are consistent",
     "With order = \"top_k_first\" the weights are a softmax over the selected experts: other scores, "
     "normalisation and selection biases have no place in it.",
     "model.preset=\"tiny-moe\"\nmodel.moe.order=\"top_k_first\"\nmodel.moe.score=\"sigmoid\"",
     "model.moe.order=\"score_first\""},
    {"Q1125", "balance keys are consistent",
     "The scope of the balance loss needs a balance loss, further balance losses (model.moe.balance) have "
     "other scopes than the first, and the gate of shared experts needs shared experts.",
     "model.preset=\"tiny-moe\"\nmodel.moe.shared_gate=true", "model.moe.shared_gate=false"},
    {"Q1126", "capacity keys are consistent",
     "Dropping, padding and capacity groups need a capacity (model.moe.capacity_factor), which is shared by "
     "whole groups of sequences of a micro-batch.",
     "model.preset=\"tiny-moe\"\nmodel.moe.pad=true", "model.moe.capacity_factor=1.25"},
    {"Q1130", "model.mla keys are consistent",
     "Latent attention (model.mla.kv_rank) needs the sizes of its parts, and replaces grouped-query "
     "attention, biases and Q/K norms.",
     "model.preset=\"tiny-deepseek\"\nmodel.mla.rope_dim=15", "model.mla.rope_dim=16"},
    {"Q1140", "ranks divide the dims of a custom model",
     "A custom model is supplied by a program through the library (docs/api.md), which also names the dims "
     "that ranks may divide.",
     "model.preset=\"\"\nmodel.family=\"custom\"", "model.preset=\"llama-tiny\"\nmodel.family=\"llama\""},
    {"Q1141", "parallel.dims names dims of the model",
     "parallel.dims places the dims that a custom model defines itself; built-in families have none.",
     "parallel.dims.channels=\"tp\"", ""},
    {"Q1150", "model.hf is a Hugging Face folder",
     "model.hf names a folder with config.json, as Hugging Face models are published. Quintet does not "
     "access the network: a name such as \"org/name\" is answered with the command that downloads it.",
     "model.preset=\"\"\nmodel.hf=\"meta-llama/Llama-3.2-1B\"", ""},
    {"Q1151", "model.hf and model.preset exclude each other",
     "Both set all sizes of the model; two sources could contradict each other.", "", ""},
    {"Q1152", "config.json is supported",
     "Every key of a config.json is used, known to be irrelevant, or refused: a key that is ignored silently "
     "would train another model than the one published."},
    {"Q1153", "model keys agree with config.json",
     "The weights in the folder have the sizes of its config.json. Beside model.hf, a recipe may set keys of "
     "training (dropout, balance losses) and positions (model.rope_theta, model.rope_scaling)."},
    {"Q1154", "model.hf has a tokenizer",
     "Text is tokenized with the tokenizer of the folder in model.hf, unless data.tokenizer names another "
     "one."},
    {"Q1160", "model.parallel_blocks requires family neox",
     "Attention and feed-forward network read the same input in GPT-NeoX only.", "model.parallel_blocks=true",
     "model.parallel_blocks=false"},
    {"Q1161", "model.rotary_dim is even and fits model.head_dim",
     "RoPE rotates pairs among the first rotary_dim features of a head.", "model.rotary_dim=33",
     "model.rotary_dim=32"},
    {"Q1168", "model.mtp keys are consistent",
     "Multi-token prediction trains one further block, which predicts the token after the next one.",
     "model.mtp.layers=2", "model.mtp.layers=1"},
    {"Q1167", "parts of blocks belong to family llama",
     "Sinks, chunks, bounds and other parts of attention exist in family llama only; a key without effect is "
     "an error.",
     "model.preset=\"gpt2-tiny\"\nmodel.attention_sinks=true", "model.attention_sinks=false"},
    {"Q1164", "model.activation fits the blocks",
     "Experts have SiLU or the clamped form of GPT-OSS, dense networks SiLU or GELU; a key that only some "
     "blocks could follow is an error.",
     "model.activation=\"clamped\"", "model.activation=\"silu\""},
    {"Q1165", "model.moe.scale_input requires one expert per token",
     "Llama 4 scales the input of a token's only expert by the sigmoid of its logit.",
     "model.preset=\"tiny-moe\"\nmodel.moe.score=\"sigmoid\"\nmodel.moe.scale_input=true",
     "model.moe.top_k=1"},
    {"Q1169", "model.moe.upcycle_slices divides experts and choices",
     "Slices of one network are chosen together, so that their sum is the network: experts and top_k are "
     "multiples of their number, and weights sum to 1.",
     "model.preset=\"tiny-moe\"\nmodel.moe.upcycle_slices=2", "model.moe.upcycle_slices=1"},
    {"Q1166", "model.moe.upcycle requires model.hf",
     "Upcycling copies the feed-forward networks of a dense model, the folder in model.hf, into the experts.",
     "model.preset=\"tiny-moe\"\nmodel.moe.upcycle=true", "model.moe.upcycle=false"},
    {"Q1162", "keys of single blocks match the rest of the model",
     "A key that distinguishes blocks has an effect only where the model has what it changes: windows, "
     "RoPE, norms of Q and K.",
     "model.full_attention_every=2", "model.full_attention_every=0"},

    // ---- Q12: data and batch
    {"Q1201", "data.tokenizer can be loaded",
     "data.tokenizer is \"bytes\", or a Hugging Face tokenizer.json, a tiktoken file or a SentencePiece "
     "model (docs/data.md).",
     "data.tokenizer=\"tokenizer.json\"", "data.tokenizer=\"bytes\""},
    {"Q1202", "data.path has no empty entries",
     "An empty path is usually an unset shell variable; each entry names a file or a folder.",
     "data.path=\"\"", "data.path=\"text\""},
    {"Q1203", "a run reads data.path or data.blend",
     "data.blend names several sets with their proportions, data.path one; with both, one would be ignored.",
     "data.blend=[{path=\"web\", weight=1}]", "data.path=[]"},
    {"Q1204", "data.blend has a path and a weight or a budget per set",
     "A set of a blend has its own name, a path, and either a weight or a budget of tokens, as all others "
     "have.",
     "data.path=[]\ndata.blend=[{path=\"web\", weight=1}, {path=\"code\"}]",
     "data.blend=[{path=\"web\", weight=1}, {path=\"code\", weight=1}]"},
    {"Q1205", "data.blend has proportions that a run can reach",
     "A blend is exact to one sequence at any point of the run, in whole numbers: those of weights that are "
     "further apart than 2^60 are too large.",
     "data.path=[]\ndata.blend=[{path=\"web\", weight=1e-20}, {path=\"code\", weight=1}]",
     "data.blend=[{path=\"web\", weight=0.123}, {path=\"code\", weight=1}]"},
    {"Q1206", "the budgets of data.blend cover the run",
     "A budget is the most that a run may take from a set, so the run ends before the budgets do.",
     "data.path=[]\ndata.blend=[{path=\"web\", tokens=100}]",
     "data.blend=[{path=\"web\", tokens=\"1B tokens\"}]"},
    {"Q1207", "data.packing keys match",
     "Best-fit packing keeps documents whole and apart; only there a document can be too long.",
     "data.packing=\"best-fit\"\ndata.pack=false", "data.pack=true"},
    {"Q1208", "data.balance has an effect",
     "Sequences differ in cost only where documents are separated; a step in order of cost has no random "
     "part to measure noise with.",
     "data.balance=true\ndata.pack=false", "data.pack=true"},
    {"Q1209", "data.fim has an effect",
     "Fill-in-the-middle rearranges documents, so they must be separated and the rate above 0.",
     "data.fim.suffix_first=0.5", "data.fim.rate=0.5"},
    {"Q1221", "data.skip has no empty patterns",
     "Each pattern of data.skip is compared with the names inside the folders of data.path. To read every "
     "name, give an empty list.",
     "data.skip=\"\"", "data.skip=[]"},
    {"Q1222", "data.stream reads documents in order",
     "A stream tokenises documents as the run reaches them, so nothing can depend on all of them: not their "
     "packing, not an order by length, not the end of an epoch.",
     "data.stream=true\ndata.packing=\"best-fit\"", "data.packing=\"streaming\""},
    {"Q1223", "data.chat keys match data.format",
     "[data.chat] says how conversations become tokens, data.template and data.end how text does; "
     "data.format chooses between them.",
     "data.chat.loss=\"all\"", "data.format=\"chat\""},
    {"Q1224", "masked tokens are chosen from whole text",
     "Masked language modelling predicts the tokens that it hides, so no other key may choose what is "
     "predicted, and the shares of chosen tokens that are replaced and kept are parts of one whole.",
     "model.preset=\"bert-tiny\"\ndata.mlm.random=0.6\ndata.mlm.keep=0.6", "data.mlm.keep=0.4"},
    {"Q1210", "batch.global = micro x accumulation x dp",
     "A step processes batch.global sequences: each of the dp = dp_replicate x dp_shard data ranks runs "
     "accumulation micro-batches of micro sequences. What is not given is derived, and the product must "
     "match. The layout never changes the batch.",
     "batch.global=12", "batch.global=16"},
    {"Q1211", "batch.ramp grows to batch.global",
     "The stages of a ramp have growing batches, each below the next and the last below batch.global, and "
     "each has at least one step.",
     "batch.ramp=[{until=3, global=8}, {until=5, global=8}]", "batch.ramp=[{until=3, global=8}]"},
    {"Q1212", "batch.ramp has multiples of micro x dp",
     "A smaller step is the same step with fewer micro-batches.", "batch.ramp=[{until=3, global=12}]",
     "batch.ramp=[{until=3, global=8}]"},
    {"Q1213", "steps of several sizes can be compiled",
     "batch.ramp and run.noise_scale_every run steps with fewer micro-batches, for which a schedule file has "
     "no schedule.",
     "batch.ramp=[{until=3, global=8}]\nparallel.pp=2\nparallel.schedule=\"file:own.txt\"\nbatch.global=16\n"
     "parallel.tp=1",
     "parallel.schedule=\"1f1b\""},
    {"Q1225", "data.routes replaces the choices of routers",
     "Recorded choices of experts are repeated in blocks with experts, instead of choosing by router or by "
     "position.",
     "data.routes=\"routes.safetensors\"", "data.routes=\"\""},
    {"Q1220", "data.curriculum has an order",
     "The epochs of a curriculum follow the order that data.curriculum.by gives.", "data.curriculum.epochs=2",
     "data.curriculum.by=\"length\""},

    // ---- Q13: the layout
    {"Q1301", "the number of ranks is within the limit", "A layout has at most 2^20 ranks.",
     "parallel.dp_replicate=65536\nparallel.dp_shard=64\nbatch.global=8388608",
     "parallel.dp_replicate=1\nparallel.dp_shard=4\nbatch.global=16"},
    {"Q1302", "parallel.tp divides model.heads", "Each tensor rank computes whole attention heads.",
     "model.heads=9\nmodel.kv_heads=1\nmodel.head_dim=32", "parallel.tp=1"},
    {"Q1303", "parallel.tp divides model.kv_heads or is a multiple of it",
     "Tensor ranks share the key and value heads equally, or each head is copied to equally many ranks.",
     "parallel.tp=4\nmodel.heads=24\nmodel.kv_heads=6\nmodel.head_dim=32", "parallel.tp=2"},
    {"Q1304", "parallel.tp divides model.ffn",
     "Each tensor rank computes an equal share of the inner width of the feed-forward network.",
     "model.ffn=351", "model.ffn=352"},
    {"Q1305", "parallel.sequence_parallel requires parallel.tp > 1",
     "Sequence parallel shards token rows over the tensor ranks. In a recipe file this is only a note."},
    {"Q1306", "parallel.tp divides the token rows",
     "Sequence parallel and the exchange with experts shard the token rows of a micro-batch over the tensor "
     "ranks.",
     "parallel.sequence_parallel=true\ndata.seq_len=63\nbatch.micro=1", "data.seq_len=64"},
    {"Q1307", "parallel.zero requires ranks to shard over",
     "ZeRO shards state over dp_shard x cp ranks. In a recipe file this is only a note, so that a recipe can "
     "be scaled down to one rank."},
    {"Q1308", "parallel.reshard_after_forward requires parallel.zero = 3",
     "Only ZeRO 3 shards parameters, so only there can they be sharded again between forward and backward.",
     "parallel.zero=2\nparallel.reshard_after_forward=false", "parallel.zero=3"},
    {"Q1309", "parallel.reshard_after_forward divides dp_shard x cp",
     "Parameters can be kept in shards over a part of the ranks that shard them; the part divides their "
     "number.",
     "parallel.reshard_after_forward=3", "parallel.reshard_after_forward=2"},
    {"Q1310", "parallel.prefetch requires parallel.zero > 0",
     "Without ZeRO nothing is gathered, so nothing can be prefetched.",
     "parallel.zero=0\nparallel.prefetch=2", "parallel.prefetch=1"},
    {"Q1311", "parallel.gradient_blocks requires parallel.zero > 1",
     "With ZeRO 0 and 1 every rank holds the whole gradients of all blocks until the step ends.",
     "parallel.zero=1\nparallel.gradient_blocks=1", "parallel.zero=2"},
    {"Q1312", "parallel.order names every axis once",
     "The order of the axes says which ranks are neighbours. It names tp, cp, dp_shard, dp_replicate and pp, "
     "and may name ep; axes of one rank may be left out.",
     "parallel.order=[\"tp\", \"tp\", \"dp_shard\"]", "parallel.order=[\"tp\", \"dp_shard\"]"},
    {"Q1313", "one axis takes the rest of a known number of ranks",
     "An axis of -1 gets the ranks that the other axes leave. Their number is that of the processes a "
     "launcher started, that of --cluster, or parallel.world.",
     "parallel.dp_shard=-1\nparallel.world=9", "parallel.world=8"},
    {"Q1314", "parallel.world is the product of the axes",
     "parallel.world states how many ranks the layout has; the axes must multiply to it, and one of them may "
     "be -1.",
     "parallel.world=16", "parallel.world=8"},
    {"Q1315", "parallel.reshard_experts requires parallel.zero = 3 and experts",
     "Only ZeRO 3 shards parameters between uses, and the key is about expert weights alone.",
     "parallel.reshard_experts=\"never\"", "parallel.reshard_experts=\"same\""},
    {"Q1316", "parallel.zero_replicas requires parallel.zero > 0 and parallel.dp_replicate > 1",
     "It shards the optimizer state, which ZeRO has sharded over dp_shard, over the replicas as well.",
     "parallel.dp_replicate=2\nparallel.zero=0\nparallel.zero_replicas=1", "parallel.zero=1"},
    {"Q1317", "parallel.group joins blocks for data ranks",
     "A number counts blocks of the model; a size in bytes has a unit. With one data rank nothing is "
     "gathered or reduced.",
     "parallel.group=1000", "parallel.group=1"},
    {"Q1318", "limits on gathered parameters require parallel.zero = 3",
     "With less than ZeRO 3 every rank keeps all parameters whole, so there is nothing to limit or to "
     "exempt.",
     "parallel.zero=1\nparallel.persist_below=\"1MiB\"", "parallel.persist_below=0"},
    {"Q1319", "parallel.gathered_limit requires parameters that are freed",
     "Parameters that are kept from the forward to the backward pass exist at once, whatever the limit.",
     "parallel.zero=3\nparallel.gathered_limit=\"1GiB\"\nparallel.reshard_after_forward=false",
     "parallel.reshard_after_forward=true"},
    {"Q1320", "parallel.schedule is a known schedule",
     "parallel.schedule is the name of a pipeline schedule, or file:PATH for one of your own "
     "(docs/schedules.md).",
     "parallel.pp=2\nparallel.schedule=\"1f1c\"", "parallel.schedule=\"1f1b\""},
    {"Q1321", "parallel.chunks matches parallel.schedule",
     "Some schedules run several virtual stages per rank, others exactly one.",
     "parallel.pp=2\nparallel.chunks=2", "parallel.schedule=\"interleaved\""},
    {"Q1322", "pipeline stages fit model.layers",
     "A model has at least as many blocks as there are virtual stages, and parallel.stages lists the blocks "
     "of all of them; a stage may have none. The block of multi-token prediction comes last; a list that "
     "leaves it out keeps it with the head.",
     "parallel.pp=8", "parallel.pp=4"},
    {"Q1323", "the schedule file matches the recipe",
     "A schedule file is made for one number of stages, chunks and micro-batches."},
    {"Q1324", "parallel.micro_group matches parallel.schedule",
     "Interleaved sends micro-batches through a chunk in groups of at least parallel.pp. Other schedules "
     "have no groups.",
     "parallel.pp=2\nparallel.micro_group=4", "parallel.schedule=\"interleaved\""},
    {"Q1325", "patterns of parameter groups have an effect",
     "group_match needs several data ranks; keep_match and persist_match need zero 3, and keep_match "
     "parameters that are otherwise freed, without a limit on gathered ones.",
     "parallel.zero=1\nparallel.persist_match=[\"*norm*\"]", "parallel.persist_match=[]"},
    {"Q1326", "patterns of tensor parallelism have an effect",
     "tp_column, tp_row and tp_replicate say how the tensor ranks divide some weights; they need tp > 1 and "
     "linear layers in precision.compute.",
     "parallel.tp=2\nprecision.compute=\"bf16\"\nprecision.linear=\"fp8-delayed\"\nparallel.tp_row=[\"*.up."
     "weight\"]",
     "parallel.tp_row=[]"},
    {"Q1330", "context keys require parallel.cp > 1",
     "cp_method and ulysses describe how ranks share a sequence; ulysses is read by \"ulysses+ring\" only.",
     "parallel.cp=2\nparallel.cp_method=\"ring\"\nparallel.ulysses=2", "parallel.ulysses=0"},
    {"Q1331", "2 x parallel.cp divides data.seq_len",
     "Each context rank holds two chunks of a sequence, one from each half, so that causal attention is "
     "balanced.",
     "parallel.cp=3", "data.seq_len=66"},
    {"Q1332", "the Ulysses ranks divide the heads",
     "Ulysses exchanges a share of the sequence for a share of the heads, so its ranks divide the heads of a "
     "tensor rank.",
     "parallel.cp=4\nparallel.cp_method=\"ulysses\"", "parallel.cp_method=\"ring\""},
    {"Q1340", "expert axes require experts",
     "parallel.ep and etp divide experts; a model without experts has nothing to divide.", "parallel.ep=2",
     "parallel.ep=1"},
    {"Q1341", "expert axes divide the experts",
     "Each expert rank holds equally many experts (ep), or an equal share of their inner width (etp).",
     "model.preset=\"tiny-moe\"\nparallel.ep=3", "parallel.ep=2"},
    {"Q1342", "parallel.tp divides model.moe.shared_ffn",
     "Shared experts are sharded over the tensor ranks like a feed-forward network.",
     "model.preset=\"tiny-moe\"\nmodel.moe.shared_ffn=33", "model.moe.shared_ffn=32"},
    {"Q1343", "ep x etp divides dp x cp x tp",
     "Expert ranks are folded out of the data, context and tensor ranks of a stage.",
     "model.preset=\"tiny-moe\"\nparallel.ep=8\nparallel.etp=2", "parallel.ep=4"},
    {"Q1344", "rank groups have a common refinement",
     "Every axis cuts the ranks of a stage, in the order of parallel.order, into groups; two axes whose "
     "groups overlap without one containing the other have no common mesh.",
     "model.preset=\"tiny-moe\"\nparallel.dp_shard=6\nmodel.moe.experts=6\nparallel.ep=3\nbatch.global=24",
     "parallel.ep=2"},
    {"Q1350", "the layout matches the number of processes",
     "pp x dp_replicate x dp_shard x cp x tp is the number of ranks that a launcher must start: mpirun -n "
     "RANKS."},

    // ---- Q14: precision
    {"Q1401", "f64 is used for all precision keys or for none",
     "f64 is meant for verification, where a single narrower type would hide errors.",
     "precision.reduce=\"f64\"", "precision.reduce=\"f32\""},
    {"Q1402", "precision.master is at least f32",
     "A bf16 weight loses every update smaller than 1/256 of it. \"split\" stores an f32 master as the bf16 "
     "weight and a remainder, without redundancy.",
     "precision.compute=\"bf16\"\nprecision.master=\"bf16\"", "precision.master=\"split\""},
    {"Q1403", "precision.master = \"split\" requires bf16 compute",
     "The upper half of a split master is the bf16 weight that matmuls read.", "precision.master=\"split\"",
     "precision.compute=\"bf16\""},
    {"Q1404", "precision.gradients = \"bf16\" requires bf16 compute",
     "Gradients are accumulated in a type no narrower than the computation. To communicate in bf16, set "
     "precision.reduce.",
     "precision.gradients=\"bf16\"", "precision.compute=\"bf16\""},
    {"Q1405", "precision.moments_rounding = \"stochastic\" requires bf16 moments",
     "Stochastic rounding applies where moments are stored in fewer bits than they are computed in.",
     "precision.moments_rounding=\"stochastic\"", "precision.moments=\"bf16\""},
    {"Q1406", "f16 is allowed only for precision.compute",
     "Sums of gradients overflow f16, whose largest number is 65504, and their squares underflow it.",
     "precision.moments=\"f16\"", "precision.moments=\"f32\""},
    {"Q1407", "precision.tf32 requires f32 compute on a GPU",
     "tf32 is a mode of f32 matmuls on NVIDIA GPUs since Ampere.", "precision.tf32=true",
     "run.device=\"cuda\""},
    {"Q1408", "keys of a dynamic loss scale require precision.loss_scale = \"dynamic\"",
     "Only a dynamic loss scale starts somewhere, grows and falls: its start, window, minimum and hysteresis "
     "have no effect on a fixed one. The minimum is at most the start.",
     "precision.loss_scale=1024\nprecision.loss_scale_window=100", "precision.loss_scale=\"dynamic\""},
    {"Q1409", "quantised linears require bf16 compute",
     "Codes of 8 bits are made from bf16 values and multiply into them. On CPUs, f32 and f64 emulate fp8: "
     "they hold the numbers of the format, which shows what it does to a model without its speed.",
     "precision.linear=\"fp8-delayed\"\nprecision.compute=\"f16\"", "precision.compute=\"bf16\""},
    {"Q1410", "fp8 keys require quantised linears",
     "precision.fp8_match and precision.fp8_head select which linear layers precision.linear quantises.",
     "precision.fp8_head=true", "precision.linear=\"fp8-delayed\""},
    {"Q1411", "quantised linears have sizes in multiples of 16 on every rank",
     "GEMMs of 8-bit operands read rows of 16 bytes: the token rows of a micro-batch on a rank, and a rank's "
     "share of every sharded size, are multiples of 16.",
     "precision.linear=\"fp8-delayed\"\nprecision.compute=\"bf16\"\ndata.seq_len=20", "data.seq_len=32"},
    {"Q1412", "precision.fp8_head fits model.vocab",
     "GEMMs of 8-bit operands read rows of 16 bytes, so every tensor rank's part of the vocabulary is a "
     "multiple of 16.",
     "precision.linear=\"fp8-delayed\"\nprecision.compute=\"bf16\"\nprecision.fp8_head=true\nmodel.vocab="
     "1000",
     "model.vocab=1024"},
    {"Q1413", "precision.linear = \"mxfp8\" requires CPUs",
     "Tensor cores multiply blocks of 32 values since Blackwell, which Quintet does not use yet. On CPUs the "
     "format is emulated, in every layout.",
     "precision.linear=\"mxfp8\"\nprecision.compute=\"bf16\"\nparallel.tp=1\nrun.device=\"cuda\"",
     "run.device=\"cpu\""},
    {"Q1414", "ranks hold whole blocks of quantised values",
     "Values of a block share a scale: 128 with fp8-block, 32 with mxfp8, along features and along tokens. "
     "If a rank held a part of a block, results would depend on the layout.",
     "precision.linear=\"fp8-block\"\nprecision.compute=\"bf16\"\nparallel.tp=1\ndata.seq_len=192",
     "data.seq_len=256"},
    {"Q1420", "precision.moments = \"bf16\" requires moments",
     "Adafactor keeps averages of rows and columns, and SGD and LARS without momentum keep nothing: there "
     "are no moments to store in bf16.",
     "optimizer.name=\"sgd\"\nprecision.moments=\"bf16\"", "optimizer.momentum=0.9"},

    // ---- Q15: memory and sizes
    {"Q1501", "memory keys match memory.recompute",
     "Each kind of recomputation reads its own keys: recompute_ops with \"selective\", recompute_every with "
     "\"full\", budget with \"fit\".",
     "memory.recompute=\"fit\"", "memory.budget=\"6GiB\""},
    {"Q1502", "memory.recompute_ops are known op classes",
     "Selective recomputation is chosen by class of operation.",
     "memory.recompute=\"selective\"\nmemory.recompute_ops=[\"norms\"]", "memory.recompute_ops=[\"norm\"]"},
    {"Q1503", "memory.recompute_layers names blocks and op classes",
     "Each entry names blocks of the model and what is recomputed in them; a block is in one entry, and "
     "entries take the place of recompute_ops.",
     "memory.recompute=\"selective\"\nmemory.recompute_layers=[{layers=99, ops=[\"norm\"]}]",
     "memory.recompute_layers=[{layers=0, ops=[\"norm\"]}]"},
    {"Q1504", "memory.split_saved divides what tensor ranks have whole",
     "With parallel.tp > 1 and without sequence parallelism, tensor ranks keep equal copies of some "
     "activations, which this divides.",
     "parallel.tp=2\nparallel.sequence_parallel=true\nmemory.split_saved=true", "memory.split_saved=false"},
    {"Q1510", "a step has at most 2^30 tokens",
     "Ten times the largest published steps. The likely slip: batch.global counts sequences, not tokens.",
     "batch.global=4194304\ndata.seq_len=4096", "batch.global=1024"},
    {"Q1511", "the model is small enough to compile",
     "Models of more than 2,048 blocks or 2^50 parameters are beyond what the compiler takes; check the "
     "sizes.",
     "model.layers=1000000", "model.layers=100"},
    {"Q1512", "the step program is small enough to compile",
     "The program of a step lists every instruction of every micro-batch; fewer, larger micro-batches make "
     "it shorter. The likely slip: batch.global counts sequences, not tokens.",
     "batch.global=4194304\nbatch.micro=1", "batch.global=16"},
    {"Q1513", "a head has at most 2^14 features",
     "Published models have 64 to 512 features in each attention head. The likely slip: model.embed given "
     "for model.head_dim.",
     "model.head_dim=1048576", "model.head_dim=32"},

    // ---- Q16: the optimizer
    {"Q1514", "a micro-batch has at most 2^26 tokens per rank",
     "Far more than the memory of any device holds. The likely slip: batch.global counts sequences, not "
     "tokens.",
     "batch.global=16777216\nbatch.micro=4194304", "batch.global=16\nbatch.micro=2"},
    {"Q1601", "optimizer keys match optimizer.name",
     "Each optimizer reads its own keys; a key that none of the recipe's optimizers reads has no effect.",
     "optimizer.momentum=0.9", "optimizer.name=\"sgd\""},
    {"Q1602", "optimizer.clip requires optimizer.clip_norm",
     "optimizer.clip chooses the norm that clip_norm limits; without a limit nothing is clipped.",
     "optimizer.clip=\"inf\"\noptimizer.clip_norm=0", "optimizer.clip_norm=1.0"},
    {"Q1603", "optimizer.groups have a pattern and settings in range",
     "A group of parameters needs a pattern over their names, and settings that have an effect.",
     "optimizer.groups=[{lr=1e-3}]", "optimizer.groups=[{match=\"embed*\", lr=1e-3}]"},
    {"Q1604", "optimizer.block_size is a power of two and belongs to adamw8bit",
     "An 8-bit optimizer scales blocks of this many values together; other optimizers have no blocks.",
     "optimizer.block_size=128", "optimizer.block_size=256"},
    {"Q1605", "adamw8bit: optimizer.block_size divides what a rank holds of a row",
     "Values that share a scale must be on one rank in every layout, so that every layout rounds alike.",
     "optimizer.name=\"adamw8bit\"\noptimizer.block_size=64", "optimizer.block_size=16"},
    {"Q1610", "optimizer.schedule keys match its kind",
     "Each learning-rate schedule reads its own keys; a constant rate has no floor and no decay.",
     "optimizer.schedule.min_lr_ratio=0.1", "optimizer.schedule.kind=\"cosine\""},
    {"Q1611", "inverse_sqrt requires optimizer.schedule.warmup",
     "The rate decreases as sqrt(warmup / step), so there must be a warm-up.",
     "optimizer.schedule.kind=\"inverse_sqrt\"", "optimizer.schedule.warmup=10"},
    {"Q1612", "linear and cosine: optimizer.schedule.warmup and decay have one unit",
     "The decay begins where the warm-up ends, so both are counted in steps, sequences or tokens.",
     "optimizer.schedule.kind=\"cosine\"\noptimizer.schedule.warmup=\"1K tokens\"\n"
     "optimizer.schedule.decay=50",
     "optimizer.schedule.decay=\"4K tokens\""},
    {"Q1613", "wsd phases fit run.steps",
     "Warm-up and decay together are no longer than the run; what is between them is the stable phase.",
     "optimizer.schedule.kind=\"wsd\"\noptimizer.schedule.warmup=60\noptimizer.schedule.decay=50",
     "optimizer.schedule.decay=40"},
    {"Q1620", "optimizer.weight_decay_ramp has an effect",
     "A ramp multiplies weight_decay by a changing factor; a constant ramp, equal ratios or no weight decay "
     "leave nothing to change.",
     "optimizer.weight_decay_ramp.final_ratio=0.5", "optimizer.weight_decay_ramp.final_ratio=1"},
    {"Q1621", "optimizer.lr_scaling has an effect",
     "The learning rate follows the sequences per step: they must differ from those that optimizer.lr is "
     "for, in all steps or in those of a batch.ramp.",
     "optimizer.lr_scaling.rule=\"sqrt\"", "optimizer.lr_scaling.batch=64"},

    // ---- Q17: evaluation, guards and measurements
    {"Q1701", "eval.every requires validation data",
     "Evaluation runs on documents that training never sees: hold some out with data.validation_fraction.",
     "eval.every=10", "data.validation_fraction=0.05"},
    {"Q1702", "eval.sets have a path and a name each",
     "Losses are reported by name, so every evaluation set has its own.",
     "eval.every=10\neval.sets=[{name=\"a\", path=\"x\"}, {name=\"a\", path=\"y\"}]",
     "eval.sets=[{name=\"a\", path=\"x\"}, {name=\"b\", path=\"y\"}]"},
    {"Q1710", "run.skip_spike has an effect",
     "A spike is recognised by the deviation over a window of at least two steps.", "run.skip_spike.window=1",
     "run.skip_spike.window=128"},
    {"Q1711", "run.noise_scale_batch is a smaller batch",
     "The noise scale compares the gradient norms of two batch sizes, the small one a multiple of micro x "
     "dp.",
     "run.noise_scale_every=5\nrun.noise_scale_batch=12", "run.noise_scale_batch=8"},

    {"Q1722", "checkpoint.failures has an effect",
     "checkpoint.failures is the failure rate from which checkpoint.every = \"auto\" derives its interval; a "
     "fixed interval does not depend on it.",
     "checkpoint.every=100\ncheckpoint.failures=5.0", "checkpoint.failures=0.4736"},
};

}  // namespace

std::span<const ProblemCode> recipe_codes() { return kCodes; }

std::string_view example_recipe() {
  return R"(name = "example"
[model]
preset = "llama-tiny"
[data]
path = "text"
seq_len = 64
[batch]
global = 16
micro = 2
[parallel]
dp_shard = 4
zero = 3
tp = 2
[optimizer]
lr = 1e-3
[run]
steps = 100
)";
}

}  // namespace quintet::config
