# make demo      recycles one node of three before your eyes, on the local world; ARGS=--help lists the options
# make test      every test; ARGS='--since main' for those that the changes since a commit can affect
# make check     the fast part of them: under 90 seconds once built
# make scenario FILE=path/to/a_test.py [ARGS=-x]    one scenario file or several, wherever they lie
# make readings  the scenarios that depend on what AWS's documentation leaves open, under each reading; ARGS="-k restore" for some
# make versions  scenarios about pods on the oldest and the newest Kubernetes of EKS; builds two control planes the first time (9 minutes each)
# make prose     comments, texts and documentation for plain English; FILE='path …' for some of them, ARGS=--count for a summary
# make package   the functions' release zips and the command line for arm64 and x86_64, in dist/; ARGS=arm64 for one of them
# make release   prepares a release in dist/release and checks it: VERSION=1.2.3; ARGS=--check only checks
# make bench     measures the functions beside a plain Python version, for docs/performance.md; ARGS=--quick takes few samples, writes nothing
# make scale     rotates 500 nodes in 21 groups on the local world and compares with AWS's quotas; ARGS=--help lists the options
# make recordings   checks that requests, calls and answers of the functions are as before in twenty scenario files; ARGS=--help
# make campaign  causes one fault at every place where one is possible, and checks the state afterwards; ARGS=--help lists the options
# make mutants   changes what is decided, in one place at a time, and runs the tests of it; ARGS='--shard 0/8 --sharding round-robin' for an eighth
# make probe     asks an AWS account what its documentation leaves open: a few cents, 40 minutes; ARGS=--validate-only creates nothing
# make dashboard runs a day of two groups on the local world, and writes docs/dashboard.svg and docs/messages.md
# make pins      pins the Python packages of the tests with their hashes, from the *.in files; needs uv; ARGS=--upgrade for newer versions
# make provider  writes tests/contract/provider_6.json again: what AWS provider 6 has of the module's resources; needs npm and the network
# make generate  writes again what is generated from the code (tests fail when it is stale)

.PHONY: help demo test check scenario readings versions prose recordings package release bench scale campaign mutants probe dashboard pins provider generate
.SILENT:
.DEFAULT_GOAL := help

help:
	sed -n 's/^# //p' Makefile

python = python=$$(python3 tests/prepare.py) && exec "$$python"
with_linters = python=$$(python3 tests/prepare.py linters) && exec "$$python"

demo:
	export PYTHONPATH=tests; $(python) -m demo $(ARGS)

test:
	$(with_linters) tests/run.py test $(ARGS)

check:
	$(with_linters) tests/run.py check

scenario:
	test -n "$(FILE)" || { echo "usage: make scenario FILE='path/to/a_test.py path/to/another'" >&2; exit 2; }
	$(python) tests/run.py scenario $(FILE) $(ARGS)

readings:
	$(python) tests/run.py readings $(ARGS)

versions:
	$(python) tests/run.py versions $(ARGS)

prose:
	PYTHONPATH=tests exec python3 -m prose $(FILE) $(ARGS)

recordings:
	export PYTHONPATH=tests; $(python) -m recordings $(ARGS)

package:
	python3 tests/package.py $(ARGS)

release:
	test -n "$(VERSION)" || { echo "usage: make release VERSION=1.2.3 [ARGS=--check]" >&2; exit 2; }
	python3 tests/release.py "$(VERSION)" $(ARGS)

bench:
	export PYTHONPATH=tests; $(python) -m bench $(ARGS)

scale:
	export PYTHONPATH=tests; $(python) -m scale $(ARGS)

campaign:
	export PYTHONPATH=tests; $(python) -m campaign $(ARGS)

mutants:
	cargo mutants --version > /dev/null 2>&1 || cargo install --locked cargo-mutants
	PROPTEST_CASES=32 cargo mutants --package recycle --jobs 2 --timeout 60 --output target $(ARGS)

probe:
	export PYTHONPATH=tests; python=$$(python3 -c 'import prepare; print(prepare.install_python())') && exec "$$python" -m probe $(ARGS)

dashboard:
	export PYTHONPATH=tests; $(python) -m dashboard

pins:
	python3 tests/pins.py $(ARGS)

provider:
	python3 tests/provider_schema.py

generate:
	$(python) tests/run.py generate
