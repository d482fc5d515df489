// A program as text. Two forms of the same lines:
//  - readable (`quintet program`): buffers by name, long attribute lists truncated, repeated calls folded;
//  - full: everything, by number, so that parse_text returns an equal program.
//
//   program rank=0 world=4 arena=4096 persistent=1024 scalars=@0 workspace=@1 result=none
//   stream 0 "compute"
//   comm 0 "tp" atoms=[3] position=0 members=[0 1]
//   buffer @4 "block1.param" parameters persistent offset=128 bytes=512
//   scalar "loss_scale" state dtype=f64 initial=1
//   input "ids" @2
//   slot 0 "adamw.m" moment saved dtype=f32 first=0 count=128 buffer=@6 offset=0 lower=none
//   body 1 forward
//     compute linear stream=0 in=(@4+0:f32[embed=8]) out=(@9+0:f32[tokens=2]) phase=F block=1
//     all_gather comm=0 count=64 dtype=f32 reduction=sum stream=1 in=(...) out=(...) phase=F note="gather"
//     free @9 phase=F block=1
//   call body=1 micro=0 first last
//
// Fields with their default value (when=always, accumulate=never, workspace=0, block=-1, no attributes, parts
// or note) are omitted. Blank lines and lines that begin with # are skipped.
#pragma once

#include <string>
#include <string_view>

#include "program/expand.h"

namespace quintet::program {

struct TextOptions {
  enum class Form : uint8_t {
    Folded,    // bodies once, calls as `repeat 16 { forward backward }`
    Expanded,  // readable: every issue with its position and waits
  };
  Form form = Form::Folded;
  bool full = false;  // can be parsed; folded only
};

std::string to_text(const Program& program, const Expanded& expanded, const TextOptions& options = {});

// One instruction on one line, without a newline.
std::string to_text(const Program& program, const Instr& instr, bool full = false);

// Parses the full form. UserError with the line number and what was expected there.
// `extra` are ops in addition to the built-in ones.
Program parse_text(std::string_view text, const std::vector<const graph::OpDef*>& extra = {});

}  // namespace quintet::program
