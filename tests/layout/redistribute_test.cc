// Every redistribution between every two placements on small meshes, executed on dense arrays by a plain
// interpreter and compared with slicing the dense value directly.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "layout/placement.h"

namespace quintet::layout {
namespace {

using graph::Reduction;

// A row-major array of one or two dims.
struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;

  explicit Array(std::vector<int64_t> s) : shape(std::move(s)) {
    int64_t n = 1;
    for (const int64_t k : shape) n *= k;
    data.assign(static_cast<size_t>(n), 0.0);
  }
  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
  double& at(int64_t i, int64_t j) { return data[static_cast<size_t>(i * columns() + j)]; }
  double at(int64_t i, int64_t j) const { return data[static_cast<size_t>(i * columns() + j)]; }
};

// The part [begin, begin + size) of a dim; zero past the end.
Array cut(const Array& a, int dim, int64_t begin, int64_t size) {
  std::vector<int64_t> shape = a.shape;
  shape[static_cast<size_t>(dim)] = size;
  Array out(shape);
  for (int64_t i = 0; i < out.rows(); ++i)
    for (int64_t j = 0; j < out.columns(); ++j) {
      const int64_t si = dim == 0 ? begin + i : i, sj = dim == 1 ? begin + j : j;
      if (si < a.rows() && sj < a.columns()) out.at(i, j) = a.at(si, sj);
    }
  return out;
}

Array join(const std::vector<Array>& parts, int dim) {
  std::vector<int64_t> shape = parts[0].shape;
  shape[static_cast<size_t>(dim)] *= static_cast<int64_t>(parts.size());
  Array out(shape);
  for (size_t p = 0; p < parts.size(); ++p)
    for (int64_t i = 0; i < parts[p].rows(); ++i)
      for (int64_t j = 0; j < parts[p].columns(); ++j) {
        const int64_t shift = static_cast<int64_t>(p) * parts[p].shape[static_cast<size_t>(dim)];
        out.at(dim == 0 ? shift + i : i, dim == 1 ? shift + j : j) = parts[p].at(i, j);
      }
  return out;
}

Array combine(const std::vector<Array>& terms, Reduction reduction) {
  Array out = terms[0];
  for (size_t t = 1; t < terms.size(); ++t)
    for (size_t k = 0; k < out.data.size(); ++k)
      out.data[k] = reduction == Reduction::Sum ? out.data[k] + terms[t].data[k]
                                                : std::max(out.data[k], terms[t].data[k]);
  return out;
}

class Interpreter {
 public:
  Interpreter(const Mesh& mesh, Array dense) : mesh_(mesh), dense_(std::move(dense)) {}

  // A rank's part of the dense value when nothing is partial.
  Array own_part(const Placement& p, RankId rank) const {
    Array a = dense_;
    for (size_t d = 0; d < p.dims.size(); ++d) {
      const int64_t size = shard_size(dense_.shape[d], mesh_.size(p.dims[d]));
      a = cut(a, static_cast<int>(d), mesh_.index(rank, p.dims[d]) * size, size);
    }
    return a;
  }

  // All ranks' arrays; partial ones are random terms.
  std::vector<Array> distribute(const Placement& p, std::mt19937_64& rng) const {
    std::vector<Array> out;
    for (int r = 0; r < mesh_.world(); ++r) out.push_back(own_part(p, RankId(r)));
    for (int r = 0; r < mesh_.world() && !p.partial.empty(); ++r) {
      const std::vector<RankId> group = mesh_.group(RankId(r), p.partial);
      if (group[0].value != r) continue;  // once per group
      for (size_t k = 0; k < out[static_cast<size_t>(r)].data.size(); ++k) {
        const double value = out[static_cast<size_t>(r)].data[k];
        const size_t holder = rng() % group.size();
        double rest = value;
        for (size_t g = 0; g < group.size(); ++g) {
          double& term = out[group[g].index()].data[k];
          if (g == holder) continue;
          term = p.reduction == Reduction::Sum ? static_cast<double>(rng() % 100)
                                               : value - static_cast<double>(1 + rng() % 50);
          rest -= term;
        }
        out[group[holder].index()].data[k] = p.reduction == Reduction::Sum ? rest : value;
      }
    }
    return out;
  }

  std::vector<Array> apply(const Transition& t, const std::vector<Array>& now) const {
    std::vector<Array> out;
    for (int r = 0; r < mesh_.world(); ++r) out.push_back(apply_on(t, now, RankId(r)));
    return out;
  }

  bool holds(const Placement& p, const std::vector<Array>& arrays, RankId rank) const {
    std::vector<Array> terms;
    for (const RankId m : mesh_.group(rank, p.partial)) terms.push_back(arrays[m.index()]);
    const Array sum = combine(terms, p.reduction), want = own_part(p, rank);
    return sum.shape == want.shape && sum.data == want.data;
  }

