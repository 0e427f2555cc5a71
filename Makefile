# Needs Python >= 3.11 and make; everything else is installed into .venv by the first target that wants it.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
OUT := build
TRIALS ?= 64
THREADS ?= 2
SEED ?= 0
COUNT ?= 300
INPUTS ?= 10000
KILLS ?= 50
SIGNAL ?= KILL
SAMPLES ?= 20
SECONDS ?= 1800
DRAWS ?= 20
OPS ?=
SIZES ?=
PEERS ?=
JOBS ?= 2
MINUTES ?=
OPEN ?=
TSGEN ?=

# Tests and campaigns start some hundred processes of the package; without bytecode, each would compile it again.
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that starts and is new enough; `make PYTHON=/path/to/python3` overrides the choice.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

# Build isolation takes the pinned hatchling too.
PIP := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
	$(BIN)/python -m pip install --quiet

# pip is quiet: what it says of each package is of no use to whoever starts a demo.
WAIT := what is not in its cache is downloaded, which takes a minute

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' \
		$(MAKEFILE_LIST)

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python >= 3.11 was found. Install one, or name it: make PYTHON=/path/to/python3 …" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is older than 3.11: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

# Stamps: set-up runs again only when what it depends on has changed.
$(VENV)/.core: pyproject.toml hatch_build.py constraints.txt | $(BIN)/python
	@echo "Installing tensorc-dsl into $(VENV) with pip: $(WAIT)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py constraints.txt | $(BIN)/python
	@echo "Installing tensorc-dsl and the development tools into $(VENV) with pip: $(WAIT)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.bench: pyproject.toml hatch_build.py constraints.txt | $(BIN)/python
	@echo "Installing tensorc-dsl, the development tools and the libraries to measure beside into $(VENV) with pip: $(WAIT)"
	@$(PIP) --editable '.[dev,bench]'
	@touch $@ $(VENV)/.dev $(VENV)/.core

$(VENV)/.docs: pyproject.toml hatch_build.py constraints.txt | $(BIN)/python
	@echo "Installing tensorc-dsl and what makes the site into $(VENV) with pip: $(WAIT)"
	@$(PIP) --editable '.[docs]'
	@touch $@ $(VENV)/.core

## Begin

.PHONY: venv
venv: $(VENV)/.dev ## Make .venv with the package and the development tools

.PHONY: demo
demo: $(VENV)/.core ## Install, tune the matmul example and show the result beside NumPy and the machine's peak
	@mkdir -p $(OUT)/demo
	$(BIN)/tensorc-dsl tune examples/matmul.tsched mm_512 --trials $(TRIALS) --seed $(SEED) --threads $(THREADS) \
		--output $(OUT)/demo/mm_512.best.tsched --records $(OUT)/demo/records.sqlite

## Test a change

# Each process has one half of the tests, in their order, and helps the other at the end: what tests of a folder share is made once.
PARALLEL := -n 2 --dist worksteal

.PHONY: test
test: style ## Everything that must hold: lint, format, types, layers, tests (MINUTES=5: as many as there is time for; ALL=1: whole corpora, all types)
	@$(MAKE) --no-print-directory --jobs 2 types tests

# Types are checked by one process, for a tenth of the time of all tests: it runs beside them, or a core would wait.
.PHONY: tests
tests: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(ALL),--all)

.PHONY: coverage
coverage: $(VENV)/.dev ## Which branches all tests take; fewer than the share in pyproject.toml are an error
	$(BIN)/python -m pytest $(PARALLEL) -q --all --cov --cov-report=term

.PHONY: lint
lint: style types ## Lint, format check, types and layers, without the tests

.PHONY: style
style: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python -m tools.size

# A test that the package contradicts fails when it is run, so the types of those that a change does not touch wait for the night.
TOUCHED := { git diff --name-only --diff-filter=d HEAD~1; git ls-files --others --exclude-standard; } 2>/dev/null | \
	grep '^tests/.*\.py$$'

.PHONY: types
types: $(VENV)/.dev
	$(BIN)/pyright $(if $(ALL),,tensorc_dsl bench campaigns tools docs/generate hatch_build.py tests/user_programs.py $$($(TOUCHED)))

.PHONY: format
format: $(VENV)/.dev ## Format the code and repair what the linter can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

## Make what is committed or published

.PHONY: reference
reference: $(VENV)/.dev ## Make the generated parts of docs/ and editors/ from grammar and declarations
	$(BIN)/python -m docs.generate

.PHONY: treesitter
treesitter: ## Make the parser of editors/treesitter from its grammar (TSGEN=path of tree-sitter's generator, 0.20)
	@test -n "$(TSGEN)" || { echo "Name the generator: make treesitter TSGEN=/path/to/tsgen" >&2; exit 1; }
	$(TSGEN) editors/treesitter

