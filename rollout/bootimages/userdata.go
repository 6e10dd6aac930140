package bootimages

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/bootimages/ignition"
)

const (
	// Keys of secrets with stubs: of the Machine API, and of Cluster API.
	keyMachineAPI = "userData"
	keyClusterAPI = "value"
	// originalSuffix is added to the key for the stub as it was, which is the way back.
	originalSuffix = ".spec2"
	// managedUserData is the value of the annotation that asks for the managed stub.
	managedUserData = "managed"
	// stubsFor is how long a stub that was in order is not looked at again.
	stubsFor = recheck

	reasonUserDataUnreadable = "UserDataUnreadable"
)

// stubs remembers which stubs are in order: many resources share one.
type stubs struct {
	mu   sync.Mutex
	good map[types.NamespacedName]time.Time
}

func (b *stubs) isGood(key types.NamespacedName, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return now.Sub(b.good[key]) < stubsFor
}

func (b *stubs) passed(key types.NamespacedName, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.good[key] = now
}

// wantsManagedUserData reports whether the resource is to name the managed stub, and does not.
func (s *scope) wantsManagedUserData() bool {
	r := s.resource
	return r.plan.Annotations[mcfgv1.AnnotationBootImageUserData] == managedUserData && r.userData != "" && !strings.HasSuffix(r.userData, managedSuffix)
}

// stub is the secret that the machines will start with; empty where the resource names none.
func (s *scope) stub() string {
	if s.wantsManagedUserData() {
		return s.resource.userData + managedSuffix
	}
	return s.resource.userData
}

// translateStub has the stub that the machines will start with be in specification 3: a newer boot
// image reads no other.
func (u *updater) translateStub(ctx context.Context, s *scope) error {
	name := s.stub()
	if name == "" {
		return nil // it is not Ignition that a secret has
	}
	key := types.NamespacedName{Namespace: s.resource.id.Namespace, Name: name}
	if u.stubs.isGood(key, u.clock.Now()) {
		return nil
	}
	secret := &corev1.Secret{}
	if err := u.reader.Get(ctx, key, secret); err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return fault.NewTerminal(reasonUserDataUnreadable, fmt.Errorf(
				"secret %q with its user data cannot be read (%s); make it, or let the controller get and patch it, as deploy/openshift-machine-api does",
				key, apierrors.ReasonForError(err)))
		}
		return fmt.Errorf("reading secret %q: %w", key, err)
	}
	data := keyMachineAPI
	if u.kind.isClusterAPI() {
		data = keyClusterAPI
	}
	stub, err := ignition.Translate(secret.Data[data])
	if err != nil {
		return fault.NewTerminal(reasonUserDataUnreadable, fmt.Errorf("key %q of secret %q with its user data: %w", data, key, err))
	}
	if stub.Translated != nil {
		if err := u.writeStub(ctx, secret, data, stub); err != nil {
			return fmt.Errorf("translating key %q of secret %q: %w", data, key, err)
		}
	}
	u.stubs.passed(key, u.clock.Now())
	return nil
}

// writeStub replaces a stub, and keeps the one that was there.
func (u *updater) writeStub(ctx context.Context, secret *corev1.Secret, key string, stub ignition.Stub) error {
	before := secret.DeepCopy()
	secret.Data[key+originalSuffix] = before.Data[key]
	secret.Data[key] = stub.Translated
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, mcfgv1.AnnotationStubIgnitionUpgradedTo, stub.Version)
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, mcfgv1.AnnotationStubIgnitionUpgradedAt, u.second().UTC().Format(time.RFC3339))
	return u.client.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldManager))
}
