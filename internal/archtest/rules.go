package archtest

import "slices"

// Rule says what the packages that it is about may not do. Patterns that start with "./" are
// folders of this module, all others are import paths; "..." at the end takes in everything below,
// and "./..." is the whole module.
type Rule struct {
	// Name is short and in the words of docs/architecture.md.
	Name string
	// Reason is for the person whose change breaks the rule.
	Reason string
	// From are the packages that the rule is about, Except those of them that it is not about.
	From, Except []string
	// Deny are imports that these packages must not have.
	Deny []string
	// AllowOwn, when it is not nil, are the only packages of this module that they may import,
	// beside those in their own folder of From that the rule is about too. An empty list allows no
	// others.
	AllowOwn []string
	// WholeGraph extends Deny from imports to everything that is linked in.
	WholeGraph bool
	// NoClock forbids reading or waiting for the time.
	NoClock bool
	// PackageComment requires a doc.go with the package's comment.
	PackageComment bool
}

// Module is the path of this module.
const Module = "github.com/layerwright/layerwright"

// Folders of docs/architecture.md, in the groups that the import rule names.
var (
	api  = []string{"./api/..."}
	pure = []string{
		"./machineconfigs/...",
		"./nodes/...",
		"./osimage/osindex/...",
		"./containerfiles/...",
		"./streams/...",
		"./builder/plan/...",
		"./rollout/plan/...",
		"./rollout/words/...",
		"./rollout/disruption/...",
		"./rollout/drain/eviction/...",
		"./rollout/bootimages/plan/...",
	}
	// impure are folders below pure ones that do I/O.
	impure   = []string{"./streams/source/...", "./streams/controller/..."}
	backends = []string{"./builder/jobs/...", "./pipelines/..."}
	programs = []string{"./cmd/..."}
	tests    = []string{"./test/..."}
	// generated have no comments but the generator's; ./client says what they are.
	generated = []string{"./client/applyconfiguration/...", "./client/clientset/..."}
)

var (
	// buildah is it, and the libraries for images and storage that come with it, by their module
	// paths of today and of before.
	buildah = []string{"go.podman.io/...", "github.com/containers/...", "github.com/openshift/imagebuilder/..."}
	// outside is what code must not touch to give the same answer for the same input.
	outside = []string{
		"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/...",
		"net", "net/http/...", "os", "os/exec",
	}
	// heavy would make a binary that runs on every node, or on an administrator's laptop, several
	// times its size.
	heavy = []string{
		"go.podman.io/...", "github.com/containers/...", "github.com/openshift/imagebuilder/...",
		"github.com/sigstore/cosign/v2/cmd/...", "github.com/sigstore/cosign/v3/cmd/...",
		"k8s.io/kubernetes/...", "go.etcd.io/etcd/server/...",
		// What guards metrics with it is internal/metrics.Readers. gRPC and OpenTelemetry come with
		// Tekton's types.
		"k8s.io/apiserver/...",
	}
)

// Rules is the import rule of docs/architecture.md.
func Rules() []Rule { return slices.Concat(baseRules(), folderRules(), moduleRules()) }

