package pipelines

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/pods"
	"github.com/layerwright/layerwright/internal/attempts"
)

func runOf(t *testing.T, spec *backend.Spec, kinds ...backend.Isolation) *tektonv1.PipelineRun {
	t.Helper()
	spec.Architectures = withContexts(spec.Architectures)
	m := &maker{Maker: pods.Maker{Namespace: namespace, Spec: spec}, options: testOptions()}
	isolations := make([]pods.Isolation, len(spec.Architectures))
	for i := range isolations {
		isolations[i].Kind = backend.IsolationUserNamespace
		if i < len(kinds) {
			isolations[i].Kind = kinds[i]
		}
	}
	run, err := m.run(isolations)
	require.NoError(t, err)
	return run
}

func TestPipelineRunOfABuild(t *testing.T) {
	for name, test := range map[string]struct {
		spec  *backend.Spec
		kinds []backend.Isolation
	}{
		"everything":        {fullSpec(), nil},
		"two-architectures": {plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64), []backend.Isolation{backend.IsolationUserNamespace, backend.IsolationCapabilities}},
	} {
		t.Run(name, func(t *testing.T) {
			run := runOf(t, test.spec, test.kinds...)
			text, err := yaml.Marshal(run)
			require.NoError(t, err)
			golden(t, filepath.Join("testdata", name+".yaml"), string(text))
			run.SetDefaults(t.Context())
			assert.NoError(t, asError(run.Validate(t.Context())), "as Tekton's webhook sees it")
		})
	}
}

func TestRunBindsDeclaredWorkspaces(t *testing.T) {
	t.Parallel()
	declared, required := map[string]bool{}, map[string]bool{}
	for _, w := range pipeline(kinds()[0]).Spec.Workspaces {
		declared[w.Name], required[w.Name] = true, !w.Optional
	}
	params := map[string]bool{}
	for _, p := range pipeline(kinds()[0]).Spec.Params {
		params[p.Name] = p.Default == nil
	}
	for _, spec := range []*backend.Spec{fullSpec(), plainSpec(mcfgv1.ArchitectureAMD64)} {
		run := runOf(t, spec)
		bound := map[string]bool{}
		for _, w := range run.Spec.Workspaces {
			assert.True(t, declared[w.Name], w.Name)
			bound[w.Name] = true
		}
		for name, is := range required {
			assert.True(t, !is || bound[name], "%s is bound", name)
		}
		given := map[string]bool{}
		for _, p := range run.Spec.Params {
			_, isParam := params[p.Name]
			assert.True(t, isParam, p.Name)
			given[p.Name] = true
		}
		for name, is := range params {
			assert.True(t, !is || given[name], "%s is given", name)
		}
	}
}

func TestFingerprintsAreThoseOfJobs(t *testing.T) {
	t.Parallel()
	spec := fullSpec()
	var all map[string]map[string]string
	require.NoError(t, json.Unmarshal([]byte(param(runOf(t, spec), paramExpected)), &all))
	m := &maker{Maker: pods.Maker{Namespace: namespace, Spec: spec}, options: testOptions()}
	mounts, err := m.mounts(&spec.Architectures[0])
	require.NoError(t, err)
	for _, step := range backend.Steps() {
		want, err := pods.Expected(mounts, step)
		require.NoError(t, err)
		got, err := json.Marshal(all["amd64/"+string(step)])
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got))
	}
}

func TestWeakestIsolationIsThatOfAll(t *testing.T) {
	t.Parallel()
	spec := func() *backend.Spec { return plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64) }
	strong := runOf(t, spec())
	assert.Equal(t, "user-namespace", param(strong, paramIsolation))
	assert.False(t, *strong.Spec.TaskRunSpecs[0].PodTemplate.HostUsers)
	weak := runOf(t, spec(), backend.IsolationUserNamespace, backend.IsolationCapabilities)
	assert.Equal(t, "capabilities", param(weak, paramIsolation))
	assert.Equal(t, severalPipeline+ofCapabilities, weak.Spec.PipelineRef.Name)
	assert.Nil(t, weak.Spec.TaskRunSpecs[0].PodTemplate.HostUsers)
}

func TestBuildContextsOfArchitectures(t *testing.T) {
	t.Parallel()
	spec := plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64)
	assert.Nil(t, withContexts(spec.Architectures)[1].Context)
	spec.Architectures[0].Context = map[string][]byte{"motd": nil}
	assert.NotEmpty(t, withContexts(spec.Architectures)[1].Context)
	assert.Nil(t, spec.Architectures[1].Context, "what was given stays as it is")
}

