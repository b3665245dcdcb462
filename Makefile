PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check
BIN = .venv/bin
JOBS ?= 2

.PHONY: demo test check lowest wheel docs bench page clean
demo: .venv/ready  ## explain predictions of a trained GNN
	$(BIN)/nseg demo

test: .venv/ready  ## run all tests and documentation examples
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations 15 -m "not slow and not ray"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray tests/test_backends.py

check: .venv/ready  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

KEEP ?= torch==2.13.0
lowest:  ## smoke test with the lowest versions that pyproject.toml allows, except KEEP; takes minutes and downloads a lot
	$(PYTHON) scripts/lowest_versions.py $(addprefix --keep ,$(KEEP))

wheel: .venv/ready  ## build a wheel into dist/, and try it in an empty environment
	$(BIN)/python scripts/build_wheel.py

docs: .venv/ready  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open site/index.html"

bench: .venv/ready  ## measure faithfulness and speed; needs NSEG_DATA, see benchmarks/README.md
	$(BIN)/python benchmarks/authors.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/methods.py --every 7

page:  ## build the report's page from its sources; needs npm
	cd src/nseg/reports/web && npm ci --no-audit --no-fund --ignore-scripts && npm run check && npm test && npm run build

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install $(PIP_FLAGS) -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv dist build site
