// The step program of one rank: what it computes, sends, frees and waits for, over buffers whose offsets are
// fixed before the first step. It is the one object that is verified, planned, simulated, executed and
// traced.
//
// A program is folded: *bodies* are instruction lists, *calls* say in which order they run and for which
// micro-batch. The expanded sequence (expand.h) is what runs: instruction by instruction in issue order, each
// on its stream, with explicit waits for instructions of other streams.
#pragma once

#include <string>
#include <vector>

#include "graph/op.h"
#include "graph/step_graph.h"
#include "program/communicator.h"

namespace quintet::program {

using base::Bytes;
using BufferId = base::Id<struct BufferTag>;
using CommId = base::Id<struct CommTag>;
using StreamId = base::Id<struct StreamTag>;
inline constexpr StreamId kComputeStream = StreamId(0);
inline constexpr std::string_view kStateStream = "dp";  // gathers of parameters, reductions of gradients

enum class MemoryClass : uint8_t {
  Parameters,
  Gradients,
  Optimizer,
  Activations,
  Communication,
  Workspace,
  Inputs
};
inline constexpr int kNumMemoryClasses = 7;

// How long a buffer owns its bytes.
enum class Scope : uint8_t {
  Persistent,  // for the whole run
  Step,        // from its first use in a step to the end of the step
  Micro,       // from the forward body of a micro-batch to the end of its backward body
  Body,        // inside one call of one body
};

struct Buffer {
  std::string name;
  int64_t bytes = 0;
  MemoryClass memory_class = MemoryClass::Activations;
  Scope scope = Scope::Body;
  int64_t offset = -1;  // in the rank's arena; set by the allocator
};

struct Operand {
  BufferId buffer;
  int64_t offset_bytes = 0;  // of the view within the buffer
  graph::Type type;          // local shape of the view
  int64_t bytes() const { return type.bytes(); }
};

// Send and Recv are the two sides of a message between the members of a communicator of two. AllToAllV is the
// exchange of rows between tokens and experts; the numbers of rows are read from its operands, unless all
// experts are padded to the same number (exec/exchange_rows.h). Exchange moves pieces of matrices to their
// owners or back; its attributes say how much goes where (program/matrix_pieces.h).
enum class CollectiveKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  AllToAllV,
  Send,
  Recv,
  Exchange
};

// A collective over a communicator. `count` is elements per rank for AllGather, ReduceScatter and AllToAll,
// of the whole message for AllReduce, and the maximum received for AllToAllV and Exchange. AllReduce works in
// place; AllGather and ReduceScatter may (out is part of in, or in of out, at the rank's own range).
struct Collective {
  CollectiveKind kind;
  CommId comm;
  int64_t count = 0;
  graph::DType dtype = graph::DType::F32;
  graph::Reduction reduction = graph::Reduction::Sum;
};

enum class InstrKind : uint8_t {
  Compute,  // op on operands
  Collective,
  LoadBatch,  // the host fills the inputs of a micro-batch
  Free,       // the lifetime of `frees` ends
  // The instructions between Repeat and End run for the passes 1, 2, ... below the number in its operand,
  // possibly never; its result holds the current pass. All of them are on the compute stream. End reads what
  // they use from outside, so that it lives as long as the last pass.
  Repeat,
  End,
};

// In which calls of its body an instruction is executed.
enum class When : uint8_t { Always, FirstCall, LastCall };

// Whether a result is added to what the output holds. Applies to sums: results without token rows. Rows that
// an instruction writes besides such a sum, and results in OpDef::overwritten, are always overwritten.
enum class Accumulate : uint8_t { Never, NotFirstCall, Always };

// The part of a sharded dim that this rank holds: rows [begin, begin + size) of which the first `valid` are
// real.
struct Part {
  graph::Dim dim;
  int64_t begin = 0, size = 0, valid = 0, global = 0;
};

