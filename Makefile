# SPDX-FileCopyrightText: the tiergate authors
# SPDX-License-Identifier: Apache-2.0

# `make` alone lists what there is.

GO        ?= go
# Without cgo the binary is static, and builds and tests share what they compile.
export CGO_ENABLED ?= 0
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS   := -s -w -X main.version=$(VERSION)
FUZZTIME  ?= 30s
# Tools are pinned here and run through the module proxy; they are not in go.mod.
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: help build demo test unit real race stress lint vuln cross vet fuzz bench microbench load storm endurance day abuse dist check clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## static binaries: bin/tiergate and bin/tiergate-loadtest
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/tiergate ./cmd/tiergate
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/tiergate-loadtest ./cmd/loadtest

demo: build ## the main job on a simulated cluster; needs Go only
	@bin/tiergate-loadtest demo --tiergate bin/tiergate

test: vet unit real ## all tests, real brokers included; downloads what it needs

vet:
	$(GO) vet ./...

# The end-to-end tests start brokers and take all cores: they run by themselves.
UNIT = $$($(GO) list ./... | grep -v -e /internal/e2e -e /loadtest/kafka)

unit: ## tests that need Go only
	$(GO) test $(UNIT)
	@# The event loop that is not the default, where there is one.
	@[ "$$($(GO) env GOOS)" != linux ] || TIERGATE_EVENT_LOOP=epoll $(GO) test ./proxy

# What failed is said again at the end, below the brokers' logs.
SUMMARY := 2>&1 | awk -f .ci/failures.awk
real: SHELL := bash
real: .SHELLFLAGS := -o pipefail -c
real: ## tests against real brokers: needs a JDK 17+, Maven, gcc and Python 3
	$(GO) test -timeout 20m ./loadtest/kafka/...
	@# -v: the figures (comparisons, requests on the wire) are part of the result.
	$(GO) test -timeout 40m -v ./internal/e2e $(SUMMARY)
	$(GO) test -timeout 20m -v ./internal/e2e/wholecluster $(SUMMARY)
	$(GO) test -timeout 30m -v ./internal/e2e/oldbrokers $(SUMMARY)
	$(GO) test -timeout 20m -v ./internal/e2e/follower $(SUMMARY)
	$(GO) test -timeout 20m -v ./internal/e2e/load $(SUMMARY)

# Cores have no goroutine (imports_test.go sees to it), nor have the configuration, the log
# model and the report: the race detector has nothing to find there. The load tests measure, and
# are too slow under it.
RACE = $$($(GO) list ./... | grep -e ^tiergate/proxy -e ^tiergate/upstream -e ^tiergate/cache$$ -e ^tiergate/cmd/ -e /testkit/sim -e /loadtest/fault)

race: SHELL := bash
race: .SHELLFLAGS := -o pipefail -c
race: ## the Go-only tests of what has goroutines, under the race detector
	CGO_ENABLED=1 $(GO) test -race -timeout 20m $(RACE) $(SUMMARY)

# Full size: 4 GB each way past sleeping readers, 5,000 connections cut, 400 that stall.
STRESS := -tags stress -count 1 -timeout 60m -run 'Asleep|CutAtRandom|ManySessionsThatStall' ./proxy

stress: ## the largest tests at full size, with and without the race detector
	$(GO) test $(STRESS)
	CGO_ENABLED=1 $(GO) test -race $(STRESS)

lint: ## golangci-lint, as pinned above
	nice -n 10 $(GO) run $(GOLANGCI) run

vuln: ## govulncheck, as pinned in .ci/vuln; fails, and says so, where its database cannot be reached
	@.ci/vuln

cross: ## builds everything for the other platforms of a release
	for t in linux/arm64 darwin/arm64; do GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build ./... || exit 1; done

fuzz: ## every fuzz test for FUZZTIME each
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$p || exit 1; \
	  done; done

microbench: ## Go benchmarks of the cores
	$(GO) test -run '^$$' -bench . -benchmem ./codec/... ./rewrite/... ./proxy/...

bench: ## beside HAProxy, nginx and io.Copy; writes docs/performance.md
	$(GO) run ./loadtest/bench/cmd/proxybench run --doc docs/performance.md

load: build ## maximum and half load on a real broker, beside HAProxy; writes docs/performance.md
	bin/tiergate-loadtest run maximum-and-half --out bin/load --doc docs/performance.md

storm: build ## -6 of 1,000 partitions from 64 clients, beside native brokers; writes docs/performance.md
	bin/tiergate-loadtest run pending-upload-storm --out bin/storm --doc docs/performance.md

endurance: build ## half an hour with faults on three brokers; writes docs/performance.md
	bin/tiergate-loadtest run endurance --out bin/endurance --doc docs/performance.md

day: build ## the faults of a day in 45 minutes on three brokers; writes docs/performance.md
	bin/tiergate-loadtest run day-of-faults --out bin/day --doc docs/performance.md

abuse: build ## attacks while 50 clients use the proxy, beside HAProxy; writes docs/abuse.md
	bin/tiergate-loadtest abuse --tiergate bin/tiergate --doc docs/abuse.md

dist: ## release binaries in dist/
	for t in linux/amd64 linux/arm64 darwin/arm64; do \
	  GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/tiergate-$${t%/*}-$${t#*/} ./cmd/tiergate || exit 1; \
	  GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/tiergate-loadtest-$${t%/*}-$${t#*/} ./cmd/loadtest || exit 1; \
	done

check: ## what a change must pass: the same as CI
	.ci/run

clean:
	rm -rf bin dist
