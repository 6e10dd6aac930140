package jobs

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/fault"
)

var update = flag.Bool("update", false, "write the golden files")

func TestObjectsOfABuild(t *testing.T) {
	tests := map[string]struct {
		spec       *backend.Spec
		isolations []pods.Isolation
	}{
		"everything": {fullSpec(), []pods.Isolation{{Kind: backend.IsolationUserNamespace}}},
		"two-architectures": {
			plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64),
			[]pods.Isolation{{Kind: backend.IsolationUserNamespace}, {Kind: backend.IsolationCapabilities, Why: "node b does not offer user namespaces"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			made, err := newObjects(testOptions(), test.spec, test.isolations)
			require.NoError(t, err)
			var documents []string
			for _, c := range made.configMaps {
				text, err := yaml.Marshal(c)
				require.NoError(t, err)
				documents = append(documents, string(text))
			}
			for _, job := range made.jobs {
				text, err := yaml.Marshal(job)
				require.NoError(t, err)
				documents = append(documents, string(text))
			}
			golden := filepath.Join("testdata", name+".yaml")
			got := strings.Join(documents, "---\n")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			assert.Equal(t, string(want), got)
		})
	}
}

func onlyPod(t *testing.T, spec *backend.Spec, kind backend.Isolation) corev1.PodSpec {
	t.Helper()
	made, err := newObjects(testOptions(), spec, []pods.Isolation{{Kind: kind}})
	require.NoError(t, err)
	require.Len(t, made.jobs, 1)
	return made.jobs[0].Spec.Template.Spec
}

func TestEachStepHasItsOwnMountsOnly(t *testing.T) {
	t.Parallel()
	pod := onlyPod(t, fullSpec(), backend.IsolationUserNamespace)
	sources := map[string]string{}
	for _, v := range pod.Volumes {
		switch {
		case v.Secret != nil:
			sources[v.Name] = "secret " + v.Secret.SecretName
		case v.ConfigMap != nil:
			sources[v.Name] = "configmap " + v.ConfigMap.Name
		case v.Projected != nil:
			sources[v.Name] = "registries"
		default:
			sources[v.Name] = v.Name
		}
	}
	got := map[string]map[string]string{}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		got[c.Name] = map[string]string{}
		for _, m := range c.VolumeMounts {
			got[c.Name][m.MountPath] = sources[m.Name]
			writable := slices.Contains([]string{"store", "fetched", "tmp-" + c.Name, "run-" + c.Name}, m.Name) || m.Name == "layout" && c.Name == "export"
			assert.Equal(t, writable, !m.ReadOnly, "%s of %s", m.Name, c.Name)
		}
	}
	instructions := "configmap containerfile-" + buildName
	trust := "configmap additionaltrustbundle-" + buildName
	assert.Equal(t, map[string]map[string]string{
		"fetch": {
			"/var/lib/layerwright": "store", "/var/lib/layerwright-fetched": "fetched", "/tmp": "tmp-fetch", "/run": "run-fetch",
			"/etc/layerwright/instructions": instructions, "/etc/layerwright/trust": trust,
			"/etc/layerwright/registries": "registries", "/etc/layerwright/credentials": "secret pull",
		},
		"build": {
			"/var/lib/layerwright": "store", "/tmp": "tmp-build", "/run": "run-build",
			"/etc/layerwright/instructions": instructions, "/etc/layerwright/trust": trust,
			"/etc/layerwright/context":                    "configmap context-" + buildName,
			"/etc/layerwright/inputs/etc-pki-entitlement": "secret etc-pki-entitlement-worker",
			"/etc/layerwright/inputs/etc-yum-repos-d":     "configmap etc-yum-repos-d",
			"/etc/layerwright/inputs/etc-pki-rpm-gpg":     "secret etc-pki-rpm-gpg",
		},
		"export": {
			"/var/lib/layerwright": "store", "/var/lib/layerwright-layout": "layout", "/tmp": "tmp-export", "/run": "run-export",
			"/etc/layerwright/instructions": instructions, "/etc/layerwright/trust": trust,
		},
		"push": {
			"/var/lib/layerwright-fetched": "fetched", "/var/lib/layerwright-layout": "layout", "/tmp": "tmp-push", "/run": "run-push",
			"/etc/layerwright/instructions": instructions, "/etc/layerwright/trust": trust,
			"/etc/layerwright/registries": "registries", "/etc/layerwright/credentials": "secret push", "/etc/layerwright/base-credentials": "secret pull",
		},
	}, got)
}

