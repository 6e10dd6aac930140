package silences

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/layerwright/layerwright/rollout/endpoint"
)

const (
	// createdBy is how silences are known that this package has made.
	createdBy = "layerwright"
	// lease is how long a silence lasts that is not renewed.
	lease = 10 * time.Minute
	// most is how many silences of one node are looked at: there is one, as a rule.
	most = 10
	// stateExpired is that of a silence which has ended.
	stateExpired = "expired"
)

// idPattern is what an ID of a silence may be: it becomes part of a path.
var idPattern = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// silence is one as version 2 of the API of Alertmanagers has it.
type silence struct {
	ID        string    `json:"id,omitempty"`
	Matchers  []matcher `json:"matchers"`
	StartsAt  time.Time `json:"startsAt"`
	EndsAt    time.Time `json:"endsAt"`
	CreatedBy string    `json:"createdBy"`
	Comment   string    `json:"comment"`
	Status    *status   `json:"status,omitempty"`
}

type status struct {
	State string `json:"state"`
}

// matcher says which value a label of an alert has to have. Before Alertmanager 0.22 there was no
// isEqual, and each matcher was one for equality.
type matcher struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	IsRegex bool   `json:"isRegex"`
	IsEqual *bool  `json:"isEqual,omitempty"`
}

// silenceTarget is what a silence covers: the alerts whose label names the node, for a pool's
// rollout.
type silenceTarget struct{ secret, label, pool, node string }

func (l *silenceTarget) comment() string {
	return fmt.Sprintf("pool %s: node %s is being updated", l.pool, l.node)
}

// isOf reports whether a silence is the one of a lock, and in force or about to be.
func (s *silence) isOf(l *silenceTarget) bool {
	if s.CreatedBy != createdBy || s.Comment != l.comment() || s.Status == nil || s.Status.State == stateExpired || !idPattern.MatchString(s.ID) {
		return false
	}
	if len(s.Matchers) != 1 {
		return false
	}
	m := s.Matchers[0]
	return m.Name == l.label && m.Value == l.node && !m.IsRegex && (m.IsEqual == nil || *m.IsEqual)
}

// alertmanager asks Alertmanagers.
type alertmanager struct {
	client *endpoint.Client
	clock  clock.PassiveClock
}

// keep makes or renews the silence of a lock. Times are those of the Alertmanager, whose clock may
// be another.
func (a *alertmanager) keep(ctx context.Context, l *silenceTarget) error {
	found, now, err := a.find(ctx, l)
	if err != nil {
		return err
	}
	want := silence{
		Matchers: []matcher{{Name: l.label, Value: l.node, IsEqual: new(true)}}, StartsAt: now, EndsAt: now.Add(lease),
		CreatedBy: createdBy, Comment: l.comment(),
	}
	if len(found) > 0 { // with another start it would be another silence
		want.ID, want.StartsAt = found[0].ID, found[0].StartsAt
	}
	body, err := json.Marshal(&want)
	if err != nil {
		return err
	}
	answer, err := a.client.Do(ctx, &endpoint.Request{Secret: l.secret, Method: http.MethodPost, Path: "/api/v2/silences", Body: body})
	return errorOf(answer, err)
}

// end ends the silence of a lock; more than one, where two processes have made one each.
func (a *alertmanager) end(ctx context.Context, l *silenceTarget) error {
	found, _, err := a.find(ctx, l)
	if err != nil {
		return err
	}
	for i := range found {
		answer, err := a.client.Do(ctx, &endpoint.Request{Secret: l.secret, Method: http.MethodDelete, Path: "/api/v2/silence/" + found[i].ID})
		if err == nil && answer.Code == http.StatusNotFound {
			continue
		}
		if err := errorOf(answer, err); err != nil {
			return err
		}
	}
	return nil
}

// find are the silences of a lock, and the time of the Alertmanager.
func (a *alertmanager) find(ctx context.Context, l *silenceTarget) ([]silence, time.Time, error) {
	answer, err := a.client.Do(ctx, &endpoint.Request{
		Secret: l.secret, Method: http.MethodGet, Path: "/api/v2/silences", Query: url.Values{"filter": {fmt.Sprintf("%s=%q", l.label, l.node)}},
	})
	if err := errorOf(answer, err); err != nil {
		return nil, time.Time{}, err
	}
	var list []silence
	if !answer.IsWhole || json.Unmarshal(answer.Body, &list) != nil {
		return nil, time.Time{}, errors.New("the Alertmanager did not answer with a list of silences")
	}
	list = slices.DeleteFunc(list, func(s silence) bool { return !s.isOf(l) })
	slices.SortFunc(list, func(x, y silence) int { return strings.Compare(x.ID, y.ID) })
	now := answer.Time
	if now.IsZero() {
		now = a.clock.Now()
	}
	return list[:min(len(list), most)], now.UTC(), nil
}

func errorOf(answer *endpoint.Answer, err error) error {
	if err == nil && !answer.IsSuccess() {
		err = answer.Refusal()
	}
	return err
}
