package pipelines

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
)

var update = flag.Bool("update", false, "write the golden files and deploy/components/tekton/pipeline.yaml")

const manifestHeader = `# The graph that builds, and its Tasks. Made of pipelines/tasks.go by: go test ./pipelines -run TestManifestsAreThoseOfDeploy -update
`

func TestManifestsAreThoseOfDeploy(t *testing.T) {
	documents := make([]string, 0, len(Manifests()))
	for _, object := range Manifests() {
		text, err := yaml.Marshal(object)
		require.NoError(t, err)
		documents = append(documents, string(text))
	}
	golden(t, filepath.Join("..", "deploy", "components", "tekton", "pipeline.yaml"), manifestHeader+strings.Join(documents, "---\n"))
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// TestTektonAcceptsTheManifests has the code of Tekton's webhook look at them, after it has filled
// in its defaults.
func TestTektonAcceptsTheManifests(t *testing.T) {
	t.Parallel()
	for _, object := range Manifests() {
		switch o := object.(type) {
		case *tektonv1.Task:
			o.SetDefaults(t.Context())
			require.NoError(t, asError(o.Validate(t.Context())), o.Name)
		case *tektonv1.Pipeline:
			o.SetDefaults(t.Context())
			require.NoError(t, asError(o.Validate(t.Context())), o.Name)
		default:
			t.Fatalf("a %T", object)
		}
	}
}

// TestEachStepHasItsOwnWorkspacesOnly compares what a step has with what its container has in a
// Job.
func TestEachStepHasItsOwnWorkspacesOnly(t *testing.T) {
	t.Parallel()
	spec := fullSpec()
	m := &maker{Maker: pods.Maker{Namespace: namespace, Spec: spec}, options: testOptions()}
	mounts, err := m.mounts(&spec.Architectures[0])
	require.NoError(t, err)
	for _, k := range kinds() {
		task := build(k)
		require.Len(t, task.Spec.Steps, len(k.steps()))
		for i, step := range k.steps() {
			if step == backend.Preflight { // no Job has it
				continue
			}
			s := &task.Spec.Steps[i]
			want, got := map[string]bool{}, map[string]bool{}
			for _, mount := range mounts {
				if slices.Contains(mount.Steps, step) {
					want[mount.Path] = mount.IsReadOnly(step)
				}
			}
			for _, mount := range s.VolumeMounts {
				if !slices.Contains(folders(), mount.MountPath) {
					got[mount.MountPath] = mount.ReadOnly
				}
			}
			for _, w := range s.Workspaces {
				if w.Name != workspacePrivate {
					declared := task.Spec.Workspaces[slices.IndexFunc(task.Spec.Workspaces, func(d tektonv1.WorkspaceDeclaration) bool { return d.Name == w.Name })]
					got[w.MountPath] = declared.ReadOnly
				}
			}
			assert.Equal(t, want, got, "%s", step)
			assert.Equal(t, pods.Isolation{Kind: k.isolation}.SecurityContext(), s.SecurityContext)
		}
	}
}

// TestRUNLinesReachNothingThatTektonReads guards what Tekton adds to a pod: its program reads
// results and artifacts from folders that all steps may write, and a link there would have it show
// the push secret.
func TestRUNLinesReachNothingThatTektonReads(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		task := build(k)
		for _, result := range task.Spec.Results {
			require.NotNil(t, result.Value, "Tekton's program would read it in the container with the push secret, where RUN lines can write")
			assert.Equal(t, "$(steps.push.results."+result.Name+")", result.Value.StringVal)
		}
		for i := range task.Spec.Steps {
			step := &task.Spec.Steps[i]
			if !k.isOne || step.Name != string(backend.Push) { // that has a folder which others can only read
				assert.Empty(t, step.Results)
			}
			private := slices.ContainsFunc(step.Workspaces, func(w tektonv1.WorkspaceUsage) bool {
				return w.Name == workspacePrivate && w.MountPath == "/tekton/artifacts"
			})
			assert.Equal(t, step.Name == string(backend.Push), private, "%s", step.Name)
			for _, dir := range folders() {
				assert.True(t, slices.ContainsFunc(step.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == dir && m.Name == "tmp-"+step.Name }), dir)
			}
		}
		secrets := map[string]bool{}
		for _, w := range task.Spec.Steps[slices.Index(k.steps(), backend.Build)].Workspaces {
			secrets[w.Name] = true
		}
		assert.False(t, secrets[workspacePullSecret] || secrets[workspacePushSecret])
	}
}

// TestPreflightIsTheSameInBothPlaces: a step of the only build, and a Task beside several.
func TestPreflightIsTheSameInBothPlaces(t *testing.T) {
	t.Parallel()
	task := preflight()
	step, alone := build(kinds()[0]).Spec.Steps[0], task.Spec.Steps[0]
	assert.Equal(t, alone.SecurityContext, step.SecurityContext)
	assert.Equal(t, alone.ComputeResources, step.ComputeResources)
	assert.Equal(t, alone.Env, step.Env)
	at := map[string]string{}
	for _, w := range step.Workspaces {
		at[w.Name] = w.MountPath
	}
	for _, w := range task.Spec.Workspaces {
		assert.Equal(t, w.MountPath, at[w.Name], w.Name)
	}
	assert.Len(t, at, len(task.Spec.Workspaces))
}

// TestChainsFindsTheImage has the names that Tekton Chains looks for.
func TestChainsFindsTheImage(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		names := map[string]bool{}
		for _, r := range pipeline(k).Spec.Results {
			names[r.Name] = true
		}
		for _, name := range []string{"IMAGE_URL", "IMAGE_DIGEST", "IMAGES"} {
			assert.True(t, names[name], name)
		}
	}
}
