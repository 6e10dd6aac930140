package layer

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Reasons for what no image can carry, wherever it is.
const (
	reasonKernelArguments = "they are on the boot loader's command line, so they are set on the node and need no new image"
	reasonFIPS            = "it is chosen when a machine is installed, and its kernel argument is the node's"
	reasonAccount         = "accounts are the machine's, and an image would show their keys and hashes to whoever can pull it"
	reasonFirstBoot       = "only Ignition applies it, when a machine boots for the first time"
)

// nodeState adds what is never image content.
func (s *splitter) nodeState() {
	state, config := &s.plan.NodeState, s.cfg.Ignition
	args := KernelArguments{Add: s.cfg.KernelArguments, Remove: s.cfg.RemoveKernelArguments}
	if len(args.Add)+len(args.Remove) > 0 {
		args.Reason = reasonKernelArguments
		state.KernelArguments = args
	}
	if s.cfg.FIPS {
		state.FIPS = FIPS{Enabled: true, Reason: reasonFIPS}
	}
	for _, u := range config.Passwd.Users {
		state.Users = append(state.Users, User{User: u, Reason: reasonAccount})
	}
	for _, g := range config.Passwd.Groups {
		state.Groups = append(state.Groups, Group{Group: g, Reason: reasonAccount})
	}
	state.FirstBoot = firstBoot(config)
}

// firstBoot lists the sections that only a first boot uses.
func firstBoot(config types.Config) []FirstBoot {
	var all []FirstBoot
	add := func(section string, names []string) {
		if len(names) > 0 {
			all = append(all, FirstBoot{Section: section, Names: names, Reason: reasonFirstBoot})
		}
	}
	storage, ignition := config.Storage, config.Ignition
	add("storage.disks", namesOf(storage.Disks, func(d types.Disk) string { return d.Device }))
	add("storage.raid", namesOf(storage.Raid, func(r types.Raid) string { return r.Name }))
	add("storage.luks", namesOf(storage.Luks, func(l types.Luks) string { return l.Name }))
	add("storage.filesystems", namesOf(storage.Filesystems, func(f types.Filesystem) string { return f.Device }))
	add("ignition.security.tls.certificateAuthorities", namesOf(ignition.Security.TLS.CertificateAuthorities, sourceName))
	add("ignition.config.merge", namesOf(ignition.Config.Merge, sourceName))
	if ignition.Config.Replace.Source != nil {
		add("ignition.config.replace", []string{sourceName(ignition.Config.Replace)})
	}
	if p := ignition.Proxy; p.HTTPProxy != nil || p.HTTPSProxy != nil || len(p.NoProxy) > 0 {
		all = append(all, FirstBoot{Section: "ignition.proxy", Reason: reasonFirstBoot})
	}
	if t := ignition.Timeouts; t.HTTPResponseHeaders != nil || t.HTTPTotal != nil {
		all = append(all, FirstBoot{Section: "ignition.timeouts", Reason: reasonFirstBoot})
	}
	return all
}

func namesOf[T any](all []T, name func(T) string) []string {
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = name(one)
	}
	return names
}
