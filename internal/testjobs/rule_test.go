package testjobs

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/test/install"
)

func testRule() Rule {
	return Rule{Namespace: "layerwright", PullSecret: "pull", Variables: []string{"IMAGE", "IMAGE_DIGEST"}, Reserved: map[string]string{
		names.SigningKey: "the secret with the signing key", "push": "a secret for pushing images", "verification-push": "a secret for pushing images",
	}}
}

// manifest is a Job that may run, with a change.
func manifest(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{}
	job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "test", Image: "$(IMAGE)", Command: []string{"true"}}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func pod(change func(*corev1.PodSpec)) func(*batchv1.Job) {
	return func(job *batchv1.Job) { change(&job.Spec.Template.Spec) }
}

func container(change func(*corev1.Container)) func(*batchv1.Job) {
	return func(job *batchv1.Job) { change(&job.Spec.Template.Spec.Containers[0]) }
}

func volume(source corev1.VolumeSource) func(*batchv1.Job) {
	return pod(func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
}

// annotated has an annotation on its pods.
func annotated(key string) func(*batchv1.Job) {
	return func(job *batchv1.Job) { job.Spec.Template.Annotations = map[string]string{key: "x"} }
}

func projected(source corev1.VolumeProjection) func(*batchv1.Job) {
	return volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}})
}

func variable(secret string) func(*batchv1.Job) {
	return container(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "S", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}}}
	})
}

func TestWhatATestMayDo(t *testing.T) {
	t.Parallel()
	own := corev1.LocalObjectReference{Name: "verification-db"}
	for name, change := range map[string]func(*batchv1.Job){
		"nothing special": func(*batchv1.Job) {},
		"as many pods as there may be": func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions = new(int32(maxParallelism)), new(int32(maxCompletions))
		},
		"labels of its own": func(j *batchv1.Job) {
			j.Labels = map[string]string{"app": "x", "example.com/machineconfiguration": "y"}
		},
		"the namespace that it runs in":    func(j *batchv1.Job) { j.Namespace = "layerwright" },
		"a secret for tests as a volume":   volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: own.Name}}),
		"a secret for tests, projected":    projected(corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: own}}),
		"a secret for tests in a variable": variable(own.Name),
		"a ConfigMap":                      volume(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}),
		"an empty folder":                  volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		"the image as a volume":            volume(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "$(IMAGE)"}}),
		"fields of the pod":                volume(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}),
		"a service account for tests": pod(func(p *corev1.PodSpec) {
			p.ServiceAccountName, p.AutomountServiceAccountToken = "verification-reader", new(true)
		}),
		"an annotation of its own": annotated("sidecar.istio.io/inject"),
		"a probe and a priority of its own": pod(func(p *corev1.PodSpec) {
			p.PriorityClassName = "tests"
			p.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}}
			p.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{}}}
		}),
		"no token":                pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = new(false) }),
		"the image's pull secret": pod(func(p *corev1.PodSpec) { p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}, own} }),
		"a low port": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
		}),
		"a token of a service account for tests": func(j *batchv1.Job) {
			projected(corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}})(j)
			j.Spec.Template.Spec.ServiceAccountName = "verification-reader"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.NoError(t, testRule().Check(manifest(change)))
		})
	}
}

