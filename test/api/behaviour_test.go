package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	operatorv1 "github.com/layerwright/layerwright/api/operator/v1"
	applyv1 "github.com/layerwright/layerwright/client/applyconfiguration/machineconfiguration/v1"
	"github.com/layerwright/layerwright/client/clientset"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
)

func mosc(t *testing.T, patch map[string]any) *unstructured.Unstructured {
	t.Helper()
	return (&unstructured.Unstructured{Object: merge(bases(t)["MachineOSConfig"], patch)}).DeepCopy()
}

func TestPushSpecsOfEveryShape(t *testing.T) {
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	server.own(t, "MachineOSBuild")
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for repository, ok := range map[string]bool{
		"quay.io/worker":                                              true,
		"quay.io/org/worker":                                          true,
		"quay.io/a/b/c/d/e/f/worker":                                  true,
		"registry.example.com:5000/a/worker":                          true,
		"registry:5000/os/worker":                                     true,
		"registry:5000/worker":                                        true,
		"localhost:5000/a/b/c/worker":                                 true,
		"registry.gitlab.example.com/first.last/os/worker":            true,
		"ghcr.io/my.org/os":                                           true,
		"registry.example.com/" + strings.Repeat("a", 70) + "/worker": true,
		"registry.example.com/a__b/c--d/worker":                       true,
		"192.0.2.7:5000/os/worker":                                    true,
		"[fd00::1]:5000/os/worker":                                    true,
		"image-registry.openshift-image-registry.svc:5000/openshift-machine-config-operator/os-image": true,
		"worker":                              false,
		"registry/worker":                     false,
		"localhost/worker":                    false,
		"registry:5/worker":                   false,
		"https://registry.example.com/worker": false,
		"registry.example.com/os/../worker":   false,
		"registry.example.com/.hidden/worker": false,
	} {
		t.Run(repository, func(t *testing.T) {
			tagged := mosc(t, map[string]any{"spec": map[string]any{"renderedImagePushSpec": repository + ":latest"}})
			_, err := server.create(t, tagged)
			digested := (&unstructured.Unstructured{Object: merge(bases(t)["MachineOSBuild"],
				map[string]any{"status": map[string]any{"digestedImagePushSpec": repository + digest}})}).DeepCopy()
			_, digestErr := server.create(t, digested)
			if ok {
				require.NoError(t, err)
				require.NoError(t, digestErr)
				return
			}
			require.ErrorContains(t, err, "spec.renderedImagePushSpec: Invalid value: \""+repository+":latest\"", "field and value")
			require.ErrorContains(t, digestErr, "status.digestedImagePushSpec: Invalid value: \""+repository+digest+"\"", "field and value")
		})
	}
}

// TestImagesByTagAndDigest are as tools write them that keep digests up to date.
func TestImagesByTagAndDigest(t *testing.T) {
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, ok := range map[string]bool{
		"quay.io/fedora/fedora-coreos:stable" + digest: true,
		"quay.io/fedora/fedora-coreos" + digest:        true,
		"quay.io/fedora/fedora-coreos:stable":          true,
		"[fd00::1]:5000/my.org/os:stable" + digest:     true,
		"quay.io/fedora/fedora-coreos:" + digest:       false,
		"quay.io/Fedora/fedora-coreos:stable":          false,
		"quay.io/fedora/fedora-coreos":                 false,
	} {
		t.Run(image, func(t *testing.T) {
			_, err := server.create(t, mosc(t, map[string]any{"spec": map[string]any{"baseOSImagePullSpec": image}}))
			if ok {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "spec.baseOSImagePullSpec")
			}
		})
	}
}

func TestContentLength(t *testing.T) {
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	with := func(length int) *unstructured.Unstructured {
		return mosc(t, map[string]any{"spec": map[string]any{"containerFile": []any{
			map[string]any{"content": strings.Repeat("#", length)},
		}}})
	}
	for _, length := range []int{0, 4096, 4097, 65536} {
		t.Run("accepted", func(t *testing.T) {
			_, err := server.create(t, with(length))
			require.NoError(t, err, length)
		})
	}
	_, err := server.create(t, with(65537))
	require.ErrorContains(t, err, "spec.containerFile[0].content: Too long: may not be more than 65536")
}

