# Two commands are enough: `make search` and `make test`. Each sets everything up by itself.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 2
# processes that share the tests; ARGS="-n 0" for one that a debugger can follow

SITE ?= mkdocs
# what builds the pages; SITE=zensical builds the same

.PHONY: search test test-all test-minimum coverage lint bench bench-gpu docs tutorials package clean

search: $(VENV)/.ready  ## search an architecture for handwritten digits (minutes on two cores)
	OMP_NUM_THREADS=1 $(BIN)/python search.py $(ARGS)  # images of 8×8 are no work for two threads

test: $(VENV)/.ready  ## the tests that every change must pass
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(ARGS)

test-all: $(VENV)/.ready  ## the long ones too
	$(BIN)/python -m pytest $(ARGS)

test-minimum:  ## the tests with the oldest version of every dependency that setup.cfg allows
	$(PYTHON) -m venv .venv-minimum
	.venv-minimum/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-minimum/bin/uv pip install --quiet --python .venv-minimum --resolution lowest-direct --editable ".[test]"
	OMP_NUM_THREADS=1 .venv-minimum/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow" -W default $(ARGS)  # old versions warn of each other

coverage: export COVERAGE_FILE = $(CURDIR)/.coverage
coverage: $(VENV)/.ready  ## which lines `make test` runs, in processes that it starts too; the others are listed
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -n $(WORKERS) --dist loadfile -m "not slow" $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --show-missing

lint: $(VENV)/.ready  ## style and types
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(VENV)/.ready  ## speed, memory, and the growth of costs: benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.bench $(ARGS)
	$(if $(ARGS),,OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.growth)

bench-gpu: $(VENV)/.ready  ## layouts, precisions, and kernels on a GPU: one table in benchmarks/results
	$(BIN)/python -m benchmarks.gpu $(ARGS)

docs: $(VENV)/.ready  ## the site in build/html; a link to nothing fails it
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	$(BIN)/python -m docs.make_site
	NO_MKDOCS_2_WARNING=1 $(BIN)/$(SITE) build --strict $(ARGS)

tutorials: $(VENV)/.ready  ## runs the notebooks in docs/tutorials and keeps what they say; ARGS=own_space for one
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	$(BIN)/python -m docs.run_tutorials $(ARGS)

package: $(VENV)/.ready  ## the wheel and the sdist in dist/, checked
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

clean:  ## the environment; runs stay where they are
	rm -rf $(VENV)

$(VENV)/.ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@
