# The commands of this repository. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
ARGS   ?=
# Test files side by side. Most tests wait for processes most of the time.
JOBS   ?= 3

FIRST  := $(notdir $(firstword $(sort $(wildcard notebooks/*.ipynb))))
# JupyterLab refuses to run as root unless it is told that this is meant (containers).
ROOT   := $(if $(filter 0,$(shell id -u)),--allow-root)

# The stamp holds the folder in which it was made: a copied or moved checkout sets up afresh.
STAMP  := $(VENV)/labkit-installed
MOVED  := $(if $(filter $(abspath $(VENV)),$(shell cat $(STAMP) 2>/dev/null)),,moved)

# nbgrader is there for a test; its menus have no place in a learner's JupyterLab.
NBGRADER := $(addprefix nbgrader.server_extensions.,formgrader validate_assignment assignment_list course_list)

.DEFAULT_GOAL := help
.PHONY: help setup lab test faults chaos soak lint format package bench validate notebooks needs clean moved

help: ## list these commands
	@echo 'make COMMAND [ARGS="..."] [PYTHON=python3.12]'
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## make .venv and install everything; does nothing when nothing changed

$(STAMP): pyproject.toml constraints.txt $(MOVED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo 'labkit needs Python 3.10 or newer. Name one: make setup PYTHON=python3.12'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo 'This Python cannot make virtual environments.'; \
	    echo 'On Debian or Ubuntu: apt-get install python3-venv. Or name another: make setup PYTHON=...'; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@echo 'installing into $(VENV), which takes a few minutes ...'
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  --config-settings editable_mode=compat -e '.[lab,dev]'
	$(PY) -m jupyter labextension disable --level=sys_prefix @jupyter/nbgrader >/dev/null 2>&1
	$(PY) -m jupyter server extension disable --sys-prefix $(NBGRADER) >/dev/null 2>&1
	@echo '$(abspath $(VENV))' > $@

lab: setup ## open JupyterLab at the first notebook; ARGS go to `jupyter lab`
	$(PY) -m jupyter lab --ServerApp.root_dir=notebooks \
	  --LabApp.default_url='/lab/tree/$(FIRST)' $(ROOT) $(ARGS)

# Compiled once: where Python stores no bytecode, each of hundreds of processes would do it anew.
test: setup ## run the tests and check every notebook; ARGS go to pytest
	@$(PY) -m compileall -q labkit tests scripts
	$(PY) -m pytest -n $(JOBS) --no-loadscope-reorder $(ARGS)

faults: setup ## plant every fault, and write tests/faults/README.md; ARGS as of `python -m tests.faults`
	$(PY) -m tests.faults $(ARGS)

chaos: setup ## 500 episodes of random faults beside a model; ARGS go to pytest
	LABKIT_CHAOS_EPISODES=500 $(PY) -m pytest -n 0 --timeout 7200 tests/faults/test_chaos.py $(ARGS)

soak: setup ## half an hour and 100,000 batches: what grows?; ARGS as of `python -m tests.faults.soak`
	$(PY) -m tests.faults.soak $(ARGS)

lint: setup ## ruff (lint and format) and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup ## let ruff put the code in order
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

package: setup ## build the wheel and the sdist into dist; ARGS as of `python -m build`
	$(PY) -m build --no-isolation $(ARGS)

bench: setup ## measure the loaders on this machine; ARGS go to `python -m labkit bench`
	$(PY) -m labkit bench $(ARGS)

validate: setup ## predict settings of the loader, then measure them; ARGS as of `python -m labkit.lab.simulate validate`
	$(PY) -m labkit.lab.simulate validate $(ARGS)

notebooks: setup ## run every notebook again and store its outputs; ARGS name single ones
	$(PY) -m scripts.execute_notebooks $(ARGS)
	$(PY) -m scripts.numbers_to_expect

needs: setup ## measure what a learner needs of a server, and write notebooks/NUMBERS.md
	$(PY) -m scripts.learner_needs $(ARGS)
	$(PY) -m scripts.numbers_to_expect

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
