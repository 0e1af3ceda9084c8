# Two commands for a newcomer: `make demo` and `make test`. Everything else is for those who stay.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Two spinning OpenMP threads on a shared machine cost twenty times; bare names must not shadow
# Hugging Face's `kernels` and OpenAI's `agents`.
export OMP_NUM_THREADS := 1
export PYTHONSAFEPATH := 1

.PHONY: demo test lint bench clean

demo: $(STAMP)
	@$(BIN)/lethe demo

test: $(STAMP) lint
	$(BIN)/pytest -n auto --maxprocesses 8 --dist loadgroup -q

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python benchmarks/grade.py
	$(BIN)/python benchmarks/vgpu.py
	$(BIN)/python benchmarks/throughput.py

clean:
	rm -rf $(VENV) build dist *.egg-info

# torch first and exactly: an open range takes a CUDA build of several GB.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
