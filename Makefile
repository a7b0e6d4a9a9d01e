# Everything sets itself up: a virtual environment beside the checkout, the package in it, servers and a Java runtime on first use.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
WORKERS ?= 5
PATIENCE ?= $(or $(LEADERQ_TEST_PATIENCE),3)
MINUTES ?= 60
CHANGES ?= 100
TIMES   ?= 20
SEEDS   ?= 1000
STEPS   ?= 1000000
TICKS   ?= 1000
JOBS    ?= 2

# Where Python may not keep what it has compiled, each process that a test starts would compile all
# of it again: together a minute of two cores.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: compiled demo page simulate conformance ticks test test-long quick docs help lint unit faults soak queue-soak losses rude mutants compat lock bench servers clean

demo: $(READY)  ## a leader that bills clicks is killed, frozen and replaced; under two minutes
	@$(BIN)/leaderq demo

# Tests wait more than they compute: five workers keep two cores busy, and each may have to wait for
# the others, hence the patience, also with tests that compute. What tests/long.txt lists is left to
# test-long. Plain pytest runs one test after the other, the long ones too.
test: compiled  ## linters, types, layers, and all tests but the long ones; eight minutes
	@LEADERQ_TEST_PATIENCE=$(PATIENCE) $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal \
	  -o timeout=$$((180 * $(PATIENCE))) -m "not long"

test-long: compiled  ## all tests, also those of tests/long.txt; half an hour
	@LEADERQ_TEST_PATIENCE=$(PATIENCE) LEADERQ_TEST_CHANGES=$${LEADERQ_TEST_CHANGES:-2} \
	  LEADERQ_TEST_ONCE=$${LEADERQ_TEST_ONCE:-20} \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -o timeout=$$((180 * $(PATIENCE)))

# The tests on servers go first: they take longest, and the other worker has unit tests meanwhile.
quick: lint  ## linters, types, layers, unit tests and one test on servers a package; two minutes
	@$(BIN)/python -m pytest -n 2 --dist worksteal @tests/quick.txt tests/unit

# Simulated lives: so many of each kind, on all cores; prints the seeds that failed. One life with
# its history: make simulate KIND="elections of rude careers" SEED=4711.
simulate: $(READY)  ## lives in simulated time: SEEDS=100000, or KIND="elections of rude careers" SEED=4711
	@PYTHONPATH=.:tests $(BIN)/python -m simulation --seeds $(SEEDS) $(if $(KIND),--kind "$(KIND)") $(if $(SEED),--seed $(SEED))

# The simulated ensemble beside real servers, step by step, and a tenth of the steps beside three;
# VERSION="3.8" for one version only.
conformance: $(READY)  ## the simulated ZooKeeper beside real ones: STEPS=1000000 VERSION="3.8"
	@LEADERQ_CONFORMANCE_STEPS=$(STEPS) LEADERQ_CONFORMANCE_VERSION=$(VERSION) $(BIN)/python -m pytest \
	  --timeout 0 tests/integration/zookeeper/test_simulated_ensemble.py

# The browser is Debian's package chromium. In the other runs these tests are skipped without it.
page: $(READY)  ## leaderq dashboard in headless Chromium, with what axe finds
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check playwright axe-playwright-python
	@$(BIN)/python -m pytest tests/integration/dashboard

help:  ## this
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

lint: $(READY)  ## linters, types, layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || (echo "run: $(BIN)/ruff format ." && false)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

# One process compiles the tests while the linters run, and not each worker all of them.
compiled: $(READY)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 & \
	  $(MAKE) --no-print-directory lint; code=$$?; wait; exit $$code

# The documentation; warnings are errors. To be read at docs/_build/html/index.html.
docs: $(READY)  ## the documentation, in docs/_build/html
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo docs/_build/html/index.html

unit: $(READY)  ## tests without servers
	@$(BIN)/python -m pytest -n 2 --dist worksteal tests/unit

# Bugs of others recreated, producers killed, a journal killed at 30 points; the ordinary run does fewer.
faults: $(READY)  ## bugs recreated, journals killed at 30 points
	@LEADERQ_TEST_FAULTS=30 $(BIN)/python -m pytest tests/faults