func TestLimitsAreRefusedInWords(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	for message, spec := range map[string]map[string]any{
		`spec.imageBuilder.imageBuilderType: Unsupported value: "PodImageBuilder": supported values: "Job", "Pipeline"`:  {"imageBuilder": map[string]any{"imageBuilderType": "PodImageBuilder"}},
		`spec.postBuildStrategy: Unsupported value: "Nothing": supported values: "ImagePushOnly", "ImagePushAndRollout"`: {"postBuildStrategy": "Nothing"},
		`spec.buildRetryLimit: Invalid value: 11: spec.buildRetryLimit in body should be less than or equal to 10`:       {"buildRetryLimit": int64(11)},
		`spec.retention.successfulBuilds: Invalid value: 0: spec.retention.successfulBuilds in body should be greater than or equal to 1`: {
			"retention": map[string]any{"successfulBuilds": int64(0)},
		},
		`spec.containerFile[1]: Duplicate value: {"containerfileArch":"NoArch"}`: {"containerFile": []any{
			map[string]any{"content": "FROM configs"}, map[string]any{"content": "FROM configs"},
		}},
		`spec.renderedImagePushSecret: Required value`: {"renderedImagePushSecret": nil},
	} {
		_, err := server.create(t, mosc(t, map[string]any{"spec": spec}))
		require.ErrorContains(t, err, message)
	}
}

func TestUnknownFieldsAreNeverHalfApplied(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	object := mosc(t, map[string]any{"spec": map[string]any{
		"buildTimeOut": "1h", "retention": map[string]any{"successfulBuilds": int64(2), "succesfulBuilds": int64(7)},
	}})
	resource := server.resource(t, object)
	create := func(validation string) (*unstructured.Unstructured, error) {
		return resource.Create(t.Context(), object.DeepCopy(), metav1.CreateOptions{FieldValidation: validation})
	}
	_, err := create(metav1.FieldValidationStrict)
	require.ErrorContains(t, err, `unknown field "spec.buildTimeOut"`)
	require.ErrorContains(t, err, `unknown field "spec.retention.succesfulBuilds"`)

	created, err := create(metav1.FieldValidationIgnore)
	require.NoError(t, err)
	t.Cleanup(func() { server.remove(t, created) })
	spec, ok := created.Object["spec"].(map[string]any)
	require.True(t, ok)
	assert.NotContains(t, spec, "buildTimeOut")
	assert.Equal(t, map[string]any{"successfulBuilds": int64(2)}, spec["retention"])
}

// TestConfigOfAnotherName covers what the published cases need a changed definition for: a
// MachineOSConfig from before its name had to be the pool's can still be changed, but not be moved
// to another pool.
func TestConfigOfAnotherName(t *testing.T) {
	t.Parallel()
	for _, rule := range definitions(t)["machineosconfigs.machineconfiguration.openshift.io"].Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations {
		published := publishedDefinition(t, "machineosconfigs.machineconfiguration.openshift.io").Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations
		assert.Contains(t, published, rule, "the rule and its optionalOldSelf are the published ones")
	}
}