struct Instr {
  InstrKind kind = InstrKind::Compute;
  const graph::OpDef* op = nullptr;  // Compute
  graph::Attrs attrs;
  std::vector<Operand> in, out;
  // By result, for readers of a program's numbers (tools/bisect.h): the value of the local graph that is
  // complete there afterwards. Empty where none is.
  std::vector<graph::ValueId> values;
  std::vector<Part> parts;
  Collective collective{};  // Collective
  BufferId frees;           // Free
  StreamId stream = kComputeStream;
  When when = When::Always;
  Accumulate accumulate = Accumulate::Never;
  bool repeated = false;        // between Repeat and End
  int64_t workspace_bytes = 0;  // scratch of the kernel, in the rank's workspace buffer
  graph::Phase phase = graph::Phase::F;
  int block = -1;    // for reading and tracing
  std::string note;  // "gather block3"
};

// Not a mark about lifetimes or passes: something is computed, moved or loaded.
inline bool does_work(const Instr& instr) {
  return instr.kind == InstrKind::Compute || instr.kind == InstrKind::Collective ||
         instr.kind == InstrKind::LoadBatch;
}

// Backward computes gradients of activations and, unless the schedule moves them to Weight, of
// parameters. Measure is Step as far as the sum of squares of the gradients: it updates nothing.
enum class BodyKind : uint8_t {
  Begin,
  Forward,
  Backward,
  Weight,
  Step,
  Evaluate,
  EvaluateEnd,
  Infer,
  Measure
};

struct Body {
  BodyKind kind;
  int chunk = 0;  // which of the rank's virtual pipeline stages
  std::vector<Instr> instrs;
};

struct Call {
  int body = 0;
  int micro = -1;      // which micro-batch of the step; -1: none
  bool first = false;  // first and last call of this body in the step
  bool last = false;
};

// A step of fewer micro-batches than Program::calls has, in the same bodies and buffers.
struct StepVariant {
  int micro_batches = 0;
  bool measures = false;  // ends with Measure instead of Step
  std::vector<Call> calls;
};

struct Stream {
  std::string name;
};

// A number that the program computes with, in a slot of 8 bytes of the buffer `scalars`. Inputs have the
// first slots, so that one copy transfers them to a device.
enum class ScalarKind : uint8_t {
  Input,   // the host sets it before every run
  Result,  // a run computes it
  State,   // a step changes it and the next one reads it
};
struct ScalarDecl {
  std::string name;
  ScalarKind kind = ScalarKind::Result;
  graph::DType dtype = graph::DType::F64;  // or I64
  double initial = 0;                      // State: at the start of a run
};

// The scalars that the host sets and reads.
namespace scalars {
inline constexpr std::string_view kCount = "count";                    // valid tokens of the global batch
inline constexpr std::string_view kLearningRate = "lr";                // of this step
inline constexpr std::string_view kDecayRatio = "weight_decay_ratio";  // with a ramp: factor on weight decay
inline constexpr std::string_view kDropoutKey = "dropout_key";         // i64
// With a guard against spikes: a step whose mean loss or norm exceeds its limit is skipped.
inline constexpr std::string_view kLossLimit = "loss_limit";
inline constexpr std::string_view kNormLimit = "norm_limit";
// With auxiliary losses and steps of several sizes: the micro-batches of this step over those of a whole one.
inline constexpr std::string_view kStepShare = "step_share";
// loss scale / step share: the gradient of the auxiliary losses, compiled as means over a whole step.
inline constexpr std::string_view kAuxiliarySeed = "auxiliary_seed";
inline constexpr std::string_view kSeed = "seed";  // of the backward pass: loss scale / count
inline constexpr std::string_view kLoss = "loss";  // sum over the valid tokens
inline constexpr std::string_view kSumSquares =
    "sum_squares";                                 // of the gradients, with the loss scale; or their largest
inline constexpr std::string_view kNorm = "norm";  // of the gradients, without the loss scale
inline constexpr std::string_view kClipScale = "clip_scale";  // factor that updates apply to gradients
inline constexpr std::string_view kOk = "ok";                 // 0: the step is skipped
inline constexpr std::string_view kUpdateCount = "update_count";
inline constexpr std::string_view kSkippedInRow = "skipped_in_row";
inline constexpr std::string_view kSkippedTotal = "skipped_total";
// The factor of gradients: the gradient of a loss term with respect to itself. 1 unless it is set.
inline constexpr std::string_view kLossScale = "loss_scale";
inline constexpr std::string_view kGoodSteps = "good_steps";  // in a row, since the loss scale last changed
}  // namespace scalars