func TestWhatATestMayNotDo(t *testing.T) {
	t.Parallel()
	key := corev1.LocalObjectReference{Name: names.SigningKey}
	const spec = "spec.template.spec."
	for want, change := range map[string]func(*batchv1.Job){
		`metadata.namespace: Invalid value: "kube-system": tests run in namespace "layerwright"`: func(j *batchv1.Job) { j.Namespace = "kube-system" },
		"metadata.ownerReferences: Forbidden":                                                    func(j *batchv1.Job) { j.OwnerReferences = []metav1.OwnerReference{{}} },
		"spec.template.metadata.finalizers: Forbidden":                                           func(j *batchv1.Job) { j.Spec.Template.Finalizers = []string{"x"} },
		"metadata.labels[app.kubernetes.io/component]: Forbidden":                                func(j *batchv1.Job) { j.Labels = map[string]string{ComponentLabel: "controller"} },
		"spec.template.metadata.labels[app.kubernetes.io/name]: Forbidden":                       func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{nameLabel: "layerwright"} },
		"metadata.annotations[machineconfiguration.openshift.io/x]: Forbidden": func(j *batchv1.Job) {
			j.Annotations = map[string]string{"machineconfiguration.openshift.io/x": ""}
		},
		"spec.template.metadata.labels[layerwright.io/x]: Forbidden": func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{"layerwright.io/x": ""} },
		"spec.suspend: Forbidden":                                    func(j *batchv1.Job) { j.Spec.Suspend = new(true) },
		"spec.selector: Forbidden":                                   func(j *batchv1.Job) { j.Spec.ManualSelector = new(true) },
		"spec.managedBy: Forbidden":                                  func(j *batchv1.Job) { j.Spec.ManagedBy = new("x") },
		"spec.ttlSecondsAfterFinished: Forbidden":                    func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(0)) },
		spec + "hostNetwork: Forbidden":                              pod(func(p *corev1.PodSpec) { p.HostNetwork = true }),
		"spec.template.metadata.labels[k8s-app]: Forbidden: Services and NetworkPolicies select pods by their labels": func(j *batchv1.Job) {
			j.Spec.Template.Labels = map[string]string{"k8s-app": "machine-config-server"}
		},
		spec + "securityContext.sysctls: Forbidden": pod(func(p *corev1.PodSpec) { p.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{}}} }),
		spec + "securityContext.seLinuxOptions: Forbidden": pod(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
		}),
		spec + "containers[0].securityContext.seLinuxOptions: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "spc_t"}}
		}),
		spec + "containers[0].securityContext.appArmorProfile: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}
		}),
		spec + "containers[0].securityContext.windowsOptions.hostProcess: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: new(true)}}
		}),
		spec + "securityContext.seccompProfile: Forbidden": pod(func(p *corev1.PodSpec) {
			p.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		}),
		spec + "containers[0].securityContext.seccompProfile: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}
		}),
		"spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/test]: Forbidden": annotated("container.apparmor.security.beta.kubernetes.io/test"),
		"spec.template.metadata.annotations[io.kubernetes.cri-o.Devices]: Forbidden":                         annotated("io.kubernetes.cri-o.Devices"),
		"spec.template.metadata.annotations[cpu-quota.crio.io]: Forbidden":                                   annotated("cpu-quota.crio.io"),
		"spec.template.metadata.annotations[k8s.v1.cni.cncf.io/networks]: Forbidden":                         annotated("k8s.v1.cni.cncf.io/networks"),
		"spec.template.metadata.annotations[v1.multus-cni.io/default-network]: Forbidden":                    annotated("v1.multus-cni.io/default-network"),
		"spec.template.metadata.annotations[cdi.k8s.io/gpu]: Forbidden: a test must not use its node":        annotated("cdi.k8s.io/gpu"),
		"spec.template.metadata.annotations[devices.nri.io/container.test]: Forbidden":                       annotated("devices.nri.io/container.test"),
		"spec.template.metadata.annotations[example.com/later]: Forbidden":                                   annotated("example.com/later"),
		spec + "runtimeClassName: Forbidden: a test must not use its node":                                   pod(func(p *corev1.PodSpec) { p.RuntimeClassName = new("kata") }),
		spec + "containers[0].resources.limits[devices.kubevirt.io/kvm]: Forbidden": container(func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{"devices.kubevirt.io/kvm": resource.MustParse("1"), corev1.ResourceCPU: resource.MustParse("1")}
		}),
		spec + "nodeName: Forbidden":          pod(func(p *corev1.PodSpec) { p.NodeName = "master-0" }),
		spec + "priorityClassName: Forbidden": pod(func(p *corev1.PodSpec) { p.PriorityClassName = "system-node-critical" }),
		spec + "resourceClaims: Forbidden":    pod(func(p *corev1.PodSpec) { p.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} }),
		"spec.completions: Forbidden":         func(j *batchv1.Job) { j.Spec.Completions = new(int32(0)) },
		"spec.parallelism: Forbidden":         func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(0)) },
		"spec.parallelism: Invalid value: 11: it may be 10 at most": func(j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions = new(int32(maxParallelism+1)), new(int32(1))
		},
		"spec.completions: Invalid value: 101: it may be 100 at most": func(j *batchv1.Job) { j.Spec.Completions = new(int32(maxCompletions + 1)) },
		spec + "containers[0].livenessProbe.httpGet.host: Forbidden": container(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}}
		}),
		spec + "containers[0].readinessProbe.tcpSocket.host: Forbidden": container(func(c *corev1.Container) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1"}}}
		}),
		spec + "initContainers[0].startupProbe.httpGet.host: Forbidden": pod(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{StartupProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1"}}}}}
		}),
		spec + "containers[0].lifecycle.postStart.httpGet.host: Forbidden": container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1"}}}
		}),
		spec + "containers[0].lifecycle.preStop.tcpSocket.host: Forbidden": container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Host: "127.0.0.1"}}}
		}),
		spec + "containers[0].securityContext.procMount: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}
		}),
		spec + "containers[0].ports[0].hostPort: Forbidden":                  container(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{HostPort: 80}} }),
		spec + "hostPID: Forbidden":                                          pod(func(p *corev1.PodSpec) { p.HostPID = true }),
		spec + "hostIPC: Forbidden":                                          pod(func(p *corev1.PodSpec) { p.HostIPC = true }),
		spec + `serviceAccountName: Invalid value: "layerwright-controller"`: pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "layerwright-controller" }),
		spec + `serviceAccountName: Invalid value: "layerwright-build"`:      pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "layerwright-build" }),
		spec + `serviceAccount: Invalid value: "default"`:                    pod(func(p *corev1.PodSpec) { p.DeprecatedServiceAccount = "default" }),
		spec + "automountServiceAccountToken: Forbidden":                     pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = new(true) }),
		spec + "ephemeralContainers: Forbidden":                              pod(func(p *corev1.PodSpec) { p.EphemeralContainers = []corev1.EphemeralContainer{{}} }),
		spec + `imagePullSecrets[0].name: Invalid value: "push": this is a secret for pushing images`: pod(func(p *corev1.PodSpec) {
			p.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "push"}}
		}),
		spec + `volumes[0].secret.secretName: Invalid value: "layerwright-signing-key": this is the secret with the signing key`: volume(
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: key.Name}}),
		spec + `volumes[0].secret.secretName: Invalid value: "others": tests may use secrets whose names begin with verification-`: volume(
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "others"}}),
		spec + `volumes[0].projected.sources[0].secret.name: Invalid value: "layerwright-signing-key"`: projected(
			corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: key}}),
		spec + "volumes[0].projected.sources[0].serviceAccountToken: Forbidden": projected(
			corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}),
		spec + "volumes[0].projected.sources[0]: Forbidden":                                                    projected(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}),
		spec + `containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: "layerwright-signing-key"`:    variable(key.Name),
		spec + `containers[0].env[0].valueFrom.secretKeyRef.name: Invalid value: "verification-push": this is`: variable("verification-push"),
		spec + `containers[0].envFrom[0].secretRef.name: Invalid value: "layerwright-signing-key"`: container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: key}}}
		}),
		spec + `initContainers[0].envFrom[0].secretRef.name: Invalid value: "layerwright-signing-key"`: pod(func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: key}}}}}
		}),
		spec + `containers[0].env[0].name: Invalid value: "IMAGE_DIGEST"`: container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "IMAGE_DIGEST"}} }),
		spec + "containers[0].securityContext.privileged: Forbidden": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}),
		spec + `containers[0].securityContext.capabilities.add[0]: Invalid value: "SYS_ADMIN"`: container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		}),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, testRule().Check(manifest(change)), want)
		})
	}
}

