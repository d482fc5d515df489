#include "kernels/cuda/matmul/matmul.h"

#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/timing.h"
#include "kernels/fastest.h"

namespace quintet::kernels::cuda {
namespace {

using base::DType;

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(std::string(what) + ": " + cublasLtGetStatusString(status));
}

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::F64:
      return CUDA_R_64F;
    case DType::F32:
      return CUDA_R_32F;
    case DType::BF16:
      return CUDA_R_16BF;
    case DType::F16:
      return CUDA_R_16F;
    case DType::E4M3:
      return CUDA_R_8F_E4M3;
    case DType::E5M2:
      return CUDA_R_8F_E5M2;
    default:
      fail("matmul: unsupported dtype " + std::string(base::to_string(t)));
  }
}

enum class Blocks { None, Rows, SquareB };

// What cuBLASLt is called with.
struct Args : GemmArgs {
  Blocks blocks = Blocks::None;
};

bool is_code(DType t) { return t == DType::E4M3 || t == DType::E5M2; }

// The key by which an algorithm is chosen. cuBLASLt may want more alignment than 16 bytes; 256 is the most
// that any of its kernels does.
std::string problem_of(const Args& a, bool tf32, int64_t workspace_bytes) {
  const auto alignment = [](const void* p) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    return at == 0 ? uintptr_t{256} : std::min<uintptr_t>(at & (~at + 1), 256);
  };
  const bool separate = a.addend != nullptr && a.addend != a.c;
  std::ostringstream s;
  s << (a.trans_a ? 't' : 'n') << (a.trans_b ? 't' : 'n') << ' ' << a.m << 'x' << a.n << 'x' << a.k << " ld "
    << a.lda << ' ' << a.ldb << ' ' << a.ldc << ' ' << base::to_string(a.a_type)
    << (a.b_type != a.a_type ? " x " + std::string(base::to_string(a.b_type)) : "") << "->"
    << base::to_string(a.c_type) << (tf32 ? " tf32" : "") << (a.fast_accumulation ? " fast" : "")
    << (a.blocks == Blocks::None   ? ""
        : a.blocks == Blocks::Rows ? " blocks"
                                   : " square blocks")
    << (separate                              ? " addend"
        : a.accumulate || a.addend != nullptr ? " accumulate"
                                              : " plain")
    << " align " << alignment(a.a) << ' ' << alignment(a.b) << ' ' << alignment(a.c) << ' '
    << alignment(a.addend) << " workspace " << workspace_bytes;
  return s.str();
}

// cuBLASLt's descriptors of one problem. It is column-major: C^T = op(B)^T op(A)^T, so its first operand is
// Quintet's B.
class Problem {
 public:
  Problem(const Args& a, bool tf32) {
    const bool f64 = a.a_type == DType::F64;
    const cublasComputeType_t compute = f64                              ? CUBLAS_COMPUTE_64F
                                        : a.a_type == DType::F32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                         : CUBLAS_COMPUTE_32F;
    check_blas(cublasLtMatmulDescCreate(&desc, compute, f64 ? CUDA_R_64F : CUDA_R_32F), "matmul");
    const cublasOperation_t first = a.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = a.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)),
               "matmul");
    check_blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)),
               "matmul");
    if (is_code(a.a_type)) {
      const int8_t fast = a.fast_accumulation ? 1 : 0;
      check_blas(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)),
                 "matmul");
      if (a.blocks != Blocks::None) set_block_modes(a.blocks == Blocks::SquareB);
      set_scales(a);
    }
    const auto layout = [](cublasLtMatrixLayout_t* to, DType type, int64_t rows, int64_t columns,
                           int64_t ld) {
      check_blas(cublasLtMatrixLayoutCreate(to, data_type(type), static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(columns), ld),
                 "matmul");
    };
    layout(&b, a.b_type, a.trans_b ? a.k : a.n, a.trans_b ? a.n : a.k, a.ldb);
    layout(&this->a, a.a_type, a.trans_a ? a.m : a.k, a.trans_a ? a.k : a.m, a.lda);
    layout(&c, a.c_type, a.n, a.m, a.ldc);
  }
  ~Problem() {
    if (c != nullptr) cublasLtMatrixLayoutDestroy(c);
    if (a != nullptr) cublasLtMatrixLayoutDestroy(a);
    if (b != nullptr) cublasLtMatrixLayoutDestroy(b);
    if (desc != nullptr) cublasLtMatmulDescDestroy(desc);
  }
  Problem(const Problem&) = delete;

  // Where the scales of codes are: not a property of the problem, so set before every launch.
  void set_scales(const GemmArgs& args) {
    if (!all_aligned16(args.a_scale, args.b_scale)) fail("matmul: scales must be aligned to 16 bytes");
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const float* at) {
      check_blas(cublasLtMatmulDescSetAttribute(desc, what, &at, sizeof(at)), "matmul");
    };
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scale);
  }

  void set_block_modes(bool square_b) {
    const auto set = [&](cublasLtMatmulDescAttributes_t what, cublasLtMatmulMatrixScale_t mode) {
      const int32_t value = mode;
      check_blas(cublasLtMatmulDescSetAttribute(desc, what, &value, sizeof(value)), "matmul");
    };
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        square_b ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
};

