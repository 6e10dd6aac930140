package policies

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/clustertest"
)

const (
	volumesMessage = "build pods mount emptyDir, configMap, secret and downwardAPI volumes, and projected volumes of ConfigMaps only"
	labelsMessage  = "the Layerwright controller may change only these labels of Nodes: node.openshift.io/ID, node.openshift.io/version_ID"
	nodesMessage   = "the Layerwright controller changes nothing of Nodes but labels, annotations and whether they are schedulable"
	toldMessage    = "the Layerwright controller may change only these annotations of Nodes: machineconfiguration.openshift.io/stage-image, "
	cordonMessage  = "the Layerwright controller does not uncordon a Node that it has not cordoned"
	markMessage    = "the Layerwright controller marks a Node as cordoned only when it cordons it"
)

var dryRunOptions = []string{metav1.DryRunAll}

func TestAcceptedVolumes(t *testing.T) {
	config := clustertest.ControlPlane(t)
	installAll(t, config)
	client := kubernetes.NewForConfigOrDie(config)
	const account = "layerwright-build"
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "volumes-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{account, "other"} {
		_, err = client.CoreV1().ServiceAccounts(namespace.Name).Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create := func(ctx context.Context, account string, source corev1.VolumeSource) error {
		_, err := client.CoreV1().Pods(namespace.Name).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "build-"},
			Spec: corev1.PodSpec{
				ServiceAccountName: account, AutomountServiceAccountToken: new(false),
				Volumes:    []corev1.Volume{{Name: "v", VolumeSource: source}},
				Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/builder:1"}},
			},
		}, metav1.CreateOptions{DryRun: dryRunOptions})
		return err
	}
	local := corev1.LocalObjectReference{Name: "a"}
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources}}
	}
	files := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local}}
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
	eventuallyRefused(t, volumesMessage, func(ctx context.Context) error { return create(ctx, account, projected(token)) })
	for name, source := range map[string]corev1.VolumeSource{
		"a token beside a ConfigMap": projected(files, token),
		"a projected downward API":   projected(corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}),
		"a projected secret":         projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: local}}),
		"a directory of the node":    {HostPath: &corev1.HostPathVolumeSource{Path: "/var"}},
		"a claim":                    {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}},
		"an image":                   {Image: &corev1.ImageVolumeSource{Reference: "registry.example.com/a:1"}},
		"a share":                    {NFS: &corev1.NFSVolumeSource{Server: "server.example.com", Path: "/"}},
		"a driver":                   {CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			require.ErrorContains(t, create(t.Context(), account, source), volumesMessage)
		})
	}
	for name, source := range map[string]corev1.VolumeSource{
		"an empty directory":      {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"a secret":                {Secret: &corev1.SecretVolumeSource{SecretName: "a"}},
		"a ConfigMap":             {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local}},
		"ConfigMaps in one place": projected(files, files),
		"the downward API":        {DownwardAPI: &corev1.DownwardAPIVolumeSource{}},
	} {
		t.Run("accepts "+name, func(t *testing.T) { require.NoError(t, create(t.Context(), account, source)) })
	}
	t.Run("accepts a token in other pods", func(t *testing.T) {
		require.NoError(t, create(t.Context(), "other", projected(token)))
	})
}