.PHONY: vsix
vsix: ## Make the extension for VS Code, build/tensorc-dsl.vsix (needs Node 20 and npm)
	@mkdir -p $(OUT)
	npm ci --ignore-scripts --silent --prefix editors/vscode
	npm run --silent --prefix editors/vscode package

.PHONY: zed
zed: ## Make the extension for Zed, build/zed, with the grammar of this checkout's last commit
	@rm -rf $(OUT)/zed
	@mkdir -p $(OUT)
	cp -R editors/zed $(OUT)/zed
	sed -e 's|REPOSITORY|file://$(CURDIR)|' -e "s|COMMIT|$$(git rev-parse HEAD)|" -e '/^#/d' editors/zed/extension.toml \
		> $(OUT)/zed/extension.toml

.PHONY: codemirror
codemirror: ## Make the editor of the playground's page, one file of CodeMirror (needs Node 20 and npm)
	npm ci --ignore-scripts --silent --prefix editors/playground
	npm run --silent --prefix editors/playground build

.PHONY: pictures
pictures: $(VENV)/.dev ## Take the pictures of docs/ that show the playground and a highlighted file (needs Chromium)
	$(BIN)/python -m docs.generate.pictures

.PHONY: gallery
gallery: $(VENV)/.dev ## Make the pictures of docs/gallery.md, by its programs
	$(BIN)/python -m docs.generate.gallery

.PHONY: site
site: $(VENV)/.docs ## Make the documentation's site in build/site/html; a link that leads nowhere is an error
	@rm -rf $(OUT)/site
	@mkdir -p $(OUT)/site
	$(BIN)/python -m docs.generate.site $(OUT)/site
	$(BIN)/python -m mkdocs build --strict --config-file $(OUT)/site/mkdocs.yml
	@! grep -rEl '<(script|link|img)[^>]* (src|href)="?(https?:)?//' $(OUT)/site/html --include='*.html' || { \
		echo "These pages load something from another host." >&2; exit 1; }

## Search for mistakes, each with a seed

.PHONY: soak
soak: $(VENV)/.dev ## Random schedules of the examples against the reference (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.soak --seed $(SEED) --count $(COUNT)

.PHONY: schedules
schedules: $(VENV)/.dev ## Random steps of every primitive on small programs, each result proved and run (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.schedules --seed $(SEED) --count $(COUNT) --jobs $(THREADS)

.PHONY: rounding
rounding: $(VENV)/.dev ## Random schedules on data that show the order of sums: are the bits as was proved? (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.rounding --seed $(SEED) --count $(COUNT)

.PHONY: nests
nests: $(VENV)/.dev ## Random steps on random loops that are written out, which no compute gives (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.schedules --kind nests --seed $(SEED) --count $(COUNT) --jobs $(THREADS)

.PHONY: behind
behind: $(VENV)/.dev ## Random steps behind the schedules on pages of tests, or those with a step AIM="split_scan …" (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.schedules --kind pages --aim $(AIM) --seed $(SEED) --count $(COUNT) --jobs $(THREADS)

.PHONY: mutants
mutants: $(VENV)/.dev ## One place of right programs and kernels changed: proved, refuted, emulated, and run (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.mutants --kind kernels --seed $(SEED) --count $(COUNT) --jobs $(THREADS)
	$(BIN)/python -m campaigns.mutants --kind programs --seed $(SEED) --count $(COUNT) --jobs $(THREADS)

.PHONY: computes
computes: $(VENV)/.dev ## Random computes, run in each way, against what the language's pages say they mean (SEED=0 COUNT=300)
	FIRST_SEED=$(SEED) COMPUTE_FUZZ=$(COUNT) $(BIN)/python -m pytest -q -n $(THREADS) tests/compute/test_meaning.py tests/compute/test_random.py

.PHONY: sizes
sizes: $(VENV)/.dev ## Random programs of sizes near 2**31, 2**53 and 2**63, refused or right, from C too (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.random_sizes --seed $(SEED) --count $(COUNT)

.PHONY: ranges
ranges: $(VENV)/.dev ## Kernels for open sizes, single and selected ones, at each size from 1 to 4096 (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.every_size --seed $(SEED) --count $(COUNT)

.PHONY: shapes
shapes: $(VENV)/.dev ## Kernels for several open sizes, with conditions and divided ones: results, calls outside, bits (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.random_shapes --seed $(SEED) --count $(COUNT)

.PHONY: processors
processors: $(VENV)/.dev ## Kernels of the suites for AArch64 and AVX2 under QEMU, where it is installed (SEED=0 DRAWS=20)
	$(BIN)/python -m campaigns.processors --seed $(SEED) --draws $(DRAWS) --jobs $(THREADS)

.PHONY: graphs
graphs: $(VENV)/.dev ## Random graphs of calls through check, expand, verify and the language server, a second each (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.call_graphs --seed $(SEED) --count $(COUNT)

