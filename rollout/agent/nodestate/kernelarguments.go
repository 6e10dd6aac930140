package nodestate

import "github.com/layerwright/layerwright/rollout/agent/kargs"

// kernelArguments is the host with a record of its own for its command lines.
func (h *Host) kernelArguments() *Host { return &Host{tree: h.tree, name: "kernel-arguments"} }

// CommandLines is what is known of the host's command lines.
func (h *Host) CommandLines() (kargs.Record, error) {
	var record kargs.Record
	err := h.kernelArguments().load(&record)
	return record, err
}

// KeepCommandLines replaces what is known of the host's command lines.
func (h *Host) KeepCommandLines(record kargs.Record) error { return h.kernelArguments().save(record) }
