package trust

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// clockSkew is how far ahead the clock of a builder may be. What is built later than that has no
// age that could be compared.
const clockSkew = 10 * time.Minute

// provenance is what is checked of a predicate (sign.PredicateProvenance).
type provenance struct {
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
		Metadata struct {
			StartedOn  *time.Time `json:"startedOn"`
			FinishedOn *time.Time `json:"finishedOn"`
		} `json:"metadata"`
	} `json:"runDetails"`
}

// Meet returns nil if one of the predicates, which trusted signers have signed, meets all demands;
// otherwise it returns what is wrong with the first one.
func (d Demands) Meet(predicates []json.RawMessage, now time.Time) error {
	if !d.Provenance {
		return nil
	}
	if len(predicates) == 0 {
		return errors.New("it has no provenance")
	}
	var first error
	for _, predicate := range predicates {
		err := d.meets(predicate, now)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (d Demands) meets(predicate json.RawMessage, now time.Time) error {
	var p provenance
	if err := json.Unmarshal(predicate, &p); err != nil {
		return fmt.Errorf("its provenance can't be read: %w", err)
	}
	if id := p.RunDetails.Builder.ID; len(d.Builders) > 0 && !slices.Contains(d.Builders, id) {
		return fmt.Errorf("it was built by %q, and only %q are trusted", id, d.Builders)
	}
	if d.NotOlderThan == 0 {
		return nil
	}
	built := p.RunDetails.Metadata.FinishedOn
	if built == nil {
		built = p.RunDetails.Metadata.StartedOn
	}
	switch {
	case built == nil:
		return errors.New("its provenance does not say when it was built")
	case built.Sub(now) > clockSkew:
		return fmt.Errorf("it was built at %s, which is in the future", built.UTC().Format(time.RFC3339))
	case now.Sub(*built) > d.NotOlderThan:
		return fmt.Errorf("it was built at %s, and is older than %s", built.UTC().Format(time.RFC3339), d.NotOlderThan)
	}
	return nil
}
