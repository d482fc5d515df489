// The verifier: what must hold of a program before it may run, derived from the program itself. It shares
// nothing with the passes that made the program (lifetimes, allocate, expand), so that a bug in one of them
// is found here. A failure is a bug in Quintet: InternalError that names the rank, the body, the instruction
// and what is wrong with it.
#pragma once

#include <functional>

#include "layout/mesh.h"
#include "program/expand.h"

namespace quintet::program {

// One rank alone:
//  - views are inside their buffers, buffers inside the arena, offsets are aligned;
//  - the types of an op's operands are those it infers; sizes of a collective agree with its count, dtype and
//    group, its operands share bytes only where program.h allows it, and a communicator is used on one stream
//    only;
//  - an exchange between tokens and experts has as many counts as its group has experts, and moves whole
//    buffers; the counts of incoming rows were themselves exchanged, rows that arrive are regrouped by them
//    before anything else reads them, and regrouped again before they are returned;
//  - what is repeated for further passes of experts is on the compute stream, exchanges rows only between the
//    ranks whose counts decided the number of passes, leaves nothing behind but sums to which every pass
//    adds, and changes nothing that the next pass reads;
//  - the issues are the instructions that are executed in the calls, in order, and waits point backwards;
//  - a buffer is written before it is read, with the same dtype: Body scope within its call, Micro scope in
//    the forward call of its micro-batch, gradients and inputs within the step, parameters that the step
//    gathers in place after the gather; it is freed once, at the latest at the end of its scope, and not
//    touched afterwards;
//  - no two buffers that are live at the same time share bytes (live: from the first touch to the free, in
//    issue order);
//  - no race: of every two accesses to the same bytes of which one writes, one happens before the other.
void verify(const Program& program, const Expanded& expanded);

// All ranks of a world, in rank order:
//  - a communicator has the same members on all of them, with each rank at its position;
//  - the members of a communicator issue the same sequence on it: kind, count, dtype and reduction, and the
//    block, phase, note and attributes that say what it is for;
//  - one order: no two ranks issue two collectives in opposite orders, nor do more ranks form
//    a cycle, whatever their communicators and streams. Messages (Send, Recv) are exempt: pipelines send up
//    and down in opposite orders;
//  - no deadlock: with in-order streams and nothing buffered, every instruction completes.
// Does not repeat verify().
void verify_together(const std::vector<const Program*>& programs,
                     const std::vector<const Expanded*>& expanded);

// The same for a world in which every rank r issues what programs[like(r)] issues (verify_member). A
// communicator then has one seat for each program among its members: members with the same program arrive
// together. That execution of the world is one of many, but what stalls in one stalls in all, and a cycle of
// ranks would be a cycle of programs.
void verify_classes(const std::vector<const Program*>& programs, const std::vector<const Expanded*>& expanded,
                    const std::function<int(RankId)>& like);

// Checks that `program` is the `representative` of its class at other mesh coordinates: the same buffers,
// calls and instructions, except for what depends on the rank's coordinates: where in a buffer a view of this
// rank's part begins, which part of a sharded dim it is, which flat ranges it counts, whether it is the
// first of a group, and who the other members of a communicator are. Both as lowered, before buffers have
// offsets.
void verify_member(const Program& program, const Program& representative, const layout::Mesh& mesh,
                   const layout::AtomList& pipeline);

}  // namespace quintet::program
