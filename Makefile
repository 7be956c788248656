# Two commands: `make lab` to use it, `make test` to check it. Each does its own set-up
# on a machine that has Python 3.11 or newer, pip and make. `make help` lists the rest;
# CONTRIBUTING.md says what each one runs. Variables that may be set: PYTHON, VENV,
# WORKERS, LANES, PIP_ARGS (say, "--extra-index-url https://download.pytorch.org/whl/cpu").

VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
LANES ?= 2
PIP_ARGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Most of what is installed is never imported: what is, Python compiles itself. It may
# keep what it compiled, or each process would begin with all of torch and gradlab again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PIP) install -q --no-compile -c constraints.txt $(PIP_ARGS)
# Jupyter asks for this one to check addresses of a kind that nobody has here, and it
# builds 38 grammars whenever it is imported: four seconds of each process that reads a
# notebook. Its checks are left out where it is missing.
SPARE := $(PIP) uninstall -q -y rfc3987-syntax

# The first interpreter that is new enough; shims that answer with an error count as no.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14 python; \
	do $$name -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$name; break; }; done)

# An installation is redone when what it was made from has changed, not when a file was
# touched: the stamp carries the contents in its name.
STATE := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
VENV_READY := $(VENV)/.gradlab-venv
LAB_READY := $(VENV)/.gradlab-lab-$(STATE)
DEV_READY := $(VENV)/.gradlab-dev-$(STATE)