func TestBuildEndsOnce(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSBuild")
	client := clientset.NewForConfigOrDie(server.config).MachineconfigurationV1().MachineOSBuilds()
	build := &mcfgv1.MachineOSBuild{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(bases(t)["MachineOSBuild"], build))
	build, err := client.Create(t.Context(), build, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Delete(contextWithoutCancel(t), build.Name, metav1.DeleteOptions{})) })

	start := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	build.Status.BuildStart = &start
	build, err = client.UpdateStatus(t.Context(), build, metav1.UpdateOptions{})
	require.NoError(t, err)

	// The API server keeps whole seconds: half a second is none.
	end := build.DeepCopy()
	end.Status.BuildEnd = new(metav1.NewTime(start.Add(500 * time.Millisecond)))
	_, err = client.UpdateStatus(t.Context(), end, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "buildEnd must be after buildStart")

	// All eight conditions and the end in one write.
	end.Status.BuildEnd = new(metav1.NewTime(start.Add(time.Second)))
	for _, condition := range []string{
		mcfgv1.BuildPrepared, mcfgv1.BuildBuilding, mcfgv1.BuildFailed, mcfgv1.BuildInterrupted, mcfgv1.BuildSucceeded,
		mcfgv1.ConditionReady, mcfgv1.ConditionReconciling, mcfgv1.ConditionStalled,
	} {
		status := metav1.ConditionFalse
		if condition == mcfgv1.BuildSucceeded || condition == mcfgv1.ConditionReady {
			status = metav1.ConditionTrue
		}
		end.Status.Conditions = append(end.Status.Conditions, metav1.Condition{
			Type: condition, Status: status, Reason: mcfgv1.ReasonSucceeded, LastTransitionTime: start,
		})
	}
	tooMany := end.DeepCopy()
	tooMany.Status.Conditions = append(tooMany.Status.Conditions, metav1.Condition{
		Type: "Ninth", Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: start,
	})
	_, err = client.UpdateStatus(t.Context(), tooMany, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "status.conditions: Too many: 9: must have at most 8 items")
	ended, err := client.UpdateStatus(t.Context(), end, metav1.UpdateOptions{})
	require.NoError(t, err)

	// Conditions are frozen, other fields are not.
	frozen := ended.DeepCopy()
	frozen.Status.Conditions[5].Message = "changed"
	_, err = client.UpdateStatus(t.Context(), frozen, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "once an Succeeded condition is set, conditions are immutable")
	ended.Status.Why = "first build"
	_, err = client.UpdateStatus(t.Context(), ended, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// TestGoTypesCarryEverything sends each kind's fullest object through its Go type and compares.
func TestGoTypesCarryEverything(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	var cases []ruleCase
	readTestdata(t, "rules.yaml", &cases)
	for _, c := range cases {
		object := (&unstructured.Unstructured{Object: merge(bases(t)[c.Kind], c.Accept)}).DeepCopy()
		typed, err := scheme.New(object.GroupVersionKind())
		require.NoError(t, err)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true), c.Message)
		raw, err := json.Marshal(typed.DeepCopyObject())
		require.NoError(t, err)
		var back map[string]any
		require.NoError(t, json.Unmarshal(raw, &back))
		want, got := flatten("", jsonOf(t, object.Object)), flatten("", back)
		for path, value := range want {
			if value != float64(0) { // no number is the number 0
				assert.Equal(t, value, got[path], "%s %s", c.Kind, path)
			}
		}
	}
}

func jsonOf(t *testing.T, value any) any {
	t.Helper()
	raw, err := json.Marshal(value)
	require.NoError(t, err)
	var back any
	require.NoError(t, json.Unmarshal(raw, &back))
	return back
}

// TestGoObjectsAreAccepted writes objects as Go programs do: with the zero values of everything
// that they leave out.
func TestGoObjectsAreAccepted(t *testing.T) {
	server := newServer(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{mcfgv1.AddToScheme, mcfgv1alpha1.AddToScheme, operatorv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	for kind, base := range bases(t) {
		t.Run(kind, func(t *testing.T) {
			server.own(t, kind)
			object := &unstructured.Unstructured{Object: base}
			typed, err := scheme.New(object.GroupVersionKind())
			require.NoError(t, err)
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(base, typed))
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			require.NoError(t, err)
			_, err = server.create(t, (&unstructured.Unstructured{Object: content}).DeepCopy())
			require.NoError(t, err)
		})
	}
}

func TestServerSideApplyKeepsOwners(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineConfigPool")
	client := clientset.NewForConfigOrDie(server.config).MachineconfigurationV1().MachineConfigPools()
	pool, err := client.Apply(t.Context(), applyv1.MachineConfigPool("worker").WithSpec(applyv1.MachineConfigPoolSpec().
		WithRollout(applyv1.RolloutSpec().WithWindows(applyv1.RolloutWindow().WithName("nightly").WithStart("22:00").WithDuration("4h")))),
		metav1.ApplyOptions{FieldManager: "one"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Delete(contextWithoutCancel(t), pool.Name, metav1.DeleteOptions{})) })
	pool, err = client.Apply(t.Context(), applyv1.MachineConfigPool("worker").WithSpec(applyv1.MachineConfigPoolSpec().
		WithRollout(applyv1.RolloutSpec().WithWindows(applyv1.RolloutWindow().WithName("sunday").WithStart("10:00").WithDuration("2h")))),
		metav1.ApplyOptions{FieldManager: "two"})
	require.NoError(t, err)
	require.Len(t, pool.Spec.Rollout.Windows, 2, "each owns its window")
}

