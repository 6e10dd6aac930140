package toolchain

import (
	"fmt"
	"path"
	"strings"

	"github.com/layerwright/layerwright/hack/release/images"
)

// Set is a group of programs that are built together from one module.
type Set struct {
	// Name of the set; part of its folder's name in the cache.
	Name string
	// Dir is the module, relative to the repository.
	Dir string
	// Links are further names of the set's only program.
	Links []string

	builds []build
	// stamp is a module whose version the programs print.
	stamp string
}

// build is one call of go build. Where the module is a project of Cargo's, it is one of cargo
// build, and its packages are the names of its programs.
type build struct {
	packages []string
	tags     string
	// cgo needs a C compiler and the C libraries that pkg-config knows by name.
	cgo       bool
	libraries []string
}

// Kubernetes is etcd, the Kubernetes components and kubectl: all that the
// rootless tier needs.
var Kubernetes = Set{
	Name: "kubernetes",
	Dir:  "hack/cluster/kubernetes",
	Links: []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler",
		"kube-proxy", "kubelet", "kubectl",
	},
	builds: []build{{packages: []string{"."}}},
	stamp:  "k8s.io/kubernetes",
}

// Node is what a node needs besides the kubelet: container runtime and network.
var Node = Set{
	Name: "node",
	Dir:  "hack/cluster/node",
	builds: []build{
		{
			packages: []string{
				"github.com/containerd/containerd/v2/cmd/containerd",
				"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
				"github.com/containerd/containerd/v2/cmd/ctr",
				"github.com/containernetworking/plugins/plugins/ipam/host-local",
				"github.com/containernetworking/plugins/plugins/main/bridge",
				"github.com/containernetworking/plugins/plugins/main/loopback",
			},
			tags: "no_btrfs no_devmapper no_zfs",
		},
		{packages: []string{"github.com/opencontainers/runc"}, tags: "seccomp", cgo: true, libraries: []string{"libseccomp"}},
	},
}

// DNS is the cluster's name server.
var DNS = Set{Name: "coredns", Dir: "hack/cluster/coredns", builds: []build{{packages: []string{"."}}}}

// Pause is the process that holds a pod's namespaces.
var Pause = Set{Name: "pause", Dir: "hack/cluster/pause", builds: []build{{packages: []string{"."}}}}

// Buildah is the image builder that other programs' images are compared with: the real one, which
// links nothing but libc.
var Buildah = Set{
	Name: "buildah",
	Dir:  "hack/cluster/buildah",
	builds: []build{{
		packages: []string{"go.podman.io/buildah/cmd/buildah"},
		tags:     "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper",
		cgo:      true, // without it everything compiles, and RUN fails
	}},
}

// Cosign is the program that people verify signatures and attestations with.
var Cosign = Set{Name: "cosign", Dir: "hack/cluster/cosign", builds: []build{{packages: []string{"github.com/sigstore/cosign/v2/cmd/cosign"}}}}

// Helm is the program that people install charts with. It is built only where it is asked for.
var Helm = Set{Name: "helm", Dir: "hack/cluster/helm", builds: []build{{packages: []string{"helm.sh/helm/v3/cmd/helm"}}}}

// Fulcio is the authority that certifies keys for identities, for the tests that sign without a
// key.
var Fulcio = Set{Name: "fulcio", Dir: "hack/cluster/fulcio", builds: []build{{packages: []string{"github.com/sigstore/fulcio"}}}}

// Rekor is the transparency log, for the same tests, with what it keeps its entries in.
var Rekor = Set{Name: "rekor", Dir: "hack/cluster/rekor", Links: []string{"trillian"}, builds: []build{{packages: []string{"."}}}}

// Vault is Vault's transit engine, for the tests that sign with keys of a service.
var Vault = Set{Name: "vault", Dir: "hack/cluster/vault", builds: []build{{packages: []string{"."}}}}

// KMS is the program of the controller's image that signs with keys of key management services, by
// each name that it goes by there.
var KMS = Set{
	Name:   images.KMS,
	Dir:    "cmd/layerwright-kms",
	Links:  images.KMSLinks,
	builds: []build{{packages: []string{"."}}},
}

// Tekton is Tekton Pipelines: its controller and webhook, and the programs that it puts into pods.
// It is built only where it is asked for.
var Tekton = Set{
	Name: "tekton",
	Dir:  "hack/cluster/tekton",
	builds: []build{{packages: []string{
		"github.com/tektoncd/pipeline/cmd/controller",
		"github.com/tektoncd/pipeline/cmd/webhook",
		"github.com/tektoncd/pipeline/cmd/entrypoint",
		"github.com/tektoncd/pipeline/cmd/nop",
		"github.com/tektoncd/pipeline/cmd/sidecarlogresults",
		"github.com/tektoncd/pipeline/cmd/workingdirinit",
	}}},
}

// OSTreeExt is the library that bootc and rpm-ostree import images with, as a program. It is in
// Rust, and built only where it is asked for.
var OSTreeExt = Set{
	Name:   "ostree-ext",
	Dir:    "test/conformance/ostree-ext",
	builds: []build{{packages: []string{"ostree-ext-cli"}, cgo: true, libraries: []string{"ostree-1", "libzstd", "openssl"}}},
}

// Programs are the names of the set's programs.
func (s Set) Programs() (names []string) {
	for _, b := range s.builds {
		for _, pkg := range b.packages {
			names = append(names, path.Base(pkg))
		}
	}
	return names
}

// All lists the sets in the order in which they are best built.
var All = []Set{Kubernetes, Node, DNS, Pause, KMS, Buildah, Cosign}

// SigningServices are the services that `make e2e-signing` signs with. They are built only where
// they are asked for.
var SigningServices = []Set{Fulcio, Rekor, Vault}

// ldflags strips the programs and stamps the version into those that ask.
func ldflags(version string) string {
	flags := []string{"-s", "-w"}
	if version == "" {
		return strings.Join(flags, " ")
	}
	numbers := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, set := range [][2]string{
			{"gitVersion", version},
			{"gitMajor", numbers[0]},
			{"gitMinor", numbers[1]},
			{"gitTreeState", "clean"},
			{"gitCommit", strings.Repeat("0", 40)},
			{"buildDate", "1970-01-01T00:00:00Z"},
		} {
			flags = append(flags, fmt.Sprintf("-X %s.%s=%s", pkg, set[0], set[1]))
		}
	}
	return strings.Join(flags, " ")
}
