#include "layout/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/glob.h"

namespace quintet::layout {

using graph::ValueId;

namespace {

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// A part of a parameter that begins or ends inside a block would share the block's scale with another rank.
void require_whole_blocks(const Segment& s, int64_t block) {
  int64_t inner = 1;
  for (size_t d = s.local.dims.size(); d-- > 0;) {
    const int64_t local = s.local.dims[d].size, global = s.global.dims[d].size, run = local * inner;
    bool outermost = true;
    for (size_t e = 0; e < d; ++e) outermost = outermost && s.global.dims[e].size == 1;
    if (local != global && (run % block != 0 || (!outermost && global * inner % block != 0))) {
      const int64_t parts = (global + local - 1) / local;
      int64_t fewer = parts - 1, smaller = block;
      while (fewer > 1 && (global % fewer != 0 || global / fewer * inner % block != 0)) --fewer;
      while (smaller > 8 && run % smaller != 0) smaller /= 2;
      base::fail_user(
          "optimizer.name = \"adamw8bit\": the layout gives each rank runs of {} consecutive elements of {} "
          "(dim {} of {} in {} parts), which is not a multiple of optimizer.block_size = {}; use {}{}",
          run, s.name, to_string(s.global.dims[d].name), global, parts, block,
          fewer > 1 ? fmt::format("{} parts", fewer) : "one part",
          run % smaller == 0 ? fmt::format(", or optimizer.block_size = {}", smaller) : "");
    }
    inner *= local;
  }
}

// Appends a block's parameters of one kind to the groups, as Layout::grouping says.
class Grouper {
 public:
  Grouper(const config::Grouping& grouping, const Stages& stages, int num_blocks)
      : grouping_(grouping), stages_(stages), num_blocks_(num_blocks) {}

  void add(std::vector<Group>& groups, int block, const std::string& kind, bool trainable,
           const DataAtoms& data, std::vector<Segment> segments) {
    if (segments.empty()) return;
    const int64_t bytes = bytes_of(segments);
    const auto open = open_.find(kind);
    if (open != open_.end() && joins(groups[open->second.group], open->second, block, bytes)) {
      Group& group = groups[open->second.group];
      group.last_block = block;
      group.name = fmt::format("blocks{}-{}{}", group.block, block, kind);
      group.segments.insert(group.segments.end(), std::make_move_iterator(segments.begin()),
                            std::make_move_iterator(segments.end()));
      open->second.bytes += bytes;
      ++open->second.blocks;
      return;
    }
    std::vector<std::vector<Segment>> parts = split(std::move(segments));
    for (size_t i = 0; i < parts.size(); ++i)
      groups.push_back({.name = fmt::format("block{}{}", block, kind) +
                                (parts.size() > 1 ? fmt::format(".part{}", i) : ""),
                        .block = block,
                        .last_block = block,
                        .trainable = trainable,
                        .data = data,
                        .segments = std::move(parts[i]),
                        .shared_by = {}});
    open_[kind] = {.group = groups.size() - 1, .bytes = bytes, .blocks = 1};
  }

 private:
  struct Open {
    size_t group = 0;
    int64_t bytes = 0, blocks = 0;
  };

  static int64_t bytes_of(const std::vector<Segment>& segments) {
    int64_t bytes = 0;
    for (const Segment& s : segments) bytes += s.local.bytes();
    return bytes;
  }

  // The embedding and the head are used at both ends of a pass, and virtual stages at different times.
  bool is_joined(int block) const { return block > 0 && block + 1 < num_blocks_; }
  bool joins(const Group& group, const Open& open, int block, int64_t bytes) const {
    if (!is_joined(group.block) || !is_joined(block)) return false;
    const auto stage = [&](int b) { return stages_.of_block[static_cast<size_t>(b)]; };
    if (stage(group.block) != stage(block)) return false;
    switch (grouping_.kind) {
      case config::Grouping::Kind::Auto:
        return false;
      case config::Grouping::Kind::Blocks:
        return open.blocks < grouping_.size;
      case config::Grouping::Kind::Bytes:
        return open.bytes + bytes <= grouping_.size;
    }
    return false;
  }

  // In the order of the model; a parameter is never split.
  std::vector<std::vector<Segment>> split(std::vector<Segment> segments) const {
    std::vector<std::vector<Segment>> parts(1);
    int64_t bytes = 0;
    for (Segment& s : segments) {
      const int64_t more = s.local.bytes();
      if (grouping_.kind == config::Grouping::Kind::Bytes && bytes > 0 && bytes + more > grouping_.size) {
        parts.emplace_back();
        bytes = 0;
      }
      bytes += more;
      parts.back().push_back(std::move(s));
    }
    return parts;
  }

