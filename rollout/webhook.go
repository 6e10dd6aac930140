package rollout

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/events"
	"github.com/layerwright/layerwright/rollout/webhook"
)

// Keys of the Secret of a webhook.
const (
	keyURL   = "url"
	keyToken = "token"
)

// hooks sends messages to the address in a Secret.
type hooks interface {
	Send(secret string, m webhook.Message, failed func(error))
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

// webhookAddress reads the address in a Secret.
func (r *Reconciler) webhookAddress(ctx context.Context, secret string) (webhook.Address, error) {
	s := &corev1.Secret{}
	if err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: secret}, s); err != nil {
		return webhook.Address{}, fmt.Errorf("reading Secret %q: %w", secret, err)
	}
	return webhook.Address{URL: strings.TrimSpace(string(s.Data[keyURL])), Token: strings.TrimSpace(string(s.Data[keyToken]))}, nil
}
