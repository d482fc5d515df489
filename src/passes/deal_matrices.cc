#include "passes/deal_matrices.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace quintet::passes {

using layout::AtomList;
using layout::Group;
using layout::MatrixWindow;
using layout::OwnedMatrix;
using layout::Segment;

namespace {

using Shape = std::pair<int64_t, int64_t>;  // rows, columns

double cost_of(const Shape& s) {
  const double m = static_cast<double>(std::min(s.first, s.second)),
               n = static_cast<double>(std::max(s.first, s.second));
  return m * m * (2 * n + m);
}

// Rows or columns: dims [begin, end) of a parameter as one. Only the first may be divided: what a rank holds
// is then one stretch of them.
struct Side {
  int64_t whole = 1, local = 1;
  AtomList atoms;
};
Side side_of(const Segment& s, int begin, int end) {
  Side side;
  for (int d = begin; d < end; ++d) {
    const auto i = static_cast<size_t>(d);
    QUINTET_CHECK(s.placement.dims[i].empty() || side.whole == 1, "{} is divided inside its rows or columns",
                  s.name);
    side.atoms = layout::concat(side.atoms, s.placement.dims[i]);
    side.whole *= s.global.dims[i].size;
    side.local *= s.local.dims[i].size;
  }
  return side;
}

// What windows of one kind share: ranks, and where several pipeline ranks update a group alike, that group.
struct Key {
  AtomList copies, pieces;
  int shared = -1;
  friend auto operator<=>(const Key&, const Key&) = default;
};

class Dealer {
 public:
  Dealer(const std::vector<Group>& groups, const layout::Mesh& mesh, graph::DType dtype)
      : groups_(groups), mesh_(mesh), dtype_(dtype) {}

  void add(const MatrixParam& p) {
    const Segment& s = *p.segment;
    const Group& g = groups_[static_cast<size_t>(p.group)];
    const Side rows = side_of(s, p.each, p.each + p.rows),
               columns = side_of(s, p.each + p.rows, s.global.num_dims());
    QUINTET_CHECK(rows.local * mesh_.size(rows.atoms) == rows.whole &&
                      columns.local * mesh_.size(columns.atoms) == columns.whole,
                  "{} is not divided evenly", s.name);
    const AtomList ranges = g.data.state();
    const Key key{ranges.empty() ? g.data.all : AtomList{},
                  layout::set_union(layout::set_union(rows.atoms, columns.atoms), ranges),
                  g.shared_by.empty() ? -1 : p.group};
    MatrixWindow& w = window(key, g.block);
    if (w.groups.empty() || w.groups.back() != p.group) w.groups.push_back(p.group);
    int64_t count = 1;
    for (int d = 0; d < p.each; ++d) count *= s.local.size(d);
    for (int64_t i = 0; i < count; ++i)
      w.matrices.push_back({.group = static_cast<int>(w.groups.size()) - 1,
                            .offset = s.offset + i * rows.local * columns.local,
                            .rows = rows.whole,
                            .columns = columns.whole,
                            .row_atoms = rows.atoms,
                            .column_atoms = columns.atoms,
                            .scale = p.scale,
                            .rates = p.rates});
  }

  std::vector<MatrixWindow> take() {
    for (MatrixWindow& w : windows_) deal(w);
    return std::move(windows_);
  }

 private:
  // The open window, or a new one when it has enough for every rank and another block begins.
  MatrixWindow& window(const Key& key, int block) {
    const auto [it, is_new] = open_.try_emplace(key, Open{windows_.size(), block});
    Open& open = it->second;
    if (!is_new && open.last_block != block && is_full(windows_[open.index])) open.index = windows_.size();
    open.last_block = block;
    if (open.index == windows_.size())
      windows_.push_back({.copies = key.copies,
                          .pieces = key.pieces,
                          .dtype = dtype_,
                          .groups = {},
                          .matrices = {},
                          .block = block});
    return windows_[open.index];
  }

  int ranks(const MatrixWindow& w) const { return mesh_.size(w.copies) * mesh_.size(w.pieces); }

  static std::map<Shape, std::vector<size_t>> by_shape(const MatrixWindow& w) {
    std::map<Shape, std::vector<size_t>> shapes;
    for (size_t i = 0; i < w.matrices.size(); ++i)
      shapes[{w.matrices[i].rows, w.matrices[i].columns}].push_back(i);
    return shapes;
  }

  bool is_full(const MatrixWindow& w) const {
    for (const auto& [shape, list] : by_shape(w))
      if (static_cast<int>(list.size()) < ranks(w)) return false;
    return true;
  }

  // The most expensive shapes first; each continues where the one before it ended.
  void deal(MatrixWindow& w) const {
    const auto shapes = by_shape(w);
    std::vector<Shape> order;
    for (const auto& [shape, list] : shapes) order.push_back(shape);
    std::stable_sort(order.begin(), order.end(),
                     [](const Shape& a, const Shape& b) { return cost_of(a) > cost_of(b); });
    int next = 0;
    for (const Shape& shape : order) {
      std::map<int, int> held;  // by owner
      for (const size_t i : shapes.at(shape)) {
        OwnedMatrix& m = w.matrices[i];
        m.owner = next;
        m.slot = held[next]++;
        next = (next + 1) % ranks(w);
      }
    }
  }

  struct Open {
    size_t index;
    int last_block;
  };
  const std::vector<Group>& groups_;
  const layout::Mesh& mesh_;
  const graph::DType dtype_;
  std::vector<MatrixWindow> windows_;
  std::map<Key, Open> open_;
};

}  // namespace

std::vector<MatrixWindow> deal_matrices(const std::vector<MatrixParam>& params,
                                        const std::vector<Group>& groups, const layout::Mesh& mesh,
                                        graph::DType dtype) {
  Dealer dealer(groups, mesh, dtype);
  for (const MatrixParam& p : params) dealer.add(p);
  return dealer.take();
}

}  // namespace quintet::passes
