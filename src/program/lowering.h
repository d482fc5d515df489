// Internal to room program: the state shared by the parts of the lowering.
#pragma once

#include <map>
#include <optional>

#include "program/lower.h"

namespace quintet::program {

// Parameters, their gradients and the step's scalars are sent separately from the values of the model: on a
// stream and communicators of their own, so that neither queues after the other between the same ranks.
enum class Traffic : uint8_t { Values, State };

// Appends instructions to one body and creates the buffers, streams and communicators that they need.
class Emitter {
 public:
  Emitter(Program& program, const layout::Layout& layout, const LowerOptions& options)
      : program_(program), layout_(layout), options_(options) {}

  Program& program() { return program_; }
  const layout::Layout& layout() const { return layout_; }
  const layout::Mesh& mesh() const { return layout_.mesh; }
  const LowerOptions& options() const { return options_; }
  RankId rank() const { return options_.rank; }

  void begin(BodyKind kind, int chunk = 0);  // opens a body; later instructions go there
  Instr& emit(Instr instr);                  // adds workspace and returns it for small changes
  int current_body() const { return static_cast<int>(program_.bodies.size()) - 1; }

  BufferId add_buffer(std::string name, int64_t bytes, MemoryClass memory_class, Scope scope);
  // For the atoms' group. Every purpose has a communicator of its own.
  CommId comm(const layout::AtomList& atoms, Purpose purpose);
  CommId comm(const layout::AtomList& atoms, Traffic traffic);
  // For pipeline ranks with otherwise equal coordinates.
  CommId stages(const std::vector<int>& stage_ranks, Purpose purpose);
  StreamId stream_named(const std::string& name);
  int stage_rank() const { return layout_.mesh.index(options_.rank, layout_.pipeline); }
  StreamId stream_of(const layout::AtomList& atoms, Traffic traffic);  // values: one stream per kind of axis
  Operand scalar(std::string_view name) const;
  Operand state(std::string_view name) const;          // of Program::states
  BufferId buffer_named(std::string_view name) const;  // an unknown name is an InternalError

  void zero(const Operand& data, bool keep = false);  // unless `keep`

  // What is emitted in between is repeated for the passes that `passes` says.
  void begin_repeat(const Operand& passes, const Operand& pass, Instr like);
  void end_repeat();

  // Collectives on views. The group of `atoms` may be trivial: then nothing is emitted.
  void all_reduce(const Operand& data, const layout::AtomList& atoms, graph::Reduction reduction, Instr like,
                  Traffic traffic = Traffic::Values);
  void all_gather(const Operand& in, const Operand& out, const layout::AtomList& atoms, Instr like,
                  Traffic traffic = Traffic::Values);
  void all_reduce_on(CommId comm, StreamId stream, const Operand& data, Instr like);
  void send(const Operand& data, int to, bool up, Instr like);
  void receive(const Operand& data, int from, bool up, Instr like);
  void reduce_scatter(const Operand& in, const Operand& out, const layout::AtomList& atoms,
                      graph::Reduction r, Instr like, Traffic traffic = Traffic::Values);
  void all_to_all(const Operand& in, const Operand& out, const layout::AtomList& atoms, Instr like);
  void all_to_all_v(std::vector<Operand> in, const Operand& out, const layout::AtomList& atoms, Instr like);
  // The rows that every member sends to every expert.
  void gather_counts(const Operand& in, const Operand& out, const layout::AtomList& atoms, Instr like);
  // To the next rank of the ring that the atoms span, from the previous one.
  void ring_shift(const Operand& in, const Operand& out, const layout::AtomList& atoms, Instr like);
  // [a, b, rest] -> [b, a, rest]
  void swap_blocks(const Operand& in, const Operand& out, int64_t a, int64_t b, Instr like);

