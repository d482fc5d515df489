#include "hf/strided.h"

#include <algorithm>
#include <cstring>

#include "base/convert.h"
#include "base/error.h"

namespace quintet::hf {

using base::DType;

namespace {

template <class T>
void copy_loops(const T* from, T* to, const Loop* loops, size_t count) {
  if (count == 0) {
    *to = *from;
    return;
  }
  const Loop& l = *loops;
  if (count == 1) {
    if (l.from == 1 && l.to == 1)
      std::memcpy(to, from, static_cast<size_t>(l.count) * sizeof(T));
    else
      for (int64_t i = 0; i < l.count; ++i) to[i * l.to] = from[i * l.from];
    return;
  }
  for (int64_t i = 0; i < l.count; ++i) copy_loops(from + i * l.from, to + i * l.to, loops + 1, count - 1);
}

// Outermost first by stride in `from`, before them loops that read the same again; loops of one are gone, and
// those that follow each other in both orders are one.
std::vector<Loop> simplified(std::vector<Loop> loops) {
  std::erase_if(loops, [](const Loop& l) { return l.count == 1; });
  const auto step = [](const Loop& l) { return l.from == 0 ? INT64_MAX : l.from; };
  std::stable_sort(loops.begin(), loops.end(),
                   [&](const Loop& a, const Loop& b) { return step(a) > step(b); });
  std::vector<Loop> out;
  for (const Loop& l : loops) {
    if (!out.empty() && out.back().from == l.count * l.from && out.back().to == l.count * l.to)
      out.back() = {out.back().count * l.count, l.from, l.to};
    else
      out.push_back(l);
  }
  return out;
}

std::vector<int64_t> row_major(const std::vector<int64_t>& size) {
  std::vector<int64_t> strides(size.size());
  int64_t stride = 1;
  for (size_t d = size.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= size[d];
  }
  return strides;
}

int64_t count_of(const std::vector<int64_t>& size) {
  int64_t n = 1;
  for (const int64_t s : size) n *= s;
  return n;
}

void add_boxes(const std::vector<int64_t>& size, size_t dim, std::vector<int64_t> fixed, int64_t first,
               int64_t count, int64_t at, std::vector<Box>& out) {
  if (count == 0) return;
  int64_t inner = 1;
  for (size_t d = dim + 1; d < size.size(); ++d) inner *= size[d];
  const auto add = [&](int64_t begin, int64_t length, int64_t where) {
    Box box{.begin = fixed, .size = std::vector<int64_t>(dim, 1), .at = where};
    box.begin.push_back(begin), box.size.push_back(length);
    for (size_t d = dim + 1; d < size.size(); ++d) box.begin.push_back(0), box.size.push_back(size[d]);
    out.push_back(std::move(box));
  };
  const int64_t end = first + count, low = (first + inner - 1) / inner, high = end / inner;
  const auto within = [&](int64_t index, int64_t from, int64_t n, int64_t where) {
    std::vector<int64_t> deeper = fixed;
    deeper.push_back(index);
    add_boxes(size, dim + 1, std::move(deeper), from, n, where, out);
  };
  if (first / inner == (end - 1) / inner && count < inner)
    return within(first / inner, first % inner, count, at);
  if (first % inner != 0) within(first / inner, first % inner, low * inner - first, at);
  if (high > low) add(low, high - low, at + low * inner - first);
  if (end % inner != 0) within(high, 0, end % inner, at + high * inner - first);
}

}  // namespace

void copy_strided(const std::byte* from, std::byte* to, const std::vector<Loop>& loops, int64_t size) {
  switch (size) {
    case 1:
      return copy_loops(reinterpret_cast<const uint8_t*>(from), reinterpret_cast<uint8_t*>(to), loops.data(),
                        loops.size());
    case 2:
      return copy_loops(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to),
                        loops.data(), loops.size());
    case 4:
      return copy_loops(reinterpret_cast<const uint32_t*>(from), reinterpret_cast<uint32_t*>(to),
                        loops.data(), loops.size());
    case 8:
      return copy_loops(reinterpret_cast<const uint64_t*>(from), reinterpret_cast<uint64_t*>(to),
                        loops.data(), loops.size());
    default:
      base::fail_internal("elements of {} bytes", size);
  }
}