NOTEBOOK_FILES = $(wildcard notebooks/*.ipynb tutorials/*.ipynb tutorials/*/source/*/*.ipynb)
SITE := build/site
FAILED := build/failed
AS_ROOT = $(shell [ "$$(id -u)" = 0 ] && echo --allow-root)
# One thread per worker: two workers with two threads each only fight.
QUIET_BLAS := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(QUIET_BLAS) $(BIN)/python -m pytest
# Its import takes each process of pytest a second or two, for the sake of notebooks.
NO_NBMAKE := -p no:nbmake
UNIT := $(PYTEST) -q -n $(WORKERS) --dist worksteal $(NO_NBMAKE) --ignore=tests/browser \
	--durations=25

.DEFAULT_GOAL := help
.PHONY: help lab test test-unit test-beside lint format unit coverage notebooks site browser \
	bench nightly hooks wheel pictures clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

lab: $(LAB_READY) ## install, then open JupyterLab on notebooks/bug_hunt.ipynb
	$(BIN)/jupyter lab --ip=127.0.0.1 $(AS_ROOT) \
		--LabApp.default_url=/lab/tree/notebooks/bug_hunt.ipynb

# Unit tests compute all the time, browser tests mostly wait for a page: side by side
# they take little longer than the longer of the two. What the stages beside the unit
# tests have to say is shown when each of them has ended.
STAGE = $(MAKE) --no-print-directory $$stage || touch $(FAILED)/$$stage

test: $(DEV_READY) ## everything: lint, unit, notebooks, site, browser
	@rm -rf $(FAILED) && mkdir -p $(FAILED)
	@$(MAKE) --no-print-directory -j $(LANES) test-unit test-beside
	@failed=$$(ls $(FAILED)); \
	if [ -n "$$failed" ]; then echo "make test: failed:" $$failed >&2; exit 1; fi

test-unit:
	+@echo "--- unit (the other stages run beside it)"; stage=unit; $(STAGE)

test-beside:
	+@for stage in lint notebooks site browser; do \
		{ echo; echo "--- $$stage"; $(STAGE); } >build/$$stage.log 2>&1 || exit 1; \
		cat build/$$stage.log; \
	done

LINTERS := "ruff format --check" "ruff check" mypy lint-imports

lint: $(DEV_READY) ## ruff, mypy --strict, import-linter, outputs left in notebooks
	@status=0; \
	for linter in $(LINTERS) $(if $(NOTEBOOK_FILES),"nbstripout --verify $(NOTEBOOK_FILES)"); do \
		echo "$$linter"; $(BIN)/$$linter || status=1; \
	done; \
	exit $$status

pictures: $(DEV_READY) $(VENV)/.gradlab-chromium ## make README's pictures from the notebooks
	$(BIN)/python tutorials/images/make_pictures.py

format: $(DEV_READY) ## let ruff and nbstripout put files right
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(if $(NOTEBOOK_FILES),$(BIN)/nbstripout $(NOTEBOOK_FILES))

unit: $(DEV_READY) ## unit tests, property tests and doctests
	$(UNIT) tests gradlab

# Tracing takes a test twice its time: it is not part of `make test`.
coverage: $(DEV_READY) ## the same, with branch coverage
	$(UNIT) --cov --cov-report=term:skip-covered tests gradlab

# The course is executed where its pages are built from, once for both.
notebooks: $(DEV_READY) ## run every notebook from top to bottom
	rm -rf $(SITE)
	mkdir -p $(SITE)
	cp -r tutorials/. $(SITE)
	cp -r notebooks $(SITE)/instruments
	cp CONTRIBUTING.md CHANGELOG.md $(SITE)
	GRADLAB_PAGES=1 $(QUIET_BLAS) $(BIN)/python tests/kernels.py run \
		env $(PYTEST) -q -n $(WORKERS) --nbmake --nbmake-timeout=1800 --overwrite $(SITE)

site: $(DEV_READY) ## build the course, the gallery and the reference as pages
	@[ -d $(SITE)/instruments ] || $(MAKE) --no-print-directory notebooks
	$(BIN)/jupyter-book build -W --keep-going --quiet $(SITE)
	@echo "The pages: $(SITE)/_build/html/index.html"

browser: $(DEV_READY) $(VENV)/.gradlab-chromium ## click and drag in a real JupyterLab
	GRADLAB_CHROMIUM="$$(cat $(VENV)/.gradlab-chromium)" \
		$(PYTEST) -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
		-p no:randomly $(NO_NBMAKE) tests/browser

bench: $(DEV_READY) ## measure (nothing fails for being slow)
	$(PYTEST) -p no:randomly -p no:xdist --benchmark-enable \
		--benchmark-columns=min,median,stddev,rounds tests/benchmarks
	@# Those that need a process of their own, to see their memory.
	@for script in tests/benchmarks/bench_*.py; do \
		[ ! -f "$$script" ] || { echo "--- $$script"; $(BIN)/python "$$script"; } || exit 1; \
	done

nightly: $(DEV_READY) ## the unit tests with more random examples, other draws, a real clock
	GRADLAB_HYPOTHESIS=nightly GRADLAB_CLOCK=real GRADLAB_SEED=$$(date +%Y%m%d) $(PYTEST) -q -n $(WORKERS) --ignore=tests/browser tests

hooks: $(DEV_READY) ## run the linters before every commit
	$(BIN)/pre-commit install

wheel: $(DEV_READY) ## build a wheel into dist/
	$(PIP) wheel -q --no-deps --wheel-dir dist .

clean: ## remove the environment and everything generated
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis .benchmarks .coverage .coverage.* htmlcov build dist

$(VENV_READY):
	@[ -n "$(PYTHON)" ] || { \
		echo "gradlab needs Python 3.11 or newer, and none of python3, python3.11 to" \
			"python3.14 is one. Install it, or say: make PYTHON=/path/to/python" >&2; \
		exit 1; }
	@# Debian keeps ensurepip in a package of its own; pip can fill the gap (22.3 on).
	@$(BIN)/python -m pip --version >/dev/null 2>&1 \
		|| $(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) \
			&& $(PYTHON) -m pip --python $(BIN)/python install -q pip; }
	@# Older ones know no dependency groups.
	$(PIP) install -q --upgrade $(PIP_ARGS) 'pip>=25.1'
	@touch $@

$(LAB_READY): | $(VENV_READY)
	@echo "Installing into $(VENV); the first time this takes some minutes."
	$(INSTALL) torch
	$(INSTALL) -e '.[torch]' --group lab
	$(SPARE)
	@rm -f $(VENV)/.gradlab-lab-* && touch $@

$(DEV_READY): | $(LAB_READY)
	$(INSTALL) --group dev
	$(SPARE)
	@rm -f $(VENV)/.gradlab-dev-* && touch $@

# Not remembered when it fails, and looked for again when the browser has gone.
CHROMIUM_THERE := $(shell [ -x "$$(cat $(VENV)/.gradlab-chromium 2>/dev/null)" ] && echo yes)
ifneq ($(CHROMIUM_THERE),yes)
.PHONY: $(VENV)/.gradlab-chromium
endif
$(VENV)/.gradlab-chromium: | $(DEV_READY)
	@.ci/get-chromium $(BIN)/python > $@.part && mv $@.part $@
