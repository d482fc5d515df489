// The ops of quantised linear layers for rooms that see graphs through programs only.
#pragma once

#include "graph/fp8_ops.h"
#include "program/program.h"