func TestTestCannotChooseTheNode(t *testing.T) {
	t.Parallel()
	rule := testRule()
	rule.IsPinned = true
	require.NoError(t, rule.Check(manifest()))
	for name, change := range map[string]func(*corev1.PodSpec){
		"nodeName":                  func(p *corev1.PodSpec) { p.NodeName = "other" },
		"nodeSelector":              func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"a": "b"} },
		"affinity":                  func(p *corev1.PodSpec) { p.Affinity = &corev1.Affinity{} },
		"topologySpreadConstraints": func(p *corev1.PodSpec) { p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{}} },
		"schedulerName":             func(p *corev1.PodSpec) { p.SchedulerName = "mine" },
	} {
		require.ErrorContains(t, rule.Check(manifest(pod(change))), "spec.template.spec."+name+": Forbidden: Layerwright runs the test on the node that it checks")
	}
}

// What is wrong is written into a condition, which is to change when the manifest does.
func TestWhatIsWrongIsSaidInOneOrder(t *testing.T) {
	t.Parallel()
	wrong := manifest(pod(func(p *corev1.PodSpec) {
		p.HostNetwork, p.HostPID, p.HostIPC, p.ServiceAccountName, p.DeprecatedServiceAccount = true, true, true, "a", "b"
	}))
	want := testRule().Check(wrong).Error()
	for range 20 {
		require.EqualError(t, testRule().Check(wrong), want)
	}
}

