# The two commands are `make demo` and `make test`; each installs what is missing and says so.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PACKAGES := proto event manifest receipt acp transport gateway agent-svc kernel sandbox-svc sandbox-init egress model-svc audit-svc ledger harness e2e
BENCH ?=

.PHONY: demo test lint bench clean setup setup-tests build

# The hostile-repository demonstration: five processes, a real container, one JSON document on stdout.
demo: setup
	@cargo build --locked --workspace --bins >&2
	@$(TARGET)/debug/harness demo $(if $(KEEP),--keep)

# Every test. An engine or a package that is missing is an error here, never a skip.
test: setup-tests build
	cargo test --locked --workspace

build:
	cargo build --locked --workspace --bins

# What `.ci/run` checks beside the tests: format, lints, each package alone, documentation.
lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	for package in $(PACKAGES); do echo "check $$package alone"; cargo check --locked --quiet --package $$package; done
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet

# Medians beside yardsticks of the same run, in target/bench.json. BENCH=prefix picks some.
bench: setup
	cargo build --locked --release --workspace --bins
	cargo run --locked --release --package e2e --bin bench -- --out $(TARGET)/bench.json $(if $(BENCH),--prefix $(BENCH))

setup:
	@deploy/setup.sh demo >&2

setup-tests:
	@deploy/setup.sh tests >&2

clean:
	cargo clean
