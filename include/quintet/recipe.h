// Recipes: read one from TOML, build one in code, check it, print it.
//
//   config::Recipe r = config::load("tiny.toml", {"parallel.tp=2"});   // resolved: every rule holds
//   config::Recipe s; s.data.seq_len = 512; ...; s = config::resolve(s);
//
// Errors are base::UserError; config::RecipeError lists every problem with the nearest legal value.
#pragma once

#include "base/error.h"
#include "config/parse.h"
#include "config/print.h"
#include "config/recipe.h"
#include "config/validate.h"
