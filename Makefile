# The project's entry points. `make` alone lists them; each target sets up what it needs.
BUILD      ?= build
PREFIX     ?= /usr/local
TEST_JOBS  ?= 2
FUZZ_LAYOUTS ?= 0
FUZZ_SEED  ?= $(shell date +%s)
FUZZ_SECONDS ?= 60
HF_LINES   ?= 1000000

# Tests start many ranks on few cores: one compute thread per rank unless a test asks for more, and Open MPI may
# run as root in a container, oversubscribe the cores, and must not spin while it waits.
TEST_ENV = OMP_NUM_THREADS=1 \
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 \
  OMPI_MCA_btl_vader_single_copy_mechanism=none

.PHONY: help setup configure build demo test test-pages picture repeat mutate fuzz classes reshard crash test-hf test-parquet fuzz-parsers asan tsan \
  coverage nightly bench lint tidy recipe-docs docs format install clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## install what is missing (apt); does nothing if all is there
	@tools/setup.sh

configure: setup
	@test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja -DCMAKE_BUILD_TYPE=Release

build: configure  ## release build; leaves the tool at build/quintet
	@cmake --build $(BUILD)

demo: configure  ## train a small Llama on this repository's own text, four ranks in one process
	@cmake --build $(BUILD) --target quintet
	@$(BUILD)/quintet train recipes/tiny.toml --run-dir runs/tiny --overwrite

test: build  ## all tests
	@$(TEST_ENV) ctest --test-dir $(BUILD) --output-on-failure -j $(TEST_JOBS)

repeat: build  ## fast tests 100 times in random order, alone and then under load
	@$(TEST_ENV) tools/repeat.py --build $(BUILD) --seed $$(($(FUZZ_SEED) % 99999 + 1))
	@$(TEST_ENV) tools/repeat.py --build $(BUILD) --seed $$(($(FUZZ_SEED) % 99999 + 1)) --load

MUTATE_SAMPLE ?= 40
mutate: setup  ## random faults in the planner's and verifier's sources, and those that no test notices
	@tools/mutate.sh $(MUTATE_SAMPLE) $(FUZZ_SEED)

test-pages: build  ## reports of runs and plans in headless Chromium, at desktop and phone width, light and dark
	@tools/setup.sh --pages
	@tests/pages/check_pages.py --quintet $(BUILD)/quintet --self-test

picture: demo  ## the picture of README, docs/images/report.png, from a run of the demo
	@tools/setup.sh --pages
	@tests/pages/check_pages.py --picture runs/tiny docs/images/report.png

fuzz: build  ## random layouts against one rank until three fail: FUZZ_LAYOUTS=0 (endless) FUZZ_SEED=(the time)
	@$(TEST_ENV) QUINTET_FUZZ_LAYOUTS=$(FUZZ_LAYOUTS) QUINTET_FUZZ_SEED=$(FUZZ_SEED) $(BUILD)/tests/test_equivalence --gtest_filter=Fuzz.RandomLayouts*

classes: build  ## one program stands for its class of ranks: every rank of 200 random layouts (part of the tests)
	@$(TEST_ENV) $(BUILD)/tests/test_equivalence --gtest_filter=Classes.*

reshard: build  ## checkpoints of every layout loaded in every other one (a part of them in the tests)
	@$(TEST_ENV) QUINTET_RESHARD_ALL=1 $(BUILD)/tests/test_train --gtest_filter=Reshard.*

crash: build  ## a run that is killed 200 times and continued (10 times in the tests)
	@$(TEST_ENV) QUINTET_CRASH_KILLS=200 $(BUILD)/tests/test_cli --gtest_filter=Crash.Killed*

test-hf: build  ## against Hugging Face's packages from PyPI, which this installs into build/: HF_LINES=1000000
	@tools/setup.sh --hf
	@$(BUILD)/hf-venv/bin/python tests/hf/megatron_test.py $(BUILD) --work $(BUILD)/hf-megatron
	@$(BUILD)/hf-venv/bin/python tests/hf/models_test.py $(BUILD)/quintet --work $(BUILD)/hf-models
	@$(BUILD)/hf-venv/bin/python tests/hf/shards_test.py $(BUILD)/quintet --work $(BUILD)/hf-shards
	@$(BUILD)/hf-venv/bin/python tests/hf/lm_eval_test.py $(BUILD)/quintet --work $(BUILD)/hf-lm-eval
	@$(BUILD)/hf-venv/bin/python tests/hf/tokenizers_test.py $(BUILD)/quintet --lines $(HF_LINES) --work $(BUILD)/hf-tokenizers
	@$(BUILD)/hf-venv/bin/python tests/hf/chat_test.py $(BUILD)/quintet --work $(BUILD)/hf-chat