std::vector<cublasLtMatmulHeuristicResult_t> candidates(cublasLtHandle_t handle, const Problem& p,
                                                        const Args& args, int64_t workspace_bytes, int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "matmul");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof(value)), "matmul");
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  // Not in place (the order of additions would be random), not in C's type (bf16 partial sums).
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t what, const void* pointer) {
    const auto at = reinterpret_cast<uintptr_t>(pointer);
    set(what, at == 0 ? uint32_t{256} : static_cast<uint32_t>(std::min<uintptr_t>(at & (~at + 1), 256)));
  };
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, args.b);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, args.a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, args.addend != nullptr ? args.addend : args.c);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, args.c);
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, p.desc, p.b, p.a, p.c, p.c, preference,
                                                               most, found.data(), &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check_blas(status, "matmul");
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [](const auto& f) { return f.state != CUBLAS_STATUS_SUCCESS; });
  if (found.empty())
    fail("matmul: cuBLASLt has no algorithm for " + problem_of(args, false, workspace_bytes) +
         (args.blocks != Blocks::None
              ? "; codes in blocks of 128 need a Hopper GPU (precision.linear = \"fp8-block\")"
              : ""));
  return found;
}

void launch(cublasLtHandle_t handle, Problem& p, const Args& args, const cublasLtMatmulAlgo_t& algorithm,
            void* workspace, int64_t workspace_bytes, Stream stream) {
  const bool add = args.accumulate || args.addend != nullptr;
  const void* const c = args.addend != nullptr ? args.addend : args.c;
  const float one = 1, beta = add ? 1 : 0;
  const double one64 = 1, beta64 = beta;
  const bool f64 = args.a_type == DType::F64;
  if (is_code(args.a_type)) p.set_scales(args);
  check_blas(cublasLtMatmul(handle, p.desc, f64 ? static_cast<const void*>(&one64) : &one, args.b, p.b,
                            args.a, p.a, f64 ? static_cast<const void*>(&beta64) : &beta, c, p.c, args.c, p.c,
                            &algorithm, workspace, static_cast<size_t>(workspace_bytes), stream),
             "matmul");
}

struct Choice {
  cublasLtMatmulAlgo_t algorithm;
  double microseconds = 0;  // 0: not timed
  bool checked = true;      // false: read from text and not used yet
};

