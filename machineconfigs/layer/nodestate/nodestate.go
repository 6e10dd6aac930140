package nodestate

import "github.com/coreos/ignition/v2/config/v3_5/types"

// State is what an image cannot carry, for the node agent: each part with the reason why it is not
// in the image. It can be written as JSON and read back. It holds secrets; Summary doesn't.
type State struct {
	KernelArguments KernelArguments `json:"kernelArguments,omitzero"`
	FIPS            FIPS            `json:"fips,omitzero"`
	Users           []User          `json:"users,omitempty"`
	Groups          []Group         `json:"groups,omitempty"`
	Files           []File          `json:"files,omitempty"`
	Directories     []Directory     `json:"directories,omitempty"`
	Links           []Link          `json:"links,omitempty"`
	Units           []Unit          `json:"units,omitempty"`
	FirstBoot       []FirstBoot     `json:"firstBoot,omitempty"`
}

// KernelArguments are changes of the kernel's command line.
type KernelArguments struct {
	// Add are arguments that shall be there, one word each, in their order.
	Add []string `json:"add,omitempty"`
	// Remove are arguments that shall not be there.
	Remove []string `json:"remove,omitempty"`
	Reason string   `json:"reason,omitempty"`
}

// FIPS is whether the machine shall run in FIPS mode.
type FIPS struct {
	Enabled bool   `json:"enabled,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// User is an account: SSH keys, password hash and every other field.
type User struct {
	User   types.PasswdUser `json:"user"`
	Reason string           `json:"reason"`
}

// Group is a group of accounts.
type Group struct {
	Group  types.PasswdGroup `json:"group"`
	Reason string            `json:"reason"`
}

// File is a file that the node agent writes. Its path is as it is written in the configuration.
type File struct {
	File types.File `json:"file"`
	// Resolved is where the path leads in the image below.
	Resolved string `json:"resolved"`
	Reason   string `json:"reason"`
}

// Directory is a directory that the node agent makes.
type Directory struct {
	Directory types.Directory `json:"directory"`
	// Resolved is where the path leads in the image below.
	Resolved string `json:"resolved"`
	Reason   string `json:"reason"`
}

// Link is a symbolic or hard link that the node agent makes.
type Link struct {
	Link types.Link `json:"link"`
	// Resolved is where the path leads in the image below.
	Resolved string `json:"resolved"`
	Reason   string `json:"reason"`
}

// Unit is a systemd unit, with its drop-ins and whether it is enabled, that the node agent writes.
type Unit struct {
	Unit   types.Unit `json:"unit"`
	Reason string     `json:"reason"`
}

// FirstBoot is a part of an Ignition configuration that only Ignition applies, when a machine boots
// for the first time.
type FirstBoot struct {
	// Section is the part's name in the configuration, such as "storage.disks".
	Section string `json:"section"`
	// Names are those of its items, where they have any.
	Names  []string `json:"names,omitempty"`
	Reason string   `json:"reason"`
}
