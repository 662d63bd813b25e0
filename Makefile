# Every target works in a clean clone: Python 3.11 and a C++ compiler are all it needs.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SHELL  := /bin/bash
SOURCES := $(shell find native CMakeLists.txt pyproject.toml requirements.lock -type f)
BENCHMARKS := parse table tower train ps strategies elastic scale_model cube cube_build cube_swap predict predict_swap predict_overload predict_parity abuse
CPP     := $(shell find native -name '*.h' -o -name '*.cc')
# Bytecode is kept of what is imported: making it of every package at once takes a minute of a first build.
PIP     := $(BIN)/pip install --quiet --no-compile --no-deps
unexport PYTHONDONTWRITEBYTECODE
# The theme announces its successor in every build unless told not to.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

QUALITY := admission quality quality_peers

.DEFAULT_GOAL := help
.PHONY: help build check check-types check-style check-site format test test-all test-native test-stories bench bench-quality chaos demo stubs docs charts site proto lock wheel clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 14

build: $(STAMP)  ## make .venv, build the native core, install everything into it

$(STAMP): $(SOURCES)
	@test -x $(BIN)/python || $$(command -v $(PYTHON) || command -v python3) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements.lock
	$(PIP) --no-build-isolation --editable .
	@touch $@

check: build  ## ruff, mypy --strict, import contracts, clang-format, stubs against the binary, the site
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 check-types check-style check-site

check-types:
	$(BIN)/mypy

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/python tools/stubs.py --check

check-site:
	$(MKDOCS) build --strict --quiet --site-dir build/site-check

format: build  ## rewrite sources the way check wants them
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

stubs: build  ## write src/elasticctr/_native.pyi anew from the binary
	$(BIN)/python tools/stubs.py

proto: build  ## compile proto/*.proto anew
	tools/proto.sh

lock: build  ## write requirements.lock anew from pyproject.toml and constraints.txt
	tools/lock.sh

wheel:  ## dist/*.whl: one wheel for Python 3.11, one for 3.12 and later
	tools/wheel.sh

docs: build  ## write the generated pages and drawings of docs/ anew
	$(BIN)/python tools/docs.py

charts: build  ## write the benchmarks page and its charts anew from benchmarks/report.md
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/plot.py

site: build  ## the documentation as a site: open build/site/index.html
	$(MKDOCS) build --strict --quiet

test: check  ## check, the native tests, and every test that is quick enough for each commit
	tools/native_tests.sh
	tools/run_tests.sh -m 'not slow'

test-native: build  ## the native tests under ASan+UBSan, then under TSan where threads meet
	tools/native_tests.sh address,undefined
	tools/native_tests.sh thread

test-stories: build  ## faults, engines, examples and other slow tests, and the native tests under sanitizers
	tools/test_stories.sh

test-all:  ## everything: test, then test-stories
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-stories

bench: build  ## every benchmark against its peers (an hour); BENCH=--quick for a minute each
	mkdir -p .bench/results
	set -o pipefail; for name in $(BENCHMARKS); do \
	    $(BIN)/python benchmarks/$$name.py $(BENCH) | tee .bench/results/$$name.txt || exit 1; done
	$(BIN)/python benchmarks/report.py $(foreach name,$(BENCHMARKS),.bench/results/$(name).txt)

bench-quality: build  ## the zoo over five seeds, beside peers and published tables (hours; finished runs are kept)
	mkdir -p .bench/results
	set -o pipefail; for name in $(QUALITY); do \
	    $(BIN)/python benchmarks/$$name.py $(BENCH) | tee .bench/results/$$name.txt || exit 1; done

chaos: build  ## the whole stack under kill -9 and SIGSTOP, every answer checked (an hour; CHAOS=--quick: minutes)
	$(BIN)/python benchmarks/chaos.py $(CHAOS)

demo: build  ## a log, two models, a published version, 2 x 2 cube servers, a prediction server, deltas under load
	$(BIN)/elasticctr demo

clean:  ## remove everything the other targets made
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .bench