std::vector<Box> boxes_of(const std::vector<int64_t>& size, int64_t first, int64_t count) {
  std::vector<Box> boxes;
  if (size.empty()) {
    if (count > 0) boxes.push_back({});
    return boxes;
  }
  add_boxes(size, 0, {}, first, count, 0, boxes);
  return boxes;
}

std::vector<Transfer> transfers_of(const Link& link, const std::vector<int64_t>& shape, const Box& box) {
  std::vector<Transfer> all = {{.from = link.offset, .to = 0, .loops = {}}};
  const std::vector<int64_t> to = row_major(box.size);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (link.expert >= 0 && d == 0) continue;
    const int64_t begin = box.begin[d], end = begin + box.size[d], stride = link.stride[d];
    if (!link.interleaved[d]) {
      for (Transfer& t : all) t.from += begin * stride, t.loops.push_back({box.size[d], stride, to[d]});
      continue;
    }
    const int64_t half = shape[d] / 2;
    std::vector<Transfer> split;
    for (const int64_t h : {0, 1}) {
      const int64_t low = std::max(begin, h * half), high = std::min(end, (h + 1) * half);
      if (low >= high) continue;
      for (Transfer t : all) {
        t.from += (2 * (low - h * half) + h) * stride;
        t.to += (low - begin) * to[d];
        t.loops.push_back({high - low, 2 * stride, to[d]});
        split.push_back(std::move(t));
      }
    }
    all = std::move(split);
  }
  for (Transfer& t : all) t.loops = simplified(std::move(t.loops));
  return all;
}

namespace {

// Calls fn(link, box) for the parts of a region that are in one of their tensors each; `at` is the first
// element of the part in the region.
template <class Fn>
void for_each_part(const NameMap& map, const std::string& ours, const Region& region, Fn&& fn) {
  const std::vector<Link>* const links = map.find(ours);
  QUINTET_CHECK(links != nullptr, "{} is not in the map", ours);
  for (Box box : boxes_of(region.size, region.first, region.count)) {
    for (size_t d = 0; d < box.begin.size(); ++d) box.begin[d] += region.begin[d];
    if (links->front().expert < 0) {
      fn(links->front(), box);
      continue;
    }
    Box one = box;
    one.size[0] = 1;
    for (int64_t e = 0; e < box.size[0]; ++e) {
      one.begin[0] = box.begin[0] + e;
      one.at = box.at + e * (count_of(box.size) / box.size[0]);
      fn((*links)[static_cast<size_t>(one.begin[0])], one);
    }
  }
}

}  // namespace

Link transposed(Link link, int64_t rows, int64_t columns) {
  const auto moved = [&](int64_t at) {
    const int64_t inside = at % (rows * columns);
    return at - inside + inside % columns * rows + inside / columns;
  };
  link.offset = moved(link.offset);
  for (int64_t& stride : link.stride) stride = moved(stride);  // of a dim within the rows or the columns
  return link;
}

namespace {

// A part of a transfer that reads `length` elements at once for each index of the outer loops: those of the
// inner loops and what is between them.
struct Spans {
  int64_t from = 0, to = 0;  // first element of each
  std::vector<Loop> outer, inner;
  int64_t length = 1;
  bool direct = false;  // what is read is what is wanted, in its order
};

template <class Fn>
void for_each_spans(const Transfer& t, DType stored, DType wanted, const Fn& fn) {
  const int64_t size = base::size_of(stored);
  const int64_t buffered = stored == wanted ? size : size + base::size_of(wanted);
  Spans s{.from = t.from, .to = t.to, .outer = t.loops, .inner = {}};
  while (!s.outer.empty() && !s.direct) {
    const Loop l = s.outer.back();
    const int64_t gap = l.from - s.length;
    if (l.from == 0 || gap * size > WeightReader::kGapBytes) break;
    s.direct = stored == wanted && gap == 0 && s.inner.empty() && l.to == 1;
    const int64_t fit = WeightReader::kBufferBytes / buffered;
    const int64_t room = s.direct ? l.count : std::max<int64_t>(1, (fit - s.length) / l.from + 1);
    s.outer.pop_back();
    if (l.count > room) {  // in parts, the last of which may be smaller
      for (int64_t begin = 0; begin < l.count; begin += room) {
        Transfer part{.from = t.from + begin * l.from, .to = t.to + begin * l.to, .loops = s.outer};
        part.loops.push_back({std::min(room, l.count - begin), l.from, l.to});
        part.loops.insert(part.loops.end(), s.inner.begin(), s.inner.end());
        for_each_spans(part, stored, wanted, fn);
      }
      return;
    }
    s.inner.insert(s.inner.begin(), l);
    s.length += (l.count - 1) * l.from;
  }
  s.direct = s.direct || (stored == wanted && s.inner.empty());
  fn(s);
}

}  // namespace

