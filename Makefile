# Everything a newcomer needs: `make run` and `make test`. Both do all set-up themselves.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export CARGO_TERM_COLOR ?= auto

NODE_STAMP := node_modules/.installed
WEB_STAMP  := web/dist/.built
# Files that the build itself writes are no sources: the compiled messages, and the files that their
# compiler keeps beside its settings.
WEB_SOURCES := $(shell find web \( -path web/node_modules -o -path web/dist -o -path web/src/paraglide -o -path "web/project.inlang/*" ! -name settings.json \) -prune -o -type f -print 2>/dev/null)

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

run: $(WEB_STAMP) extensions ## Build what is missing and start the development server
	@cargo build --quiet --package portico --bin portico
	@exec "$${CARGO_TARGET_DIR:-target}/debug/portico" dev

build: $(WEB_STAMP) extensions ## Build the release program with the web app inside
	@cargo build --release --package portico --bin portico

release: $(WEB_STAMP) extensions ## The same, laid out by a profile of itself at work: faster, and takes three times as long
	@scripts/release

# Two parts at a time: the checks of TypeScript use one core, and the tests of the web app wait
test: setup ## Run every check and every test
	@$(MAKE) --no-print-directory --jobs=2 check-text linted-tests linted-web linted-clients run-tests run-clients

# Clippy is the compiler of the workspace here: one run of the compiler finds the lints and
# generates the code. `cargo clippy` would compile the dependencies once more. The clients start the
# program that this has built: built without the tests, the program has no `test-util` of tokio, and
# all that uses tokio would be compiled again
linted-tests run-tests: export RUSTC_WORKSPACE_WRAPPER = $(shell rustc --print sysroot)/bin/clippy-driver
linted-tests run-tests: export CLIPPY_ARGS = --deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

linted-tests: $(WEB_STAMP)
	cargo test --workspace --no-run --quiet

run-tests: linted-tests extensions
	cargo test --workspace --quiet

# The build has checked the types
linted-web: $(WEB_STAMP)
	npm run --silent --workspace web lint
	npm run --silent --workspace web test

linted-clients: $(NODE_STAMP)
	npm run --silent --workspace clients lint
	npm run --silent --workspace clients typecheck

run-clients: run-tests
	npm run --silent --workspace clients test

check-text:
	@scripts/check-language
	cargo fmt --all --check

# The build of the web app has checked its types
check: check-text $(WEB_STAMP) linted-clients ## Formatting, lints, types and the wording of comments
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	npm run --silent --workspace web lint

# Most tests wait, for PostgreSQL above all
test-rust run-tests: export RUST_TEST_THREADS ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
test-rust: $(WEB_STAMP) extensions ## The server's tests, on a real PostgreSQL
	cargo test --workspace --quiet

test-web: $(NODE_STAMP) ## The web app's unit tests
	npm run --silent --workspace web test

test-clients: setup $(WEB_STAMP) extensions ## The official clients and a browser against a running server
	cargo build --quiet --package portico --bin portico
	npm run --silent --workspace clients test

bench: setup-bench release ## Measure against the limit of this machine
	cargo run --release --quiet --package portico-bench

extensions: $(NODE_STAMP) ## Fetch the extensions of PostgreSQL that its npm package lacks
	@scripts/extensions

setup: $(NODE_STAMP) ## Install what the tests need (Chromium)
	@scripts/setup test

setup-bench:
	@scripts/setup bench

clean: ## Remove everything that was built
	rm -rf target node_modules web/dist web/src/paraglide web/node_modules clients/node_modules clients/artefacts

$(NODE_STAMP): package.json package-lock.json web/package.json clients/package.json
	@scripts/setup run
	@npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(WEB_STAMP): $(NODE_STAMP) $(WEB_SOURCES)
	@npm run --silent --workspace web build
	@touch $@

.PHONY: help run build release test linted-tests run-tests linted-web linted-clients run-clients check check-text test-rust test-web \
	test-clients bench extensions setup setup-bench clean
