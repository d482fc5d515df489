// The rows of problem_codes() about inputs other than recipe keys: files, data, tokenizers, checkpoints,
// clusters, schedules, launching. base/error_codes.cc says which source files raise them.
#include "config/codes_table.h"

namespace quintet::config {
namespace {

constexpr ProblemCode row(std::string_view code, std::string_view rule, std::string_view cause,
                          std::string_view remedy) {
  return {.code = code, .rule = rule, .cause = cause, .remedy = remedy};
}

constexpr ProblemCode kRows[] = {
    // ---- Q20: the run and the machine
    row("Q2001", kDataExists,
        "A path of data.path is not a file, folder or token file. Paths in a recipe are relative to its "
        "folder, in --set to the working directory.",
        "Correct the path; 'quintet check RECIPE' prints it as it was resolved."),
    row("Q2002", kDataHasLabels,
        "Every document is one token long, or there is no text at all: no token has a next one to predict.",
        "Look at what was read and skipped in the line 'read' of the header, and at data.skip. With "
        "data.pack = true no label crosses the end of a document: use longer documents, or data.pack = "
        "false."),
    row("Q2003", kDataIsSound,
        "A token file, its index or its mask is damaged, truncated, belongs to another file, or contains ids "
        "that the tokenizer or the model's vocabulary does not have.",
        "Copy both files again, or prepare them again with 'quintet prepare'. For ids outside the "
        "vocabulary, use the tokenizer that wrote them, or raise model.vocab."),
    row("Q2004", kDataLasts,
        "A set of data.blend with repeat = false has fewer sequences than the run takes from it.",
        "Lower the set's share, shorten run.steps, or allow repeats."),
    row("Q2010", kFolderIsFree, "A run never replaces files that it finds.",
        "Choose another folder with --run-dir, or replace the earlier run with --overwrite."),
    row("Q2011", kFolderIsNotInUse, "The run folder is locked by a process that still runs.",
        "Wait for it, or choose another folder with --run-dir. The lock ends with the process that holds "
        "it: there is no file to remove."),
    row("Q2012", kDiskHasRoom,
        "The checkpoints and metrics of this run need more space than the disk of the run folder has.",
        "Free some space, lower checkpoint.keep, or choose another disk with --run-dir or checkpoint.dir."),
    row("Q2020", kFitsInMemory,
        "The planned memory of the ranks on this machine exceeds what is free, or the system refused to "
        "reserve it.",
        "'quintet plan RECIPE' shows the memory by class; memory.recompute, batch.micro and parallel.zero "
        "reduce it."),
    row("Q2021", "memory.budget can be met",
        "memory.recompute = \"fit\" recomputes as little as it can within memory.budget per rank, and even "
        "with as much as possible the rank needs more.",
        "Raise memory.budget to the number in the message, lower batch.micro, or raise parallel.zero."),
    row("Q2025", kOptionsAreValid,
        "An option or a verb is unknown, lacks its value, or has one that cannot be read.",
        "'quintet VERB --help' lists the options of a verb with their defaults."),
    row("Q2026", kOptionsFit,
        "Options are valid one by one, but not together or not for this recipe: one needs another, excludes "
        "it, or would have no effect.",
        "The message names the options. Nothing is ignored silently: leave out what is not needed."),
    row("Q2030", kRanksAgree,
        "The processes of one job were started with different recipes, overrides or builds of Quintet.",
        "Start all ranks with one command line, and from one build."),

    // ---- Q21: files
    row("Q2101", "files can be read and written",
        "The system refused to open, read, write, create or lock a file or folder, the file is shorter than "
        "its contents need, or it is a pipe or device where a file is needed. The message has the path and "
        "the system's reason.",
        "Check the path, its permissions ('ls -l') and the free space ('df -h'). Copy the contents of a pipe "
        "to a file first."),
    row("Q2102", "outputs name a new file in an existing folder",
        "A path for an output is empty, is a folder, lies in a folder that does not exist, or names a file "
        "that exists. Outputs are checked before the work, and nothing is replaced without --overwrite.",
        "Create the folder, choose another name, or add --overwrite where the verb has it."),

    // ---- Q22: data
    row("Q2201", "token files of Megatron and nanoGPT are sound",
        "A .bin with Megatron's .idx, or a .bin of 16-bit tokens as nanoGPT writes it, does not match its "
        "index, is truncated, or has another element type.",
        "Copy both files again, or write them again; docs/data.md lists the supported types."),
    row("Q2202", ".npy files are arrays of token ids",
        "A .npy file has another element type, shape or version, or is damaged. One dimension of integers is "
        "read.",
        "Save it again: numpy.save(path, array.reshape(-1).astype(\"uint32\"))."),
    row("Q2203", "folders of datasets can be read",
        "An Arrow file, or a folder that datasets.save_to_disk wrote, is damaged, compressed, or has no "
        "column \"input_ids\" or \"text\".",
        "Name one split of the dataset; load it and save it again with a column of text or of ids."),
    row("Q2204", "text can be read",
        "A file of data.path or an input of 'quintet prepare' or 'quintet tokenizer' is not text (it "
        "contains NUL bytes), is damaged where it is compressed, or lacks what a data key asks of it.",
        "Name text, .jsonl, .gz, .zst or .parquet files or folders of them; data.skip leaves files out. "
        "'quintet prepare --damaged skip' leaves damaged records out and counts them."),
    row("Q2205", "Parquet files can be read",
        "The file is damaged, has none of the columns asked for, or this build has no Arrow library.",
        "Name a column that the file has, or run 'tools/setup.sh --parquet' and build again."),
    row("Q2206", "templates of fields are valid",
        "A template turns the fields of a record into text. Fields are in braces: \"{title}\\n{body}\"; a "
        "brace itself is written twice.",
        "Close every brace and name at least one field."),
    row("Q2207", "the data are long enough",
        "There are too few tokens or documents for one sequence of data.seq_len, for the validation split, "
        "or for the batch.",
        "Use more data, a smaller data.seq_len, or another data.validation_fraction; the message has the "
        "numbers."),
    row("Q2208", "data.path names data that the run can train on",
        "data.path lists text files and folders, or exactly one token file or datasets folder. Prepared data "
        "were made with the run's tokenizer, and are documents or conversations, not preference pairs or "
        "prompts. Keys that say how raw text is read, such as data.template, need raw text among the data.",
        "Name one of the token files, or list all of them in data.blend; or prepare the data again, or "
        "remove a key, as the message says."),
    row("Q2210", "inputs and options of prepare are valid",
        "'quintet prepare' has nothing to read, no document is left after its filters, an option is outside "
        "its limits, or the output folder holds something else.",
        "The message counts what was left out and why. --overwrite replaces what an earlier run with other "
        "inputs or options has left."),
    row("Q2211", "shards of an interrupted prepare are sound",
        "'quintet prepare' continues from the shards that an interrupted run has left, and one of them is "
        "damaged.",
        "Start again with --overwrite."),
    row("Q2220", "conversations have a known format",
        "A line of chat data is not a JSON object of a known format: messages, conversations (ShareGPT), "
        "instruction and output (Alpaca), prompt and completion, or chosen and rejected.",
        "Correct the line that the message names, or leave such lines out with --damaged skip. docs/chat.md "
        "shows every format; 'quintet data show FILE --tokenizer T' prints what is trained."),
    row("Q2221", "chat templates can be rendered",
        "The Jinja template of the tokenizer has a syntax error, uses what is not supported, raises an "
        "exception for this conversation, or exceeds a limit.",
        "Correct the template at the place in the message, or choose another one with --chat-template."),
    row("Q2222", "the trained tokens of a conversation can be found",
        "Which tokens are trained follows from rendering beginnings of the conversation, or from "
        "generation blocks. The template renders a message differently when others follow, or no token is "
        "left to train.",
        "Mark the assistant's text in the template with {% generation %} ... {% endgeneration %}."),
    row("Q2223", "the tokenizer has a chat template",
        "tokenizer_config.json or chat_template.jinja beside the tokenizer has no template, or several "
        "without a default.",
        "Name one with --chat-template: a file, the name of one of the tokenizer's templates, or a built-in "
        "one such as chatml or llama3."),
    row("Q2230", "the ledger belongs to the run and its data",
        "'quintet data ledger' recomputes which samples each step was trained on. That needs the folder of a "
        "run, its recipe and records, and unchanged data.",
        "Name a run folder, restore the data as they were, and ask for a step, sample or document that "
        "exists."),
    row("Q2231", "data show gets data that it can show",
        "'quintet data show' prints chat data (.jsonl, with a tokenizer whose template renders it) or "
        "prepared data.",
        "Add --tokenizer, or name the folder that 'quintet prepare' wrote."),
    row("Q2232", "recorded choices of experts fit the model and the data",
        "data.routes repeats choices of experts row by row. That needs a file of the model's sizes, recorded "
        "for the samples and tokens that the run trains on; otherwise rows would go to the experts of other "
        "tokens.",
        "Record the choices again with 'quintet routes', for this recipe and all of its steps."),
    row("Q2233", "data check gets token files",
        "'quintet data check' reads token files (.bin, .npy, prepared data, folders of them) and writes "
        "checksums beside those that have none, into a file that must not be another one.",
        "Name token files. Move a file away that has the name of the checksums: that of the tokens with "
        ".json."),

    // ---- Q23: tokenizers
    row("Q2301", "tokenizer.json can be used",
        "A part of a Hugging Face tokenizer (normalizer, pre-tokenizer, model, post-processor, decoder) is "
        "damaged, contradicts itself, or has a kind or setting that Quintet does not have. Ids that differ "
        "from the original would train another model, so nothing is guessed.",
        "The message names the part. docs/data.md lists what is supported."),
    row("Q2302", "patterns of a tokenizer can be compiled",
        "A regular expression of the tokenizer is not valid, or is too costly for a text.",
        "Correct the pattern in tokenizer.json."),
    row("Q2303", "SentencePiece models can be used",
        "The .model file is damaged, or of a kind other than BPE and Unigram.",
        "Copy it again, or convert it to tokenizer.json with transformers."),
    row("Q2304", "tiktoken files can be used",
        "A .tiktoken file has one token per line, as base 64, and its rank; its name tells which pattern "
        "splits the text.",
        "Copy it again, and keep its original name (such as cl100k_base.tiktoken)."),
    row("Q2305", "the tokenizer exists",
        "data.tokenizer or --tokenizer is neither \"bytes\" nor the path of a tokenizer: tokenizer.json, a "
        "folder that contains one, a .tiktoken or a SentencePiece .model file.",
        "Correct the path; paths in a recipe are relative to its folder, in options to the working "
        "directory."),
    row("Q2306", "inputs of the tokenizer verbs are valid",
        "There is no text to train on, the vocabulary asked for is too small or too large for it, or an id "
        "is not one of the tokenizer's.",
        "Use more text, another --vocab, or ids that 'quintet tokenizer encode' prints."),

    // ---- Q24: checkpoints and run folders
    row("Q2401", "checkpoints are whole",
        "The path is not a checkpoint, it has no complete one of that step, or a file is truncated or has "
        "another checksum than its manifest says.",
        "'quintet checkpoint ls' lists the checkpoints of a folder and 'quintet checkpoint verify' checks "
        "them; an earlier step can be chosen with --step."),
    row("Q2402", "safetensors files are sound",
        "The header is no JSON object, a tensor has an unknown type, or offsets overlap, leave gaps or end "
        "outside the file.",
        "Copy the file again; compare its size and checksum with those of its source."),
    row("Q2403", "a run is continued as it was begun",
        "The folder has a checkpoint, so the command continues the run, exactly. A key that changes the "
        "results, the data or the state differs from what the run was begun with. The layout may change.",
        "Restore the recipe or the data, allow the difference with --allow KEY, start over with --fresh, or "
        "choose another folder with --run-dir."),
    row("Q2404", "weights of a checkpoint fit the model",
        "--from or a continued run reads a checkpoint whose tensors have other names or shapes than the "
        "recipe's.",
        "Use the recipe that wrote it ('quintet checkpoint show'), or choose by pattern: --load "
        "'head.*=fresh' initialises tensors, --load 'old.*=ignore' leaves some of the checkpoint out."),
    row("Q2405", "a checkpoint has the state of its run",
        "What a run needs to continue (step, position in the data, loss scale and so on) is missing in the "
        "checkpoint or damaged.",
        "Continue from an earlier checkpoint with --from and --step, or from the weights with "
        "--weights-only."),
    row("Q2406", "a run folder has the files of a run",
        "The path is not a folder that 'quintet train' wrote, or one of its files is missing or damaged.",
        "Name the folder that the last line of 'quintet train' printed: it contains recipe.toml, run.json "
        "and metrics.jsonl."),
    row("Q2407", "traces are Chrome traces",
        "A trace in the run folder was not written by 'quintet train --trace'.",
        "Remove it from the run folder, or record it again."),
    row("Q2408", "checkpoints can be written",
        "A checkpoint could not be written while the run was training; earlier ones are intact.",
        "Free some space or choose another folder with checkpoint.dir, then continue with the same "
        "command."),
    row("Q2410", "text can be generated from the run",
        "The weights give numbers that are not finite, have no averages (--ema), the device cannot be used, "
        "or an option is outside its limits.",
        "Look at the losses of the run; choose an earlier checkpoint with --step, or --device cpu."),

    // ---- Q25: files of other systems
    row("Q2501", "config.json describes a supported model",
        "The folder's config.json names an architecture or a setting that Quintet does not have, or the "
        "weights do not match it. All differences are listed.",
        "docs/huggingface.md lists the supported architectures."),
    row("Q2502", "files of weights are complete",
        "The folder has no weights, a file that its index lists is missing, or a tensor occurs twice or has "
        "an unsupported type.",
        "Download the missing files; *.safetensors, pytorch_model*.bin and torch.distributed.checkpoint "
        "folders are read."),
    row("Q2503", "PyTorch files can be read without running them",
        "A .bin or .pt file is a pickle. Quintet reads tensors from it and executes nothing, so anything "
        "else in it is refused; files older than PyTorch 1.6 are not read.",
        "Save it again with safetensors, or with torch.save(model.state_dict(), path)."),
    row("Q2504", "models can be exported and converted",
        "The source is neither a run nor a checkpoint, the model has no Hugging Face family, or the output "
        "folder is not new or its disk is too small.",
        "Name a run folder, and a new folder for the result."),

    // ---- Q26: hardware
    row("Q2601", "cluster phrases can be read",
        "A cluster is NODESxPER_NODE and an accelerator, such as \"2x8 h100\" or \"64x8 h100 with ib-ndr\", "
        "a number of accelerators, or the path of a cluster file.",
        "'quintet plan --help' has examples; docs/planning.md lists accelerators and links."),
    row("Q2602", "cluster and hardware files are valid",
        "A cluster file is TOML with a table [cluster] and, where they differ from the catalogue, "
        "[accelerator] and links. A key is unknown, missing or outside its limits.",
        "Correct the key in the message; 'quintet doctor --probe --out FILE.toml' writes a file for this "
        "machine."),
    row("Q2603", "numbers of a cost estimate are possible",
        "Tokens, prices or rates are not positive, or the stated rate exceeds the peak of the hardware.",
        "Give tokens as 15T or 300B; compare rates with the dense peak, not the sparse one."),
    row("Q2604", "tables of published runs can be read",
        "A CSV table lacks a column or a field, or a file of terms is not as expected.",
        "Keep the header line of the table that ships with Quintet."),

    row("Q2605", "accelerators, links and stacks are known",
        "A name is not in the catalogue of hardware and software stacks, or an entry of a file for it is "
        "outside its limits.",
        "The message lists the known names; a machine of your own is described by a cluster file "
        "(docs/planning.md)."),

    // ---- Q27: planning
    row("Q2701", "the plan fits its cluster",
        "The recipe has another number of ranks than the cluster has devices, the model is unknown, or the "
        "accelerator cannot do the arithmetic.",
        "Change --cluster, parallel.* or the dtype; the message has both numbers."),
    row("Q2702", "the search has something to choose",
        "--search chooses the layout. A key that it cannot hold is set, a value is not accepted, or the "
        "model is custom.",
        "Fix only parallel.tp, pp, cp and the other keys that the message lists."),

    // ---- Q28: pipeline schedules
    row("Q2801", "schedule files can be read",
        "A schedule file has header lines and one line of actions per rank; docs/schedules.md shows one.",
        "Correct the line and column in the message; 'quintet schedule --check FILE' reads it again."),
    row("Q2802", "schedules are complete and free of deadlock",
        "An action is missing, occurs twice, comes before what it needs, or two ranks wait for each other.",
        "Correct the action in the message; 'quintet schedule --check FILE --gantt' draws what is read."),
    row("Q2803", "a named schedule exists for these sizes",
        "The name is unknown, or it needs another number of chunks or micro-batches.",
        "The message has the numbers that it accepts; 'quintet schedule --help' lists the names."),
    row("Q2804", "a schedule within the memory limit exists",
        "No order of forwards and backwards keeps every rank within the given number of activations.",
        "Raise --memory to the smallest number in the message."),

    // ---- Q29: launching and devices
    row("Q2901", "the launcher and the recipe agree",
        "Variables of mpirun or srun are missing or contradict each other, run.backend does not suit how the "
        "processes were started, or more ranks are asked for than can be threads of one process.",
        "Start with mpirun or srun and run.backend = \"auto\", or without a launcher for ranks as threads."),
    row("Q2902", "this build has the backend",
        "The build has no MPI, CUDA or NCCL, which the recipe or the launcher asks for, or the library lacks "
        "what is needed.",
        "Install the packages that the message names, configure again and build; 'quintet --version' prints "
        "what a build has."),
    row("Q2903", "the GPU can be used",
        "No GPU is visible, the driver is too old, the build has no code for it, or ranks share one in a way "
        "that NCCL does not support.",
        "Check nvidia-smi and CUDA_VISIBLE_DEVICES; 'quintet doctor' prints what is found. Or use run.device "
        "= \"cpu\"."),
    row("Q2904", "the GPU has room",
        "An allocation on the GPU failed: other processes use its memory, or the plan exceeds it.",
        "'nvidia-smi' lists other processes; lower batch.micro, or set memory.recompute = \"full\"."),
    row("Q2905", "the machine can be probed",
        "A probe needs the same number of ranks on every host, and ranks that suit how it was started.",
        "Start it with one command on all hosts, or without a launcher and with --ranks."),
    row("Q2906", "files of variables can be read",
        "A line of a file of environment variables is neither NAME=value nor a comment.",
        "Correct the line in the message; 'export NAME=value' is allowed, too."),

    // ---- Q30: models and programs
    row("Q3001", "the model is a valid graph",
        "A model built in C++, or sizes that no rule of the recipe excludes, break a contract of the "
        "builder: dims that do not match, a parameter without a gradient, a missing head.",
        "The message names the op or parameter; docs/api.md describes the contracts."),
    row("Q3002", "text forms of graphs and programs can be read",
        "A text is not the form that 'quintet program' prints.", "Correct the line in the message."),
    row("Q3003", "the layout can divide the model",
        "A dim cannot be divided over the ranks of its axis, or the optimizer needs larger pieces.",
        "Choose sizes that the axis divides, or a smaller axis."),

    // ---- Q90: failures that are not the input's fault; exit code 1
    row("Q9001", "Quintet keeps its own invariants",
        "An internal check failed. This is a bug in Quintet: nothing in the input should lead to it.",
        "Report it with the recipe, the command and the output of 'quintet --version'."),
    row("Q9002", "ranks reach each other",
        "A rank failed, stopped answering, or issued another call than its peers. The message names the "
        "rank, the call and what the others were doing.",
        "Look at the first error of any rank, which is the cause; raise run.timeout if a step is long."),
    row("Q9003", "the system gives the memory that is asked for", "An allocation of host memory failed.",
        "Close other processes or use smaller sizes; 'quintet plan RECIPE' prints what the ranks need."),
    row("Q9004", "results are written whole",
        "The work was done, but a result could not be written: the disk is full, a limit on file sizes was "
        "met, or standard output was closed.",
        "Free some space. A run names the folder that has its last checkpoint."),
    row("Q9005", "a run ends with finite numbers",
        "The loss or the gradients became infinite or NaN, and the run stopped.",
        "Lower optimizer.lr, lengthen the warm-up, or set optimizer.clip_norm; continue from an earlier "
        "checkpoint."),
    row("Q9006", "a failure is reported with its reason",
        "The command failed for a reason outside its input, which the message has.",
        "Repeat it; if it fails again, report it with the output of 'quintet --version'."),
};

}  // namespace

std::span<const ProblemCode> error_codes() { return kRows; }

}  // namespace quintet::config
