// The named schedules: pure functions of the number of ranks p, chunks and micro-batches m. Every result
// passes check() and promises its closed form in `max_in_flight`. Impossible numbers throw UserError.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace quintet::schedule {

// All forwards, then all backwards. Holds m activations.
Schedule gpipe(int p, int m);

// PipeDream-flush: rank r runs p - r - 1 forwards ahead, then alternates one forward and one backward. Holds
// p - r.
Schedule one_f_one_b(int p, int m);

// Interleaved 1F1B over `chunks` virtual stages per rank. Micro-batches pass through the chunks in groups: a
// whole group through chunk 0, then through chunk 1, and so on. `group` is at least p (0: p). What is left
// after whole groups is a last group of its own if it has at least p micro-batches, else it is spread over
// the others, the first of them first; fewer than `group` micro-batches are one group.
Schedule interleaved(int p, int chunks, int m, int group = 0);

// Zero bubble with 1F1B's memory: B runs at once; W on rank r is delayed by r micro-batches.
Schedule zb_h1(int p, int m);

// Zero bubble with twice the memory: 2(p - r - 1) forwards ahead.
Schedule zb_h2(int p, int m);

// Two chunks per rank in V shape with 1F1B's memory (2p half-size activations) and no bubble when F = B = W.
Schedule zb_v(int p, int m);

// Two chunks in V shape with about a half, and a third, of 1F1B's memory: at most 2 (p / 2 + 1) and
// 2 ((p + 1) / 3 + 1) half-size activations, with integer division.
Schedule v_half(int p, int m);
Schedule v_min(int p, int m);

// DeepSeek's DualPipe cut in half: two chunks in V shape; forwards and backwards of different micro-batches
// run mixed in the steady state (Action::with_next).
Schedule dualpipev(int p, int m);

// By the name used in recipes: gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, v-half, v-min, dualpipev.
// `chunks` must be what the schedule requires (0: its default; interleaved: 2).
// `group` is interleaved's (0: p).
Schedule make_schedule(std::string_view name, int p, int chunks, int m, int group = 0);
std::span<const std::string> schedule_names();

}  // namespace quintet::schedule