// baseRules say what folders may import that others stand on.
func baseRules() []Rule {
	return []Rule{
		{
			Name:     "api imports nothing of ours",
			Reason:   "other projects vendor our API types, and get nothing else with them",
			From:     api,
			AllowOwn: []string{},
		},
		{
			Name:     "pure packages import api, nodes, words and the index of an OS image only",
			Reason:   "a decision that depends on its arguments alone can be tested by a table, replayed and simulated",
			From:     pure,
			Except:   impure,
			AllowOwn: slices.Concat(api, []string{"./nodes/...", "./rollout/words/...", "./osimage/osindex/..."}),
			Deny:     outside,
			NoClock:  true,
		},
		{
			Name:       "view imports api, nodes and what is pure of rollouts",
			Reason:     "it shows what objects say, on laptops and in web pages: it asks no cluster, and is told the time",
			From:       []string{"./view/..."},
			AllowOwn:   slices.Concat(api, []string{"./nodes/...", "./rollout/plan/...", "./rollout/words/..."}),
			Deny:       slices.Concat([]string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."}, heavy),
			WholeGraph: true,
			NoClock:    true,
		},
		{
			Name:     "builder/backend imports api and the classes of failures",
			Reason:   "what a backend and its caller say to each other is plain data, and a class means the same to both",
			From:     []string{"./builder/backend/..."},
			AllowOwn: slices.Concat(api, []string{"./internal/fault/..."}),
			Deny:     outside,
			NoClock:  true,
		},
	}
}

// folderRules say what folders on top of these may import.
func folderRules() []Rule {
	return []Rule{
		{
			Name:     "backends import builder/backend and pure packages",
			Reason:   "a backend is replaceable: it knows the neutral data, and neither its caller nor another backend",
			From:     backends,
			AllowOwn: slices.Concat(api, pure, []string{"./builder/backend/...", "./builder/pods/...", "./internal/..."}),
		},
		{
			Name:   "builder does not import a backend",
			Reason: "cmd hands the backend in, so that a cluster without Tekton never links or watches it",
			From:   []string{"./builder/...", "./trials/..."},
			Except: backends,
			Deny:   backends,
		},
		{
			Name:   "builder does not import rollout",
			Reason: "builder and rollout meet in API objects only",
			From:   []string{"./builder/...", "./trials/...", "./pipelines/..."},
			Deny:   []string{"./rollout/..."},
		},
		{
			Name:   "reconcilers of builds do not know each other",
			Reason: "each has options of its own; what two of them need is a package that neither owns, and builder puts them together",
			From:   []string{"./builder/...", "./trials/..."},
			Except: []string{"./builder"},
			Deny:   []string{"./builder", "./builder/configs/...", "./builder/builds/..."},
		},
		{
			Name:   "builder does not know trials",
			Reason: "a trial uses what makes images, and no build depends on one: cmd puts them side by side",
			From:   []string{"./builder/..."},
			Deny:   []string{"./trials/..."},
		},
		{
			Name:     "pools imports machineconfigs, nodes and streams",
			Reason:   "pools renders configuration; building and rolling out react to the objects that it writes",
			From:     []string{"./pools/..."},
			AllowOwn: slices.Concat(api, []string{"./machineconfigs/...", "./nodes/...", "./streams/...", "./internal/..."}),
		},
		{
			Name:     "streams import no other domain package",
			Reason:   "which operating systems there are is found out before anybody renders, builds or rolls out: all of them stand on it",
			From:     impure,
			AllowOwn: slices.Concat(api, []string{"./streams/...", "./internal/..."}),
		},
		{
			Name:     "trust signs and judges by itself",
			Reason:   "a verdict depends on what is handed in: it knows neither who has built an image nor who asks",
			From:     []string{"./trust/..."},
			Except:   []string{"./trust/enforcement/..."},
			AllowOwn: slices.Concat(api, []string{"./trust", "./trust/sign/...", "./machineconfigs/...", "./internal/..."}),
		},
		{
			Name:     "the signature policy is pure",
			Reason:   "nodes get the same policy from the same keys, and agents compute it too",
			From:     []string{"./trust/signaturepolicy/..."},
			AllowOwn: slices.Concat(api, []string{"./machineconfigs/..."}),
			Deny:     outside,
			NoClock:  true,
		},
		{
			Name:     "images imports no builder",
			Reason:   "an image is signed and judged by what it is, whoever built it",
			From:     []string{"./images/..."},
			AllowOwn: slices.Concat(api, []string{"./images/...", "./osimage/...", "./containerfiles/...", "./trust", "./trust/sign/...", "./internal/..."}),
		},
		{
			Name:   "rollout imports neither what makes images nor what judges them",
			Reason: "rollout moves nodes to any image by digest, whoever built it: they meet in API objects only",
			From:   []string{"./rollout/..."},
			Deny:   []string{"./builder/...", "./trials/...", "./images/...", "./trust", "./trust/sign/...", "./trust/enforcement/...", "./pipelines/...", "./pools/..."},
		},
		{
			Name:   "internal imports no domain package",
			Reason: "internal is what the domain packages stand on; an import upwards makes a cycle sooner or later",
			From:   []string{"./internal/..."},
			Deny: []string{
				"./machineconfigs/...", "./nodes/...", "./osimage/...", "./containerfiles/...", "./streams/...",
				"./pools/...", "./builder/...", "./trials/...", "./images/...", "./trust/...", "./pipelines/...", "./rollout/...", "./view/...",
			},
		},
	}
}

// moduleRules are about the whole module, and about what it takes from others.
func moduleRules() []Rule {
	return []Rule{
		{
			Name:   "cmd is imported by no package",
			Reason: "programs wire packages together; what two of them need is a package of its own",
			From:   []string{"./..."},
			Except: []string{"./cmd/layerwright"},
			Deny:   programs,
		},
		{
			Name:   "a program imports no other program",
			Reason: "its own commands may be packages below it; what two programs need is a package of its own",
			From:   []string{"./cmd/layerwright"},
			Deny:   []string{"./cmd/layerwright-agent/...", "./cmd/layerwright-builder/...", "./cmd/kubectl-machineconfig/..."},
		},
		{
			Name:   "test is imported by no package",
			Reason: "test code never ships in a product binary",
			From:   []string{"./..."},
			Except: tests,
			Deny:   tests,
		},
		{
			Name:   "only pipelines imports Tekton",
			Reason: "a cluster without Tekton must not notice that we support it",
			From:   []string{"./..."},
			Except: []string{"./pipelines/..."},
			Deny:   []string{"github.com/tektoncd/..."},
		},
		{
			Name:   "only the builder imports Buildah",
			Reason: "Buildah needs cgo and a re-exec at the start of main; one binary carries that, and runs in build pods only",
			From:   []string{"./..."},
			// The stand-ins for bootc and skopeo judge signatures by the library that these use,
			// which is one of Buildah's.
			Except: []string{"./cmd/layerwright-builder/...", "./builder/engine/...", "./test/host/...", "./test/conformance/..."},
			Deny:   buildah,
		},
		{
			Name:       "light binaries stay light",
			Reason:     "they run on every node and on laptops: what they link is memory, download and attack surface",
			From:       []string{"./cmd/layerwright", "./cmd/layerwright-agent", "./cmd/kubectl-machineconfig"},
			Deny:       heavy,
			WholeGraph: true,
		},
		{
			Name:       "the builder starts quickly",
			Reason:     "it runs itself anew for each layer and RUN line, and each time sets up all that it links: clients of clusters made that 70 ms longer",
			From:       []string{"./cmd/layerwright-builder"},
			Deny:       []string{"k8s.io/client-go/...", "sigs.k8s.io/controller-runtime/..."},
			WholeGraph: true,
		},
		{
			Name:       "only the controller links the library of vSphere",
			Reason:     "its types are several MB, and the controller alone imports boot images",
			From:       []string{"./cmd/layerwright-agent", "./cmd/kubectl-machineconfig"},
			Deny:       []string{"github.com/vmware/..."},
			WholeGraph: true,
		},
		{
			Name:       "only the controller links cosign",
			Reason:     "it brings the clients of four services, and the controller alone signs and verifies",
			From:       []string{"./cmd/layerwright-agent", "./cmd/layerwright-builder", "./cmd/kubectl-machineconfig", "./hack/release/load"},
			Deny:       []string{"github.com/sigstore/cosign/...", "github.com/sigstore/rekor/..."},
			WholeGraph: true,
		},
		{
			Name:   "errors come from the standard library",
			Reason: "github.com/pkg/errors is archived, and errors.Is does not see through all of its wrappers",
			From:   []string{"./..."},
			Deny:   []string{"github.com/pkg/errors"},
		},
		{
			Name:           "every package says what it is for",
			Reason:         "the comment in doc.go is where a reader, and the next author, learns the package's rule",
			From:           []string{"./..."},
			Except:         generated,
			PackageComment: true,
		},
	}
}