.PHONY: models
models: $(VENV)/.dev ## Random ONNX models of opsets 7 to 23 beside ONNX Runtime, whole and with mistakes (SEED=0 COUNT=300)
	$(BIN)/python -m campaigns.random_models --seed $(SEED) --count $(COUNT)
	$(BIN)/python -m campaigns.broken_models --seed $(SEED) --count $(COUNT)

.PHONY: foreign
foreign: $(VENV)/.dev ## Random schedules of operators, ours and of other libraries, and of random computes (SEED=0 DRAWS=20 COUNT=300)
	FIRST_SEED=$(SEED) FOREIGN_DRAWS=$(DRAWS) FOREIGN_FUZZ=$(COUNT) $(BIN)/python -m pytest -q -n $(THREADS) tests/foreign \
		tests/stdlib/test_ops.py

.PHONY: properties
properties: $(VENV)/.dev ## Property tests with new inputs, twenty times as many as in the other tests (SEED=new)
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -q -n $(THREADS) $(if $(filter-out 0,$(SEED)),--hypothesis-seed=$(SEED)) \
		tests/affine tests/ir tests/lower tests/schedule tests/syntax

.PHONY: scatters
scatters: $(VENV)/.dev ## Random sums over matches, scattered, against what they mean (SEED=0 COUNT=300)
	FIRST_SEED=$(SEED) SCATTER_FUZZ=$(COUNT) $(BIN)/python -m pytest -q -n $(THREADS) tests/codegen/test_scatter.py tests/gpu/test_scatter.py

.PHONY: pipelines
pipelines: $(VENV)/.dev ## Random pipelines of stencils, each draw run and proved; goes on where it was (SEED=0 COUNT=300 OPEN=1)
	$(BIN)/python -m campaigns.pipelines --seed $(SEED) --count $(COUNT) $(if $(OPEN),--open)

.PHONY: suite
suite: $(VENV)/.dev ## Random schedules of TVM's operators at their published sizes (SEED=0 SAMPLES=20 OPS=c1d,c2d_0)
	$(BIN)/python -m bench.suite --seed $(SEED) --samples $(SAMPLES) --threads $(THREADS) --ops "$(OPS)"

# The tests that draw schedules, by GPU_DRAWS, and those with more cases than each run of all tests has.
GPU_TESTS = $(shell grep -lwE "DRAWS|corpus" tests/gpu/test_*.py) tests/stdlib/test_gpu_draws.py

.PHONY: gpu
gpu: $(VENV)/.dev ## Random schedules of all operators for GPUs: PTX is made, and they are emulated (SEED=0 DRAWS=20)
	FIRST_SEED=$(SEED) GPU_DRAWS=$(DRAWS) $(BIN)/python -m pytest -q -n $(THREADS) $(GPU_TESTS)

.PHONY: fuzz
fuzz: $(VENV)/.dev ## Strange inputs for parser, checker and formatter (SEED=0 INPUTS=10000 JOBS=2)
	$(BIN)/python -m campaigns.fuzz --seed $(SEED) --count $(INPUTS) --jobs $(JOBS)

.PHONY: kills
kills: $(VENV)/.dev ## `tune` killed at random moments: nothing is left, nothing is lost (SEED=0 KILLS=50 SIGNAL=KILL)
	$(BIN)/python -m campaigns.kills --seed $(SEED) --count $(KILLS) --signal $(SIGNAL)

## Measure

.PHONY: device
device: $(VENV)/.dev ## Kernels on the GPU of this machine: proved, beside torch and nvcc, under compute-sanitizer; goes on where it was (SECONDS=1800)
	@mkdir -p $(OUT)
	$(BIN)/python -m bench.gpu --seconds $(SECONDS) --json $(OUT)/gpu.json --resume

.PHONY: device-bundle
device-bundle: $(VENV)/.dev ## What a machine with a GPU and without a network needs for `device`, in build/device-bundle
	rm -rf $(OUT)/device-bundle
	$(BIN)/python -m bench.gpu_bundle $(OUT)/device-bundle

.PHONY: bench
bench: $(VENV)/.bench ## Operators tuned, beside other libraries (OPS=gemm SIZES=512 PEERS=torch TRIALS=64)
	$(BIN)/python -m bench --ops "$(OPS)" --sizes "$(SIZES)" --peers "$(PEERS)" --trials $(TRIALS) --seed $(SEED) \
		--threads $(THREADS) --records $(OUT)/bench/records.sqlite

## End

.PHONY: clean
clean: ## Remove what was built, and .venv
	rm -rf $(VENV) $(OUT) dist editors/vscode/node_modules editors/vscode/LICENSE editors/playground/node_modules .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find tensorc_dsl tests bench campaigns tools docs -name __pycache__ -type d -exec rm -rf {} +
