# kubexm. `make` lists what can be done.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What is built of the same commit by the same Go has the same bytes: see make reproducible.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
DATE := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
CLI := github.com/kubexm/kubexm/internal/cli
LDFLAGS := -s -w -buildid= -X $(CLI).version=$(VERSION) -X $(CLI).commit=$(COMMIT) -X $(CLI).date=$(DATE)
BUILDFLAGS = -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
GO := go
export GOFLAGS := $(GOFLAGS) -buildvcs=false

ifeq (,$(shell command -v $(GO)))
$(error Go 1.26 is needed and "$(GO)" is not on PATH: see https://go.dev/doc/install)
endif

.PHONY: help
help: ## this list
	@echo 'kubexm: production Kubernetes from bare Linux machines. Targets:'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## the program, bin/kubexm
	CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -o bin/kubexm ./cmd/kubexm

.PHONY: release
release: ## what is published, in dist: programs, archives, deb, rpm, image, SBOM, provenance, checksums (KEY=FILE: signed with this SSH key; PLATFORMS=linux/amd64,...: only these; DIST=DIR: elsewhere)
	$(GO) run ./hack/release -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)' $(if $(KEY),-key '$(KEY)') -platforms '$(PLATFORMS)' -dir '$(or $(DIST),dist)' -- $(BUILDFLAGS)

.PHONY: reproducible
reproducible: ## the program twice, in two places, from nothing: it must have the same bytes
	hack/reproducible.sh $(BUILDFLAGS)

.PHONY: test
test: deps ## all that is quick: vet, unit, golden, scenario and loopback-sshd tests, with the race detector
	$(GO) vet ./...
	@$(MAKE) -j2 test-race test-rest

# Tests that run with the race detector: all but those of internal/app, of which a few take every way that the others do.
RACES := Scenarios|KilledAtNode|LostOnce|Stop|Edits|Lease|Locked|Follow

.PHONY: test-race
test-race: # programs with the race detector would wait a second each before they end
	export GOGC=1000 GOMEMLIMIT=3GiB GORACE=atexit_sleep_ms=10; \
	$(GO) test -race -ldflags=-w -p 2 -timeout 30m -skip '^TestFaults[A-Z]' $$($(GO) list ./... | grep -v '/internal/app$$'); \
	$(GO) test -race -ldflags=-w -timeout 30m -run '^Test($(RACES))$$' ./internal/app

.PHONY: test-rest
test-rest: # tests that are slow with the race detector leave themselves out there: see pkg/util/racetest
	GOGC=1000 GOMEMLIMIT=3GiB $(GO) test -ldflags=-w -timeout 30m -skip '^TestFaults[A-Z]' ./internal/app $$(git grep -l racetest '*_test.go' | xargs dirname | sort -u | sed 's|^|./|')

.PHONY: test-faults
test-faults: ## every change, on every row, of a cluster that runs, and every moment at which a run can be killed or lose a host (FAULTS=REGEXP: only some; BUT=REGEXP: not those)
	GOGC=1000 GOMEMLIMIT=3GiB $(GO) test -ldflags=-w -timeout 60m -run '^TestFaults($(or $(value FAULTS),[A-Z]))' -skip '^TestFaults($(or $(value BUT),$$))' ./internal/app ./pkg/step

.PHONY: e2e-life
e2e-life: deps ## real clusters that are changed while they run and are used (ROW=N: one of 5, 7, 9, 13, 18, 21; LIFE=REGEXP: only some parts)
	E2E_LIFE=$(ROW) $(GO) test -tags e2e -count=1 -timeout 120m -v -run '^TestLife$$/./($(or $(value LIFE),.))' ./test/e2e

.PHONY: e2e-hosts
e2e-hosts: deps ## real clusters that get hosts and lose them while they are used (ROW=N: one of 1, 2, 4, 5, 7, 9, 13, 14, 18, 21, 22; HOSTS=REGEXP: only some of grow, worker, five, first, leader, address, roles, network, killed)
	E2E_HOSTS=$(ROW) $(GO) test -tags e2e -count=1 -timeout 180m -v -run '^TestHosts$$/./($(or $(value HOSTS),.))' ./test/e2e

.PHONY: e2e-upgrades
e2e-upgrades: deps ## real clusters that are upgraded while they are used, and go back (ROW=N: one of 1, 3, 5, 7, 9, 13, 18, 21; FROM=MINOR: 1.34 to 1.36; OFFLINE=1: with the cable cut)
	E2E_UPGRADE=$(ROW) E2E_FROM=$(FROM) E2E_OFFLINE=$(OFFLINE) $(GO) test -tags e2e -count=1 -timeout 180m -v -run '^TestUpgrades$$' ./test/e2e

