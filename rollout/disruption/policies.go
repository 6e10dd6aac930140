package disruption

import (
	"slices"

	openshiftv1 "github.com/openshift/api/operator/v1"
)

// Units that the built-in policies name.
const (
	crio          = "crio.service"
	kubelet       = "kubelet.service"
	updateCATrust = "coreos-update-ca-trust.service"
	iriRegistry   = "iri-registry.service"
)

type (
	statusAction = openshiftv1.NodeDisruptionPolicyStatusAction
	statusFile   = openshiftv1.NodeDisruptionPolicyStatusFile
	statusUnit   = openshiftv1.NodeDisruptionPolicyStatusUnit
)

func plain(kind openshiftv1.NodeDisruptionPolicyStatusActionType) statusAction {
	return statusAction{Type: kind}
}

func reloadCRIO() statusAction {
	return statusAction{Type: openshiftv1.ReloadStatusAction, Reload: &openshiftv1.ReloadService{ServiceName: crio}}
}

func restart(unit openshiftv1.NodeDisruptionPolicyServiceName) statusAction {
	return statusAction{Type: openshiftv1.RestartStatusAction, Restart: &openshiftv1.RestartService{ServiceName: unit}}
}

// Defaults are the built-in policies, which openshift/machine-config-operator has too.
func Defaults() openshiftv1.NodeDisruptionPolicyClusterStatus {
	none, daemonReload := plain(openshiftv1.NoneStatusAction), plain(openshiftv1.DaemonReloadStatusAction)
	file := func(path string, actions ...statusAction) statusFile { return statusFile{Path: path, Actions: actions} }
	return openshiftv1.NodeDisruptionPolicyClusterStatus{
		Files: []statusFile{
			file("/var/lib/kubelet/config.json", none),
			file("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCRIO()),
			file("/etc/containers/policy.json", reloadCRIO()),
			file("/etc/containers/registries.conf", plain(openshiftv1.SpecialStatusAction)),
			file("/etc/containers/registries.d", reloadCRIO()),
			file("/etc/crio/policies", reloadCRIO()),
			file("/etc/nmstate/openshift", none),
			file("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", restart(updateCATrust), restart(crio)),
			file("/etc/kubernetes/credential-providers", restart(kubelet)),
			file("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", daemonReload, restart(kubelet)),
			file("/etc/iri-registry", restart(iriRegistry)),
			file("/usr/local/bin/load-registry-image.sh", restart(iriRegistry)),
			file("/etc/pki/ca-trust/source/anchors/iri-root-ca.crt", restart(updateCATrust)),
		},
		Units:  []statusUnit{{Name: iriRegistry, Actions: []statusAction{daemonReload, restart(iriRegistry)}}},
		SSHKey: openshiftv1.NodeDisruptionPolicyStatusSSHKey{Actions: []statusAction{none}},
	}
}

// Merge joins the built-in policies and an administrator's. Of two for the same path or unit, and
// of those for SSH keys, the administrator's is in force.
func Merge(spec *openshiftv1.NodeDisruptionPolicyConfig) openshiftv1.NodeDisruptionPolicyClusterStatus {
	out := Defaults()
	for i := range spec.Files {
		f := &spec.Files[i]
		own := statusFile{Path: f.Path, Actions: converted(f.Actions)}
		if at := slices.IndexFunc(out.Files, func(d statusFile) bool { return d.Path == f.Path }); at >= 0 {
			out.Files[at] = own
		} else {
			out.Files = append(out.Files, own)
		}
	}
	for i := range spec.Units {
		u := &spec.Units[i]
		own := statusUnit{Name: u.Name, Actions: converted(u.Actions)}
		if at := slices.IndexFunc(out.Units, func(d statusUnit) bool { return d.Name == u.Name }); at >= 0 {
			out.Units[at] = own
		} else {
			out.Units = append(out.Units, own)
		}
	}
	if len(spec.SSHKey.Actions) > 0 {
		out.SSHKey.Actions = converted(spec.SSHKey.Actions)
	}
	return out
}

func converted(actions []openshiftv1.NodeDisruptionPolicySpecAction) []statusAction {
	out := make([]statusAction, 0, len(actions))
	for _, a := range actions {
		out = append(out, statusAction{Type: openshiftv1.NodeDisruptionPolicyStatusActionType(a.Type), Reload: a.Reload, Restart: a.Restart})
	}
	return out
}