// TestObjectsHaveThePublishedLabels has tools find everything of a build by what they know of it.
func TestObjectsHaveThePublishedLabels(t *testing.T) {
	t.Parallel()
	made, err := newObjects(&Options{Namespace: namespace, Image: image}, fullSpec(), []pods.Isolation{{Kind: backend.IsolationUserNamespace}})
	require.NoError(t, err)
	labels := map[string]map[string]string{"pod": made.jobs[0].Spec.Template.Labels, "job": made.jobs[0].Labels}
	for _, c := range made.configMaps {
		labels[c.Name] = c.Labels
	}
	assert.Len(t, labels, 2+5)
	for name, got := range labels {
		for key, want := range map[string]string{
			"machine-os-build": buildName, "machine-os-config": "worker-layered", "target-machine-config-pool": "worker",
			"rendered-machine-config": "rendered-worker-1", "rendered-image-push-secret": "push", "on-cluster-layering": "", "ephemeral-build-object": "",
		} {
			value, has := got["machineconfiguration.openshift.io/"+key]
			assert.True(t, has, "%s: %s", name, key)
			assert.Equal(t, want, value, "%s: %s", name, key)
		}
	}
	var names []string
	for _, c := range made.configMaps {
		names = append(names, c.Name)
	}
	assert.ElementsMatch(t, names, pods.Related(made.jobs[0].Spec.Template.Spec.Volumes, buildName, architectureOf(made.jobs[0])), "and status names the ConfigMaps, but no others that pods mount")
}

func TestNoIsolationIsPrivileged(t *testing.T) {
	t.Parallel()
	for _, kind := range []backend.Isolation{backend.IsolationUserNamespace, backend.IsolationCapabilities} {
		pod := onlyPod(t, fullSpec(), kind)
		assert.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, kind)
		assert.False(t, *pod.AutomountServiceAccountToken, kind)
		assert.Equal(t, kind == backend.IsolationUserNamespace, pod.HostUsers != nil && !*pod.HostUsers, kind)
		for _, c := range append(pod.InitContainers, pod.Containers...) {
			s := c.SecurityContext
			assert.False(t, *s.Privileged || *s.AllowPrivilegeEscalation, "%s %s", kind, c.Name)
			assert.True(t, *s.ReadOnlyRootFilesystem, "%s %s", kind, c.Name)
			assert.Equal(t, []corev1.Capability{"ALL"}, s.Capabilities.Drop, "%s %s", kind, c.Name)
			if kind == backend.IsolationCapabilities {
				assert.NotContains(t, s.Capabilities.Add, corev1.Capability("SYS_ADMIN"), "that is root of the node")
			} else {
				assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, s.SeccompProfile.Type)
			}
		}
	}
}

func TestStrongestIsolationOfAllNodes(t *testing.T) {
	t.Parallel()
	selector := pods.NodeSelector(nil, mcfgv1.ArchitectureAMD64)
	silent := newNode("silent", "amd64", true)
	silent.Status.RuntimeHandlers = nil
	for name, test := range map[string]struct {
		setting pods.UserNamespaces
		nodes   []corev1.Node
		want    pods.Isolation
	}{
		"all nodes":             {pods.UserNamespacesAuto, []corev1.Node{newNode("a", "amd64", true), newNode("b", "amd64", true)}, pods.Isolation{Kind: backend.IsolationUserNamespace}},
		"not one of them":       {pods.UserNamespacesAuto, []corev1.Node{newNode("a", "amd64", true), newNode("b", "amd64", false)}, pods.Isolation{Kind: backend.IsolationCapabilities, Why: "node b does not offer user namespaces"}},
		"an old kubelet":        {pods.UserNamespacesAuto, []corev1.Node{silent}, pods.Isolation{Kind: backend.IsolationCapabilities, Why: "node silent does not offer user namespaces"}},
		"other architectures":   {pods.UserNamespacesAuto, []corev1.Node{newNode("a", "amd64", true), newNode("b", "arm64", false)}, pods.Isolation{Kind: backend.IsolationUserNamespace}},
		"no node":               {pods.UserNamespacesAuto, []corev1.Node{newNode("b", "arm64", true)}, pods.Isolation{Kind: backend.IsolationCapabilities, Why: "no node that fits is there yet, so nothing is known of its user namespaces"}},
		"always, whatever they": {pods.UserNamespacesAlways, []corev1.Node{newNode("a", "amd64", false)}, pods.Isolation{Kind: backend.IsolationUserNamespace}},
		"never":                 {pods.UserNamespacesNever, []corev1.Node{newNode("a", "amd64", true)}, pods.Isolation{Kind: backend.IsolationCapabilities, Why: "user namespaces are turned off"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, pods.ChooseIsolation(test.setting, test.nodes, selector))
		})
	}
}

func TestResourcesNeverContradictEachOther(t *testing.T) {
	t.Parallel()
	list := func(memory string) corev1.ResourceList {
		if memory == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for name, test := range map[string]struct{ requests, limits, wantRequest, wantLimit string }{
		"nothing said":                      {"", "", "512Mi", "4Gi"},
		"a request above the default limit": {"16Gi", "", "16Gi", "16Gi"},
		"a limit below the default request": {"", "128Mi", "128Mi", "128Mi"},
		"both":                              {"1Gi", "2Gi", "1Gi", "2Gi"},
		"both, and they contradict":         {"2Gi", "1Gi", "2Gi", "1Gi"}, // the API server says so
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := pods.ResourcesOf(&mcfgv1.BuildResources{Requests: list(test.requests), Limits: list(test.limits)})
			assert.Equal(t, test.wantRequest, got.Requests.Memory().String())
			assert.Equal(t, test.wantLimit, got.Limits.Memory().String())
			assert.True(t, got.Limits.Cpu().IsZero())
		})
	}
	requests := pods.ResourcesOf(nil).Requests
	assert.Equal(t, "250m", requests.Cpu().String())
}

