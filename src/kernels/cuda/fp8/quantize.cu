#include "kernels/cuda/fp8/launch_tiles.cuh"
#include "kernels/cuda/fp8/parts.cuh"
#include "kernels/cuda/fp8/quantize.h"

namespace quintet::kernels::cuda {
namespace {

struct Plain {
  using Loaded = Eight<Bf16>;
  const Bf16* x;
  int64_t columns;
  __device__ __forceinline__ Loaded load(int64_t row, int64_t column) const {
    return fetch_eight(x + row * columns + column);
  }
  __device__ __forceinline__ Eight<Bf16> values(const Loaded& v, int64_t, int64_t) const { return v; }
};

template <base::DType kFormat, bool kRows, bool kColumns, bool kMeasured>
__global__ void __launch_bounds__(kTileThreads)
    quantize_kernel(__grid_constant__ const Parts parts, int64_t columns, unsigned across, int64_t values,
                    CodeTarget to) {
  await_previous();
  const int part = part_of_block(parts, blockIdx.x);
  write_codes<kFormat, kRows, kColumns, kMeasured>(Plain{parts.x[part], columns},
                                                   parts.place(part, blockIdx.x, across, columns),
                                                   parts.first_row[part], to, values);
}

}  // namespace

void quantize(const QuantizeArgs& args, Stream stream) {
  constexpr const char* kWhat = "quantize";
  if (args.type != base::DType::BF16) fail("quantize: only bf16 has codes of 8 bits on a GPU");
  if (args.amax != nullptr && !args.accumulate) fail("quantize: measures are accumulated");
  const CodeTarget to{.rows = static_cast<uint8_t*>(args.codes),
                      .row_stride = args.columns,
                      .columns = static_cast<uint8_t*>(args.transposed),
                      .column_stride = args.rows,
                      .format = args.format,
                      .scale = static_cast<const float*>(args.scale),
                      .measures = {args.amax, args.rounded}};
  for (const QuantizePart& part : args.parts)
    check_codes(to, part.rows, args.columns, aligned16(part.x), kWhat);
  const Parts list = parts_of(args.parts, args.columns, kWhat);
  if (list.blocks() == 0) return;
  with_format(to.format, [&](auto format) {
    with_orders(to, kWhat, [&](auto in_rows, auto in_columns, auto measured) {
      quantize_kernel<decltype(format)::value, in_rows.value, in_columns.value, measured.value>
          <<<list.blocks(), kTileThreads, 0, stream>>>(list, args.columns, tiles_of(args.columns),
                                                       args.rows * args.columns - args.padding, to);
    });
  });
  check_launch(kWhat);
}

}  // namespace quintet::kernels::cuda
