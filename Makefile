# Layerwright. `make` or `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VERSION  ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo devel)
REVISION ?= $(shell git describe --always --abbrev=40 --dirty --exclude='*' 2>/dev/null || echo unknown)

VERSION_PACKAGE := github.com/layerwright/layerwright/internal/version
LDFLAGS := -s -w -X $(VERSION_PACKAGE).Version=$(VERSION) -X $(VERSION_PACKAGE).Revision=$(REVISION)

# What keeps C libraries out of Buildah. Packages that link it are empty without these tags, so that nothing else needs them.
BUILDER_TAGS := containers_image_openpgp,exclude_graphdriver_btrfs

# Tools are built from their pinned modules and cached by Go.
TOOL     := go tool -modfile=hack/tools/go.mod
# Tests and the linter collect garbage seldom: their processes are short, and processors are what they wait for.
GOTESTSUM := env GOGC=400 $(TOOL) gotestsum --format=pkgname-and-test-fails --format-hide-empty-pkg
# Where a folder is given, it gets the events of the tests, for .ci/run.
events = $(if $(TEST_EVENTS),--jsonfile=$(TEST_EVENTS)/$(1).json)
GOLANGCI := env GOGC=400 go tool -modfile=hack/tools/golangci-lint/go.mod golangci-lint

# Every module of the repository, the product's first.
MODULES := . $(shell git ls-files '*/go.mod' 2>/dev/null | xargs -r -n1 dirname)

# Computation that tests do much of, and that the race detector makes several times as slow. Nothing that uses sync.Map or another generic type of
# sync or sync/atomic may be here, encoding/json for one: programs get one copy of their code, and where that is the one without the detector, it
# reports races that there are none (internal/archtest looks).
NOT_RACY := compress/flate crypto/internal/fips140/bigmod crypto/internal/fips140/edwards25519/field \
  github.com/distribution/distribution/v3/registry/storage/driver/inmemory go.yaml.in/yaml/v2 go.yaml.in/yaml/v3 \
  golang.org/x/crypto/scrypt math/big regexp
# The linter has run vet already.
PLAIN_FLAGS := -vet=off -timeout=30m -tags $(BUILDER_TAGS) -ldflags='-s -w'
# What is compiled does not depend on where the checkout is, so that a fresh one finds it in the cache.
UNIT_FLAGS  := -race -short -trimpath $(NOT_RACY:%=-gcflags=%=-race=false) $(PLAIN_FLAGS)