func TestPlacementKeepsTheArchitecture(t *testing.T) {
	t.Parallel()
	placement := &mcfgv1.BuildPlacement{NodeSelector: map[string]string{corev1.LabelArchStable: "s390x", "zone": "a"}}
	assert.Equal(t, map[string]string{corev1.LabelArchStable: "ppc64le", corev1.LabelOSStable: "linux", "zone": "a"}, pods.NodeSelector(placement, mcfgv1.ArchitecturePPC64LE))
	assert.Len(t, placement.NodeSelector, 2, "what the administrator wrote stays as it is")
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	spec.Retries, spec.Timeout = 2, 90*time.Second+time.Millisecond
	made, err := newObjects(testOptions(), spec, []pods.Isolation{{Kind: backend.IsolationCapabilities}})
	require.NoError(t, err)
	job := made.jobs[0]
	assert.Equal(t, int64(91), *job.Spec.Template.Spec.ActiveDeadlineSeconds, "an attempt")
	assert.Equal(t, int64(3*90+1+24*3600), *job.Spec.ActiveDeadlineSeconds, "all of them, and a day of waiting")
	assert.Equal(t, int32(2), *job.Spec.BackoffLimit)

	spec.Retries, spec.Timeout = -1, 0
	made, err = newObjects(testOptions(), spec, []pods.Isolation{{Kind: backend.IsolationCapabilities}})
	require.NoError(t, err)
	assert.Equal(t, int64(2*3600), *made.jobs[0].Spec.Template.Spec.ActiveDeadlineSeconds)
	assert.Zero(t, *made.jobs[0].Spec.BackoffLimit)
}

func TestFilesThatFitNoConfigMap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*backend.Spec)
		want   string
	}{
		"large files": {
			func(s *backend.Spec) {
				s.Architectures[0].Context = map[string][]byte{"a": make([]byte, 700<<10), "b": make([]byte, 700<<10)}
			},
			"context-" + buildName + ": 1433600 bytes in 2 files are more than the 1048576 that a ConfigMap holds; put large files into an image, and take them with COPY --from",
		},
		"a large Containerfile": {
			func(s *backend.Spec) { s.Architectures[0].Instructions.Containerfile = strings.Repeat("#", 1<<20) },
			"more than the 1048576 that a ConfigMap holds",
		},
		"a name that is no key": {
			func(s *backend.Spec) { s.Architectures[0].Context = map[string][]byte{"../../etc/passwd": nil} },
			`file "../../etc/passwd" of the build context: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := fullSpec()
			test.change(spec)
			_, err := newObjects(testOptions(), spec, []pods.Isolation{{Kind: backend.IsolationCapabilities}})
			require.ErrorContains(t, err, test.want)
			assert.True(t, fault.IsTerminal(err))
			assert.Equal(t, mcfgv1.ReasonInvalidContainerfile, fault.Reason(err))
		})
	}
	exactly := fullSpec()
	exactly.Architectures[0].Context = map[string][]byte{"a": make([]byte, 1<<20)}
	_, err := newObjects(testOptions(), exactly, []pods.Isolation{{Kind: backend.IsolationCapabilities}})
	require.NoError(t, err)
}

func TestLongNamesFitJobsAndLabels(t *testing.T) {
	t.Parallel()
	spec := plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitecturePPC64LE)
	spec.Key.Build = strings.Repeat("pool.", 40) + "0123456789abcdef0123456789abcdef"
	spec.Pool = strings.Repeat("pool.", 40)
	spec.TrustBundle = []byte("x")
	isolations := []pods.Isolation{{Kind: backend.IsolationCapabilities}, {Kind: backend.IsolationCapabilities}}
	made, err := newObjects(testOptions(), spec, isolations)
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, job := range made.jobs {
		seen[job.Name] = true
		assert.LessOrEqual(t, len(job.Name), 63)
		assert.Equal(t, spec.Key.Build, job.Annotations[mcfgv1.AnnotationMachineOSBuild])
		for _, value := range job.Spec.Template.Labels {
			assert.LessOrEqual(t, len(value), 63)
		}
	}
	for _, c := range made.configMaps {
		seen[c.Name] = true
		assert.LessOrEqual(t, len(c.Name), 63)
	}
	assert.Len(t, seen, 5, "all names differ")
}

func TestABuildOfNothingIsRefused(t *testing.T) {
	t.Parallel()
	for _, spec := range []*backend.Spec{plainSpec(), {Architectures: fullSpec().Architectures}} {
		_, err := newObjects(testOptions(), spec, nil)
		require.Error(t, err)
	}
}