std::string hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string out;
  for (const uint64_t word : algorithm.data) {
    char digits[17];
    for (int i = 15, shift = 0; i >= 0; --i, shift += 4) digits[i] = "0123456789abcdef"[word >> shift & 15];
    out.append(digits, 16);
  }
  return out;
}
bool unhex(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  constexpr size_t kWords = sizeof(algorithm.data) / sizeof(algorithm.data[0]);
  if (text.size() != 16 * kWords || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  for (size_t i = 0; i < kWords; ++i) algorithm.data[i] = std::stoull(text.substr(16 * i, 16), nullptr, 16);
  return true;
}

// Device memory with the lifetime of its holder.
struct Scratch {
  explicit Scratch(int64_t bytes) {
    check(cudaMalloc(&data, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "matmul tune");
  }
  ~Scratch() { cudaFree(data); }
  Scratch(const Scratch&) = delete;
  void* data = nullptr;
};

}  // namespace

struct Matmul::State {
  cublasLtHandle_t handle = nullptr;
  std::string home;  // device and library version
  bool tf32 = false;
  std::map<std::string, Choice> choices;
  // Described once per problem; the map's text key costs a microsecond, compared to a launch of several.
  std::map<std::string, std::unique_ptr<Problem>> problems;

  Problem& problem(const Args& args, const std::string& key) {
    auto& slot = problems[key];
    if (slot == nullptr) slot = std::make_unique<Problem>(args, tf32);
    return *slot;
  }
};

Matmul::Matmul() : state_(std::make_unique<State>()) {
  check_blas(cublasLtCreate(&state_->handle), "matmul");
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDevice(&device), "matmul");
  check(cudaGetDeviceProperties(&properties, device), "matmul");
  state_->home = std::string(properties.name) + ", cublasLt " + std::to_string(cublasLtGetVersion());
}
Matmul::~Matmul() {
  state_->problems.clear();
  if (state_->handle != nullptr) cublasLtDestroy(state_->handle);
}

void Matmul::allow_tf32(bool allow) { state_->tf32 = allow; }

struct Matmul::Call : Args {
  explicit Call(const GemmArgs& args) : Args{args} {}
  explicit Call(const BlockGemmArgs& args) : Args{args, args.square_b ? Blocks::SquareB : Blocks::Rows} {}
};

void Matmul::run(const GemmArgs& args, void* workspace, int64_t workspace_bytes, Stream stream) {
  run(Call(args), workspace, workspace_bytes, stream);
}
void Matmul::run(const BlockGemmArgs& args, void* workspace, int64_t workspace_bytes, Stream stream) {
  run(Call(args), workspace, workspace_bytes, stream);
}
double Matmul::tune(const GemmArgs& args, int64_t workspace_bytes, Stream stream) {
  return tune(Call(args), workspace_bytes, stream);
}
double Matmul::tune(const BlockGemmArgs& args, int64_t workspace_bytes, Stream stream) {
  return tune(Call(args), workspace_bytes, stream);
}

