# Everything a newcomer needs: `make run` and `make test`. Both do all set-up themselves.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export CARGO_TERM_COLOR ?= auto

NODE_STAMP := node_modules/.installed
WEB_STAMP  := web/dist/.built
# Files that the build itself writes are no sources: the compiled messages, and the files that their compiler keeps beside its settings.
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

# test-rust has built the program. Without the tests it has no `test-util` of tokio, so all that uses tokio would be compiled again
test: setup check test-rust test-web ## Run every check and every test
	npm run --silent --workspace clients test

check: $(WEB_STAMP) ## Formatting, lints, types and the wording of comments
	@scripts/check-language
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- --deny warnings
	npm run --silent --workspace web lint
	npm run --silent --workspace web typecheck
	npm run --silent --workspace clients lint
	npm run --silent --workspace clients typecheck

# Most tests wait, for PostgreSQL above all
test-rust: export RUST_TEST_THREADS ?= $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN) )))
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

.PHONY: help run build release test check test-rust test-web test-clients bench extensions setup setup-bench clean