void WeightReader::read(const std::string& ours, const Region& region, DType dtype,
                        std::span<std::byte> out) {
  for_each_part(map_, ours, region, [&](const Link& link, const Box& box) {
    const TensorInfo* const tensor = source_.find(map_.theirs()[link.theirs].name);
    QUINTET_CHECK(tensor != nullptr, "the files lack {}", map_.theirs()[link.theirs].name);
    const size_t rank = tensor->shape.size();
    const Link stored = source_.is_transposed(*tensor)
                            ? transposed(link, tensor->shape[rank - 2], tensor->shape[rank - 1])
                            : link;
    for (const Transfer& t : transfers_of(stored, map_.ours()[link.ours].shape, box))
      run(*tensor, t, dtype, out.data() + box.at * base::size_of(dtype));
  });
}

ReadCost cost_of_reading(const NameMap& map, const std::string& ours, const Region& region, DType stored,
                         DType wanted) {
  ReadCost cost;
  for_each_part(map, ours, region, [&](const Link& link, const Box& box) {
    for (const Transfer& t : transfers_of(link, map.ours()[link.ours].shape, box))
      for_each_spans(t, stored, wanted, [&](const Spans& s) {
        int64_t reads = 1;
        for (const Loop& l : s.outer) reads *= l.count;
        cost.bytes += reads * s.length * base::size_of(stored);
        cost.parts += reads;
      });
  });
  return cost;
}

void WeightReader::run(const TensorInfo& tensor, const Transfer& t, DType dtype, std::byte* out) {
  const int64_t size = base::size_of(dtype), stored = base::size_of(tensor.dtype);
  for_each_spans(t, tensor.dtype, dtype, [&](const Spans& s) {
    std::vector<int64_t> index(s.outer.size(), 0);
    for (;;) {
      int64_t from = s.from, to = s.to;
      for (size_t i = 0; i < s.outer.size(); ++i)
        from += index[i] * s.outer[i].from, to += index[i] * s.outer[i].to;
      std::byte* const place = out + to * size;
      if (s.direct) {
        source_.read_stored(tensor, from, {place, static_cast<size_t>(s.length * size)});
      } else {
        buffer_.resize(static_cast<size_t>(s.length * stored));
        source_.read_stored(tensor, from, buffer_);
        const std::byte* data = buffer_.data();
        const bool in_order = s.inner.size() == 1 && s.inner[0].from == 1 && s.inner[0].to == 1;
        if (tensor.dtype != dtype && (in_order || s.inner.empty())) {
          base::convert_elements(data, tensor.dtype, place, dtype, s.length);
        } else {
          if (tensor.dtype != dtype) {
            converted_.resize(static_cast<size_t>(s.length * size));
            base::convert_elements(data, tensor.dtype, converted_.data(), dtype, s.length);
            data = converted_.data();
          }
          copy_strided(data, place, s.inner, size);
        }
      }
      size_t d = s.outer.size();
      while (d > 0 && ++index[d - 1] == s.outer[d - 1].count) index[--d] = 0;
      if (d == 0) return;
    }
  });
}