func TestControllerWrites(t *testing.T) {
	config := clustertest.ControlPlane(t)
	installAll(t, config)
	admin := kubernetes.NewForConfigOrDie(config)
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "written", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{mcfgv1.AnnotationCurrentConfig: "rendered-1"},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	as := func(user string) *kubernetes.Clientset {
		impersonating := rest.CopyConfig(config) // with all rights, so that only the policy can refuse
		impersonating.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
		return kubernetes.NewForConfigOrDie(impersonating)
	}
	write := func(ctx context.Context, client *kubernetes.Clientset, patch string, part ...string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dryRunOptions}, part...)
		return err
	}
	controller, other := as("system:serviceaccount:layerwright:layerwright-controller"), as("system:serviceaccount:layerwright:other")
	const foreign = `{"metadata":{"labels":{"zone":"b"}}}`
	eventuallyRefused(t, labelsMessage, func(ctx context.Context) error { return write(ctx, controller, foreign) })
	for name, test := range map[string]struct{ patch, message string }{
		"a new label":             {`{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`, labelsMessage},
		"a label that goes":       {`{"metadata":{"labels":{"zone":null}}}`, labelsMessage},
		"one beside its own":      {`{"metadata":{"labels":{"zone":"b","` + mcfgv1.LabelNodeOSID + `":"rhcos"}}}`, labelsMessage},
		"what agents say":         {`{"metadata":{"annotations":{"` + mcfgv1.AnnotationCurrentConfig + `":"rendered-2"}}}`, toldMessage},
		"what agents add":         {`{"metadata":{"annotations":{"` + mcfgv1.AnnotationStagedImage + `":""}}}`, toldMessage},
		"an annotation that goes": {`{"metadata":{"annotations":null}}`, toldMessage},
		"a finalizer":             {`{"metadata":{"finalizers":["example.com/a"]}}`, nodesMessage},
		"a taint":                 {`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, nodesMessage},
		"a taint with a cordon":   {`{"spec":{"unschedulable":true,"taints":[{"key":"a","effect":"NoExecute"}]}}`, nodesMessage},
		"a range of addresses":    {`{"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]}}`, nodesMessage},
		"a provider":              {`{"spec":{"providerID":"aws:///a"}}`, nodesMessage},
	} {
		t.Run("refuses "+name, func(t *testing.T) { require.ErrorContains(t, write(t.Context(), controller, test.patch), test.message) })
	}
	t.Run("refuses the status", func(t *testing.T) {
		require.ErrorContains(t, write(t.Context(), controller, `{"status":{"capacity":{"cpu":"64"}}}`, "status"), nodesMessage)
	})
	t.Run("accepts the labels of the stream", func(t *testing.T) {
		require.NoError(t, write(t.Context(), controller,
			`{"metadata":{"labels":{"`+mcfgv1.LabelNodeOSID+`":"rhcos","`+mcfgv1.LabelNodeOSVersionID+`":"9.6"}}}`))
	})
	t.Run("accepts what it tells agents", func(t *testing.T) {
		for _, key := range []string{
			mcfgv1.AnnotationStageImage, mcfgv1.AnnotationDesiredImage, mcfgv1.AnnotationDesiredConfig, mcfgv1.AnnotationDesiredDrain, mcfgv1.AnnotationLastAppliedDrain,
			mcfgv1.AnnotationRolloutStarted,
		} {
			require.NoError(t, write(t.Context(), controller, `{"metadata":{"annotations":{"`+key+`":"a"}}}`), key)
		}
	})
	t.Run("accepts everything of others", func(t *testing.T) { require.NoError(t, write(t.Context(), other, foreign)) })
	t.Run("accepts only the end of its own cordon", func(t *testing.T) {
		change := func(patch string) {
			_, err := admin.CoreV1().Nodes().Patch(t.Context(), node.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			require.NoError(t, err)
		}
		const uncordon = `{"metadata":{"annotations":{"` + mcfgv1.AnnotationCordonedAt + `":null}},"spec":{"unschedulable":null}}`
		cordon := `{"metadata":{"annotations":{"` + mcfgv1.AnnotationCordonedAt + `":"2026-11-23T19:00:00Z"}},"spec":{"unschedulable":true}}`
		require.NoError(t, write(t.Context(), controller, cordon))
		change(`{"spec":{"unschedulable":true}}`)
		require.ErrorContains(t, write(t.Context(), controller, uncordon), cordonMessage)
		mark := `{"metadata":{"annotations":{"` + mcfgv1.AnnotationCordonedAt + `":"2026-11-23T19:00:00Z"}}}`
		require.ErrorContains(t, write(t.Context(), controller, mark), markMessage, "the cordon of someone else")
		change(`{"spec":{"unschedulable":null}}`)
		require.ErrorContains(t, write(t.Context(), controller, mark), markMessage, "one that someone else makes later")
		change(cordon)
		require.NoError(t, write(t.Context(), controller, uncordon))
	})
}
