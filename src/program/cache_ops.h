// The ops of text generation for rooms that see graphs through programs only.
#pragma once

#include "graph/cache_ops.h"
#include "program/program.h"