 private:
  Program& program_;
  const layout::Layout& layout_;
  const LowerOptions& options_;
  CommId add_comm(Channel channel, const layout::AtomList& atoms, std::vector<RankId> members);
  RankId at_stage(int stage_rank) const;  // this rank's counterpart on another pipeline rank
  std::map<std::pair<Channel, layout::AtomList>, CommId> comms_;
  struct Repeat {  // where what is repeated begins; 0: nothing is
    size_t first_instr = 0, first_buffer = 0;
  } repeat_;
};

Operand flat_view(BufferId buffer, int64_t first, int64_t count, graph::DType dtype);

// Storage of parameter groups, their gathers and the reduction of their gradients.
class GroupLowering {
 public:
  GroupLowering(Emitter& emitter, const std::vector<layout::Group>& groups,
                const std::vector<graph::StateDecl>& states);

  const std::vector<layout::Group>& groups() const { return groups_; }
  // The group and segment that hold the parameter of this name; a null segment: it is not on this rank.
  std::pair<int, const layout::Segment*> find(const std::string& param) const;

  // Plans the gathers of one pass over `uses`: (group, block) of every node's parameter operands in node
  // order.
  struct Use {
    int group, block, node;
  };
  // A forward pass gets the groups that the backward pass will need (empty: there is none).
  void begin_pass(const std::vector<Use>& uses, bool forward, std::vector<char> wanted_in_backward);
  void before_node(int node);  // issues the gathers that belong before this node
  void after_node(int node);   // keeps what the backward pass needs
  Operand param(int group, const layout::Segment& segment, int block) const;

  Operand grad(int group, const layout::Segment& segment);
  Accumulate grad_accumulate(int group, int contribution) const;
  void reduce_grads(int group);  // after a group's last contribution
  // This rank's range of the flat group.
  std::pair<int64_t, int64_t> own_range(int group) const {
    return {storage(group).first, storage(group).count};
  }
  // The range of another rank of the stage.
  std::pair<int64_t, int64_t> range_of(int group, RankId rank) const;
  // The same range of a state of the group, as the step reads and writes it; two operands for a split master.
  std::vector<Operand> operands(const layout::FlatValue& value) const;

 private:
  struct Run {  // consecutive uses of a group in its blocks, or in another: one gather
    int group, block, first, last, issue;
    bool is_first = true;  // of its group in this pass
    BufferId gathered;
  };
  struct Storage {
    int64_t first = 0, count = 0;  // this rank's range of the flat group
    BufferId param, grad;
    BufferId grad_block;  // zero 2, 3: whole gradient of this micro-batch
    BufferId kept;        // gathered parameters, or a slice of them, kept from forward to backward
    bool kept_slice = false;
  };
  void gather(Run& run);
  void gather_outer(int group, Instr like);
  void plan_issues();
  int64_t live_with(size_t run, int node) const;
  [[noreturn]] void refuse_limit() const;
  int64_t gathered_bytes(const Run& run) const;  // 0: it is used where it is stored
  int64_t shard_first(const layout::Group& group) const;
  const Storage& storage(int group) const { return storage_[static_cast<size_t>(group)]; }
  // Parameters are used where they are stored, whole; otherwise every pass gathers them elsewhere.
  bool in_place(int group) const;
  bool gathered(int group) const;       // parts of the parameters come from other ranks
  bool divides_grads(int group) const;  // each micro-batch's gradient is reduced to shards at once

  Emitter& emitter_;
  const std::vector<layout::Group>& groups_;
  std::map<std::string, std::pair<int, const layout::Segment*>> by_name_;
  std::vector<Storage> storage_;
  std::vector<Run> runs_;
  std::vector<char> wanted_in_backward_;
  bool forward_ = true;
};

// Begin, Step and EvaluateEnd bodies.
void lower_begin(Emitter& emitter, const graph::Graph& graph);
void lower_evaluate_begin(Emitter& emitter);
void lower_update(Emitter& emitter, GroupLowering& groups, const layout::FlatStep& step);

// What an update of matrices (graph::kMuon) reads and writes on this rank, after momentum was updated.
struct MatrixUpdate {
  struct Group {
    Operand gradient, momentum;
    std::vector<Operand> weights;  // and a copy or a remainder
  };
  graph::Attrs attrs;
  std::map<int, Group> groups;
};
void lower_matrices(Emitter& emitter, const GroupLowering& groups, const MatrixUpdate& update,
                    const std::vector<layout::MatrixWindow>& windows);
void lower_evaluate_end(Emitter& emitter);

}  // namespace quintet::program
