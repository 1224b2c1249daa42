# orrery: make help lists the targets. `make up` and `make test` install what is
# missing (on Debian and Ubuntu, as root).

SHELL := /bin/bash
export CGO_ENABLED := 0

KUBERNETES := 1.37.2
LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=v$(KUBERNETES) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37 \
	-X github.com/containerd/containerd/v2/version.Version=2.4.2

GO_SOURCES := $(shell find . -name '*.go' -not -path './node_modules/*' -not -path './web/app/*' -not -path './test/conformance/*' -not -path './test/clients/*')
WEB_SOURCES := $(shell find web/app client/words -type f -not -path '*/node_modules/*')

.PHONY: help deps build web generate test unit race soak fuzz clients page lint e2e browser browser-huge console soak-console pictures up down dev bench clean \
	conformance conformance-build conformance-report interchange differential bench-compare bench-report

help: ## Show this help
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## Install what building and running needs: Go is expected, the rest comes from apt and npm
	@test/install-deps

build: bin/orrery ## Build bin/orrery, dashboard and helper program included

bin/orrery: web/dist/index.html nodeagent/helper/built/helper $(GO_SOURCES) go.mod go.sum
	go build -ldflags "$(LDFLAGS)" -o $@ .

# The helper is what runs once per pod: shim and CNI plugin. It is embedded.
nodeagent/helper/built/helper: $(wildcard nodeagent/helper/*.go nodeagent/helper/pause/*.go) go.mod
	go build -ldflags "-s -w" -o $@ ./nodeagent/helper
	go build -ldflags "-s -w" -o nodeagent/helper/built/pause ./nodeagent/helper/pause

web: web/dist/index.html ## Build the dashboard's page

web/dist/index.html: $(WEB_SOURCES)
	cd web/app && npm ci --no-audit --no-fund && npm run build
	@touch $@

generate: ## Make generated files anew
	go generate ./...

test: deps build ## Run the tests: units, API, and the stories on a simulated and a real cluster
	go test ./...
	go test -C test/conformance ./...
	$(MAKE) page e2e console browser

unit: ## Run only what needs no cluster
	go test ./...

soak: ## Let readers, writers and mishaps loose on three API servers, for SOAK (10m), SEED=
	go test -count=1 -timeout 0 -run TestConsistency ./server -args -soak=$(or $(SOAK),10m) -seed=$(or $(SEED),0)

# An hour in all, unless FUZZTIME says otherwise.
fuzz: ## Fuzz decoders, patches, continue tokens, requests and streams (FUZZTIME=10m for each)
	go test -run '^$$' -fuzz FuzzDecode -fuzztime $(or $(FUZZTIME),10m) ./server
	go test -run '^$$' -fuzz FuzzRequest -fuzztime $(or $(FUZZTIME),10m) ./server
	go test -run '^$$' -fuzz FuzzPatch -fuzztime $(or $(FUZZTIME),10m) ./server/patch
	go test -run '^$$' -fuzz FuzzContinue -fuzztime $(or $(FUZZTIME),10m) ./server/storage
	go test -run '^$$' -fuzz FuzzMessages -fuzztime $(or $(FUZZTIME),10m) ./server/stream
	go test -run '^$$' -fuzz FuzzRequest -fuzztime $(or $(FUZZTIME),10m) ./nodeagent

clients: build ## Run helm and an operator, unmodified, against a simulated cluster
	go test -C test/clients -count=1 -timeout 15m . -args -orrery=$(CURDIR)/bin/orrery

page: web/dist/index.html ## Check the dashboard's types and run its units
	cd web/app && npm run check && npm test

race: ## Run the unit tests with the race detector (compiles everything again)
	CGO_ENABLED=1 go test -race -shuffle=on ./...

lint: ## Check formatting and vet
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go vet -C test/conformance ./...

e2e: build ## Run the stories of test/scripts, simulated and real (KUBECTL=PATH for another kubectl)
	go test -count=1 -timeout 30m ./test/scripts -args -orrery=$(CURDIR)/bin/orrery -kubectl=$(KUBECTL)

# CONFORMANCE_CACHE is where the programs and images of the suite are kept.
conformance: $(if $(CLUSTER),,build) conformance-runner ## Run the suite of Kubernetes (FOCUS= SKIP= PROCS= CONTINUE=1 CLUSTER=kubeconfig)
	bin/conformance/conformance run -focus "$$FOCUS" -skip "$$SKIP" -kubeconfig "$$CLUSTER" \
		$(if $(PROCS),-procs $(PROCS)) $(if $(CONTINUE),-continue)

conformance-build: conformance-runner ## Build the suite, its kubectl and its images, where not in the cache
	bin/conformance/conformance images

conformance-report: conformance-runner ## Write docs/conformance.md from the newest run, or RUN=name
	bin/conformance/conformance report $(RUN)

interchange: build conformance-runner ## Mix upstream's API server, scheduler and controllers with ours (FOCUS=)
	bin/conformance/conformance build kube-apiserver kube-controller-manager kube-scheduler
	go test -C test/conformance -count=1 -timeout 30m -run "$$FOCUS" ./interchange -args -orrery=$(CURDIR)/bin/orrery

differential: build conformance-runner ## Send upstream's API server and ours the same requests and compare (FOCUS=)
	bin/conformance/conformance build kube-apiserver kubectl
	go test -C test/conformance -count=1 -v -timeout 30m ./differential -args -orrery=$(CURDIR)/bin/orrery -focus="$$FOCUS"

bench-compare: build conformance-runner ## Measure upstream's API server and ours, in turns (FOCUS= ROUNDS=)
	bin/conformance/conformance build kube-apiserver
	go test -C test/conformance -count=1 -v -timeout 30m ./bench -args -orrery=$(CURDIR)/bin/orrery -focus="$$FOCUS" \
		-results=$(CURDIR)/bin/conformance/bench.json $(if $(ROUNDS),-rounds=$(ROUNDS))

bench-report: conformance-runner ## Write docs/bench.md from the newest bench-compare
	bin/conformance/conformance bench-report

.PHONY: conformance-runner
conformance-runner:
	go build -C test/conformance -o $(CURDIR)/bin/conformance/conformance .

browser: build ## Drive the dashboard in Chromium
	test/browser/run bin/orrery

browser-huge: build ## Measure the dashboard at 10,000 pods on 5,000 nodes, then at 500 changes/s (PODS= SOAK=minutes)
	NODES=5000 RATE=50 SOAK=0 test/browser/run bin/orrery huge
	NODES=200 RATE=500 test/browser/run bin/orrery huge

console: build ## Play the console in tmux, in terminals of several kinds
	go test -count=1 -timeout 30m ./test/console -args -orrery=$(CURDIR)/bin/orrery

soak-console: build ## Hold the console to its budgets at 10,000 rows that change (PODS= MINUTES=)
	go test -count=1 -timeout 0 -v -run TestSoak ./test/console -args -orrery=$(CURDIR)/bin/orrery -pods=$(or $(PODS),10000) -minutes=$(or $(MINUTES),10)

pictures: build ## Take docs/pictures anew, in both languages, light and dark
	test/browser/run bin/orrery pictures

up: deps build ## Start a cluster on this machine
	bin/orrery up

down: ## Stop it
	bin/orrery down

dev: build ## Start a simulated cluster, no root needed
	bin/orrery up --simulate --nodes 5

bench: ## Run the benchmarks
	go test -run '^$$' -bench . -benchmem ./server/... ./scheduler/... ./nodeagent/proxy/...

clean: ## Remove what was built
	rm -rf bin web/app/node_modules nodeagent/helper/built/helper nodeagent/helper/built/pause
	find web/dist -mindepth 1 -not -name .gitkeep -delete
