#include "base/error_codes.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace quintet::base {
namespace {

constexpr ErrorOrigin kOrigins[] = {
    {"advice/", "Q2701"},
    {"base/", "Q2101"},
    {"base/dim", "Q3001"},
    {"base/file_lock", "Q2102"},
    {"base/output_path", "Q2102"},
    {"chat/", "Q2220"},
    {"chat/jinja/", "Q2221"},
    {"chat/mask", "Q2222"},
    {"chat/template", "Q2221"},
    {"chat/tokenizer", "Q2223"},
    {"checkpoint/", "Q2401"},
    {"checkpoint/safetensors", "Q2402"},
    {"cli/", "Q2026"},
    {"comm/", "Q2902"},
    {"comm/local/", "Q2901"},
    {"comm/nccl/", "Q2903"},
    {"compiler/", "Q2701"},
    {"compiler/compile", "Q2021"},
    {"compiler/fit_recompute", "Q2021"},
    {"compiler/optional_passes", "Q2026"},
    {"config/", "Q1012"},
    {"config/environment", "Q2901"},
    {"config/nccl_variables", "Q2906"},
    {"config/hf/", "Q2501"},
    {"config/parse", "Q1001"},
    {"data/", "Q2207"},
    {"data/arrow_file", "Q2203"},
    {"data/balance", "Q2207"},
    {"data/block_checksums", "Q2003"},
    {"data/chat_source", "Q2220"},
    {"data/corpus", "Q2003"},
    {"data/foreign_file", "Q2201"},
    {"data/megatron_index", "Q2201"},
    {"data/npy_file", "Q2202"},
    {"data/open_corpus", "Q2208"},
    {"data/route_table", "Q2232"},
    {"data/text_source", "Q2204"},
    {"data/token_file", "Q2003"},
    {"device/", "Q2020"},
    {"device/cuda/", "Q2904"},
    {"exec/", "Q2903"},
    {"generate/", "Q2410"},
    {"graph/", "Q3001"},
    {"graph/text", "Q3002"},
    {"hardware/", "Q2602"},
    {"hardware/catalogue", "Q2605"},
    {"hardware/cluster.", "Q2601"},
    {"hardware/economy", "Q2603"},
    {"hardware/terms", "Q2604"},
    {"hf/", "Q2502"},
    {"hf/folder_writer", "Q2504"},
    {"hf/model_folder", "Q2501"},
    {"hf/pickle", "Q2503"},
    {"hf/torch_source", "Q2503"},
    {"hf/zip", "Q2503"},
    {"kernels/", "Q3001"},
    {"layout/", "Q3003"},
    {"machine/", "Q2905"},
    {"machine/cuda/", "Q2903"},
    {"machine/cuda_missing/", "Q2902"},
    {"models/", "Q3001"},
    {"observe/", "Q2407"},
    {"optim/", "Q3001"},
    {"passes/", "Q3001"},
    {"plan/", "Q2701"},
    {"prepare/", "Q2210"},
    {"prepare/chat_encoder", "Q2220"},
    {"prepare/shard", "Q2211"},
    {"program/", "Q3001"},
    {"program/text", "Q3002"},
    {"published/", "Q2604"},
    {"report/", "Q2406"},
    {"report/economy_report", "Q2603"},
    {"schedule/", "Q2803"},
    {"schedule/check", "Q2802"},
    {"schedule/refill", "Q2804"},
    {"schedule/synthesize", "Q2804"},
    {"schedule/text", "Q2801"},
    {"search/", "Q2702"},
    {"sim/", "Q2701"},
    {"text/", "Q2204"},
    {"text/document", "Q2210"},
    {"text/parquet", "Q2205"},
    {"text/template", "Q2206"},
    {"tokenizer/", "Q2301"},
    {"tokenizer/base64", "Q2304"},
    {"tokenizer/files", "Q2305"},
    {"tokenizer/oniguruma", "Q2302"},
    {"tokenizer/regex", "Q2302"},
    {"tokenizer/sentencepiece", "Q2303"},
    {"tokenizer/tiktoken", "Q2304"},
    {"tokenizer/tokenizer", "Q2305"},
    {"tokenizer/train", "Q2306"},
    {"tools/", "Q2026"},
    {"tools/bench_checkpoint", "Q2010"},
    {"tools/check_tokens", "Q2233"},
    {"tools/checkpoints", "Q2401"},
    {"tools/ledger", "Q2230"},
    {"tools/model_files", "Q2504"},
    {"tools/record_routes", "Q2232"},
    {"tools/replay", "Q2406"},
    {"tools/show_data", "Q2231"},
    {"tools/tokenize", "Q2306"},
    {"train/", "Q2403"},
    {"train/checkpointer", "Q2408"},
    {"train/load_plan", "Q2404"},
    {"train/loop", "Q2901"},
    {"train/loop_trace", "Q2026"},
    {"train/memory_check", "Q2020"},
    {"train/peer_memory", "Q2403"},
    {"train/resume", "Q2403"},
    {"train/route_file", "Q2232"},
    {"train/run_data", "Q2204"},
    {"train/run_state", "Q2405"},
};

constexpr size_t kCodeSize = 5;  // Q and four digits

// What follows the last folder named "src" of a path.
std::string_view below_src(std::string_view file) {
  constexpr std::string_view kFolder = "src/";
  size_t at = file.rfind(kFolder);
  while (at != std::string_view::npos && at > 0 && file[at - 1] != '/') at = file.rfind(kFolder, at - 1);
  return at == std::string_view::npos ? std::string_view() : file.substr(at + kFolder.size());
}

bool is_code(std::string_view text) {
  return text.size() == kCodeSize && text[0] == 'Q' &&
         std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::span<const ErrorOrigin> error_origins() { return kOrigins; }

std::string_view code_of_origin(std::string_view file) {
  const ErrorOrigin* best = nullptr;
  for (const ErrorOrigin& o : kOrigins)
    if (file.starts_with(o.prefix) && (best == nullptr || o.prefix.size() > best->prefix.size())) best = &o;
  return best == nullptr ? std::string_view() : best->code;
}

// Builds spell one file in many ways: absolute, "../src/config/parse.cc", or as a compiler cache first saw
// it in another clone. So only the end of the path counts. A file of another project's src/config/ differs in
// its namespace.
std::string_view code_of_source(std::string_view file, std::string_view function) {
  const std::string_view path = below_src(file);
  const std::string_view room = path.substr(0, path.find('/'));
  const bool ours =
      !room.empty() && function.find(fmt::format("quintet::{}::", room)) != std::string_view::npos;
  return ours ? code_of_origin(path) : std::string_view();
}

std::string_view code_in(std::string_view message) {
  for (size_t at = message.find("[Q"); at != std::string_view::npos; at = message.find("[Q", at + 1)) {
    const std::string_view code = message.substr(at + 1, kCodeSize);
    if (is_code(code) && message.substr(at + 1 + kCodeSize).starts_with(']')) return code;
  }
  return {};
}

std::string with_code(const std::string& message, std::string_view code) {
  return code.empty() || !code_in(message).empty() ? message : fmt::format("{} [{}]", message, code);
}

std::string without_code(const std::string& message) {
  const std::string_view code = code_in(message);
  const std::string end = fmt::format(" [{}]", code);
  return !code.empty() && message.ends_with(end) ? message.substr(0, message.size() - end.size()) : message;
}

namespace {

// what() ends at a NUL byte, which a quoted line of a file may contain: the code would be lost.
std::string without_nul(std::string message) {
  for (size_t at = 0; (at = message.find('\0', at)) != std::string::npos;) message.replace(at, 1, "\\x00");
  return message;
}

}  // namespace

UserError::UserError(const std::string& message, std::source_location at)
    : std::runtime_error(
          with_code(without_nul(message), code_of_source(at.file_name(), at.function_name()))) {}

UserError::UserError(const std::string& message, std::string_view code)
    : std::runtime_error(with_code(without_nul(message), code)) {}

std::string_view UserError::code() const { return code_in(what()); }

}  // namespace quintet::base
