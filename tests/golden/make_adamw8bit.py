#!/usr/bin/env python3
"""Writes tests/golden/adamw8bit.json: blockwise 8-bit AdamW computed from its definition, in float64.

The code books are built as bitsandbytes builds them (functional.create_dynamic_map: sorted means of linspace per decade), and
codes are found by searching the whole book, so that nothing is shared with src/kernels/dynamic_map.h but the definition.
Weights and gradients are functions of (element, step) that tests/kernels/optimizer_test.cc repeats. Needs the standard
library only:  tests/golden/make_adamw8bit.py
"""
import json
import math
import pathlib
import struct

N, BLOCK, STEPS = 300, 64, 5
LR, BETA1, BETA2, EPS, DECAY, CLIP = 0.01, 0.9, 0.95, 1e-8, 0.1, 0.5


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def dynamic_map(signed, max_exponent_bits=7, total_bits=8):
    data = []
    for i in range(max_exponent_bits):
        items = 2**i if signed else 2 ** (i + 1)
        borders = [0.1 + 0.9 * k / items for k in range(items + 1)]
        for low, high in zip(borders, borders[1:]):
            value = 10 ** (i - (max_exponent_bits - 1)) * (low + high) / 2
            data.append(f32(value))
            if signed:
                data.append(-f32(value))
    data += [0.0, 1.0]
    assert len(data) == 2**total_bits
    return sorted(data)


def nearest(book, x):
    best = min(abs(v - x) for v in book)
    return min((c for c, v in enumerate(book) if abs(v - x) == best), key=lambda c: abs(book[c]))


def weight(i):
    return ((i * 7919) % 2001 - 1000) / 1000


def gradient(i, step):
    size = 10.0 ** -(i % 5)  # several decades in every block
    return ((i * 104729 + step * 15485863) % 4001 - 2000) / 2000 * size


def main():
    m_book, v_book = dynamic_map(True), dynamic_map(False)
    p = [weight(i) for i in range(N)]
    m_codes, v_codes = [m_book.index(0.0)] * N, [v_book.index(0.0)] * N
    blocks = (N + BLOCK - 1) // BLOCK
    m_scales, v_scales = [0.0] * blocks, [0.0] * blocks
    for step in range(1, STEPS + 1):
        for b in range(blocks):
            inside = range(b * BLOCK, min(N, (b + 1) * BLOCK))
            m, v = {}, {}
            for i in inside:
                g = CLIP * gradient(i, step)
                m[i] = BETA1 * m_book[m_codes[i]] * m_scales[b] + (1 - BETA1) * g
                v[i] = BETA2 * v_book[v_codes[i]] * v_scales[b] + (1 - BETA2) * g * g
                update = (m[i] / (1 - BETA1**step)) / (math.sqrt(v[i] / (1 - BETA2**step)) + EPS)
                p[i] = p[i] * (1 - LR * DECAY) - LR * update
            m_scales[b] = max(abs(x) for x in m.values())
            v_scales[b] = max(v.values())
            for i in inside:
                m_codes[i] = nearest(m_book, m[i] / m_scales[b])
                v_codes[i] = nearest(v_book, v[i] / v_scales[b])
    out = {"p": p, "m": m_codes, "v": v_codes, "m_scale": m_scales, "v_scale": v_scales}
    path = pathlib.Path(__file__).parent / "adamw8bit.json"
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
