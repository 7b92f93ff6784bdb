# make            set up .venv from the pins, run the default experiment, write results/default/report.html
# make test       set up .venv, run the tests that a change needs, a file at a time on each core (8 at most)
# make test-all   all tests, as CI runs them
# make test-slurm run a grid through a real one-node Slurm, with faults (as root; docs/slurm.md)
# make figures    redraw the pictures of results/reference from its tables, no training
# make bench      time zoo-mini on this machine, write results/bench (at most 8 minutes, one core)
# make lint       formatting, names, types, workflow (a minute, most of it types)
# make docs       the pages of docs/ as a site; python3 -m http.server --directory site shows it
# make backbone   rebuild the embedded language models, in results/backbone
# make lamorel-env  set up .venv-lamorel, in which runs go behind lamorel (docs/lamorel.md)
# make clean      remove caches (never results)
#
# PYTHON=python3.12 make ...   takes another interpreter, 3.11 or newer, for .venv

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.installed
DOCS := .venv-docs
LAMOREL := .venv-lamorel
LAMOREL_ENV := envs/lamorel.yml
LAMOREL_READY := $(LAMOREL)/.installed-$(basename $(notdir $(LAMOREL_ENV)))

.DEFAULT_GOAL := report
.PHONY: report test test-all test-slurm figures bench lint docs backbone lamorel-env clean

report: $(READY)
	$(VENV)/bin/snakemake
	$(VENV)/bin/snakemake --report results/default/report.html

TESTS := $(VENV)/bin/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile

test: $(READY)
	$(TESTS) -m "not slow"

test-all: $(READY)
	$(TESTS)

test-slurm: $(READY)
	$(VENV)/bin/python -m tests.slurm

figures: $(READY)
	$(VENV)/bin/snakemake figures

bench: $(READY)
	$(VENV)/bin/python -m magellan bench

lint: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/snakefmt --check Snakefile workflow
	$(VENV)/bin/snakemake --lint
	$(VENV)/bin/mypy

# A warning is an error. The site needs text only: an environment of its own, made in seconds.
docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

$(DOCS)/.installed: docs/requirements.txt
	@test -x $(DOCS)/bin/pip || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

backbone: $(READY)
	$(VENV)/bin/snakemake backbone

lamorel-env: $(LAMOREL_READY)

# The lines under `pip:` are what pip reads from a file. One version at a time: the other's mark goes.
$(LAMOREL_READY): $(LAMOREL_ENV)
	@test -x $(LAMOREL)/bin/pip || $(PYTHON) -m venv $(LAMOREL)
	sed -n 's/^      - //p' $< > $(LAMOREL)/requirements.txt
	$(LAMOREL)/bin/python -m pip install --disable-pip-version-check --requirement $(LAMOREL)/requirements.txt
	# lamorel looks there for --config-path configs/little_zoo/, as the paper's commands name it.
	ln -sfn "$(CURDIR)/configs" "$$($(LAMOREL)/bin/python -c 'import lamorel_launcher as here; print(here.__path__[0])')/configs"
	@rm -f $(LAMOREL)/.installed-* && touch $@

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache site
	find . \( -path ./$(VENV) -o -path ./$(DOCS) -o -path ./$(LAMOREL) -o -path ./.git -o -path ./results \) -prune -o \
	  -name __pycache__ -prune -exec rm -rf {} +

# Made anew when the pins change; an existing .venv is kept and only brought up to date.
$(READY): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "make: $(PYTHON) is missing or older than Python 3.11; name a newer one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 14))' || \
	  echo "make: the pins have wheels for Python 3.11 to 3.13; with $(PYTHON) some are compiled, else: make PYTHON=python3.11" >&2
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --requirement requirements.txt
	@touch $@

# The same pins for conda users.
environment.yml: requirements.txt
	@{ echo '# conda env create --file environment.yml; the pins are those of requirements.txt (make environment.yml).'; \
	   printf '%s\n' 'name: magellan-bench' 'channels:' '  - conda-forge' 'dependencies:' '  - python=3.11' '  - pip' '  - pip:'; \
	   grep -v '^#' requirements.txt | sed 's/^/      - /'; } > $@
	@echo "wrote $@"