 private:
  Array apply_on(const Transition& t, const std::vector<Array>& now, RankId rank) const {
    using Kind = Transition::Kind;
    const Array& own = now[rank.index()];
    std::vector<Array> parts;
    for (const RankId m : mesh_.group(rank, t.atoms)) parts.push_back(now[m.index()]);
    const int n = mesh_.size(t.atoms), me = mesh_.index(rank, t.atoms);
    const auto piece = [&](const Array& a, int dim) {
      const int64_t size = shard_size(a.shape[static_cast<size_t>(dim)], n);
      return cut(a, dim, me * size, size);
    };
    // Gathered padding is removed at the end of the whole dim.
    const auto trim = [&](const Array& a, int dim) {
      const size_t d = static_cast<size_t>(dim);
      return cut(a, dim, 0, shard_size(dense_.shape[d], mesh_.size(t.after.dims[d])));
    };
    switch (t.kind) {
      case Kind::AllReduce:
        return combine(parts, t.reduction);
      case Kind::ReduceScatter:
        return piece(combine(parts, t.reduction), t.dim);
      case Kind::AllGather:
        return trim(join(parts, t.dim), t.dim);
      case Kind::AllToAll: {
        std::vector<Array> pieces;
        for (const Array& a : parts) pieces.push_back(piece(a, t.split));
        return trim(join(pieces, t.dim), t.dim);
      }
      case Kind::Slice:
        return piece(own, t.dim);
      case Kind::ZeroUnlessFirst:
        return me == 0 ? own : Array(own.shape);
    }
    return own;
  }

