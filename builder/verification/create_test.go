package verification

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/apitest"
	"github.com/layerwright/layerwright/internal/fault"
)

// creating is a Verifier whose Jobs the API server refuses so, with an image and a Job for it.
func creating(t *testing.T, refuses error) (*Verifier, *scope, *batchv1.Job) {
	t.Helper()
	cluster := interceptor.NewClient(fake.NewClientBuilder().WithScheme(apitest.Scheme(t)).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refuses != nil {
				return refuses
			}
			return c.Create(ctx, o, opts...)
		},
	})
	v := New(Options{Namespace: "layerwright"})
	v.client, v.reader = cluster, cluster
	image := &mcfgv1alpha1.MachineOSImage{}
	image.Name, image.UID, image.Spec.PullSpec = "worker-aaaa", types.UID("1"), pinned
	config := &mcfgv1.MachineOSConfig{Spec: mcfgv1.MachineOSConfigSpec{
		Verification: &mcfgv1.ImageVerification{Job: &mcfgv1.ConfigMapKeyReference{Name: "worker-test"}},
	}}
	return v, &scope{image: image, config: config}, Make(manifest(), &Subject{Image: image, Namespace: "layerwright", TestHash: "0123456789abcdef"})
}

func TestJobErrorsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for name, tt := range map[string]struct {
		err    error
		class  fault.Class
		reason string
	}{
		"a field that is wrong":                  {apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, "x", nil), fault.Terminal, mcfgv1alpha1.ReasonInvalidVerification},
		"a quota":                                {apierrors.NewForbidden(jobs, "x", errors.New("exceeded quota")), fault.Waiting, mcfgv1alpha1.ReasonVerificationPending},
		"a webhook, which may let it pass later": {apierrors.NewBadRequest(`admission webhook "x" denied the request`), fault.Waiting, mcfgv1alpha1.ReasonVerificationPending},
		"it is busy":                             {apierrors.NewTooManyRequestsError("later"), fault.Transient, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, s, job := creating(t, tt.err)
			_, err := v.create(t.Context(), s, job)
			require.Error(t, err)
			assert.Equal(t, tt.class, fault.ClassOf(err), err)
			assert.Equal(t, tt.reason, fault.Reason(err))
			assert.Equal(t, tt.class == fault.Waiting, fault.After(err) > 0, "no one tells when it may be tried again")
		})
	}
}

// A reconcile that the cache has not told of the Job makes none, and counts nothing.
func TestAJobIsMadeOnce(t *testing.T) {
	t.Parallel()
	v, s, job := creating(t, nil)
	again := job.DeepCopy()
	made, err := v.create(t.Context(), s, job)
	require.NoError(t, err)
	assert.True(t, made)
	made, err = v.create(t.Context(), s, again)
	require.NoError(t, err)
	assert.False(t, made)
	assert.Equal(t, job.ResourceVersion, again.ResourceVersion)
}
