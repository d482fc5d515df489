// An optimizer of one's own: a function that adds the update of one parameter to the step graph
// (optim::StepBuilder), an op that says what the update computes (graph::update_op) and its kernel, which
// finds its operands with exec::with_update_ranges. compiler::ModelFn::use_optimizer hands them to a run;
// recipes name it optimizer.name = "custom".
#pragma once

#include "compiler/custom_model.h"
#include "exec/cpu/kernel.h"
#include "exec/decode/step.h"
#include "graph/update_op.h"
#include "optim/step_builder.h"
