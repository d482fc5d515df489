// Ops of one's own: graph::OpDef says what an op is (types, gradient, cost, dims), layout::Rule how it is
// divided where its dims alone do not say, exec::cpu::Kernel and exec::cuda::Kernel how it runs.
// compiler::OpPackage joins them; a compiler::ModelFn carries the packages that its model needs.
#pragma once

#include "base/dim.h"
#include "base/error.h"
#include "compiler/op_package.h"
#include "exec/cpu/kernel.h"
#include "exec/cuda/kernel.h"
#include "graph/autodiff.h"
#include "graph/op.h"
#include "layout/rule.h"