void Matmul::run(const Call& args, void* workspace, int64_t workspace_bytes, Stream stream) {
  if (args.m <= 0 || args.n <= 0) return;
  const bool separate = args.addend != nullptr && args.addend != args.c;
  if (args.k <= 0) {  // an empty sum
    const auto size = static_cast<size_t>(base::size_of(args.c_type));
    const size_t pitch = static_cast<size_t>(args.ldc) * size, width = static_cast<size_t>(args.n) * size;
    if (separate)
      check(cudaMemcpy2DAsync(args.c, pitch, args.addend, pitch, width, static_cast<size_t>(args.m),
                              cudaMemcpyDeviceToDevice, stream),
            "matmul");
    else if (!args.accumulate && args.addend == nullptr)
      check(cudaMemset2DAsync(args.c, pitch, 0, width, static_cast<size_t>(args.m), stream), "matmul");
    return;
  }
  const std::string key = problem_of(args, state_->tf32, workspace_bytes);
  Problem& problem = state_->problem(args, key);
  auto at = state_->choices.find(key);
  if (at != state_->choices.end() && !at->second.checked) {
    cublasLtMatmulHeuristicResult_t result{};
    at->second.checked =
        cublasLtMatmulAlgoCheck(state_->handle, problem.desc, problem.b, problem.a, problem.c, problem.c,
                                &at->second.algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
        result.workspaceSize <= static_cast<size_t>(workspace_bytes);
    if (!at->second.checked) {  // read from a file, and not valid for this library
      state_->choices.erase(at);
      at = state_->choices.end();
    }
  }
  if (at == state_->choices.end()) {
    const auto guess = candidates(state_->handle, problem, args, workspace_bytes, 1);
    at = state_->choices.emplace(key, Choice{guess[0].algo}).first;
  }
  launch(state_->handle, problem, args, at->second.algorithm, workspace, workspace_bytes, stream);
}

double Matmul::tune(const Call& given, int64_t workspace_bytes, Stream stream) {
  if (given.m <= 0 || given.n <= 0 || given.k <= 0) return 0;
  const std::string key = problem_of(given, state_->tf32, workspace_bytes);
  const auto known = state_->choices.find(key);
  if (known != state_->choices.end() && known->second.microseconds > 0) return known->second.microseconds;

  const int64_t a_count = (given.trans_a ? given.k : given.m) * given.lda,
                b_count = (given.trans_b ? given.n : given.k) * given.ldb, c_count = given.m * given.ldc;
  const int64_t c_bytes = c_count * base::size_of(given.c_type);
  Scratch a(a_count * base::size_of(given.a_type)), b(b_count * base::size_of(given.b_type)), c(c_bytes);
  const bool separate = given.addend != nullptr && given.addend != given.c;
  Scratch addend(separate ? c_bytes : 1), workspace(workspace_bytes);
  fill_noise(a.data, given.a_type, a_count, stream);
  fill_noise(b.data, given.b_type, b_count, stream);
  fill_noise(c.data, given.c_type, c_count, stream);
  if (separate) fill_noise(addend.data, given.c_type, c_count, stream);
  Args args = given;
  args.a = a.data;
  args.b = b.data;
  args.c = c.data;
  args.addend = given.addend == nullptr ? nullptr : separate ? addend.data : c.data;
  const int64_t scales =
      given.blocks == Blocks::None ? 1 : (given.k + 511) / 512 * 4 * std::max(given.m, given.n);
  Scratch scale(scales * static_cast<int64_t>(sizeof(float)));
  if (is_code(given.a_type)) {
    fill(static_cast<float*>(scale.data), 1.0, scales, stream);
    args.a_scale = args.b_scale = static_cast<const float*>(scale.data);
  }

  Problem& problem = state_->problem(given, key);
  const auto found = candidates(state_->handle, problem, given, workspace_bytes, 16);
  const auto time = [&](const cublasLtMatmulAlgo_t& algorithm, int repeats) {
    return microseconds_of(
        [&] { launch(state_->handle, problem, args, algorithm, workspace.data, workspace_bytes, stream); },
        repeats, stream);
  };
  time(found[0].algo, 3);
  const int repeats = std::clamp(static_cast<int>(2000 / std::max(time(found[0].algo, 2), 1.0)), 2, 20);
  std::vector<bool> loaded(found.size());
  const Fastest fastest = find_fastest(found.size(), [&](size_t i) {
    if (!loaded[i]) time(found[i].algo, 1);  // loads its code onto the GPU
    loaded[i] = true;
    return time(found[i].algo, repeats);
  });
  state_->choices.insert_or_assign(key, Choice{found[fastest.index].algo, fastest.time});
  return fastest.time;
}

std::string Matmul::tuned() const {
  std::ostringstream out;
  for (const auto& [key, choice] : state_->choices)
    if (choice.microseconds > 0)
      out << state_->home << " | " << key << " | " << choice.microseconds << " | " << hex(choice.algorithm)
          << '\n';
  return out.str();
}

void Matmul::read_tuned(std::string_view text) {
  std::istringstream lines{std::string(text)};
  const std::string separator = " | ";
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    size_t from = 0;
    for (size_t at; (at = line.find(separator, from)) != std::string::npos; from = at + separator.size())
      fields.push_back(line.substr(from, at - from));
    fields.push_back(line.substr(from));
    Choice choice;
    if (fields.size() != 4 || fields[0] != state_->home || !unhex(fields[3], choice.algorithm)) continue;
    choice.microseconds = std::strtod(fields[2].c_str(), nullptr);
    choice.checked = false;
    if (choice.microseconds > 0) state_->choices.insert_or_assign(fields[1], choice);
  }
}

void Matmul::load(const base::Path& path) {
  if (base::file_exists(path)) read_tuned(base::read_file(path));
}

void Matmul::save(const base::Path& path) const {
  std::string kept;
  if (base::file_exists(path)) {
    std::istringstream lines(base::read_file(path));
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with(state_->home + " | ")) kept += line + '\n';
  }
  base::write_file_atomically(path, kept + tuned());
}

int64_t Matmul::tuned_count() const {
  return std::count_if(state_->choices.begin(), state_->choices.end(),
                       [](const auto& entry) { return entry.second.microseconds > 0; });
}

}  // namespace quintet::kernels::cuda