// A rank's part of a state of all parameters of a group (graph::StateDecl), for initialising, saving and
// comparing.
struct GroupSlot {
  int group = 0;  // index into the groups that the program was lowered from
  graph::Role role = graph::Role::Weight;
  graph::Keep keep = graph::Keep::Saved;
  std::string slot;                        // graph::StateDecl::slot
  graph::DType dtype = graph::DType::F32;  // as elements are read and written: f32 for a split master
  int64_t first = 0, count = 0;            // the rank's own range of the flat group
  int64_t block = 1;                       // elements of the group for each that is stored
  // Where its own range begins. The buffer may hold more: whole parameters, of which only this range is up
  // to date when a step starts, or whole gradients, of which only this range is reduced.
  BufferId buffer;
  int64_t offset_bytes = 0;
  // A split master (base/split_float.h): lower halves of the own range; `buffer` has the upper ones.
  BufferId lower;
};

// The states that are updated, saved and initialised: masters, and weights without a master.
inline bool holds_weights(const GroupSlot& s) {
  return s.keep == graph::Keep::Saved && (s.role == graph::Role::Weight || s.role == graph::Role::Master);
}
inline bool holds_gradients(const GroupSlot& s) { return s.role == graph::Role::Gradient; }

// A step sum (graph::StepSum) as f64 elements of the buffer `sums`, and a state (ValueKind::State) as a
// buffer of its own. Every rank has those of all blocks.
struct SumPlace {
  graph::SumKind kind = graph::SumKind::Load;
  int block = 0;
  int64_t first = 0, count = 0;
  int scale = -1;  // graph::StepSum::scale
};
struct StatePlace {
  std::string name;
  Operand place;
};

// An i32[tokens] or i32[tokens, choices] buffer that LoadBatch fills. In a pipeline several micro-batches are
// in flight: each input has a buffer per slot (slots.h).
struct InputPlace {
  graph::InputSpec spec;
  int slot = 0;
  BufferId buffer;
  friend bool operator==(const InputPlace&, const InputPlace&) = default;
};

struct Program {
  RankId rank;
  int world = 1;
  std::vector<Buffer> buffers;
  std::vector<Communicator> comms;
  std::vector<Stream> streams;
  std::vector<Body> bodies;
  std::vector<Call> calls;       // one optimizer step
  std::vector<Call> eval_calls;  // one evaluation batch; empty when there is none
  std::vector<StepVariant> variants;
  std::vector<GroupSlot> slots;  // by group
  BufferId scalars, workspace;
  std::vector<ScalarDecl> scalar_table;  // by slot of `scalars`
  BufferId sums;                         // invalid when there are none
  std::vector<SumPlace> step_sums;
  std::vector<StatePlace> states;
  std::vector<InputPlace> inputs;
  BufferId result;          // Infer: the logits
  int64_t arena_bytes = 0;  // planned peak; set by the allocator
  int64_t persistent_bytes = 0;
  std::vector<int64_t> frame_bytes;  // pipelines: by frame (slots.h), of one slot

  const Buffer& buffer(BufferId id) const { return buffers[id.index()]; }
  Buffer& buffer(BufferId id) { return buffers[id.index()]; }
  // The input with this buffer; null when there is none.
  const InputPlace* input(BufferId id) const {
    for (const InputPlace& place : inputs)
      if (place.buffer == id) return &place;
    return nullptr;
  }
  bool has_scalar(std::string_view name) const;
  int scalar_slot(std::string_view name) const;  // an unknown name is an InternalError
  int num_scalar_inputs() const;
  const GroupSlot* find_slot(int group, std::string_view slot) const;  // null: the group has none
};

// Whether it runs between pipeline stages, over a communicator of two of them instead of a part of the mesh:
// a message, or a sum of gradients that they share.
inline bool joins_stages(const Program& p, const Instr& instr) {
  return instr.kind == InstrKind::Collective && p.comms[instr.collective.comm.index()].atoms.empty();
}

inline constexpr int64_t kScalarBytes = 8;  // of one slot

MemoryClass memory_class_of(graph::Role role);  // of a state
std::string_view to_string(MemoryClass c);
std::string_view to_string(BodyKind k);
std::string_view to_string(CollectiveKind k);

}  // namespace quintet::program