test-parquet: configure  ## Parquet files: installs Arrow from PyPI into build/arrow, builds with it and runs the tests that skip without
	@tools/setup.sh --parquet
	@cmake -S . -B $(BUILD) >/dev/null && cmake --build $(BUILD) --target test_text test_tools
	@$(TEST_ENV) $(BUILD)/tests/test_text --gtest_filter='Parquet.*' --gtest_brief=1
	@$(TEST_ENV) $(BUILD)/tests/test_tools --gtest_filter='StreamRun.ReadsParquet' --gtest_brief=1

fuzz-parsers: setup  ## libFuzzer over every parser of external input: FUZZ_SECONDS=60 for each
	@tools/setup.sh --fuzz
	@FUZZ_SEED=$(FUZZ_SEED) tools/fuzz_parsers.sh $(FUZZ_SECONDS)

# Rooms that work on raw memory; `make nightly` runs every room under the sanitizers, and `make asan ASAN_TESTS="exec train"`
# others. Slow ones first, so that both jobs end together.
ASAN_TESTS = kernels comm checkpoint base observe device
asan: setup  ## the tests of the rooms that work on raw memory under AddressSanitizer and UndefinedBehaviorSanitizer
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan --target $(ASAN_TESTS:%=test_%)
	@tools/run_tests.py --preset asan --jobs $(TEST_JOBS) $(ASAN_TESTS)

TSAN_TESTS = comm exec data
tsan: setup  ## the tests of comm, exec and data under ThreadSanitizer
	@cmake --preset tsan >/dev/null
	@cmake --build --preset tsan --target $(TSAN_TESTS:%=test_%)
	@tools/run_tests.py --preset tsan --jobs $(TEST_JOBS) $(TSAN_TESTS)

coverage: setup  ## lines that no test runs: build-coverage/coverage.html
	@tools/setup.sh --coverage
	@cmake --preset coverage >/dev/null
	@cmake --build --preset coverage
	@ctest --preset coverage
	@gcovr -r . --object-directory build-coverage --filter src/ --exclude-throw-branches --print-summary \
	  --html-details build-coverage/coverage.html -o build-coverage/coverage.txt

nightly:  ## checks too long for every change: tidy on the whole tree, full TSan, coverage, CUDA, fresh fuzz seeds
	@tools/nightly.sh

bench: build  ## speed compared with PyTorch on this machine (installs PyTorch into build/)
	@tools/setup.sh --bench
	@build/peer-venv/bin/python bench/compare.py --quintet $(BUILD)/quintet

lint: setup  ## allowed includes, banned calls, paths, keys, decisions, figures and claims in the docs, version, commits, formatting
	@python3 tools/check_layers.py
	@python3 tools/check_status.py
	@python3 tools/check_version.py
	@python3 tools/check_commits.py
	@python3 tools/check_docs.py
	@python3 tools/refresh_figures.py --check
	@tools/format.sh --check

docs: setup  ## the documentation as a site: build/docs/index.html
	@tools/setup.sh --docs
	@sphinx-build -q -E -W --keep-going -b html -c docs . $(BUILD)/docs
	@echo "docs: $(BUILD)/docs/index.html"

tidy: setup  ## clang-tidy on the files that this branch changes
	@tools/setup.sh --tidy
	@tools/tidy.sh --changed

format: setup  ## clang-format every tracked source file
	@tools/format.sh

recipe-docs: configure  ## write docs/recipe.md and docs/errors.md from the tool; a test compares them
	@cmake --build $(BUILD) --target quintet
	@$(BUILD)/quintet recipe --markdown > docs/recipe.md
	@$(BUILD)/quintet explain --markdown > docs/errors.md

install: build  ## install the tool, man pages, completions, libraries and headers under PREFIX=/usr/local
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:  ## remove the build and the demo's run folder
	@rm -rf $(BUILD) build-asan build-asan-full build-tsan build-coverage build-fuzz build-cuda build-mutate build-tidy runs/tiny
