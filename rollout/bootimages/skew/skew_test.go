package skew

import (
	"testing"

	openshiftv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

func TestAllowed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		image BootImage
		want  string // empty is allowed
	}{
		"today's":                          {BootImage{"4.20.0", "9.6.20250826-1"}, ""},
		"the oldest by its own version":    {BootImage{"", "413.92.202305021736-0"}, ""},
		"the oldest by release":            {BootImage{"4.13.0", ""}, ""},
		"RHEL 10 is newer than any 9":      {BootImage{"", "10.0.20260101-0"}, ""},
		"a release too old":                {BootImage{"4.12.9", ""}, "boot image 4.12.9 is of OCP 4.12, and the oldest allowed is OCP 4.13"},
		"an image too old":                 {BootImage{"", "412.86.202301311551-0"}, "is of RHEL 8.6, and the oldest allowed is RHEL 9.2"},
		"an image too old for its release": {BootImage{"4.20.0", "9.0.20230101-0"}, "is of RHEL 9.0"},
		"nothing":                          {BootImage{}, "the version of the boot image is not known"},
		"0.0.0":                            {BootImage{"0.0.0", ""}, "version 0.0.0 stands for an unmanaged boot image"},
		"a version of nothing known":       {BootImage{"", "unknown"}, "the version of the boot image is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := Allowed(tt.image, Floor())
			require.Equal(t, tt.want == "", v.Allowed, v)
			assert.Contains(t, v.Reason, tt.want)
		})
	}
}

func TestLimitsComeFromTheReleaseAndHaveAFloor(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]Limits{
		"":                        Floor(),
		`{"rhelVersion":"9.6"}`:   {OCP: Floor().OCP, RHEL: plan.MajorMinor{Major: 9, Minor: 6}},
		`{"ocpVersion":"4.18.0"}`: {OCP: plan.MajorMinor{Major: 4, Minor: 18}, RHEL: Floor().RHEL},
		`{"ocpVersion":"4.1.0","rhelVersion":"8.0"}`: Floor(),
	} {
		got, err := ParseLimits(policy)
		require.NoError(t, err, policy)
		assert.Equal(t, want, got, policy)
	}
	for _, policy := range []string{"{", `{"rhelVersion":"nine"}`, `{"rhelVersion":9.6}`} {
		got, err := ParseLimits(policy)
		require.Error(t, err, policy)
		assert.Equal(t, Floor(), got, policy)
	}
}

func TestTheStricterLimitsHold(t *testing.T) {
	t.Parallel()
	a := Limits{OCP: plan.MajorMinor{Major: 4, Minor: 18}, RHEL: Floor().RHEL}
	b := Limits{OCP: Floor().OCP, RHEL: plan.MajorMinor{Major: 9, Minor: 6}}
	assert.Equal(t, Limits{OCP: a.OCP, RHEL: b.RHEL}, Stricter(a, b))
	assert.Equal(t, Stricter(b, a), Stricter(a, b))
}

func TestStatus(t *testing.T) {
	t.Parallel()
	none := openshiftv1.BootImageSkewEnforcementConfig{Mode: openshiftv1.BootImageSkewEnforcementConfigModeNone}
	manual := openshiftv1.BootImageSkewEnforcementConfig{
		Mode: openshiftv1.BootImageSkewEnforcementConfigModeManual, Manual: openshiftv1.ClusterBootImageManual{Mode: "OCPVersion", OCPVersion: "4.12.0"},
	}
	known := BootImage{"4.20.0", "9.6.20250826-1"}
	assert.EqualValues(t, "None", Status(none, true, known).Mode)
	assert.Equal(t, manual.Manual, Status(manual, true, known).Manual)
	automatic := Status(openshiftv1.BootImageSkewEnforcementConfig{}, true, known)
	assert.Equal(t, openshiftv1.ClusterBootImageAutomatic{OCPVersion: "4.20.0", RHCOSVersion: "9.6.20250826-1"}, automatic.Automatic)
	assert.Equal(t, "0.0.0", Status(openshiftv1.BootImageSkewEnforcementConfig{}, true, BootImage{RHCOSVersion: "unknown"}).Automatic.OCPVersion)
	assert.Empty(t, Status(openshiftv1.BootImageSkewEnforcementConfig{}, false, known).Mode)

	assert.Empty(t, Upgradeable(Status(none, true, BootImage{}), Floor(), "everything"))
	assert.Empty(t, Upgradeable(automatic, Floor(), ""))
	for name, message := range map[string]string{
		"too old":     Upgradeable(Status(manual, true, known), Floor(), ""),
		"degraded":    Upgradeable(automatic, Floor(), "MachineSet a/b"),
		"not chosen":  Upgradeable(Status(openshiftv1.BootImageSkewEnforcementConfig{}, false, known), Floor(), ""),
		"not managed": Upgradeable(Status(openshiftv1.BootImageSkewEnforcementConfig{}, true, BootImage{}), Floor(), ""),
	} {
		assert.Contains(t, message, "To continue, ", name)
		assert.Contains(t, message, "mode Manual", name)
	}
}

func TestOldest(t *testing.T) {
	t.Parallel()
	a, b, unknown := BootImage{RHCOSVersion: "9.2.20240101-0"}, BootImage{RHCOSVersion: "9.10.20260101-0"}, BootImage{}
	assert.Equal(t, a, Oldest(a, b))
	assert.Equal(t, a, Oldest(b, a))
	assert.Equal(t, unknown, Oldest(a, unknown))
	assert.Equal(t, unknown, Oldest(unknown, a))
}
