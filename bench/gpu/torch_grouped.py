"""TFLOP/s of PyTorch's grouped GEMM on the shapes of `cuda_kernels_bench grouped`: forward, dX, dW in bf16, equal
numbers of rows per expert, medians of CUDA events."""
import torch

GROUPED = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm


def rate(flops, product):
    try:
        for _ in range(3):
            product()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(16)]
        marks[0].record()
        for mark in marks[1:]:
            for _ in range(4):
                product()
            mark.record()
        marks[-1].synchronize()
        times = sorted(a.elapsed_time(b) / 4 for a, b in zip(marks, marks[1:]))
        return f"{flops / times[len(times) // 2] / 1e9:.0f}"
    except RuntimeError as error:
        return str(error).splitlines()[0][:60]


print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
print("| rows, experts, out x in | forward TFLOP/s | dX | dW |\n|---|---|---|---|")
for rows, experts, out, inner in [(32768, 8, 14336, 4096), (65536, 64, 1408, 2048), (131072, 128, 768, 2048)]:
    x = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(rows, out, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(experts, out, inner, device="cuda", dtype=torch.bfloat16)
    ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (rows // experts)
    flops = 2 * rows * out * inner
    figures = [
        rate(flops, lambda: GROUPED(x, w.transpose(-2, -1), offs=ends)),
        rate(flops, lambda: GROUPED(dy, w, offs=ends)),
        rate(flops, lambda: GROUPED(dy.t(), x, offs=ends)),
    ]
    print(f"| {rows}, {experts}, {out} x {inner} | {' | '.join(figures)} |")
