#!/usr/bin/env bash
# Mutants (tools/mutate.py) of sources whose tests are quick and whose faults are silent: what proves programs, what
# makes ranks agree, layouts, passes, optimizers, schedules, plans and what they assume of hardware, and the rules on
# recipes.
#   tools/mutate.sh [SAMPLE [SEED]]    of each group, default 40
set -euo pipefail
cd "$(dirname "$0")/.."
sample=${1:-40} seed=${2:-1}
group() { tools/mutate.py --sample "$sample" --seed "$seed" --tests "$1" "${@:2}"; }
group layout src/layout/mesh.cc src/layout/groups.cc src/layout/stages.cc src/layout/placement.cc src/layout/partition.cc
group passes src/passes/*.cc
group optim,equivalence:OptimizerGolden.*:GoldenMuon.* src/optim/*.cc
group sim src/sim/*.cc
group plan src/plan/*.cc
group config src/config/rules*.cc
group schedule src/schedule/*.cc
group hardware src/hardware/*.cc
group program src/program/verify*.cc
group compiler:Compile.*-*Llama405B,train:Agreement.*,program:Classes.* src/compiler/compile.cc src/train/agreement.cc