# What a package has, its tests included, whose tests run with the race detector: goroutines, or what they share and serve each other with.
CONCURRENCY := ^[[:space:]]*go (func\b|[a-zA-Z.]+\()|"(sync|sync/atomic|golang.org/x/sync/.*|testing/synctest|net/http.*)"
# Where tests tell stories in test/worldtest.
STORIES := builder builder/builds builder/configs images trials trust/enforcement
# Packages that compare images, objects and what other programs say of them, and share next to nothing: the detector makes them slower, and finds nothing.
COMPARING := $(STORIES) internal/archtest test/api test/fixtures test/signing
# The stories with goroutines, their own or a manager's: they run with the race detector too (internal/archtest looks).
CONCURRENT_STORIES := OnARealAPIServer|Turn|Hangs|BeingRemoved|Timeout|LocksAre|KeepsNoOneElseWaiting

FUZZ_TIME ?= 10s
# The name of the cluster that up, down, deploy and demo mean.
CLUSTER ?= layerwright
CLUSTER_PROGRAM := bin/cluster --name $(CLUSTER)

##@ Every day

.PHONY: help
help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  \033[36m%-13s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/layerwright bin/layerwright-agent bin/layerwright-builder bin/layerwright-kms bin/cluster ## Build the programs into bin/

.PHONY: test
test: deps build tools ## Run all tests: unit (-race), rootless tier, and as root the tier on a real cluster
	@$(MAKE) test-unit
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) e2e; \
	elif [ -n "$${CI:-}" ]; then echo "make test: CI must run as root, or the tests on a real cluster don't run" >&2; exit 1; \
	else echo "NOT RUN: the tests on a real cluster (make e2e) need root; run them with: sudo make e2e"; fi

.PHONY: test-unit
test-unit: tools ## Run the tests that need no root: unit and control plane; with the race detector where there is concurrency
	@# Tests named ...Anywhere have something fail at each point of a story: at all of them without the race detector, at some of them with it (-short).
	@# Those named ...Large... run without it alone.
	@folders() { xargs -n1 dirname | sed 's,^,$(CURDIR)/,' | sort -u; }; \
	  tested=$$(go list -tags $(BUILDER_TAGS) -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... | sort); \
	  concurrent=$$(comm -12 <(echo "$$tested") <(git grep -lE --untracked '$(CONCURRENCY)' -- '*.go' | folders | grep -vxF "$$(printf '%s\n' $(COMPARING:%=$(CURDIR)/%))")); \
	  $(GOTESTSUM) $(call events,unit) -- $(PLAIN_FLAGS) $$(comm -23 <(echo "$$tested") <(echo "$$concurrent")); \
	  sampled=$$(comm -12 <(echo "$$concurrent") <(git grep -lF 'testing.Short()' -- '*_test.go' | folders)); \
	  $(GOTESTSUM) $(call events,everywhere) -- $(PLAIN_FLAGS) -run='Anywhere|Large' $$sampled; \
	  $(GOTESTSUM) $(call events,concurrent) -- $(UNIT_FLAGS) $$concurrent; \
	  $(GOTESTSUM) $(call events,stories) -- $(UNIT_FLAGS) -run='$(CONCURRENT_STORIES)' $(STORIES:%=./%)

.PHONY: cases
cases: ## Try the cases of a folder that need no cluster: make cases CASES=FOLDER
	@go test ./cmd/layerwright -count=1 -run='^TestCases$$' -v -args -cases '$(abspath $(CASES))' | grep -E '_test\.go|^(ok|FAIL)'

.PHONY: e2e
e2e: deps build tools ## Run the tests on a real cluster (root)
	@# The tests of build steps and of hosts need no cluster: they run beside those that wait for one. Others have clusters of their own, one after
	@# the other: an emulated guest takes all processors while it boots, and nothing is won. Rollouts, Tekton, signing services and the
	@# installation of a release have targets of their own.
	hack/scratch $(GOTESTSUM) --format=testname $(call events,cluster) -- -tags=e2e -vet=off -p=2 -timeout=60m ./test/e2e ./test/e2e/engine ./test/e2e/host
	@packages=$$(go list -tags=e2e ./test/e2e/... | grep -vE '/test/e2e(/engine|/fleet|/host|/hunter|/install|/nodelog|/standin)?$$' || true); [ -z "$$packages" ] || \
	  hack/scratch $(GOTESTSUM) --format=testname $(call events,clusters) -- -tags=e2e -vet=off -p=1 -timeout=60m $$packages

.PHONY: e2e-rollout
e2e-rollout: deps build tools ## Roll images out to three nodes of a real cluster, with every fault (root, ten minutes)
	hack/scratch $(GOTESTSUM) --format=testname -- -tags=e2e -vet=off -timeout=60m ./test/e2e/fleet

.PHONY: e2e-install
e2e-install: HELM = 1
e2e-install: deps build tools ## Make a release, and do what docs/install.md says on a real cluster without Layerwright (root, ten minutes)
	hack/scratch $(GOTESTSUM) --format=testname -- -tags=e2e -vet=off -timeout=60m ./test/e2e/install

.PHONY: e2e-tekton
e2e-tekton: TEKTON = 1
e2e-tekton: deps build tools ## Build and verify images with a real Tekton on a real cluster, with every fault (root, ten minutes)
	hack/scratch $(GOTESTSUM) --format=testname -- -tags=e2e,tekton -vet=off -run='^TestTekton' -timeout=60m ./test/e2e

.PHONY: e2e-signing
e2e-signing: SIGNING = 1
e2e-signing: deps build tools ## Sign with a real Fulcio, Rekor and Vault, in processes and on a real cluster (root, ten minutes)
	@for module in hack/cluster/rekor hack/cluster/vault; do (cd $$module && CGO_ENABLED=0 GOFLAGS= go vet -trimpath .) || exit 1; done
	$(GOTESTSUM) -- -vet=off -timeout=30m -tags=signing,$(BUILDER_TAGS) ./test/signing
	hack/scratch $(GOTESTSUM) --format=testname -- -tags=e2e,signing -vet=off -run='^TestSigning' -timeout=60m ./test/e2e

# The commit of the version that clusters upgrade from: the last before there were releases.
UPGRADE_FROM ?= 5f0eec020c68bfcd0d893753760b4e9c615e290e

.PHONY: e2e-upgrade
e2e-upgrade: deps build tools ## Upgrade a real cluster that is at work from an earlier version, go back, and uninstall (root, ten minutes)
	@# What is compiled of the earlier version stays in the folder.
	@folder=$$(hack/checkout $(UPGRADE_FROM)); $(MAKE) -C $$folder bin/cluster; \
	  LAYERWRIGHT_UPGRADE_FROM=$$folder hack/scratch $(GOTESTSUM) --format=testname -- -tags=e2e,upgrade -vet=off -run='^TestUpgrade' -timeout=60m ./test/e2e/fleet

.PHONY: conformance
conformance: CONFORMANCE = 1
conformance: deps conformance-deps bin/layerwright bin/layerwright-builder tools ## Import our images with the code that bootc and rpm-ostree import with, and compare (root, Rust)
	$(GOTESTSUM) --format=testname $(call events,conformance) -- -tags=e2e,containers_image_openpgp -vet=off -timeout=30m ./test/conformance

.PHONY: conformance-deps
conformance-deps:
	@hack/install-packages test/conformance/debian-packages.txt

.PHONY: fmt
fmt: ## Format the code
	$(GOLANGCI) fmt ./...

.PHONY: lint
lint: ## Check the linter's configuration, then the code
	$(GOLANGCI) config verify
	$(GOLANGCI) run --allow-parallel-runners ./...
	@# With the flags that they are built with, so that nothing is compiled twice. Not hack/cluster/kubernetes: go vet analyzes all that it imports, for
	@# minutes on a fresh machine, and its 70 lines call what others wrote.
	@for module in cmd/layerwright-kms hack/cluster/coredns hack/cluster/pause; do \
	  echo "go vet: $$module"; (cd $$module && CGO_ENABLED=0 GOFLAGS= go vet -trimpath .) || exit 1; done

.PHONY: words
words: ## Check the words of text and comments against the glossary
	@go run ./hack/words

.PHONY: generate
generate: build ## Regenerate everything that is generated
	hack/generate
	go run ./hack/commanddocs -o docs/commands.md bin/layerwright bin/layerwright-agent bin/layerwright-builder bin/cluster

.PHONY: verify
verify: ## Tidy, regenerate, lint; fail if that changes a file or a file is not committed
	@printf '%s\n' $(MODULES) | xargs -n1 -P2 sh -c 'echo "go mod tidy: $$0"; cd "$$0" && go mod tidy'
	@$(MAKE) generate fmt lint words
	@dirty=$$(git status --porcelain); if [ -n "$$dirty" ]; then \
	  echo "verify: these files differ from what is committed:"; echo "$$dirty"; git --no-pager diff; exit 1; fi

##@ A playground

.PHONY: try
try: bin/layerwright ## Make, sign and change an image in a registry in memory: no root, no Kubernetes, and minutes the first time
	@CGO_ENABLED=0 go run -trimpath -ldflags '-s -w' ./test/try bin/layerwright

.PHONY: up
up: deps bin/cluster ## Bring up a real cluster on this machine, with registry, controller and nodes that can be updated (root)
	@$(CLUSTER_PROGRAM) up --fleet

.PHONY: down
down: bin/cluster ## Remove it
	@$(CLUSTER_PROGRAM) down

.PHONY: demo
demo: build ## Bring it up, if need be without root, and show how configuration becomes an image (BUILDER=Pipeline for Tekton, GUEST=1 to boot it in QEMU)
	@[ "$$(id -u)" != 0 ] || hack/install-packages
	@$(CLUSTER_PROGRAM) demo $(if $(BUILDER),--builder $(BUILDER)) $(if $(GUEST),--guest)

.PHONY: deploy
deploy: bin/cluster ## Build the controller and deploy it to the playground
	@$(CLUSTER_PROGRAM) deploy

.PHONY: deps
deps: ## Install the Debian packages that are missing (root)
	@hack/install-packages

.PHONY: tools
tools: bin/cluster ## Build Kubernetes, containerd and the rest into the cache, once (TEKTON=1 for Tekton too, SIGNING=1 for Fulcio, Rekor and Vault, HELM=1)
	@$(CLUSTER_PROGRAM) tools $(if $(TEKTON),--with-tekton) $(if $(SIGNING),--with-signing) $(if $(HELM),--with-helm) $(if $(CONFORMANCE),--with-conformance)

##@ A release

# Where its programs are compiled to. Go's cache keeps what they are made of.
RELEASE_PROGRAMS := bin/release
# The folder of a release. Tests make theirs elsewhere, and for linux-amd64 alone: PLATFORMS is empty for all.
DIST      ?= dist
PLATFORMS ?=

RELEASE := --dist '$(DIST)' --version '$(VERSION)' --revision '$(REVISION)' --programs $(RELEASE_PROGRAMS) $(if $(SIGN_KEY),--sign-key '$(SIGN_KEY)') \
  $(if $(PLATFORMS),--platforms '$(PLATFORMS)')

.PHONY: release
release: ## Make a release of this commit in dist/: make release VERSION=v0.1.0 [SIGN_KEY=cosign.key], the key's password in COSIGN_PASSWORD
	@$(if $(PLATFORMS),,hack/install-packages hack/release/debian-packages.txt)
	@go run ./hack/release check $(RELEASE)
	@$(MAKE) release-programs
	@go run ./hack/release build $(RELEASE)

.PHONY: publish
publish: ## Push what dist/ has to a registry: make publish REGISTRY=registry.example.com/layerwright [REGISTRY_CA=ca.crt]
	@go run ./hack/release publish --dist '$(DIST)' --to '$(REGISTRY)' $(if $(REGISTRY_CA),--ca '$(REGISTRY_CA)')

.PHONY: release-twice
release-twice: ## Make a release in two clones, in the second with all programs compiled anew, and compare: make release-twice VERSION=v0.1.0 (half an hour)
	@folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; one=$$folder/one two=$$folder/further/down/two; \
	  for clone in "$$one" "$$two"; do git clone --quiet --shared . "$$clone"; \
	    [ "$$clone" = "$$one" ] || export GOCACHE=$$folder/cache; $(MAKE) -C "$$clone" release SIGN_KEY=; done; \
	  diff "$$one/dist/SHA256SUMS" "$$two/dist/SHA256SUMS" && cat "$$one/dist/SHA256SUMS"

comma := ,
wanted = $(if $(PLATFORMS),$(filter $(subst $(comma), ,$(PLATFORMS)),$(1)),$(1))
RELEASE_COMPILERS := linux-amd64=x86_64-linux-gnu-gcc linux-arm64=aarch64-linux-gnu-gcc

# Two platforms at a time: one links, which takes one core, while the other compiles. The linux clients come after what they share nearly all
# packages with.
.PHONY: release-programs
release-programs:
	@$(MAKE) -j2 $(addprefix release-programs/,$(call wanted,linux-amd64 linux-arm64)) \
	  $(addprefix release-client/,$(call wanted,$(foreach os,linux darwin windows,$(os)-amd64 $(os)-arm64)))

# The programs of images. The C compilers have Debian's names, so that each compiles for one platform, whichever this machine is.
release-programs/%:
	@echo "compiling for $*"; export GOOS=linux GOARCH=$(patsubst linux-%,%,$*); dir=$(RELEASE_PROGRAMS)/$*; \
	  $(MAKE) binary PKG=./cmd/layerwright OUT=$$dir/layerwright; \
	  $(MAKE) binary PKG=./cmd/layerwright-agent OUT=$$dir/layerwright-agent; \
	  $(MAKE) binary PKG=./hack/release/load OUT=$$dir/load; \
	  $(MAKE) kms-binary OUT=$$dir/layerwright-kms; \
	  CC=$(patsubst $*=%,%,$(filter $*=%,$(RELEASE_COMPILERS))) $(MAKE) builder-binary OUT=$$dir/layerwright-builder

# The program of administrators.
release-client/%:
	@echo "compiling the client for $*"; GOOS=$(firstword $(subst -, ,$*)) GOARCH=$(lastword $(subst -, ,$*)) \
	  $(MAKE) client-binary OUT=$(RELEASE_PROGRAMS)/$*/client/layerwright

##@ Now and then

.PHONY: bench
bench: deps build tools ## Measure the budgets (root)
	go test -run='^$$' -bench=. ./machineconfigs/... ./osimage/osindex ./containerfiles/... ./builder/plan/... ./rollout/plan ./rollout/healthchecks ./streams/
	hack/scratch go test -tags=e2e -run='^$$' -bench=. -benchtime=3x -timeout=30m ./test/bench/... ./test/e2e/host

.PHONY: fuzz
fuzz: ## Run every fuzz target for a while (FUZZ_TIME=10s, or 500x)
	@go run ./hack/fuzz -time=$(FUZZ_TIME) $(FUZZ_FLAGS)

.PHONY: house
house: ## Print how large packages are, what they import, and where a build's scope goes
	@go run ./hack/house

# How often `make soak` repeats the tests.
N ?= 5

.PHONY: soak
soak: tools ## Repeat the unit and control-plane tests, two runs at once, in random order; what failed is kept in files (N=5)
	@# Two runs at once are the load.
	@$(TOOL) stress -count=$(N) -p=2 -timeout=3h $(GOTESTSUM) -- -count=1 -shuffle=on $(PLAIN_FLAGS) -short ./...

.PHONY: clean
clean: ## Remove what is built in the checkout; the cache stays
	rm -rf bin dist

# Always run: Go knows best whether there is something to build.
.PHONY: bin/layerwright bin/layerwright-agent bin/layerwright-builder bin/layerwright-kms bin/cluster
bin/layerwright bin/layerwright-agent:
	@$(MAKE) binary PKG=./cmd/$(@F) OUT=$@
bin/layerwright-builder:
	@$(MAKE) builder-binary OUT=$@
bin/layerwright-kms:
	@$(MAKE) kms-binary OUT=$@
bin/cluster:
	@CGO_ENABLED=0 go build -trimpath -o $@ ./test/cluster

# A program as a release has it; `cluster up` builds the controller with this. What Go would write down of the checkout (its tags, files that are not
# committed) is left out: the same commit gives the same program.
.PHONY: binary
binary:
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false $(if $(TAGS),-tags $(TAGS)) -ldflags '$(LDFLAGS)' -o $(OUT) $(PKG)

# The program of administrators: without the controller, and without gRPC's pages of traces.
.PHONY: client-binary
client-binary:
	@$(MAKE) binary TAGS=client,grpcnotrace PKG=./cmd/layerwright OUT=$(OUT)

# A module of its own, since no other program links what it does. With the flags of `bin/cluster tools`, so that it is compiled once.
.PHONY: kms-binary
kms-binary:
	@cd cmd/layerwright-kms && CGO_ENABLED=0 GOFLAGS= GOWORK=off go build -trimpath -buildvcs=false -ldflags '-s -w' -o $(abspath $(OUT)) .

# The program that links Buildah needs cgo: the C code makes the namespaces of RUN lines. It is static all the same; the linker's warnings are
# about loading smart cards, which it never does.
.PHONY: builder-binary
builder-binary:
	@CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags $(BUILDER_TAGS),osusergo,netgo,sqlite_omit_load_extension \
	  -ldflags '$(LDFLAGS) -linkmode external -extldflags "-static -Wl,-w"' -o $(OUT) ./cmd/layerwright-builder

# What stands in for bootc and rpm-ostree on the playground's hosts (test/host).
.PHONY: host-binary
host-binary:
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags containers_image_openpgp -ldflags '-s -w' -o $(OUT) ./test/host

# What serves images to the importer of `make conformance`, in skopeo's place.
.PHONY: skopeo-binary
skopeo-binary:
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags $(BUILDER_TAGS) -ldflags '-s -w' -o $(OUT) ./test/conformance/skopeo
