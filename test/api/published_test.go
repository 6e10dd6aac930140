package api

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// suite is a file of cases as github.com/openshift/api keeps them beside its types.
type suite struct {
	CRDName      string   `json:"crdName"`
	FeatureGates []string `json:"featureGates"`
	Tests        struct {
		OnCreate []struct {
			Name          string `json:"name"`
			Initial       string `json:"initial"`
			Expected      string `json:"expected"`
			ExpectedError string `json:"expectedError"`
		} `json:"onCreate"`
		OnUpdate []struct {
			Name                string `json:"name"`
			InitialCRDPatches   []any  `json:"initialCRDPatches"`
			Initial             string `json:"initial"`
			Updated             string `json:"updated"`
			Expected            string `json:"expected"`
			ExpectedError       string `json:"expectedError"`
			ExpectedStatusError string `json:"expectedStatusError"`
		} `json:"onUpdate"`
	} `json:"tests"`
}

// publishedDir is where the published API lies in the module cache.
func publishedDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// publishedKinds are our kinds that are published too, with the folder of their package.
var publishedKinds = map[string]string{
	"machineconfigs.machineconfiguration.openshift.io":     "machineconfiguration/v1",
	"machineconfigpools.machineconfiguration.openshift.io": "machineconfiguration/v1",
	"machineosconfigs.machineconfiguration.openshift.io":   "machineconfiguration/v1",
	"machineosbuilds.machineconfiguration.openshift.io":    "machineconfiguration/v1",
	"machineconfignodes.machineconfiguration.openshift.io": "machineconfiguration/v1",
	"osimagestreams.machineconfiguration.openshift.io":     "machineconfiguration/v1",
	"machineconfigurations.operator.openshift.io":          "operator/v1",
}

func suitesOf(t *testing.T, kind string) map[string]suite {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(publishedDir(t), publishedKinds[kind], "tests", kind, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, kind)
	suites := map[string]suite{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var s suite
		require.NoError(t, yaml.Unmarshal(content, &s), file)
		require.Equal(t, kind, s.CRDName)
		suites[strings.TrimSuffix(filepath.Base(file), ".yaml")] = s
	}
	return suites
}

func TestPublishedCasesGiveThePublishedResult(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	for kind := range publishedKinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // cases of one kind share names, so they run in turn
			server.own(t, definitions(t)[kind].Spec.Names.Kind)
			suites := suitesOf(t, kind)
			for _, name := range slices.Sorted(maps.Keys(suites)) {
				t.Run(name, func(t *testing.T) { runSuite(t, server, suites[name]) })
			}
		})
	}
}

func runSuite(t *testing.T, server *server, s suite) {
	t.Helper()
	for _, c := range s.Tests.OnCreate {
		t.Run(c.Name, func(t *testing.T) {
			object := decode(t, c.Initial)
			if object.GetName() == "" {
				object.SetGenerateName("test-")
			}
			created, err := server.create(t, object)
			if c.ExpectedError != "" {
				refused(t, err, c.ExpectedError)
				return
			}
			require.NoError(t, err)
			expected := decode(t, c.Expected)
			sameJSON(t, expected.Object["spec"], created.Object["spec"])
		})
	}
	for _, c := range s.Tests.OnUpdate {
		t.Run(c.Name, func(t *testing.T) {
			if len(c.InitialCRDPatches) > 0 {
				t.Skip("needs an object that the kind refuses: TestConfigOfAnotherName covers it")
			}
			object := decode(t, c.Initial)
			if object.GetName() == "" {
				object.SetGenerateName("test-")
			}
			before, err := server.create(t, object)
			require.NoError(t, err)
			after, err, statusErr := server.update(t, before, decode(t, c.Updated))
			if c.ExpectedError != "" {
				refused(t, err, c.ExpectedError)
				return
			}
			require.NoError(t, err)
			if c.ExpectedStatusError != "" {
				refused(t, statusErr, c.ExpectedStatusError)
				return
			}
			require.NoError(t, statusErr)
			expected := decode(t, c.Expected)
			sameJSON(t, expected.Object["spec"], after.Object["spec"])
			if status, ok := expected.Object["status"]; ok {
				sameJSON(t, status, after.Object["status"])
			}
		})
	}
}

// refused checks a refusal and its words.
func refused(t *testing.T, err error, message string) {
	t.Helper()
	require.Error(t, err)
	for _, part := range valueShown.Split(message, -1) {
		require.ErrorContains(t, err, part)
	}
}

// valueShown is how API servers of other versions print a refused value: by its type, or as Go
// does. Ours prints the value.
var valueShown = regexp.MustCompile(`Invalid value: "(object|array|string|integer|null)":? ?|map\[string\]interface \{\}.*`)

// sameJSON compares what decoders gave different number types.
func sameJSON(t *testing.T, expected, actual any) {
	t.Helper()
	want, err := json.Marshal(expected)
	require.NoError(t, err)
	got, err := json.Marshal(actual)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(got))
}

// publishedDefinition reads the published definition of a kind with the most features turned on.
func publishedDefinition(t *testing.T, kind string) apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	plural, _, _ := strings.Cut(kind, ".")
	folder := filepath.Join(publishedDir(t), publishedKinds[kind], "zz_generated.crd-manifests")
	for _, variant := range []string{"-SelfManagedHA-CustomNoUpgrade", "-SelfManagedHA", ""} {
		content, err := os.ReadFile(filepath.Join(folder, "0000_80_machine-config_01_"+plural+variant+".crd.yaml"))
		if err != nil {
			continue
		}
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(content, &definition))
		return definition
	}
	require.FailNow(t, "no published definition", kind)
	return apiextensionsv1.CustomResourceDefinition{}
}
