# make demo      recycles one node of three before your eyes, on a local world that is real
# make test      every test
# make check     the fast part of them: under two minutes once built
# make scenario FILE=path/to/a_test.py [ARGS=-x]    one scenario file, wherever it lies
# make generate  writes again what is generated from the code (tests fail when it is stale)

.PHONY: help demo test check scenario generate
.SILENT:
.DEFAULT_GOAL := help

help:
	sed -n 's/^# //p' Makefile

python = python=$$(python3 tests/prepare.py) && exec "$$python"

demo:
	$(python) tests/demo.py $(ARGS)

test:
	$(python) tests/run.py test

check:
	$(python) tests/run.py check

scenario:
	test -n "$(FILE)" || { echo 'usage: make scenario FILE=path/to/a_test.py' >&2; exit 2; }
	$(python) tests/run.py scenario "$(FILE)" $(ARGS)

generate:
	$(python) tests/run.py generate
