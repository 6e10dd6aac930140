package nodestate

import (
	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/layerwright/layerwright/machineconfigs"
)

// Reasons for what no image can carry, wherever it is.
const (
	reasonKernelArguments = "they are on the boot loader's command line, so they are set on the node and need no new image"
	reasonFIPS            = "it is chosen when a machine is installed; a node that is not in FIPS mode refuses it"
	reasonAccount         = "accounts are the machine's, and an image would show their keys and hashes to whoever can pull it"
	reasonFirstBoot       = "only Ignition applies it, when a machine boots for the first time"
)

// Add adds what is never image content.
func (s *State) Add(cfg *machineconfigs.Config) {
	args := KernelArguments{Add: cfg.KernelArguments, Remove: cfg.RemoveKernelArguments}
	if len(args.Add)+len(args.Remove) > 0 {
		args.Reason = reasonKernelArguments
		s.KernelArguments = args
	}
	if cfg.FIPS {
		s.FIPS = FIPS{Enabled: true, Reason: reasonFIPS}
	}
	for _, u := range cfg.Ignition.Passwd.Users {
		s.Users = append(s.Users, User{User: u, Reason: reasonAccount})
	}
	for _, g := range cfg.Ignition.Passwd.Groups {
		s.Groups = append(s.Groups, Group{Group: g, Reason: reasonAccount})
	}
	s.FirstBoot = firstBoot(cfg.Ignition)
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
