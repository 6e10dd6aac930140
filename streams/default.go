package streams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// Distribution is a family of clusters whose releases have OS images of their own.
type Distribution string

// Distributions.
const (
	// DistributionUnknown is any: the streams themselves say.
	DistributionUnknown Distribution = ""
	// DistributionOCP is OpenShift Container Platform, with RHEL CoreOS.
	DistributionOCP Distribution = "OCP"
	// DistributionSCOS is OKD with CentOS Stream CoreOS.
	DistributionSCOS Distribution = "SCOS"
	// DistributionFCOS is OKD with Fedora CoreOS.
	DistributionFCOS Distribution = "FCOS"
)

// DefaultInput is what the default stream is chosen from.
type DefaultInput struct {
	// Wanted is spec.defaultStream; empty where no one asks for one.
	Wanted string
	// Previous is the default so far.
	Previous string
	// Available are the streams that there are.
	Available []mcfgv1.OSImageStreamSet
	// Distribution and InstallVersion are those of the cluster; the version is the one that it was
	// installed with, not the one that it has.
	Distribution   Distribution
	InstallVersion string
}

// Default chooses the default stream, and says why. The order is: the one that is asked for, the
// one that was, the only one, and the one that the cluster's first version came with.
//
// The error tells people what to do. A name is chosen beside it where what is asked for is not
// available, and another one can stand in until someone has answered.
func Default(in DefaultInput) (name, reason string, err error) {
	names := Names(in.Available)
	if in.Wanted != "" && slices.Contains(names, in.Wanted) {
		return in.Wanted, "spec.defaultStream asks for it", nil
	}
	name, reason = in.fallback(names)
	if in.Wanted != "" {
		err = &Error{Stream: in.Wanted, Reason: mcfgv1.ReasonDefaultStreamNotAvailable, Message: in.explain(name, names)}
		return name, reason, err
	}
	if name == "" {
		err = &Error{Reason: mcfgv1.ReasonDefaultStreamNotAvailable, Message: fmt.Sprintf(
			"none of the streams is the default of %s, and spec.defaultStream names none; available are: %s", in.cluster(), strings.Join(names, ", "))}
	}
	return name, reason, err
}

func (in *DefaultInput) fallback(names []string) (name, reason string) {
	if in.Previous != "" && slices.Contains(names, in.Previous) {
		return in.Previous, "it has been the default"
	}
	if len(names) == 1 {
		return names[0], "it is the only one"
	}
	for _, builtIn := range BuiltInDefaults(in.Distribution, in.InstallVersion) {
		if slices.Contains(names, builtIn) {
			return builtIn, fmt.Sprintf("it is the default of %s", in.cluster())
		}
	}
	return "", ""
}

func (in *DefaultInput) explain(name string, names []string) string {
	text := fmt.Sprintf("spec.defaultStream %q is not available; available are: %s", in.Wanted, strings.Join(names, ", "))
	if name == "" {
		return text
	}
	return fmt.Sprintf("%s; the default is %q until then", text, name)
}

func (in *DefaultInput) cluster() string {
	if in.InstallVersion == "" {
		return "a cluster of unknown version"
	}
	return fmt.Sprintf("a cluster that was installed with %s", in.InstallVersion)
}

// firstWithEL10 is the major version of OpenShift whose new clusters begin with RHEL 10.
const firstWithEL10 = 5

// BuiltInDefaults are the names of the streams that clusters of a distribution begin with, the best
// first. The version is the one that the cluster was installed with: what it is upgraded to does
// not change its default. Both the names of the design of streams and those that images have today
// are known.
func BuiltInDefaults(distribution Distribution, installVersion string) []string {
	rhel := []string{"rhel-9", "rhel9-coreos"}
	if major, ok := majorVersion(installVersion); ok && major >= firstWithEL10 {
		rhel = []string{"rhel-10", "rhel10-coreos"}
	}
	scos := []string{"centos-10", "stream-coreos"}
	fcos := []string{"fedora-coreos"}
	switch distribution {
	case DistributionOCP:
		return rhel
	case DistributionSCOS:
		return scos
	case DistributionFCOS:
		return fcos
	default: // a release has the streams of one distribution; a cluster without a release has no default by its version
		if installVersion == "" {
			return nil
		}
		return slices.Concat(rhel, scos, fcos)
	}
}

// majorVersion is the number before the first dot.
func majorVersion(version string) (int, bool) {
	text, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	major, err := strconv.Atoi(text)
	return major, err == nil
}
