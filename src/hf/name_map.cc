#include "hf/name_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"

namespace quintet::hf {
namespace {

// "blocks.12.attn.wq.weight" -> "blocks.{i}.attn.wq.weight" and "12".
std::pair<std::string, std::string> split_block(const std::string& name) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!name.starts_with(kBlocks)) return {name, ""};
  const size_t end = name.find('.', kBlocks.size());
  if (end == std::string::npos) return {name, ""};
  return {"blocks.{i}" + name.substr(end), name.substr(kBlocks.size(), end - kBlocks.size())};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  if (const size_t at = text.find(what); at != std::string::npos) text.replace(at, what.size(), by);
  return text;
}

// A dim of a tensor: our dims before and after the place of concatenation.
struct LayoutDim {
  struct Factor {
    size_t dim = 0;
    bool interleaved = false;
  };
  std::vector<Factor> before, after;
  bool joined = false;
};

std::vector<LayoutDim> parse_layout(const std::string& text) {
  std::vector<LayoutDim> dims(1);
  for (const char c : text) {
    LayoutDim& d = dims.back();
    if (c == ' ')
      dims.emplace_back();
    else if (c == '+')
      d.joined = true;
    else if (c == '~')
      (d.joined ? d.after : d.before).back().interleaved = true;
    else
      (d.joined ? d.after : d.before).push_back({.dim = static_cast<size_t>(c - '0')});
  }
  return dims;
}

int64_t product(const std::vector<LayoutDim::Factor>& factors, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const auto& f : factors) n *= shape.at(f.dim);
  return n;
}

// Rows for the experts of a model whose files are dense: each expert is the feed-forward network. Their first
// dim is not in the layout, so that it has stride 0.
std::vector<config::HfWeight> upcycled(std::vector<config::HfWeight> rows) {
  constexpr std::string_view kDense = "blocks.{i}.ffn.";
  for (size_t i = 0, n = rows.size(); i < n; ++i) {
    config::HfWeight row = rows[i];
    if (!row.ours.starts_with(kDense)) continue;
    row.ours.insert(kDense.size(), "experts.");
    for (char& c : row.layout)
      if (c >= '0' && c <= '8') ++c;
    rows.push_back(row);
  }
  return rows;
}

bool is_expert_weight(const std::string& ours) { return ours.find(".ffn.experts.") != std::string::npos; }
// The dim of an expert's weight [experts, inner, width] or [experts, width, inner] that slices divide.
size_t inner_dim(const std::string& ours) { return ours.find(".down.") != std::string::npos ? 2 : 1; }

// The weights with experts as wide as the network that they are slices of.
std::vector<TensorInfo> unsliced(std::vector<TensorInfo> weights, int64_t slices) {
  for (TensorInfo& t : weights)
    if (is_expert_weight(t.name)) t.shape[inner_dim(t.name)] *= slices;
  return weights;
}

// The link of every expert: expert e is slice e % slices.
std::vector<Link> sliced(const Link& link, const TensorInfo& ours, int64_t slices) {
  if (slices == 1 || !is_expert_weight(ours.name)) return {link};
  const size_t inner = inner_dim(ours.name);
  std::vector<Link> links(static_cast<size_t>(ours.shape[0]), link);
  for (size_t e = 0; e < links.size(); ++e) {
    links[e].expert = static_cast<int64_t>(e);
    links[e].offset += static_cast<int64_t>(e) % slices * ours.shape[inner] * link.stride[inner];
  }
  return links;
}

// A part of a tensor while the tensor is put together.
struct Part {
  size_t ours = 0;
  int64_t expert = -1;
  std::vector<LayoutDim> dims;
};

TheirTensor assemble(std::string name, size_t index, const std::vector<Part>& parts,
                     const std::vector<TensorInfo>& ours) {
  TheirTensor t{.name = std::move(name), .shape = {}, .links = {}};
  const size_t rank = parts[0].dims.size();
  // What the parts take together at the place of concatenation.
  std::vector<int64_t> total(rank, 0);
  for (const Part& p : parts)
    for (size_t d = 0; d < rank; ++d) total[d] += product(p.dims.at(d).after, ours[p.ours].shape);
  for (size_t d = 0; d < rank; ++d) {
    const LayoutDim& dim = parts[0].dims[d];
    t.shape.push_back(product(dim.before, ours[parts[0].ours].shape) * (dim.joined ? total[d] : 1));
  }
  std::vector<int64_t> taken(rank, 0);
  for (const Part& p : parts) {
    const std::vector<int64_t>& shape = ours[p.ours].shape;
    Link link{.ours = p.ours,
              .theirs = index,
              .expert = p.expert,
              .offset = 0,
              .stride = std::vector<int64_t>(shape.size(), 0),
              .interleaved = std::vector<bool>(shape.size(), false)};
    int64_t stride = 1;
    for (size_t d = rank; d-- > 0;) {
      const LayoutDim& dim = p.dims[d];
      const auto place = [&](const std::vector<LayoutDim::Factor>& factors) {
        for (size_t f = factors.size(); f-- > 0;) {
          link.stride[factors[f].dim] = stride;
          link.interleaved[factors[f].dim] = factors[f].interleaved;
          stride *= shape[factors[f].dim];
        }
      };
      const int64_t inner = stride;
      place(dim.after);
      if (dim.joined) {
        link.offset += taken[d] * inner;
        taken[d] += product(dim.after, shape);
        stride = inner * total[d];
      }
      place(dim.before);
    }
    t.links.push_back(std::move(link));
  }
  return t;
}

}  // namespace

