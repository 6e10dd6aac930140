package machineconfigs

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

func poolWith(selector *metav1.LabelSelector) *mcfgv1.MachineConfigPool {
	return &mcfgv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: "infra"},
		Spec:       mcfgv1.MachineConfigPoolSpec{MachineConfigSelector: selector},
	}
}

func ownedByPool() option {
	return func(mc *mcfgv1.MachineConfig) {
		mc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "machineconfiguration.openshift.io/v1", Kind: "MachineConfigPool", Name: "worker"}}
	}
}

func TestSelect(t *testing.T) {
	t.Parallel()
	generated := annotated(mcfgv1.AnnotationGeneratedByControllerVersion, "1")
	all := []*mcfgv1.MachineConfig{
		machineConfig("99-b", "", role("worker")),
		machineConfig("50-a", "", role("infra")),
		nil,
		machineConfig("00-c", "", role("worker"), generated),
		machineConfig("50-other", "", role("master")),
		machineConfig("50-none", ""),
		machineConfig("rendered-worker-0123", "", role("worker"), ownedByPool()),
		machineConfig("rendered-restored-0123", "", role("worker"), generated),
		machineConfig("rendered-by-hand", "", role("worker")),
		machineConfig("copied", "", role("worker"), ownedByPool()),
	}
	tests := map[string]struct {
		selector *metav1.LabelSelector
		want     []string
	}{
		"one role, sorted, without rendered ones": {
			&metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}},
			[]string{"00-c", "99-b", "rendered-by-hand"},
		},
		"several roles": {
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: mcfgv1.LabelRole, Operator: metav1.LabelSelectorOpIn, Values: []string{"worker", "infra"}},
			}},
			[]string{"00-c", "50-a", "99-b", "rendered-by-hand"},
		},
		"a role that nothing has": {
			&metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "gpu"}}, nil,
		},
		"no selector selects nothing":       {nil, nil},
		"an empty selector selects nothing": {&metav1.LabelSelector{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selected, err := Select(poolWith(test.selector), "", all)
			require.NoError(t, err)
			var names []string
			for _, mc := range selected {
				names = append(names, mc.Name)
			}
			require.Equal(t, test.want, names)
		})
	}
}

func TestSelectForAStream(t *testing.T) {
	t.Parallel()
	of := func(stream string) option { return labelled(mcfgv1.LabelOSStream, stream) }
	all := []*mcfgv1.MachineConfig{
		machineConfig("all", "", role("worker")), machineConfig("nine", "", role("worker"), of("rhel-9")), machineConfig("ten", "", role("worker"), of("rhel-10")),
		machineConfig("unselected", "", role("worker"), of("")), machineConfig("master's", "", role("master"), of("rhel-9")),
	}
	pool := poolWith(&metav1.LabelSelector{MatchLabels: map[string]string{mcfgv1.LabelRole: "worker"}})
	for stream, want := range map[string][]string{
		"rhel-9": {"all", "nine"}, "rhel-10": {"all", "ten"}, "rhel-11": {"all"}, "": {"all"},
	} {
		selected, err := Select(pool, stream, all)
		require.NoError(t, err)
		var names []string
		for _, mc := range selected {
			names = append(names, mc.Name)
		}
		require.Equal(t, want, names, stream)
	}
}

func TestSelectWithoutPool(t *testing.T) {
	t.Parallel()
	selected, err := Select(nil, "", []*mcfgv1.MachineConfig{machineConfig("50-a", "")})
	require.NoError(t, err)
	require.Empty(t, selected)
}

func TestSelectRefusesSelectors(t *testing.T) {
	t.Parallel()
	_, err := Select(poolWith(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: mcfgv1.LabelRole, Operator: "Like", Values: []string{"worker"}},
	}}), "", nil)
	require.EqualError(t, err, `spec.machineConfigSelector (MachineConfigPool "infra"): reading the selector: "Like" is not a valid label selector operator`)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, mcfgv1.ReasonInvalidMachineConfig, e.Reason)
}

func TestIsRendered(t *testing.T) {
	t.Parallel()
	foreign := machineConfig("50-a", "")
	foreign.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "MachineConfigPool", Name: "worker"}}
	require.False(t, IsRendered(foreign), "another group's MachineConfigPool")
	require.True(t, IsRendered(machineConfig("50-a", "", ownedByPool())))
}
