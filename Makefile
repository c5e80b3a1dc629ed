# fenced: power fencing for bare-metal Kubernetes. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell packaging/project.sh version)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.revision=$(shell packaging/revision.sh)
# The trace pages of gRPC, which nothing here serves, call methods by names that the linker cannot know: with them it keeps all methods,
# and the daemon is half as large again. packaging/ and test/scene build with the same tag.
TAGS := grpcnotrace
# Without debugging tables, which -s -w would drop again, compiling takes an eighth less. With -trimpath the folder of a clone is in nothing that is compiled, so
# the next clone finds it in the cache. Tests without the race detector, lint, packaging/, test/scene and docs/ have the same flags: with others, everything here would be compiled once more.
FLAGS := -trimpath -tags=$(TAGS) -gcflags=all=-dwarf=false
STATIC := CGO_ENABLED=0
BUILD := $(STATIC) $(GO) build $(FLAGS) -ldflags '$(LDFLAGS)' -o bin/
LINT := env GOFLAGS="$$($(GO) env GOFLAGS) $(FLAGS)" $(STATIC) $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2
# Counted, not timed: a timed go fuzz run that ends in mid-input reports its own deadline as a failure.
FUZZTIME ?= 100000x
SIM_SEEDS ?= 3000
SIM_FIRST ?= 1
# A soak draws fresh worlds. All seeds that it draws come from this one: make soak SEED=N draws them again. Fuzzing takes no
# seed; what it finds is a file in testdata/fuzz.
ifndef SEED
SEED := $(shell date +%s)
endif
CHECKS ?= 2000
# A program with the race detector sleeps a second at its end, and the tests run hundreds of them.
export GORACE ?= atexit_sleep_ms=10
PREFIX ?= /usr
DESTDIR ?=

.PHONY: help build programs test test-programs test-race test-package test-shipped test-engine test-sim test-alone test-systemd cover lint vuln vuln-if-reachable soak race laws once courses fuzz sim load drill bench bench-clusters bench-scale notices demo shots bundle rpm deb image release install controlplane deps fetch golden ci clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

build: ## build bin/fenced, bin/fenced-login and bin/fencectl, static
	$(BUILD) ./cmd/...
	packaging/tools/run.sh sbom $(VERSION) $$($(GO) env GOARCH) $(CURDIR) >bin/sbom.cdx.json

programs: # what test/scene takes from FENCED_PROGRAMS, as it builds them itself: each is linked once, not in each package that runs it
	$(STATIC) $(GO) build $(FLAGS) -ldflags '-s -w' -o bin/test/ ./cmd/fenced ./cmd/fencectl
	$(STATIC) $(GO) build $(FLAGS) -tags=failpoint,$(TAGS) -ldflags '-s -w' -o bin/test/fenced-failpoints ./cmd/fenced

deps: ## install the Debian peers the tests talk to (ipmi_sim, ipmitool, qemu, rpm), and fetch a kernel for a guest
	test/deps.sh
	test/vm/kernel.sh >/dev/null

# A TLS handshake with the registry that waits for a processor times out, and then a part of ci would fail without a defect.
fetch: # what the parts of ci need of Go, while the machine has nothing else to do
	$(STATIC) $(GO) list $(FLAGS) -deps -test ./... >/dev/null
	$(STATIC) $(GO) -C packaging/tools list $(FLAGS) -deps -test ./... >/dev/null
	$(LINT) -version
	test/vuln/vuln.sh

controlplane: ## build the tests' kube-apiserver, kube-controller-manager, kube-scheduler, etcd, Cluster API manager, kubectl and helm once; it prints how long each takes
	$(STATIC) $(GO) run $(FLAGS) ./test/rig/warm