  const Mesh& mesh_;
  Array dense_;
};

// Every way to assign each atom to a dim, to the partial set or to nothing, in every order within a dim.
void enumerate(int atom, int num_atoms, const Placement& p, std::vector<Placement>& out) {
  if (atom == num_atoms) {
    out.push_back(p);
    return;
  }
  enumerate(atom + 1, num_atoms, p, out);
  Placement partial = p;
  partial.partial.push_back(atom);
  enumerate(atom + 1, num_atoms, partial, out);
  for (size_t d = 0; d < p.dims.size(); ++d)
    for (size_t at = 0; at <= p.dims[d].size(); ++at) {
      Placement divided = p;
      divided.dims[d].insert(divided.dims[d].begin() + static_cast<ptrdiff_t>(at), atom);
      enumerate(atom + 1, num_atoms, divided, out);
    }
}

std::vector<Placement> all_placements(int num_atoms, int num_dims, Reduction reduction) {
  std::vector<Placement> out;
  Placement start = replicated(num_dims);
  start.reduction = reduction;
  enumerate(0, num_atoms, start, out);
  return out;
}

Mesh mesh_of(const std::vector<int>& sizes) {
  std::vector<Atom> atoms;
  for (size_t i = 0; i < sizes.size(); ++i) atoms.push_back({static_cast<Axis>(i % 5), sizes[i]});
  return Mesh(std::move(atoms));
}

std::string show(const Placement& p) {
  std::string s;
  for (const AtomList& d : p.dims) {
    s += "[";
    for (const int a : d) s += std::to_string(a);
    s += "]";
  }
  s += " partial ";
  for (const int a : p.partial) s += std::to_string(a);
  return s;
}

// Runs all pairs that `legal` admits; returns their number.
int check_pairs(const Mesh& mesh, const std::vector<int64_t>& shape, Reduction reduction,
                const std::function<bool(const Placement&, const Placement&)>& legal) {
  std::mt19937_64 rng(3);
  Array dense(shape);
  for (double& x : dense.data) x = static_cast<double>(rng() % 1000);
  const Interpreter interpreter(mesh, dense);
  graph::Type type{graph::DType::F64, {}};
  for (const int64_t s : shape) type.dims.push_back({graph::Dim::Flat, s});
  const auto placements = all_placements(mesh.num_atoms(), static_cast<int>(shape.size()), reduction);
  int pairs = 0;
  for (const Placement& from : placements) {
    const std::vector<Array> start = interpreter.distribute(from, rng);
    for (const Placement& to : placements) {
      if (!legal(from, to)) continue;
      ++pairs;
      std::vector<Array> now = start;
      Placement last = from;
      for (const Transition& t : redistribute(from, to)) {
        now = interpreter.apply(t, now);
        last = t.after;
        const graph::Type local = local_type(type, t.after, mesh);
        for (size_t d = 0; d < shape.size(); ++d)
          EXPECT_EQ(now[0].shape[d], local.dims[d].size) << show(from) << " -> " << show(to);
      }
      EXPECT_EQ(last, to) << show(from) << " -> " << show(to);
      for (int r = 0; r < mesh.world(); ++r)
        if (!interpreter.holds(to, now, RankId(r))) {
          ADD_FAILURE() << show(from) << " -> " << show(to) << " on rank " << r;
          return pairs;
        }
    }
  }
  return pairs;
}

const auto kAll = [](const Placement&, const Placement&) { return true; };

TEST(Redistribute, AllPairsOfOneDim) {
  EXPECT_EQ(check_pairs(mesh_of({2}), {4}, Reduction::Sum, kAll), 3 * 3);
  EXPECT_EQ(check_pairs(mesh_of({2, 2}), {8}, Reduction::Sum, kAll), 10 * 10);
  EXPECT_EQ(check_pairs(mesh_of({2, 3}), {12}, Reduction::Sum, kAll), 10 * 10);
  EXPECT_EQ(check_pairs(mesh_of({2, 2, 2}), {16}, Reduction::Sum, kAll), 38 * 38);
}

TEST(Redistribute, AllPairsOfTwoDims) {
  EXPECT_EQ(check_pairs(mesh_of({2}), {4, 2}, Reduction::Sum, kAll), 4 * 4);
  EXPECT_EQ(check_pairs(mesh_of({2, 2}), {4, 8}, Reduction::Sum, kAll), 18 * 18);
  EXPECT_EQ(check_pairs(mesh_of({2, 3}), {6, 12}, Reduction::Sum, kAll), 18 * 18);
  EXPECT_EQ(check_pairs(mesh_of({2, 2, 2}), {8, 8}, Reduction::Sum, kAll), 92 * 92);
}

// Maxima can be reduced but not opened.
TEST(Redistribute, PartialMaxima) {
  const auto closes = [](const Placement& from, const Placement& to) {
    return without(to.partial, from.partial).empty();
  };
  EXPECT_GT(check_pairs(mesh_of({2, 3}), {12}, Reduction::Max, closes), 30);
  EXPECT_GT(check_pairs(mesh_of({2, 2, 2}), {8, 8}, Reduction::Max, closes), 1000);
}

// A size that is not divisible is legal where at most one atom shards the dim: otherwise shards of a part of
// the mesh do not nest.
TEST(Redistribute, RaggedSizes) {
  const auto single = [](const Placement& from, const Placement& to) {
    for (const Placement* p : {&from, &to})
      for (const AtomList& d : p->dims)
        if (d.size() > 1) return false;
    return true;
  };
  EXPECT_GT(check_pairs(mesh_of({2, 3}), {7}, Reduction::Sum, single), 40);
  EXPECT_GT(check_pairs(mesh_of({2, 3}), {5, 7}, Reduction::Sum, single), 100);
  EXPECT_GT(check_pairs(mesh_of({2, 2, 2}), {3, 5}, Reduction::Sum, single), 1000);
}

TEST(Redistribute, NothingToDo) {
  for (const Placement& p : all_placements(3, 2, Reduction::Sum))
    EXPECT_TRUE(redistribute(p, p).empty()) << show(p);
}

TEST(Redistribute, CheapestStepsOfTheCommonCases) {
  using Kind = Transition::Kind;
  const auto kinds = [](const Placement& from, const Placement& to) {
    std::vector<Kind> list;
    for (const Transition& t : redistribute(from, to)) list.push_back(t.kind);
    return list;
  };
  const Placement whole = replicated(2), rows{.dims = {{0}, {}}, .partial = {}},
                  columns{.dims = {{}, {0}}, .partial = {}}, open{.dims = {{}, {}}, .partial = {0}};
  EXPECT_EQ(kinds(open, whole), std::vector{Kind::AllReduce});
  EXPECT_EQ(kinds(open, rows), std::vector{Kind::ReduceScatter});
  EXPECT_EQ(kinds(rows, whole), std::vector{Kind::AllGather});
  EXPECT_EQ(kinds(rows, columns), std::vector{Kind::AllToAll});
  EXPECT_EQ(kinds(whole, rows), std::vector{Kind::Slice});
  EXPECT_EQ(kinds(whole, open), std::vector{Kind::ZeroUnlessFirst});
  // Two open atoms of which one is needed on a dim: scatter first, then reduce the smaller rest.
  const Placement open2{.dims = {{}, {}}, .partial = {0, 1}};
  EXPECT_EQ(kinds(open2, rows), (std::vector{Kind::ReduceScatter, Kind::AllReduce}));
  // Neighbouring atoms take one step.
  EXPECT_EQ(kinds(open2, Placement{.dims = {{0, 1}, {}}, .partial = {}}), std::vector{Kind::ReduceScatter});
  EXPECT_EQ(kinds(open2, whole), std::vector{Kind::AllReduce});
}

}  // namespace
}  // namespace quintet::layout
