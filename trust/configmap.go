package trust

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/parsed"
)

// PolicyKey is the key of the ConfigMap that has the policy.
const PolicyKey = "policy.yaml"

// recheck is when a policy that can't be used is looked at again.
const recheck = 15 * time.Second

// ConfigMap has the policy of a ConfigMap. It is read each time, so that what was taken back is
// trusted no longer, and parsed once.
type ConfigMap struct {
	// reader asks the API server: no cache has the content of ConfigMaps.
	reader client.Reader
	name   types.NamespacedName
	policy parsed.Value[*Policy]
}

// NewConfigMap makes a ConfigMap, and reads nothing.
func NewConfigMap(reader client.Reader, name types.NamespacedName) *ConfigMap {
	return &ConfigMap{reader: reader, name: name}
}

// IsIn reports whether the policy is in the ConfigMap of this name.
func (c *ConfigMap) IsIn(name types.NamespacedName) bool { return name == c.name }

// Policy is the policy as it is now. Where there is none, the error is Waiting, with the reason
// WaitingForTrustPolicy or InvalidTrustPolicy: no one is trusted meanwhile.
func (c *ConfigMap) Policy(ctx context.Context) (*Policy, error) {
	found := &corev1.ConfigMap{}
	err := c.reader.Get(ctx, c.name, found)
	if apierrors.IsNotFound(err) {
		return nil, fault.NewWaiting(mcfgv1alpha1.ReasonWaitingForTrustPolicy, recheck, fmt.Errorf(
			"the ConfigMap %q in namespace %q with the trust policy does not exist; restore it", c.name.Name, c.name.Namespace))
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %q: %w", c.name.Name, err)
	}
	return c.policy.Of(found, func() (*Policy, error) { return c.parse(found) })
}

func (c *ConfigMap) parse(found *corev1.ConfigMap) (*Policy, error) {
	text, has := found.Data[PolicyKey]
	err := errors.New("it is missing")
	if has {
		var policy *Policy
		if policy, err = Parse([]byte(text)); err == nil {
			return policy, nil
		}
	}
	return nil, fault.NewWaiting(mcfgv1alpha1.ReasonInvalidTrustPolicy, recheck,
		fmt.Errorf("%s of the ConfigMap %q in namespace %q is no trust policy: %w", PolicyKey, c.name.Name, c.name.Namespace, err))
}