# Several parts at once keep two cores busy, the longest packages first. With the race detector a test costs four times as much. It runs where the product
# shares a process with the test, and not where it would see the harness alone: there the daemon is a program of its own. The tests of the engine execute the same statements
# hundreds of times: with it run those that RACED names, which execute nearly all of them, and the others without it. So do most seeds of the simulation, and
# its rules that are broken on purpose. make race, part of the soak, has it everywhere; test/raced.sh compares what the tests in RACED execute with what all execute.
# No result is taken from the cache: go does not see what a test builds or runs as a program. make lint vets everything once; here each package would be vetted again, with the race detector and without.
RACED := internal/engine/testdata/race.txt
NAMED = ^($$(paste -sd'|' $(RACED)))\$$
# Without goroutines:
PURE := ./internal/policy ./internal/remediate ./internal/bmc ./internal/guard ./internal/manifest ./internal/reason ./internal/request ./internal/setup ./internal/suspend ./internal/times ./internal/typo ./internal/wire
# Whose tests have one goroutine, or another one that only waits for an answer; the tests of the engine and of api share timeline among several:
PLAIN := $(PURE) ./internal ./internal/history ./internal/login ./internal/order ./internal/timeline ./cmd/fenced-login
HARNESS := ./test/asroot ./test/chart ./test/crds/... ./test/dice ./test/drill ./test/fake ./test/ipmisim ./test/law ./test/load ./test/pace ./test/recipes ./test/redfishsim ./test/upgrade ./test/wall
LONGEST := ./test/e2e ./internal/engine ./internal/k8swatch ./packaging
PROGRAMS := ./test/e2e ./test/apiserver ./test/demo ./test/browser ./test/rig/... ./test/bench/... ./test/vm ./test/monitor ./test/vuln ./docs
# Scripts of fencectl that only look, by how their names begin: the program asks once and prints. Those that prompt, wait or follow have goroutines, as the page has.
LOOKS := ^TestScript$$/^(audit|bmc-audit|bmc-dependable|bmc-list|bmc-test|check-config|complete|conflict|explain|export|hold-group|init|json|log-level|machine|nodes|people|plan|report|simulate|status|support-bundle|target|timeline|unchecked|usage|version)
# Tests that read or write many megabytes, which costs the race detector ten times as much. They run without it, and other tests of the same packages run the same code with it.
HEAVY := ^(TestBackupRefusesHalfANode|TestBackupsOfTheLargestNodeInEachAttempt|TestEndlessAnswersEnd|TestEndlessFrameOfAWatchEnds|TestFramesAreBounded|TestImpostorOfTheAPIServerIsNoAnswer|TestImpostorOfTheAPIServerIsNoView)$$
HEAVYIN := ./internal/k8swatch ./internal/k8swatch/client ./internal/k8swatch/view ./internal/state
NICE := GOGC=200 nice
TESTFLAGS := -vet=off -count=1 -timeout 40m $(FLAGS) -ldflags='-s -w'
test: export FENCED_PROGRAMS := $(CURDIR)/bin/test
test: controlplane programs ## run every test, with the race detector where anything can race; every seed is fixed
	$(MAKE) --no-print-directory -j6 test-programs test-race test-package test-engine test-sim test-alone

test-programs:
	$(STATIC) $(GO) test $(TESTFLAGS) -p 2 $(PROGRAMS)

test-race:
	SIM_SEEDS=1 $(GO) test $(TESTFLAGS) -race -p 2 -skip '^TestAuditsNoticeMutants$$|$(HEAVY)|$(LOOKS)' ./internal/k8swatch $$($(GO) list ./... | grep -vxFf <($(GO) list $(PROGRAMS) $(PLAIN) $(HARNESS) ./packaging ./internal/engine))

test-package: # of the RPM that FENCED_RPM names, or else of one that it builds
	$(STATIC) $(GO) -C packaging/tools test -vet=off -count=1 $(FLAGS) ./...
	$(STATIC) $(GO) test $(TESTFLAGS) ./packaging

# What computes yields to what waits, so that control planes and daemons live no longer than they must: one that idles still takes two hundredths of a processor.
# In virtual time one goroutine waits for the other, and on two processors each wakes the other one: engine and simulation have one. The other parts fill the second.
test-engine:
	$(NICE) $(GO) test $(TESTFLAGS) -race -run "$(NAMED)" ./internal/engine
	$(STATIC) GOMAXPROCS=1 $(NICE) $(GO) test $(TESTFLAGS) -skip "$(NAMED)" ./internal/engine