.PHONY: e2e-certs
e2e-certs: deps ## real clusters whose certificates are renewed, and whose authorities are exchanged, while they are used (ROW=N: one of 1, 2, 5, 7, 9, 13, 18, 21, 22)
	E2E_CERTS=$(ROW) $(GO) test -tags e2e -count=1 -timeout 90m -v -run '^TestCertificates$$' ./test/e2e

.PHONY: e2e-backup
e2e-backup: deps ## real clusters that are backed up, brought back, and made again on new machines after all were lost (WAY=ROW-ROW: one of 1-1, 9-1, 1-9, 7-7, 2-18)
	E2E_BACKUP=$(WAY) $(GO) test -tags e2e -count=1 -timeout 90m -v -run '^TestBackups$$' ./test/e2e

.PHONY: e2e-large
e2e-large: deps ## a backup of an etcd with much data, its drill and its restore: seconds, memory, answers of the API meanwhile (SIZE=MEGABYTES)
	E2E_LARGE=$(or $(SIZE),1024) $(GO) test -tags e2e -count=1 -timeout 90m -v -run '^TestLargeBackup$$' ./test/e2e

.PHONY: e2e-system
e2e-system: deps ## real clusters whose operating systems are upgraded, and whose machines restart (ROW=N: one of 1, 7, 9, 21)
	E2E_SYSTEM=$(ROW) $(GO) test -tags e2e -count=1 -timeout 90m -v -run '^TestSystem$$' ./test/e2e

.PHONY: e2e-networks
e2e-networks: deps ## real clusters with other network plugins than flannel, from nothing and back (NETWORK=NAME: only calico, cilium, or cilium-alone, which has no kube-proxy; ROW=N: another row than 1; OFFLINE=1: from a bundle, with the cable cut)
	E2E_NETWORK=$(NETWORK) E2E_ROW=$(ROW) $(GO) test -tags e2e -count=1 -timeout 90m -v -run '^TestNetworks$(if $(OFFLINE),Offline)$$' ./test/e2e

# RUNTIME=NAME: all clusters of a test have another container runtime than containerd: cri-o or docker
export E2E_RUNTIME := $(RUNTIME)

# FAMILY=NAME: all machines and clusters of a test have other addresses than IPv4 ones: dual (both), or ipv6 (alone)
export E2E_FAMILY := $(FAMILY)

.PHONY: e2e
e2e: deps ## real clusters on machines of this machine's own making; needs root (E2E=REGEXP: only some parts)
	$(GO) test -tags e2e -count=1 -timeout 120m -v -run '$(or $(value E2E),.)' ./test/e2e

.PHONY: e2e-packages
e2e-packages: ## packages from the store on systems of their own, without a network; needs root, mmdebstrap, and for RPM dnf, dnf-plugins-core, createrepo-c, rpm
	$(GO) test -tags e2e -count=1 -timeout 30m -v ./test/packages

REPORT ?= $(CURDIR)/docs/support-matrix.md

.PHONY: e2e-matrix
e2e-matrix: deps ## real clusters for every row of the deployment matrix, broken in many ways; writes docs/support-matrix.md
	E2E_REPORT=$(REPORT) $(GO) test -tags e2e -count=1 -timeout 180m -v -run '^TestMatrix$$$(if $(ROW),/^row$(ROW)$$)' ./test/e2e

.PHONY: quickstart
quickstart: build bin/testbed ## a real cluster of two throw-away machines, from nothing; needs root
	@$(GO) run ./test/quickstart

.PHONY: quickstart-clean
quickstart-clean: ## remove what quickstart made
	@$(GO) run ./test/quickstart clean

.PHONY: bin/testbed
bin/testbed:
	@$(GO) build -o bin/testbed ./test/testbed/cmd/testbed

.PHONY: picture
picture: build bin/testbed ## docs/live.svg, from a real run; needs root
	@hack/picture.sh

.PHONY: pins
pins: build ## the checksums and digests built into kubexm, of all default versions, from their publishers; needs internet
	@$(GO) run ./hack/pins

.PHONY: site
site: ## the documentation as a site, in docs/.vitepress/dist
	@hack/site.sh

.PHONY: bench
bench: build ## the numbers of docs/benchmarks.md
	$(GO) run ./test/bench

.PHONY: lint
lint: lint-scripts ## golangci-lint, as pinned in tools/go.mod, shellcheck, and whether it builds for macOS
	$(GO) tool -modfile=tools/go.mod golangci-lint run
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/kubexm

.PHONY: lint-scripts
lint-scripts: deps # what hosts run
	shellcheck $$(git ls-files 'pkg/*.sh' 'hack/*.sh')

.PHONY: generate docs
generate: ## what is generated from the code: JSON Schema, reference of the command line
	$(GO) generate ./...
docs: generate ## the same

.PHONY: deps
deps: ## what tests need on this machine: installed with apt on Debian, as root
	@hack/deps.sh