  const config::Grouping& grouping_;
  const Stages& stages_;
  const int num_blocks_;
  std::map<std::string, Open> open_;  // by kind: the group that the next block may join
};

// The first pattern that matches; -1: none.
int matched_by(const std::vector<std::string>& patterns, const std::string& name) {
  for (size_t i = 0; i < patterns.size(); ++i)
    if (base::glob_match(patterns[i], name)) return static_cast<int>(i);
  return -1;
}

}  // namespace

void require_matches(const graph::Graph& logical, const config::Parallel& p) {
  const auto require = [&](const char* key, const std::vector<std::string>& patterns) {
    for (const std::string& pattern : patterns)
      if (std::none_of(logical.params().begin(), logical.params().end(), [&](const graph::Param& param) {
            return base::glob_match(pattern, logical.value(param.value).name);
          }))
        base::fail_user("{}: \"{}\" matches no parameter; names are as in \"{}\"", key, pattern,
                        logical.value(logical.params()[logical.params().size() / 2].value).name);
  };
  require("parallel.group_match", p.group_match);
  require("parallel.keep_match", p.keep_match);
  require("parallel.persist_match", p.persist_match);
  require("parallel.tp_column", p.tp_column);
  require("parallel.tp_row", p.tp_row);
  require("parallel.tp_replicate", p.tp_replicate);
}

int64_t padded_count(int64_t used, int64_t shards, int64_t block) {
  return shards == 1 && block == 1 ? used : round_up(used, std::max(kSegmentAlign, block) * shards);
}

std::vector<Group> make_groups(const graph::Graph& logical, const LocalGraph& local, const Layout& layout,
                               const Stages& stages, int stage_rank, const graph::StorageClasses& classes,
                               const graph::StateBlocks& blocks) {
  const Mesh& mesh = layout.mesh;
  const auto data_of = [&](const graph::Param& p) -> const DataAtoms& {
    return is_expert_param(local.graph.type(p.value)) ? layout.expert : layout.dense;
  };

  // The blocks whose forward pass reads a parameter.
  std::map<ValueId, std::set<int>> readers;
  for (const graph::Node& n : local.graph.nodes())
    if (n.phase == graph::Phase::F)
      for (const ValueId in : n.inputs)
        if (local.graph.value(in).kind == graph::ValueKind::Param) readers[in].insert(n.block);

  const auto segment_of = [&](const graph::Param& p) {
    Segment s{.param = p.value,
              .name = local.graph.value(p.value).name,
              .global = logical.type(local.origin[p.value.index()]),
              .local = local.graph.type(p.value),
              .placement = local.placements[p.value.index()],
              .decay = p.decay,
              .extra_partial = {},
              .replicated = without(without(layout.everything(), data_of(p).all), layout.pipeline),
              .init = p.init,
              .stddev = p.stddev};
    s.count = s.local.count();
    for (const AtomList& atoms : s.placement.dims) s.replicated = without(s.replicated, atoms);
    if (!p.grads.empty())
      s.extra_partial = without(local.placements[p.grads[0].index()].partial, data_of(p).all);
    return s;
  };

  // Segments to offsets, in the group's final order.
  const auto finish = [&](Group& group) {
    std::stable_sort(group.segments.begin(), group.segments.end(),
                     [](const Segment& a, const Segment& b) { return a.extra_partial > b.extra_partial; });
    int64_t block = 1;
    for (const Segment& s : group.segments)
      if (const auto at = blocks.find(s.name); group.trainable && at != blocks.end()) {
        require_whole_blocks(s, at->second);
        block = std::max(block, at->second);
      }
    for (Segment& s : group.segments) {
      s.offset = round_up(group.used, std::max(kSegmentAlign, block));
      group.used = s.offset + s.count;
    }
    const int ranges = mesh.size(group.data.shard) * mesh.size(group.data.outer);
    group.count = padded_count(group.used, ranges, block);
    const std::string& first = group.segments.front().name;
    const bool whole =
        group.parameter_bytes() < layout.persist_below || matched_by(layout.persist_match, first) >= 0;
    group.zero = whole && !group.data.shard.empty() ? std::min(layout.zero, 2) : layout.zero;
    if (matched_by(layout.keep_match, first) >= 0) {
      group.data.keep = true;
      group.data.reshard = {};
    }
  };

  // With what else a parameter is stored: its states' class, and what patterns say about its name.
  const auto kept = [&](const std::string& name) { return matched_by(layout.keep_match, name) >= 0; };
  const auto persists = [&](const std::string& name) { return matched_by(layout.persist_match, name) >= 0; };
  const auto class_of = [&](const graph::Param& p) {
    const std::string& name = local.graph.value(p.value).name;
    std::vector<std::string> words;
    if (const auto found = classes.find(name); found != classes.end()) words.push_back(found->second);
    if (const int m = matched_by(layout.group_match, name); m >= 0)
      words.push_back(fmt::format("match{}", m));
    if (persists(name))
      words.emplace_back("whole");
    else if (kept(name))
      words.emplace_back("kept");
    return fmt::format("{}", fmt::join(words, "."));
  };
  std::vector<std::string> class_names;  // in the order of the model's parameters
  for (const graph::Param& p : local.graph.params())
    if (const std::string name = class_of(p);
        std::find(class_names.begin(), class_names.end(), name) == class_names.end())
      class_names.push_back(name);

  std::map<ValueId, std::vector<int>> holders;  // of parameters that several pipeline ranks hold
  for (const auto& [param, blocks] : readers) {
    std::set<int> ranks;
    for (const int block : blocks) ranks.insert(stages.rank_of_block(block));
    if (ranks.size() > 1) holders[param].assign(ranks.begin(), ranks.end());
  }
  Grouper grouper(layout.grouping, stages, logical.num_blocks);
  std::vector<Group> groups;
  for (int block = 0; block < logical.num_blocks; ++block) {
    if (stages.rank_of_block(block) == stage_rank)
      for (const bool trainable : {true, false})
        for (const bool expert : {false, true})
          for (const std::string& name : class_names) {
            std::vector<Segment> segments;
            for (const graph::Param& p : local.graph.params())
              if (p.block == block && p.trainable == trainable && !holders.contains(p.value) &&
                  is_expert_param(local.graph.type(p.value)) == expert && class_of(p) == name)
                segments.push_back(segment_of(p));
            const std::string kind = fmt::format("{}{}{}{}", expert ? ".experts" : "",
                                                 trainable ? "" : ".frozen", name.empty() ? "" : ".", name);
            grouper.add(groups, block, kind, trainable, expert ? layout.expert : layout.dense,
                        std::move(segments));
          }
    for (const graph::Param& p : local.graph.params()) {
      const auto shared = holders.find(p.value);
      if (p.block != block || shared == holders.end()) continue;
      if (std::find(shared->second.begin(), shared->second.end(), stage_rank) == shared->second.end())
        continue;
      groups.push_back({.name = "shared." + local.graph.value(p.value).name,
                        .block = block,
                        .last_block = block,
                        .trainable = p.trainable,
                        .data = data_of(p),
                        .segments = {segment_of(p)},
                        .shared_by = shared->second});
    }
  }
  for (Group& group : groups) finish(group);
  return groups;
}

AtomList Group::divided_by() const {
  // Frozen parameters have no state to shard, until zero 3 shards the parameters themselves.
  if (trainable) return data.state();
  return zero == 3 ? data.shard : AtomList();
}

AtomList Group::replicas(const Segment& segment) const {
  return set_union(segment.replicated, without(data.all, divided_by()));
}

int64_t Group::parameter_bytes() const {
  int64_t bytes = 0;
  for (const Segment& s : segments) bytes += s.local.bytes();
  return bytes;
}

GlobalIndex::GlobalIndex(const Segment& s, const Mesh& mesh, RankId rank) {
  for (size_t d = 0; d < s.local.dims.size(); ++d) {
    local_sizes_.push_back(s.local.dims[d].size);
    global_sizes_.push_back(s.global.dims[d].size);
    begins_.push_back(mesh.index(rank, s.placement.dims[d]) * s.local.dims[d].size);
  }
}

int64_t GlobalIndex::operator()(int64_t local) const {
  int64_t global = 0, stride = 1;
  for (size_t d = local_sizes_.size(); d-- > 0;) {
    const int64_t i = begins_[d] + local % local_sizes_[d];
    local /= local_sizes_[d];
    if (i >= global_sizes_[d]) return -1;
    global += i * stride;
    stride *= global_sizes_[d];
  }
  return global;
}

}  // namespace quintet::layout
