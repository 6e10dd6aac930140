package export

import (
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// shell is what an image is entered with.
const shell = "/bin/sh"

// checked refuses what is no image by its digest: it goes into a command line.
func checked(image string) error {
	if _, err := name.NewDigest(image, name.StrictValidation); err != nil {
		return fmt.Errorf("the image that nodes should run is no name@digest: %w", err)
	}
	if strings.HasPrefix(image, "-") {
		return fmt.Errorf("the image that nodes should run is no name@digest: %q would be a flag", image)
	}
	return nil
}

// Podman is the command that opens a shell in an image.
func Podman(image string) (string, error) {
	if err := checked(image); err != nil {
		return "", err
	}
	return "podman run --rm --interactive --tty --entrypoint " + shell + " " + image, nil
}

// unprivileged is the user of the shell in a pod: Layerwright's namespace has root for builds
// alone.
const unprivileged = 65534

// Pod opens a shell in the image of a pool. It has no token and no capability, and is not root. The
// pull secrets are those of the namespace that it is in.
func Pod(pool, namespace, image string, pullSecrets ...corev1.LocalObjectReference) (*corev1.Pod, error) {
	if err := checked(image); err != nil {
		return nil, err
	}
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: "shell-" + pool, Namespace: namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, ImagePullSecrets: pullSecrets,
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "shell", Image: image, Command: []string{shell}, Stdin: true, StdinOnce: true, TTY: true,
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](unprivileged),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		},
	}, nil
}
