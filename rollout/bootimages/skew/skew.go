package skew

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	openshiftv1 "github.com/openshift/api/operator/v1"

	"github.com/layerwright/layerwright/rollout/bootimages/plan"
)

// Limits are the oldest boot images that are allowed.
type Limits struct {
	OCP, RHEL plan.MajorMinor
}

// Floor are the limits below which no release's policy can go: older images can't make the first
// step to today's OS images.
func Floor() Limits {
	return Limits{OCP: plan.MajorMinor{Major: 4, Minor: 13}, RHEL: plan.MajorMinor{Major: 9, Minor: 2}}
}

// KeyLimits is the key of the ConfigMap of boot images with the policy of its release, as JSON:
// ocpVersion and rhelVersion, both optional.
const KeyLimits = "skewLimits"

var majorMinor = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})(?:\.\d+)?$`)

// parse reads "9.2" and "4.13.0".
func parse(version string) (plan.MajorMinor, bool) {
	m := majorMinor.FindStringSubmatch(version)
	if m == nil {
		return plan.MajorMinor{}, false
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	return plan.MajorMinor{Major: major, Minor: minor}, true
}

// ParseLimits reads the policy of a release. Without one the floor holds, and also beside one that
// can't be read.
func ParseLimits(policy string) (Limits, error) {
	limits := Floor()
	if policy == "" {
		return limits, nil
	}
	var said struct{ OCPVersion, RHELVersion string }
	if err := json.Unmarshal([]byte(policy), &said); err != nil {
		return limits, fmt.Errorf("reading the limits: %w", err)
	}
	for _, each := range []struct {
		said  string
		limit *plan.MajorMinor
	}{{said.OCPVersion, &limits.OCP}, {said.RHELVersion, &limits.RHEL}} {
		if each.said == "" {
			continue
		}
		version, isVersion := parse(each.said)
		if !isVersion {
			return Floor(), fmt.Errorf("reading the limits: %q is no version", each.said)
		}
		if version.Compare(*each.limit) > 0 {
			*each.limit = version
		}
	}
	return limits, nil
}

// Stricter are the higher ones of two limits each.
func Stricter(a, b Limits) Limits {
	if b.OCP.Compare(a.OCP) > 0 {
		a.OCP = b.OCP
	}
	if b.RHEL.Compare(a.RHEL) > 0 {
		a.RHEL = b.RHEL
	}
	return a
}

// BootImage is the version of a boot image: that of the release that it came with, of itself, or
// both. Empty is unknown.
type BootImage struct {
	OCPVersion, RHCOSVersion string
}

// Verdict is whether a boot image is allowed, and else why not.
type Verdict struct {
	Allowed bool
	Reason  string
}

// Allowed reports whether machines may start with a boot image.
func Allowed(image BootImage, limits Limits) Verdict {
	ocp, hasOCP := parse(image.OCPVersion)
	version := plan.ParseVersion(image.RHCOSVersion)
	if !hasOCP {
		ocp = version.OCP
	}
	switch {
	case !version.RHEL.IsZero() && version.RHEL.Compare(limits.RHEL) < 0:
		return Verdict{Reason: fmt.Sprintf("boot image %s is of RHEL %s, and the oldest allowed is RHEL %s", image.RHCOSVersion, version.RHEL, limits.RHEL)}
	case hasOCP && ocp.IsZero():
		return Verdict{Reason: "version " + oldest + " stands for an unmanaged boot image of unknown version"}
	case !ocp.IsZero() && ocp.Compare(limits.OCP) < 0:
		return Verdict{Reason: fmt.Sprintf("boot image %s is of OCP %s, and the oldest allowed is OCP %s", cmp.Or(image.RHCOSVersion, image.OCPVersion), ocp, limits.OCP)}
	case ocp.IsZero() && version.RHEL.IsZero():
		return Verdict{Reason: "the version of the boot image is not known"}
	}
	return Verdict{Allowed: true}
}

// oldest is the version that stands for one that no one knows.
const oldest = "0.0.0"

// Oldest is the older of two boot images: what no one knows the version of comes first.
func Oldest(a, b BootImage) BootImage {
	va, vb := plan.ParseVersion(a.RHCOSVersion), plan.ParseVersion(b.RHCOSVersion)
	oa, _ := parse(a.OCPVersion)
	ob, _ := parse(b.OCPVersion)
	if c := cmp.Or(va.RHEL.Compare(vb.RHEL), oa.Compare(ob), cmp.Compare(a.RHCOSVersion, b.RHCOSVersion)); c > 0 {
		return b
	}
	return a
}

// Status is the mode in force and the boot image that is compared: what the administrator asks for
// or, without that, Automatic where all boot images are managed. Empty is that an administrator has
// to choose.
func Status(asked openshiftv1.BootImageSkewEnforcementConfig, isManaged bool, known BootImage) openshiftv1.BootImageSkewEnforcementStatus {
	switch {
	case asked.Mode == openshiftv1.BootImageSkewEnforcementConfigModeNone:
		return openshiftv1.BootImageSkewEnforcementStatus{Mode: openshiftv1.BootImageSkewEnforcementModeStatusNone}
	case asked.Mode == openshiftv1.BootImageSkewEnforcementConfigModeManual:
		return openshiftv1.BootImageSkewEnforcementStatus{Mode: openshiftv1.BootImageSkewEnforcementModeStatusManual, Manual: asked.Manual}
	case isManaged:
		automatic := openshiftv1.ClusterBootImageAutomatic{OCPVersion: known.OCPVersion}
		if plan.IsRHCOS(known.RHCOSVersion) {
			automatic.RHCOSVersion = known.RHCOSVersion
		}
		if automatic == (openshiftv1.ClusterBootImageAutomatic{}) {
			automatic.OCPVersion = oldest
		}
		return openshiftv1.BootImageSkewEnforcementStatus{Mode: openshiftv1.BootImageSkewEnforcementModeStatusAutomatic, Automatic: automatic}
	}
	return openshiftv1.BootImageSkewEnforcementStatus{}
}

// ways out, which every refusal ends with.
const waysOut = " To continue, have boot images managed (spec.managedBootImages of MachineConfiguration \"cluster\"), or update them by hand and " +
	"report their version in spec.bootImageSkewEnforcement with mode Manual, or choose mode None, with which new machines may fail to join. " +
	"See docs/boot-images.md."

// Upgradeable is why the cluster must not be upgraded; empty where boot images allow it. degraded
// is why boot images that should be updated are not; empty where they are.
func Upgradeable(s openshiftv1.BootImageSkewEnforcementStatus, limits Limits, degraded string) string {
	var image BootImage
	switch s.Mode {
	case openshiftv1.BootImageSkewEnforcementModeStatusNone:
		return ""
	case openshiftv1.BootImageSkewEnforcementModeStatusManual:
		image = BootImage{s.Manual.OCPVersion, s.Manual.RHCOSVersion}
	case openshiftv1.BootImageSkewEnforcementModeStatusAutomatic:
		if degraded != "" {
			return "Boot images cannot be updated: " + degraded + "." + waysOut
		}
		image = BootImage{s.Automatic.OCPVersion, s.Automatic.RHCOSVersion}
	default:
		return "Nothing is known about the boot images of this cluster." + waysOut
	}
	if v := Allowed(image, limits); !v.Allowed {
		return "Boot images are too old: " + v.Reason + "." + waysOut
	}
	return ""
}