func TestExplainReadsWell(t *testing.T) {
	t.Parallel()
	newServer(t)
	text := runKubectl(t, "explain", "machineosconfig.spec", "--recursive")
	for _, field := range []string{"buildTimeout", "containerFile", "configMapRef", "postBuildStrategy", "enum: ImagePushOnly, ImagePushAndRollout"} {
		assert.Contains(t, text, field)
	}
	assert.Contains(t, runKubectl(t, "explain", "machineosconfig.spec.buildTimeout"), "When it is omitted, 2h")
}

func TestColumns(t *testing.T) {
	t.Parallel()
	columns := map[string]string{}
	for _, definition := range definitions(t) {
		var names []string
		for _, column := range definition.Spec.Versions[0].AdditionalPrinterColumns {
			if column.Priority == 0 {
				names = append(names, column.Name)
			}
		}
		columns[definition.Spec.Names.Kind] = strings.Join(names, " ")
	}
	assert.Equal(t, "Stream Image Ready Reason Age", columns["MachineOSConfig"])
	assert.Equal(t, "Prepared Building Succeeded Interrupted Failed Age Duration", columns["MachineOSBuild"])
	assert.Equal(t, "Config Updated Updating Degraded MachineCount ReadyMachineCount UpdatedMachineCount DegradedMachineCount Age", columns["MachineConfigPool"])
	assert.Equal(t, "Default Streams Deprecated Ready Age", columns["OSImageStream"])
	assert.Equal(t, "Pool Image Signed Quarantined Ready Reason Age", columns["MachineOSImage"])
	assert.Equal(t, "Resource ResourceName BootImage Updated Ready Reason Age", columns["BootImageHistory"])
}

// condition is one of a status, of an object that is some time old.
func condition(name string, status metav1.ConditionStatus, reason string) map[string]any {
	return map[string]any{"type": name, "status": string(status), "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// printed are the words of the header and of the one object that kubectl prints, which fit a
// terminal.
func printed(t *testing.T, args ...string) (header, cells []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(runKubectl(t, append([]string{"get"}, args...)...)), "\n")
	require.Len(t, lines, 2)
	for _, line := range lines {
		assert.LessOrEqual(t, len(strings.TrimRight(line, " ")), 120, line)
	}
	return strings.Fields(lines[0]), strings.Fields(lines[1])
}

func TestConfigColumnsFitATerminal(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSConfig")
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	_, err := server.create(t, mosc(t, map[string]any{
		"metadata": map[string]any{"name": "edge-gateways-of-factories"}, "spec": map[string]any{"machineConfigPool": map[string]any{"name": "edge-gateways-of-factories"}},
		"status": map[string]any{
			"currentImagePullSpec": "registry.example.com/os/worker@" + digest, "shortDigest": digest[7:19],
			"osImageStream":  map[string]any{"name": "rhel-10-nvidia"},
			"machineOSBuild": map[string]any{"group": mcfgv1.GroupName, "resource": "machineosbuilds", "name": "worker-" + digest[7:39]},
			"conditions":     []any{condition("Ready", metav1.ConditionUnknown, mcfgv1.ReasonDefaultStreamNotAvailable)},
		},
	}))
	require.NoError(t, err)
	header, cells := printed(t, "mosc")
	assert.Equal(t, []string{"NAME", "STREAM", "IMAGE", "READY", "REASON", "AGE"}, header)
	assert.Equal(t, []string{"edge-gateways-of-factories", "rhel-10-nvidia", "0123456789ab", "Unknown", "DefaultStreamNotAvailable"}, cells[:5])
}

// TestPoolColumns holds what is read by position, also of a pool without nodes.
func TestPoolColumns(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineConfigPool")
	pool := merge(bases(t)["MachineConfigPool"], map[string]any{
		"metadata": map[string]any{"name": "edge"},
		"status": map[string]any{
			"configuration": map[string]any{"name": "rendered-edge-1"}, "osImageStream": map[string]any{"name": "rhel-10"}, "shortDigest": "0123456789ab",
			"machineCount": int64(0), "readyMachineCount": int64(0), "updatedMachineCount": int64(0), "degradedMachineCount": int64(0),
			"rollout": map[string]any{"summary": strings.Repeat("x", 128)},
			"conditions": []any{
				condition("Building", "Unknown", "Because"), condition("Updated", "True", "Because"),
				condition("Updating", "False", "Because"), condition("Degraded", "False", "Because"),
			},
		},
	})
	_, err := server.create(t, (&unstructured.Unstructured{Object: pool}).DeepCopy())
	require.NoError(t, err)
	cells := strings.Fields(runKubectl(t, "get", "mcp", "edge", "-o", "wide", "--no-headers"))
	assert.Equal(t, []string{"edge", "rendered-edge-1", "True", "False", "False", "0", "0", "0", "0"}, cells[:9])
	assert.Equal(t, []string{"rhel-10", "0123456789ab", "Unknown", strings.Repeat("x", 128)}, cells[10:])
}

func TestStreamColumns(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "OSImageStream")
	image := mcfgv1.ImageDigestFormat("registry.example.com/os@sha256:" + strings.Repeat("0123456789abcdef", 4))
	var streams mcfgv1.OSImageStreamStatus
	streams.SetStreams([]mcfgv1.OSImageStreamSet{
		{Name: "rhel-9", OSImage: image},
		{Name: "rhel-10", OSImage: image},
		{Name: "rhel-8", OSImage: image, Lifecycle: mcfgv1.StreamDeprecated},
		{Name: "rhel-7", OSImage: image, Lifecycle: mcfgv1.StreamEndOfLife},
	}, "rhel-9")
	_, err := server.create(t, (&unstructured.Unstructured{Object: merge(bases(t)["OSImageStream"],
		map[string]any{"status": jsonOf(t, streams)})}).DeepCopy())
	require.NoError(t, err)
	lines := strings.Split(runKubectl(t, "get", "osimagestreams", "-o", "wide"), "\n")
	assert.Equal(t, []string{"NAME", "DEFAULT", "STREAMS", "DEPRECATED", "ENDOFLIFE", "READY", "AGE"}, strings.Fields(lines[0]))
	assert.Equal(t, []string{"cluster", "rhel-9", "rhel-9,rhel-10,rhel-8,rhel-7", "rhel-8", "rhel-7"}, strings.Fields(lines[1])[:5])
}