# The nemesis against rude careers: make soak MINUTES=60 SEED=7. History and logs stay in logs/.
soak: $(READY)  ## the nemesis against rude careers: MINUTES=60 SEED=7
	@PYTHONPATH=tests/faults/careers $(BIN)/python -m leaderq.testing.nemesis --career bad_manners:Rude \
	  --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) --folder logs/nemesis-$$(date +%Y%m%d-%H%M%S)

# What queues cost servers of 256, 512 and 1000 MB, and a queue of 300,000.
queue-soak: $(READY)  ## queues on small servers, and with 300,000 items
	@LEADERQ_TEST_SOAK=1 $(BIN)/python -m pytest -s --timeout 1800 \
	  tests/integration/queues/test_kind_to_the_server.py tests/integration/queues/test_failed_items.py

# What a producer and its journal have taken: 10,000 simulated power cuts, a process killed at 1,000
# points, and Kafka away for a minute under 20,000 messages a second. Half an hour on two cores.
losses: $(READY)  ## 10,000 power cuts and 1,000 kills of a journal
	@LEADERQ_TEST_FAULTS=10000 $(BIN)/python -m pytest tests/unit/producing/journal/test_power_cut.py
	@LEADERQ_TEST_FAULTS=1000 $(BIN)/python -m pytest -s tests/faults/journal/test_journal_killed.py
	@$(BIN)/python benchmarks/producing.py --outage 60

# Changes of leader of careers that never look at their term, so many of each kind, and a table of
# the effects that came after; make test-long does two of each. KINDS is a regular expression.
rude: $(READY)  ## 100 changes of each kind: CHANGES=100 KINDS=freeze
	@LEADERQ_TEST_CHANGES=$(CHANGES) LEADERQ_TEST_KINDS="$(KINDS)" $(BIN)/python -m pytest tests/acceptance/running/test_rude_careers.py -k "not some"

# Schedules of real processes whose leaders are killed, frozen and cut off: TICKS ticks with on_crash
# again and skip, and a command that five hosts run once, 100 times.
ticks: $(READY)  ## 1,000 ticks under kills, freezes and black holes: TICKS=1000
	@LEADERQ_TEST_TICKS=$(TICKS) LEADERQ_TEST_ONCE=100 $(BIN)/python -m pytest \
	  tests/acceptance/running/test_schedules.py

# Small edits of the pure modules that a test must notice, and named controls (docs/design/mutants.md).
# ONLY="a text" tries the modules whose name contains it, ONLY=controls the controls; with
# TABLE=docs/design/mutants.md the figures there are written anew.
mutants: $(READY)  ## edits that tests must notice: ONLY="a text", ONLY=controls
	@PYTHONPATH=.:tests $(BIN)/python -m mutation --jobs $(JOBS) $(if $(ONLY),--only "$(ONLY)") $(if $(TABLE),--table $(TABLE))

# The supported servers, from their jars, and the supported Pythons that this machine has; a quarter
# of an hour. ONLY="3.6" tries those whose name contains it.
compat: $(READY)  ## the supported servers and Pythons: ONLY="a text"
	@PYTHONPATH=.:tests $(BIN)/python -m compat $(ONLY)

# What the pinned servers and those of make compat need, resolved again. Review the difference.
lock: $(READY)  ## the locked jars of all servers, resolved again
	@PYTHONPATH=.:tests $(BIN)/python -m compat.locking

# The peers that some of them are measured beside come with the extra "bench".
bench: $(READY)  ## all benchmarks
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@$(BIN)/python benchmarks/failover.py
	@$(BIN)/python benchmarks/drain.py
	@$(BIN)/python benchmarks/queues.py
	@$(BIN)/python benchmarks/dyno.py
	@$(BIN)/python benchmarks/coalescing.py
	@$(BIN)/python benchmarks/singular.py
	@$(BIN)/python benchmarks/schedules.py
	@$(BIN)/python benchmarks/journal.py
	@$(BIN)/python benchmarks/producing.py

servers: $(READY)  ## a ZooKeeper and a Kafka to try things with
	@$(BIN)/leaderq servers up

$(READY): setup.cfg pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "leaderq needs Python 3.10 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "leaderq needs Python's venv module to set itself up; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "setting up $(VENV) (once) ..." >&2
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

clean:  ## remove what was built
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache logs
