package hostcheck

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Result is how a host has answered.
type Result string

// The results. Only Mend means that the agent can't work on the host.
const (
	OK      Result = "ok"
	Limited Result = "limited"
	Mend    Result = "mend"
	NotDone Result = "not done"
)

// Check is one thing that the agent needs.
type Check struct {
	// What is what was asked, such as "signature policy".
	What   string `json:"what"`
	Result Result `json:"result"`
	// Answer is what the host has, or what to do.
	Answer string `json:"answer"`
}

// Report is what a host can do.
type Report struct {
	// Agent is the version of the program that asked, and System what the host calls itself.
	Agent  string `json:"agent"`
	System string `json:"system"`
	// Disruptive reports whether something was staged.
	Disruptive bool    `json:"disruptive"`
	Checks     []Check `json:"checks"`
}

// ToMend is how many checks say what has to be mended.
func (r *Report) ToMend() int {
	count := 0
	for _, c := range r.Checks {
		if c.Result == Mend {
			count++
		}
	}
	return count
}

// WriteText writes the report for people, a line for each check.
func (r *Report) WriteText(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, len("  "), ' ', 0)
	_, _ = fmt.Fprintf(w, "%s, asked by layerwright-agent %s\n\n", r.System, r.Agent) // Flush has the error
	for _, c := range r.Checks {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", c.Result, c.What, c.Answer)
	}
	return w.Flush()
}