func TestBuildColumnsFitATerminal(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "MachineOSBuild")
	build := mcfgv1.MachineOSBuildStatus{Why: "Containerfile"}
	status.SetBuild(&build.Conditions, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), status.Build{Stage: mcfgv1.BuildStageSucceeded, Generation: 1})
	times := status.BuildTimes{}.Ended(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	build.BuildStart, build.BuildEnd, build.Duration = times.Start, times.End, "1h59m59s"
	name := names.MachineOSBuild("worker", strings.Repeat("0123456789abcdef", 2))
	_, err := server.create(t, (&unstructured.Unstructured{Object: merge(bases(t)["MachineOSBuild"], map[string]any{
		"metadata": map[string]any{"name": name, "labels": map[string]any{mcfgv1.LabelTargetMachineConfigPool: "worker"}}, "status": jsonOf(t, build),
	})}).DeepCopy())
	require.NoError(t, err, "an instant build ends a second after its start")
	header, cells := printed(t, "mosb")
	assert.Equal(t, []string{"NAME", "PREPARED", "BUILDING", "SUCCEEDED", "INTERRUPTED", "FAILED", "AGE", "DURATION"}, header)
	assert.Equal(t, []string{name, "False", "False", "True", "False", "False"}, cells[:6])
	assert.Equal(t, "1h59m59s", cells[7])
	wide := strings.Fields(runKubectl(t, "get", "mosb", "-o", "wide", "--no-headers"))
	assert.Equal(t, []string{"worker", "Succeeded", "Containerfile"}, wide[8:])
}

func TestHistoryColumns(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	server.own(t, "BootImageHistory")
	_, err := server.create(t, (&unstructured.Unstructured{Object: merge(bases(t)["BootImageHistory"], map[string]any{"status": map[string]any{
		"details": []any{
			map[string]any{"updateTime": "2026-01-01T00:00:00Z", "bootImageVersion": "414.92.202308032115-0", "configMapGeneration": int64(2)},
			map[string]any{"updateTime": "2026-02-01T00:00:00Z", "bootImageVersion": "415.92.202311241643-0", "configMapGeneration": int64(3)},
		},
	}})}).DeepCopy())
	require.NoError(t, err)
	assert.Contains(t, runKubectl(t, "get", "bootimagehistories"), "415.92.202311241643-0", "the newest")
}
