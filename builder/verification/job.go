package verification

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	mcfgv1alpha1 "github.com/layerwright/layerwright/api/machineconfiguration/v1alpha1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/testjobs"
)

// Environment variables of every container of a test.
const (
	// variableImage is the image by digest, and variableDigest its digest alone.
	variableImage  = "IMAGE"
	variableDigest = "IMAGE_DIGEST"
	// variablePool and variableConfig are the names of its MachineConfigPool and MachineOSConfig.
	variablePool   = "POOL"
	variableConfig = "MACHINE_OS_CONFIG"
	// variableStream is the name of the OS image stream; empty where the image is of none.
	variableStream = "STREAM"
)

// imageItself is what a manifest writes for the image, where one is named.
const imageItself = "$(" + variableImage + ")"

// variables are their names.
var variables = []string{variableImage, variableDigest, variablePool, variableConfig, variableStream}

// DefaultTimeout is how long a test may take where spec.verification.timeout says nothing.
const DefaultTimeout = time.Hour

// Subject is what a test is about, and how it is to be run.
type Subject struct {
	// Image is the image, and Config the name of its MachineOSConfig.
	Image  *mcfgv1alpha1.MachineOSImage
	Config string
	// Stream is the OS image stream; empty for none.
	Stream string
	// Namespace is where the Job runs.
	Namespace string
	// PullSecret is what the image is pulled with; empty for none.
	PullSecret string
	// Timeout is how long the test may take. What the manifest says counts if it is less.
	Timeout time.Duration
	// TestHash is that of the manifest, and Attempt how many Jobs there were before for it.
	TestHash string
	Attempt  int
	// UsersAssigned reports whether the cluster gives pods a user, as OpenShift does: none is set
	// then.
	UsersAssigned bool
}

// Make makes the Job of a test from its manifest, which the rule has accepted.
func Make(manifest *batchv1.Job, s *Subject) *batchv1.Job {
	pinned := string(s.Image.Spec.PullSpec)
	_, digest, _ := strings.Cut(pinned, "@")
	job := testjobs.Make(manifest, &testjobs.Run{
		Name: names.VerificationJob(s.Image.Name, s.TestHash, s.Attempt), Namespace: s.Namespace,
		Owner: metav1.OwnerReference{
			APIVersion: mcfgv1alpha1.GroupVersion.String(), Kind: imageKind, Name: s.Image.Name, UID: s.Image.UID, Controller: new(true),
		},
		Labels: map[string]string{
			mcfgv1.LabelMachineOSConfig: s.Config, mcfgv1.LabelTargetMachineConfigPool: s.Image.Spec.MachineConfigPool,
		},
		Annotations: map[string]string{mcfgv1.AnnotationMachineOSImage: s.Image.Name},
		TestHash:    s.TestHash, Attempt: s.Attempt,
		Variables: []corev1.EnvVar{
			{Name: variableImage, Value: pinned},
			{Name: variableDigest, Value: digest},
			{Name: variablePool, Value: s.Image.Spec.MachineConfigPool},
			{Name: variableConfig, Value: s.Config},
			{Name: variableStream, Value: s.Stream},
		},
		Image: pinned, Placeholder: imageItself, PullSecret: s.PullSecret, UsersAssigned: s.UsersAssigned,
	})
	testjobs.Limit(&job.Spec.ActiveDeadlineSeconds, s.Timeout)
	return job
}
