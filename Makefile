PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: install run test cluster smoke soak bench mutants lint type docs clean

DEMO := --samples 4000 --test-samples 1000
run: install  ## the demo: AMBER and HALO on the built-in data set, with reports
	rm -rf runs/demo
	$(BIN)/dhocl run $(DEMO) --out runs/demo/amber
	$(BIN)/dhocl run $(DEMO) --method halo --out runs/demo/halo
	$(BIN)/dhocl report runs/demo/amber runs/demo/halo --out runs/demo/compare.html

install: $(STAMP)  ## the environment, with the command at .venv/bin/dhocl

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

test: .venv/.dev  ## the test suite, but for Ray clusters; TESTS=tests/nn for a part of it
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m "not cluster" $(TESTS)

cluster: .venv/.dev  ## the tests on Ray clusters that lose a node
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster

smoke: install  ## every experiment of the paper, at the smallest scale
	rm -rf runs/smoke
	$(BIN)/dhocl sweep all

soak: .venv/.dev  ## kill the service 200 times under load, and check that each accepted image is learned once
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py

bench: install  ## measure speed; BENCH=--quick for a short run
	$(BIN)/python benchmarks/speed.py $(BENCH)

mutants: .venv/.dev  ## mutation testing; MUTANTS="losses --per-file 999" selects files
	$(BIN)/python benchmarks/mutants.py $(MUTANTS)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: .venv/.dev
	$(BIN)/mypy

docs: .venv/.dev  ## the site, in site/: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

.venv/.dev: $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv runs build site
