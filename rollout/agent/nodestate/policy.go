package nodestate

import (
	"fmt"
	"path"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/trust/signaturepolicy"
)

// Where the host has the secret that pods' images are pulled with, and where ostree, and so bootc
// and rpm-ostree, look for the one that its own image is pulled with (ostree-ext, "authfile").
const (
	kubeletAuthPath = "/var/lib/kubelet/config.json"
	authPath        = "/run/ostree/auth.json"
)

// ownAuthPaths are those of administrators and images: authPath comes before them, as a whole.
func ownAuthPaths() []string { return []string{"/etc/ostree/auth.json", "/usr/lib/ostree/auth.json"} }

// GivePullSecret gives the programs that stage images a secret to pull with, as a docker
// configuration; without one that of the kubelet, if the host has it, and no configuration of its
// own for these programs. /run is empty after every boot, so that it is given again before each
// staging.
func (h *Host) GivePullSecret(secret []byte) error {
	if secret == nil {
		for _, at := range ownAuthPaths() {
			own, err := h.tree.look(at) // which may be a link
			if err != nil {
				return err
			}
			if own.Kind != Missing {
				return h.tree.remove(authPath) // it would cover the host's own
			}
		}
		var err error
		if secret, err = h.tree.read(kubeletAuthPath); err != nil || secret == nil {
			return err
		}
	}
	i := newFile(authPath, secret)
	i.Mode = privateFile
	return h.ensure(mine(Item{Path: path.Dir(authPath), Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true}), mine(i))
}

// SignaturePolicy is the host's policy for signatures of images; nil where it has none.
func (h *Host) SignaturePolicy() ([]byte, error) {
	for _, at := range []string{signaturepolicy.PolicyPath, "/usr/share/containers/policy.json"} {
		if content, err := h.tree.read(at); err != nil || content != nil {
			return content, err
		}
	}
	return nil, nil
}

// ensure writes what is not as it should be.
func (h *Host) ensure(items ...Item) error {
	for _, i := range items {
		has, err := h.tree.look(i.Path)
		if err == nil && !i.fits(has) {
			err = h.tree.write(i)
		}
		if err != nil {
			return fmt.Errorf("giving the host %s: %w", i.Path, err)
		}
	}
	return nil
}

// temporaryPolicy is the host with a record of its own for the temporary signature policy.
func (h *Host) temporaryPolicy() *Host { return &Host{tree: h.tree, name: "signaturepolicy"} }

// InstallTemporaryPolicy writes the signature policy of a configuration before a host stages the
// first image that contains it: programs that require signatures would refuse all images. It does
// nothing where the configuration has no policy, or the host has the same.
func (h *Host) InstallTemporaryPolicy(cfg *machineconfigs.Config) error {
	var policy State
	for i := range cfg.Ignition.Storage.Files {
		f := &cfg.Ignition.Storage.Files[i]
		if f.Path != signaturepolicy.PolicyPath && f.Path != signaturepolicy.RegistryPath {
			continue
		}
		content, isRemote, err := machineconfigs.DecodeContents(f.Contents)
		switch {
		case err != nil:
			return fmt.Errorf("reading file %s of MachineConfig %q: %w", f.Path, cfg.Name, err)
		case isRemote || len(f.Append) > 0:
			return fmt.Errorf("file %s of MachineConfig %q has to be in it as a whole, as a data URL", f.Path, cfg.Name)
		}
		for _, at := range []string{path.Dir(path.Dir(f.Path)), path.Dir(f.Path)} {
			policy.Items = append(policy.Items, mine(Item{Path: at, Entry: Entry{Kind: Directory, Mode: defaultDirectoryMode}, Loose: true}))
		}
		policy.Items = append(policy.Items, mine(newFile(f.Path, content)))
	}
	temporary := h.temporaryPolicy()
	changes, err := temporary.Plan(State{}, policy)
	if err != nil {
		return err
	}
	return temporary.Apply(changes)
}

// HasTemporaryPolicy reports whether the host has a temporary policy.
func (h *Host) HasTemporaryPolicy() (bool, error) {
	record, err := h.temporaryPolicy().record()
	return len(record.Entries) > 0, err
}

// RemoveTemporaryPolicy removes it. A host that has booted an image which has the policy gets the
// image's files, because ostree takes what was written to /etc for a change of the administrator's,
// and would keep it from all later images; isBooted says so. Another host gets back what it had.
// live, which may be nil, is what has been written of an image that is not booted yet: that stays.
func (h *Host) RemoveTemporaryPolicy(isBooted bool, live *Live) error {
	temporary := h.temporaryPolicy()
	if !isBooted {
		return temporary.Revert()
	}
	record, err := temporary.record()
	if err != nil {
		return err
	}
	for _, c := range Plan(State{}, State{}, record, Facts{}) {
		if live != nil {
			if _, isLive := live.Entries[c.Item.Path]; isLive {
				if err := temporary.forget(&record, c.Item.Path); err != nil {
					return err
				}
				continue
			}
		}
		if err := temporary.takeImages(&record, c.Item.Path); err != nil {
			return fmt.Errorf("node state: giving back the image's %s: %w", c.Item.Path, err)
		}
	}
	return nil
}

// takeImages gives a path what the booted image has there.
func (h *Host) takeImages(record *Record, at string) error {
	was, err := h.tree.look(imagePath(at))
	if err != nil {
		return err
	}
	switch was.Kind {
	case Missing:
		err = h.tree.remove(at)
	case Directory: // what is in it is another matter
	default:
		i := Item{Path: at, Entry: was}
		if was.Kind == File {
			i.Content, err = h.tree.read(imagePath(at))
		}
		if err == nil {
			err = h.tree.write(i)
		}
	}
	if err != nil {
		return err
	}
	return h.forget(record, at)
}