test-alone:
	$(STATIC) $(NICE) $(GO) test $(TESTFLAGS) -p 2 $(PLAIN) $(HARNESS)
	$(STATIC) $(NICE) $(GO) test $(TESTFLAGS) -run "$(LOOKS)" ./cmd/fencectl

test-sim: # a part of its own, because it takes long
	SIM_FIRST=2 SIM_SEEDS=19 $(STATIC) GOMAXPROCS=1 $(NICE) $(GO) test $(TESTFLAGS) ./test/sim
	$(STATIC) $(NICE) $(GO) test $(TESTFLAGS) -p 1 -run "$(HEAVY)" $(HEAVYIN)

# The RPM is built first; FENCED_RPM=FILE takes one that is there. The tests mostly wait, the longest for systemd's watchdog.
test-systemd: controlplane deps ## part of test: the installed package under a real systemd fences over IPMI, survives kill -9 and a hung loop, knows who orders, and stops for good
	$(GO) test -count=1 -timeout 20m -parallel 3 -v -run '^Test(InstalledDaemon(Fences|WhoseLoopHangs|KnowsWhoUsedSudo)|InstalledUnitsUnderSystemd|SocketActivation|UnitsAreConfined)$$' ./packaging

cover: controlplane ## the same without the race detector, with coverage of the product
	$(GO) test -count=1 -timeout 40m -coverpkg=./internal/...,./cmd/... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -1

lint: ## gofmt, go vet, staticcheck with the checks of staticcheck.conf (all)
	@out=$$(gofmt -l cmd internal packaging test); if [ -n "$$out" ]; then echo "not gofmt-clean:"; echo "$$out"; exit 1; fi
	$(STATIC) $(NICE) $(GO) vet $(FLAGS) ./...
	$(STATIC) $(GO) vet $(FLAGS) -tags=failpoint,$(TAGS) ./internal/failpoint ./cmd/fenced
	$(STATIC) $(GO) -C packaging/tools vet $(FLAGS) ./...
	$(NICE) $(LINT) ./...

vuln: ## look up known vulnerabilities (govulncheck); where its database cannot be reached it fails, and says that nothing was checked
	test/vuln/vuln.sh ./...