func TestTheExampleMayRun(t *testing.T) {
	t.Parallel()
	for _, object := range install.Objects(t, install.Path(t, "deploy/examples/verification.yaml")) {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		text, _, err := unstructured.NestedString(object.Object, "data", DefaultKey)
		require.NoError(t, err)
		job, err := Parse(text)
		require.NoError(t, err)
		require.NoError(t, testRule().Check(job))
		return
	}
	require.Fail(t, "it has no test")
}

// TestAcceptedVolumes sets each kind that the API has, also those that a later
// version adds.
func TestAcceptedVolumes(t *testing.T) {
	t.Parallel()
	accepted := []string{}
	kinds := reflect.TypeFor[corev1.VolumeSource]()
	for i := range kinds.NumField() {
		source := corev1.VolumeSource{}
		reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(kinds.Field(i).Type.Elem()))
		if err := testRule().Check(manifest(volume(source))); err == nil || !strings.Contains(err.Error(), "tests may have volumes of the kinds") {
			accepted = append(accepted, kinds.Field(i).Name)
		}
	}
	assert.ElementsMatch(t, []string{"ConfigMap", "DownwardAPI", "EmptyDir", "Image", "Projected", "Secret"}, accepted)
}

// TestTheSigningKeyCanBeNamedNowhere sets every field of a Job whose name speaks of a secret or an
// account, one at a time, wherever the API has one.
func TestTheSigningKeyCanBeNamedNowhere(t *testing.T) {
	t.Parallel()
	places := 0
	secretsIn(reflect.TypeFor[batchv1.JobSpec](), "spec", nil, func(path string, fill func(reflect.Value)) {
		places++
		job := manifest(func(j *batchv1.Job) { j.Spec.Template.Spec.Containers = nil })
		fill(reflect.ValueOf(&job.Spec).Elem())
		assert.Error(t, testRule().Check(job), path)
	})
	assert.GreaterOrEqual(t, places, 20)
}

// secretsIn finds strings that name a secret or an account below a type, and how to set each in a
// value of it.
func secretsIn(of reflect.Type, path string, seen []reflect.Type, found func(path string, fill func(reflect.Value))) {
	for _, s := range seen {
		if s == of {
			return
		}
	}
	seen = append(seen, of)
	for i := range of.NumField() {
		f := of.Field(i)
		if !f.IsExported() {
			continue
		}
		at := path + "." + f.Name
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		into := func(fill func(reflect.Value)) func(reflect.Value) {
			return func(v reflect.Value) { fill(deep(v.Field(i))) }
		}
		switch {
		case inner.Kind() == reflect.Struct && inner.PkgPath() != "" && strings.HasPrefix(inner.PkgPath(), "k8s.io/api/"):
			secretsIn(inner, at, seen, func(p string, fill func(reflect.Value)) { found(p, into(fill)) })
		case inner.Kind() == reflect.String && isSecretName(path, f.Name):
			found(at, into(func(v reflect.Value) { v.SetString(names.SigningKey) }))
		}
	}
}

// isSecretName reports whether a field names a secret or an account: by its own name, or as the
// name in what refers to one.
func isSecretName(path, name string) bool {
	if strings.HasSuffix(name, "SecretName") || strings.HasPrefix(name, "ServiceAccountName") || name == "DeprecatedServiceAccount" {
		return true
	}
	return name == "Name" && strings.Contains(strings.ToLower(path), "secret")
}

// deep is what a pointer or a list of one leads to, made on the way.
func deep(v reflect.Value) reflect.Value {
	for {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			v = v.Index(0)
		default:
			return v
		}
	}
}