func TestLimitsAroundTheBuild(t *testing.T) {
	t.Parallel()
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	require.Len(t, runOf(t, spec).Spec.TaskRunSpecs, 1, "the Tasks have limits of their own")
	spec.Resources = &mcfgv1.BuildResources{Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("40m"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("60Gi"),
	}}
	steps := runOf(t, spec).Spec.TaskRunSpecs[0].StepSpecs
	assert.Equal(t, taskPreflight, steps[len(steps)-1].Name)
	assert.Equal(t, "40m", steps[len(steps)-1].ComputeResources.Limits.Cpu().String())
	specs := runOf(t, &backend.Spec{
		Key: spec.Key, Pool: spec.Pool, Config: spec.Config, PushSpec: spec.PushSpec, Resources: spec.Resources,
		Architectures: plainSpec(mcfgv1.ArchitectureAMD64, mcfgv1.ArchitectureARM64).Architectures,
	}).Spec.TaskRunSpecs
	require.Len(t, specs, 3)
	for i, name := range []string{taskPreflight, taskAssemble} {
		assert.Equal(t, name, specs[i+1].PipelineTaskName)
		limits := specs[i+1].ComputeResources.Limits
		assert.Equal(t, "40m", limits.Cpu().String())
		assert.Equal(t, "60Gi", limits.StorageEphemeral().String())
		assert.Equal(t, "256Mi", limits.Memory().String(), "what the administrator sets is for builds")
		requests := specs[i+1].ComputeResources.Requests
		assert.Equal(t, "40m", requests.Cpu().String(), "which is never above its limit")
	}
	spec.Pipeline = "our-os-image"
	require.Len(t, runOf(t, spec).Spec.TaskRunSpecs, 1, "whose other tasks are not known")
}

func TestTheNextAttempt(t *testing.T) {
	t.Parallel()
	first := runOf(t, plainSpec(mcfgv1.ArchitectureAMD64))
	first.Spec.Status = tektonv1.PipelineRunSpecStatusCancelled
	second := next(first)
	assert.Equal(t, "build-"+buildName, first.Name)
	assert.Equal(t, "build-"+buildName+"-2", second.Name)
	assert.Equal(t, attempts.Count{Failed: 1, Retries: 3}, countOf(second))
	assert.Empty(t, second.Spec.Status)
	assert.Equal(t, first.Spec.Params, second.Spec.Params)
	assert.Equal(t, first.OwnerReferences, second.OwnerReferences)
}

// TestStepsShareWhatABuildMayHave: their containers are there side by side.
func TestStepsShareWhatABuildMayHave(t *testing.T) {
	t.Parallel()
	spec := plainSpec(mcfgv1.ArchitectureAMD64)
	all := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourceMemory: resource.MustParse("6Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("60Gi"), "example.com/device": resource.MustParse("1"),
	}
	spec.Resources = &mcfgv1.BuildResources{Requests: all, Limits: all}
	run := runOf(t, spec)
	require.Nil(t, run.Spec.TaskRunSpecs[0].ComputeResources)
	sum := corev1.ResourceList{}
	for _, s := range run.Spec.TaskRunSpecs[0].StepSpecs {
		if s.Name == taskPreflight { // has its own, see TestLimitsAroundTheBuild
			continue
		}
		assert.True(t, equality.Semantic.DeepEqual(s.ComputeResources.Requests, s.ComputeResources.Limits), s.Name)
		for name, quantity := range s.ComputeResources.Limits {
			total := sum[name]
			total.Add(quantity)
			sum[name] = total
		}
		want := "1Gi"
		if s.Name == string(backend.Build) {
			want = "3Gi"
		}
		assert.Equal(t, want, s.ComputeResources.Limits.Memory().String(), s.Name)
	}
	assert.True(t, equality.Semantic.DeepEqual(all, sum), "%v", sum)
}

func TestPeopleFindARun(t *testing.T) {
	t.Parallel()
	run := runOf(t, fullSpec())
	for label, want := range map[string]string{
		mcfgv1.LabelMachineOSConfig: "worker", mcfgv1.LabelTargetMachineConfigPool: "worker", mcfgv1.LabelMachineOSBuild: buildName,
		mcfgv1.LabelBuildImageTag: "content-1", pods.ComponentLabel: pods.Component,
	} {
		assert.Equal(t, want, run.Labels[label], label)
	}
	assert.Equal(t, target, run.Annotations[mcfgv1.AnnotationBuildImage])
	assert.Equal(t, "etc-pki-entitlement-worker,etc-pki-rpm-gpg,pull,push", run.Annotations[mcfgv1.AnnotationBuildSecrets])
}