fuzz: ## every fuzz target for $(FUZZTIME) inputs
	@set -e; for pkg in $$($(GO) list ./cmd/... ./internal/...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; done; done

sim: ## thousands of worlds that go wrong by a seed, in virtual time; then the search over the six steps, widened
	set -o pipefail; SIM_FIRST=$(SIM_FIRST) SIM_SEEDS=$(SIM_SEEDS) $(GO) test -run '^TestSimulation$$' -v -count=1 -timeout 4h ./test/sim | grep -Ev '^ *(=== |--- PASS)'
	FENCED_SEARCH=wide $(GO) test -run '^TestExplore$$' -v -count=1 -timeout 60m ./internal/remediate

# CI runs none of this: there every seed is fixed, so that a test fails only for a defect.
soak: controlplane deps ## all that rolls dice or needs long: laws, worlds, search, fuzzing, failpoints, load (hours; SEED=N repeats)
	@echo "soak: seed $(SEED); again with: make soak SEED=$(SEED)"
	$(MAKE) laws SEED=$(SEED)
	$(MAKE) sim SIM_FIRST=$(SEED) SIM_SEEDS=$(if $(filter file,$(origin SIM_SEEDS)),500,$(SIM_SEEDS))
	$(MAKE) fuzz
	$(MAKE) courses SEED=$(SEED)
	$(MAKE) once SEED=$(SEED)
	$(MAKE) load SEED=$(SEED)
	$(MAKE) drill SEED=$(SEED)
	FENCED_RECIPES=build $(GO) test -count=1 ./test/recipes
	$(MAKE) rpm
	packaging/rpm/again.sh $(VERSION) dist
	$(MAKE) race

# On several processors the race detector of Go 1.26 itself can end a test in virtual time with "CHECK failed"
# (golang/go#78156); look for DATA RACE.
race: controlplane ## every test on 1, 2 and 4 processors, with the race detector
	test/raced.sh $(PURE)
	$(GO) test -race -count=1 -cpu 1,2,4 -p 2 -timeout 2h -skip '^(TestExplore|TestAuditsNoticeMutants)' $(LONGEST) ./...

SOAK := FENCED_SOAK=1 FENCED_SEED=$(SEED)
laws: controlplane ## the packages with laws, histories and crashes: fresh seeds, $(CHECKS) worlds a law (SEED=N repeats)
	@echo "laws: seed $(SEED); again with: make laws SEED=$(SEED)"
	$(SOAK) RAPID_CHECKS=$(CHECKS) $(GO) test -count=1 -p 1 -timeout 4h \
	  $$(grep -rlE --include='*_test.go' '"github.com/fenced/fenced/test/(law|dice)"' cmd internal | xargs -n1 dirname | sort -u | sed 's,^,./,')

once: controlplane deps ## what CI leaves out because it takes long: a small crowd, small benchmarks, the page over 10,000 Nodes, the RPM out of its source RPM, the RPM for ARM, a release made twice, the chart by Helm 4, a Debian 12, and the bundle of the demo (SEED=N repeats)
	@echo "once: seed $(SEED); again with: make once SEED=$(SEED)"
	set -o pipefail; $(SOAK) $(GO) test -count=1 -p 1 -timeout 2h -run '^Test(ManyHostsSurviveKills|Measure|Where|MeasureClusters|ScaleMeasures|SourceRPMIsRebuilt|RPMForARM|ReleaseTwice|LifeOfTheDebOnBookworm|Helm4RendersTheSame|BundlePlays|Page|ThousandNodes|TenThousandNodesDraw)$$' -v ./test/load ./test/bench ./packaging ./test/chart ./test/demo ./test/browser | grep -Ev '^ *=== '

courses: controlplane ## every failpoint course, with the coin tossed anew (SEED=N repeats)
	@echo "courses: seed $(SEED); again with: make courses SEED=$(SEED)"
	set -o pipefail; $(SOAK) $(GO) test -count=1 -p 1 -timeout 2h -run '^TestFencedSurvives' -v ./test/e2e | grep -Ev '^ *=== '

bench: controlplane deps ## Go benchmarks, power against other clients, fenced under load on a real API server (10 minutes or more)
	set -o pipefail; $(GO) test -run '^$$' -bench . -benchmem ./internal/... | $(GO) run ./test/bench table
	CGO_ENABLED=0 $(GO) run ./test/bench power
	CGO_ENABLED=0 $(GO) run ./test/bench -busy
	CGO_ENABLED=0 $(GO) run ./test/bench -where -samples 1

bench-clusters: controlplane ## 200 clusters of 500 Nodes, three daemons, an etcd of three members: hand-over, balance, isolation (15 minutes or more, 8 GB)
	CGO_ENABLED=0 $(GO) run ./test/bench clusters

bench-scale: ## one daemon from 1,000 to 100,000 Nodes on the API in memory, each with a BMC: start, memory, decisions, reload, health check (long, and with much memory)
	CGO_ENABLED=0 $(GO) run ./test/bench scale

load: controlplane ## 300 hosts remediated at once while fenced is killed with -9 every few seconds (15 minutes or more)
	@echo "load: seed $(SEED); again with: make load SEED=$(SEED)"
	CGO_ENABLED=0 $(GO) run ./test/load -seed $(SEED)

drill: controlplane ## 200 schedules of partitions, delays and reboots for two bastions in network namespaces, after fenced with a rule broken was noticed (root; an hour or more; SEED=N repeats)
	@echo "drill: seed $(SEED); again with: make drill SEED=$(SEED)"
	CGO_ENABLED=0 $(GO) run ./test/drill -first $(SEED)

golden: ## rewrite what is compared: the version where files name it, the golden parts of the policy corpus, the traces of remediate, the manifests of each mode, the runbooks of the alerts, tables and drawings of docs/
	packaging/stamp.sh $$(packaging/project.sh version) .
	$(GO) test ./internal/policy -run '^TestCorpus$$' -update
	$(GO) test ./internal/remediate -run '^(TestInterlockTable|TestTraces)$$' -update
	$(GO) test ./internal/k8swatch -run '^TestRightsByMode$$' -update
	$(GO) test ./test/monitor -run '^TestRunbooksAreSectionsOfThePage$$' -update
	$(GO) test ./docs -run '^(TestShownWhere|TestEventTable|TestRooms|TestWhereFencedStands)$$' -update
	$(GO) test ./test/chart -run '^TestKustomizeIsTheChart$$' -update

notices: ## rewrite THIRD_PARTY_NOTICES, the licences of what the programs contain; CI compares it
	mkdir -p bin
	packaging/tools/run.sh notices $(CURDIR) >bin/notices.tmp && mv bin/notices.tmp THIRD_PARTY_NOTICES

# In one command with the flags of the shipped programs, so that what they share is compiled once, and both cores link.
demo: ## fence a hung node on a Kubernetes API in memory, and bring it back (CONTROLPLANE=real: on a real one, of KUBEBUILDER_ASSETS if set; KEEP=1: leave it running; SVG=FILE: draw it)
	@echo "building fenced, fencectl and the demo ..."
	@$(BUILD) ./cmd/fenced ./cmd/fencectl ./test/demo
	@bin/demo

shots: deps ## draw the pictures of the page of fencectl ui for the documents, from a fence that is on its way
	FENCED_SHOTS=$(CURDIR)/docs $(GO) test -count=1 -run '^TestShots$$' ./test/browser

bundle: ## pack the demo, fenced, fencectl and a control plane into dist/, to play on a machine without Go
	$(BUILD) ./cmd/fenced ./cmd/fencectl ./test/demo
	test/demo/bundle.sh $(VERSION) bin dist

rpm: ## build the RPM and the source RPM into dist/ (RPM_TARGET=aarch64, RPM_SIGN_KEY=NAME)
	packaging/rpm/build.sh $(VERSION) dist

deb: ## build the Debian package into dist/ (DEB_TARGET=arm64)
	packaging/deb/build.sh $(VERSION) dist

image: ## build an OCI image layout of the static programs as dist/image (IMAGE_ARCH="amd64 arm64")
	rm -rf dist/image
	packaging/image/build.sh $(VERSION) dist/image

release: ## all files of a release in dist/release: packages, images, tarballs, sums, bills of materials and provenance, signed (RELEASE_KEY=NAME); see docs/releasing.md
	packaging/release.sh dist/release

install: build ## install below DESTDIR with PREFIX
	packaging/install.sh "$(DESTDIR)" "$(PREFIX)"

# The RPM is built beside the other parts, which need nothing of it but for its own tests; those wait the longest, so it comes first. It is compressed less than the one that make rpm ships, which takes 20 s of a
# processor longer; make soak builds that one, twice.
ci: export FENCED_PROGRAMS := $(CURDIR)/bin/test
ci: deps fetch controlplane programs ## what CI runs: fixed seeds, and the seed corpora instead of fuzzing
	RPM_PAYLOAD=w1.zstdio FENCED_RPM=$(CURDIR)/dist/fenced-$(VERSION)-1.$$(uname -m).rpm \
	  $(MAKE) --no-print-directory -j7 test-shipped test-programs test-race test-engine test-sim test-alone lint build vuln-if-reachable

test-shipped: rpm
	$(MAKE) --no-print-directory test-package

vuln-if-reachable:
	test/vuln/vuln.sh ./... || [ $$? -eq 75 ] # what it cannot look up keeps nobody from building

clean: ## remove what was built here (the control plane's cache stays)
	rm -rf bin dist cover.out