NameMap::NameMap(const config::HfFamily& family, const config::Model& model, std::vector<TensorInfo> ours,
                 const Has& has)
    : family_(&family), ours_(std::move(ours)) {
  const bool upcycles = model.moe.upcycle && has;
  const std::vector<config::HfWeight> rows =
      upcycles ? upcycled(family.weights(model)) : family.weights(model);
  const auto is_there = [&](const std::string& name) { return has && has(name); };
  const auto full_name = [&](const config::HfWeight& row, const std::string& block, int64_t expert) {
    std::string name = row.theirs.starts_with('/') ? outer_name(row.theirs.substr(1)) : prefix_ + row.theirs;
    return replaced(replaced(name, "{i}", block), "{e}", std::to_string(std::max<int64_t>(expert, 0)));
  };
  // Of the base model's tensors and of others. Files of a bare model have none; those of a model with images
  // are as published, or as transformers 5 has the model in memory. The last one tried stays: the first.
  using Prefixes = std::pair<std::string_view, std::string_view>;
  const std::vector<Prefixes> possible =
      family.text_type.empty() ? std::vector<Prefixes>{{family.prefix, ""}, {"", ""}}
                               : std::vector<Prefixes>{{"language_model.model.", "language_model."},
                                                       {"model.language_model.", ""}};
  for (const size_t i : {size_t{0}, size_t{1}, size_t{0}}) {
    prefix_ = possible[i].first, outer_ = possible[i].second;
    if (!has || rows.empty() || is_there(full_name(rows[0], "0", 0))) break;
  }

  std::map<std::string, std::vector<Part>> tensors;  // by name
  std::vector<std::string> order;
  // Rows decide the order of concatenation: the outer loop is theirs.
  std::map<std::string, std::vector<std::pair<size_t, std::string>>> by_pattern;
  for (size_t i = 0; i < ours_.size(); ++i) {
    auto [pattern, block] = split_block(ours_[i].name);
    by_pattern[pattern].emplace_back(i, block);
  }
  std::map<size_t, const config::HfWeight*> chosen;
  for (const config::HfWeight& row : rows) {
    const auto found = by_pattern.find(row.ours);
    if (found == by_pattern.end() || row.copy) continue;
    for (const auto& [index, block] : found->second) {
      const bool present = is_there(full_name(row, block, 0));
      if (const auto before = chosen.find(index); before != chosen.end()) {
        if (!present || is_there(full_name(*before->second, block, 0))) continue;
      }
      chosen[index] = &row;
    }
  }
  for (const config::HfWeight& row : rows) {
    const auto found = by_pattern.find(row.ours);
    if (found == by_pattern.end() || row.copy) continue;
    for (const auto& [index, block] : found->second) {
      if (chosen.at(index) != &row) continue;
      const bool by_expert = row.theirs.find("{e}") != std::string::npos;
      const int64_t count = by_expert ? ours_[index].shape.at(0) : 1;
      for (int64_t e = 0; e < count; ++e) {
        const std::string name = full_name(row, block, e);
        std::vector<Part>& parts = tensors[name];
        if (parts.empty()) order.push_back(name);
        parts.push_back({.ours = index, .expert = by_expert ? e : -1, .dims = parse_layout(row.layout)});
      }
    }
  }
  for (const TensorInfo& t : ours_)
    QUINTET_CHECK(chosen.contains(static_cast<size_t>(&t - ours_.data())) ||
                      (upcycles && t.name.find(".ffn.router.") != std::string::npos),
                  "family {} has no row for {}", family.type, t.name);
  const int64_t slices = upcycles ? model.moe.upcycle_slices : 1;
  const std::vector<TensorInfo> whole = unsliced(ours_, slices);
  for (const std::string& name : order) {
    TheirTensor tensor = assemble(name, theirs_.size(), tensors.at(name), whole);
    std::vector<Link> links;
    for (const Link& link : tensor.links)
      for (Link& one : sliced(link, ours_[link.ours], slices)) links.push_back(std::move(one));
    tensor.links = std::move(links);
    theirs_.push_back(std::move(tensor));
    for (const Link& link : theirs_.back().links) links_[ours_[link.ours].name].push_back(link);
  }
  for (const config::HfWeight& row : rows) {
    const auto found = by_pattern.find(row.ours);
    const std::string name = full_name(row, "", 0);
    if (!row.copy || found == by_pattern.end() || (has && !has(name))) continue;
    const Part part{.ours = found->second[0].first, .expert = -1, .dims = parse_layout(row.layout)};
    theirs_.push_back(assemble(name, theirs_.size(), {part}, ours_));
    theirs_.back().copy = true;
  }
}

const std::vector<Link>* NameMap::find(const std::string& name) const {
  const auto found = links_.find(name);
  return found == links_.end() ? nullptr : &found->second;
}

}  // namespace quintet::hf