void stream_their_tensor(const TheirTensor& tensor, const NameMap& map, TensorSource& ours, DType dtype,
                         const TensorSource::Block& block, int64_t block_bytes) {
  const int64_t size = base::size_of(dtype), total = count_of(tensor.shape);
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0], row = rows > 0 ? total / rows : 0;
  if (total == 0) return;
  const int64_t per_block = std::clamp<int64_t>(block_bytes / (row * size), 1, rows);
  std::vector<std::byte> bytes, elements, converted;
  for (int64_t first = 0; first < rows; first += per_block) {
    const int64_t begin = first * row, end = std::min(rows, first + per_block) * row;
    bytes.assign(static_cast<size_t>((end - begin) * size), std::byte{0});
    for (const Link& link : tensor.links) {
      const TensorInfo& info = map.ours()[link.ours];
      const TensorInfo* const source = ours.find(info.name);
      QUINTET_CHECK(source != nullptr, "the source lacks {}", info.name);
      // Our elements within the block: the box of all, cut along its dims below.
      Box box{.begin = std::vector<int64_t>(info.shape.size(), 0), .size = info.shape, .at = 0};
      if (link.expert >= 0) box.begin[0] = link.expert, box.size[0] = 1;
      const auto copy = [&](const Box& part) {
        Region region{.shape = source->shape,
                      .begin = part.begin,
                      .size = part.size,
                      .first = 0,
                      .count = count_of(part.size)};
        elements.resize(static_cast<size_t>(region.count * base::size_of(source->dtype)));
        ours.read(*source, region, elements);
        const std::byte* data = elements.data();
        if (source->dtype != dtype) {
          converted.resize(static_cast<size_t>(region.count * size));
          base::convert_elements(data, source->dtype, converted.data(), dtype, region.count);
          data = converted.data();
        }
        for (const Transfer& t : transfers_of(link, info.shape, part)) {
          std::vector<Loop> loops;
          for (const Loop& l : t.loops) loops.push_back({l.count, l.to, l.from});
          copy_strided(data + t.to * size, bytes.data() + (t.from - begin) * size, loops, size);
        }
      };
      // Slices along the dims from the outermost in file order until they are within the block or outside.
      std::vector<size_t> order;
      for (size_t d = link.expert >= 0 ? 1 : 0; d < info.shape.size(); ++d) order.push_back(d);
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return link.stride[a] > link.stride[b]; });
      const std::function<void(Box, size_t)> visit = [&](const Box& part, size_t depth) {
        int64_t low = -1, high = -1;  // elements of the tensor that the part has, from and to
        for (const Transfer& t : transfers_of(link, info.shape, part)) {
          int64_t last = t.from;
          for (const Loop& l : t.loops) last += (l.count - 1) * l.from;
          low = low < 0 ? t.from : std::min(low, t.from);
          high = std::max(high, last + 1);
        }
        if (low >= end || high <= begin) return;
        if (low >= begin && high <= end) return copy(part);
        QUINTET_CHECK(depth < order.size(), "an element of {} on a block's border", info.name);
        const size_t d = order[depth];
        // The indices of this dim whose elements are in the block, in one box where a stride allows it.
        const int64_t stride = link.stride[d];
        if (!link.interleaved[d] && part.size[d] > 1) {
          Box one = part;
          one.size[d] = 1;
          int64_t extent = 0;  // of one index
          for (const Transfer& t : transfers_of(link, info.shape, one)) {
            int64_t last = t.from;
            for (const Loop& l : t.loops) last += (l.count - 1) * l.from;
            extent = std::max(extent, last + 1 - low);
          }
          const int64_t n = part.size[d];
          const int64_t from = std::clamp<int64_t>((begin - low + stride - 1) / stride, 0, n);
          const int64_t to =
              std::clamp<int64_t>(end - low >= extent ? (end - low - extent) / stride + 1 : 0, 0, n);
          if (from < to) {
            Box middle = part;
            middle.begin[d] += from, middle.size[d] = to - from;
            copy(middle);
          }
          for (int64_t i = 0; i < n; ++i) {
            if (i >= from && i < to) continue;
            // Only the neighbours of the border can be partly inside.
            const int64_t at = low + i * stride;
            if (at >= end || at + extent <= begin) continue;
            Box edge = part;
            edge.begin[d] += i, edge.size[d] = 1;
            visit(edge, depth + 1);
          }
          return;
        }
        if (part.size[d] == 1) return visit(part, depth + 1);
        for (int64_t i = 0; i < part.size[d]; ++i) {
          Box one = part;
          one.begin[d] += i, one.size[d] = 1;
          visit(one, depth + 1);
        }
      };
      visit(box, 0);
    }
    block(bytes);
  }
}

}  // namespace quintet::hf
