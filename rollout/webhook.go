package rollout

import (
	"cmp"

	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/rollout/webhook"
)

// defaultAlertLabel is the label by which alerts name their node, where the pool does not say it.
const defaultAlertLabel = "node"

// hooks sends messages to the address in a Secret.
type hooks interface {
	Send(secret string, m webhook.Message, failed func(error))
}

// Silencer keeps alerts of nodes from being sent, by an Alertmanager whose address is in a Secret.
// What a pool wants is in force until it wants something else; without a Secret, that is nothing.
type Silencer interface {
	Want(pool, secret, label string, nodes []string, failed func(error))
}

// tellWebhook tells the webhook of a pool, if there is one.
func (r *Reconciler) tellWebhook(s *scope, e webhook.Event, node, text string) {
	rollout := s.pool.Spec.Rollout
	if rollout == nil || rollout.Webhook == nil {
		return
	}
	pool := s.pool.DeepCopy()
	r.hooks.Send(rollout.Webhook.SecretName, webhook.Message{
		Event: e, Time: r.clock.Now().UTC(), Pool: pool.Name, Configuration: s.verdict.Target.Config, Image: s.verdict.Image,
		Node: node, Text: text, Nodes: webhook.Nodes{Total: s.plan.Total, Updated: s.plan.Updated, Failed: s.plan.Failed},
	}, func(err error) { r.events.Publish(pool, events.WebhookFailed(string(e), err.Error())) })
}

// silence has the alerts of the nodes silenced that are away, if the pool asks for that.
func (r *Reconciler) silence(s *scope) {
	if r.options.Silencer == nil {
		return
	}
	rollout := s.pool.Spec.Rollout
	if rollout == nil || rollout.Silence == nil {
		r.forgetSilences(s.pool.Name)
		return
	}
	pool := s.pool.DeepCopy()
	r.options.Silencer.Want(pool.Name, rollout.Silence.SecretName, cmp.Or(rollout.Silence.Label, defaultAlertLabel), s.plan.Away,
		func(err error) { r.events.Publish(pool, events.SilenceFailed(err.Error())) })
}

// forgetSilences ends the silences of a pool.
func (r *Reconciler) forgetSilences(pool string) {
	if r.options.Silencer != nil {
		r.options.Silencer.Want(pool, "", "", nil, func(error) {}) // there may be no pool to tell
	}
}
