// Recipe to programs: compiler::compile() is a pure function of recipe, model and rank. A program can be read
// (program::to_text), planned and executed.
#pragma once

#include "base/error.h"
#include "compiler/compile.h"
#include "program/text.h"
