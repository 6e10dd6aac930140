package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// podSecurity is the label with the Pod Security level that a namespace enforces.
const podSecurity = "pod-security.kubernetes.io/enforce"

// installing are rights that whoever installs needs.
var installing = []Right{
	{"create", "", "namespaces"},
	{"create", "", "serviceaccounts"},
	{"create", "apps", "deployments"},
	{"create", "apps", "daemonsets"},
	{"create", "apiextensions.k8s.io", "customresourcedefinitions"},
	{"create", "admissionregistration.k8s.io", "validatingadmissionpolicies"},
	{"create", "rbac.authorization.k8s.io", "clusterroles"},
	{"bind", "rbac.authorization.k8s.io", "clusterroles"},
	{"create", "networking.k8s.io", "networkpolicies"},
}

// Gather reads the facts of the cluster of a configuration. It changes nothing. What the user may
// not read is in Denied; every other failure is an error.
func Gather(ctx context.Context, config *rest.Config, namespace string, now clock.PassiveClock) (*Facts, error) {
	scheme := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(
		admissionv1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
		mcfgv1.AddToScheme,
	)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, err
	}
	facts := &Facts{Namespace: namespace, Denied: map[string]bool{}}
	if err := facts.askVersion(ctx, config, now); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	reader := &reader{client: c, facts: facts}
	for _, read := range []func(context.Context) error{
		reader.rights, reader.namespace, reader.definitions, reader.policies, reader.programs, reader.nodes, reader.configs,
	} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	return facts, nil
}

// askVersion asks for version and time in one request.
func (f *Facts) askVersion(ctx context.Context, config *rest.Config, now clock.PassiveClock) error {
	caller, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("version").String(), nil)
	if err != nil {
		return err
	}
	response, err := caller.Do(request)
	if err != nil {
		return fmt.Errorf("asking the API server: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is written
	var info version.Info
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&info); err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the API server at %s for its version: it answers %s; check that the kubeconfig names a cluster, and its credentials", config.Host, response.Status)
	}
	f.Version, f.LocalTime = info.GitVersion, now.Now()
	f.ServerTime, err = time.Parse(http.TimeFormat, response.Header.Get("Date"))
	if err != nil {
		f.ServerTime = f.LocalTime // a proxy that drops it
	}
	return nil
}

// reader fills facts.
type reader struct {
	client client.Client
	facts  *Facts
}

// list lists objects, unless the user may not, or the cluster has no such kind.
func (r *reader) list(ctx context.Context, into client.ObjectList, resource string, options ...client.ListOption) error {
	switch err := r.client.List(ctx, into, options...); {
	case apierrors.IsForbidden(err):
		r.facts.Denied[resource] = true
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err), err == nil:
		return nil
	default:
		return fmt.Errorf("listing %s: %w", resource, err)
	}
}

func (r *reader) rights(ctx context.Context) error {
	r.facts.Rights = map[Right]bool{}
	for _, right := range installing {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: right.Verb, Group: right.Group, Resource: right.Resource},
		}}
		if err := r.client.Create(ctx, review); err != nil {
			return fmt.Errorf("asking for your rights: %w", err)
		}
		r.facts.Rights[right] = review.Status.Allowed
	}
	return nil
}

func (r *reader) namespace(ctx context.Context) error {
	var namespace corev1.Namespace
	switch err := r.client.Get(ctx, client.ObjectKey{Name: r.facts.Namespace}, &namespace); {
	case apierrors.IsForbidden(err):
		r.facts.Denied["namespaces"] = true
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading namespace %q: %w", r.facts.Namespace, err)
	default:
		r.facts.HasNamespace, r.facts.Level = true, namespace.Labels[podSecurity]
	}
	return nil
}

func (r *reader) definitions(ctx context.Context) error {
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	if err := r.list(ctx, &all, "customresourcedefinitions"); err != nil {
		return err
	}
	r.facts.Definitions = map[string]metav1.PartialObjectMetadata{}
	for _, definition := range all.Items {
		r.facts.Definitions[definition.Name] = definition
	}
	return nil
}

func (r *reader) policies(ctx context.Context) error {
	var policies admissionv1.ValidatingAdmissionPolicyList
	if err := r.list(ctx, &policies, "validatingadmissionpolicies"); err != nil {
		return err
	}
	var bindings admissionv1.ValidatingAdmissionPolicyBindingList
	if err := r.list(ctx, &bindings, "validatingadmissionpolicies"); err != nil {
		return err
	}
	r.facts.Denying = map[string]bool{}
	for _, policy := range policies.Items {
		r.facts.Denying[policy.Name] = slices.ContainsFunc(bindings.Items, func(binding admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return binding.Spec.PolicyName == policy.Name && slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny)
		})
	}
	return nil
}

func (r *reader) programs(ctx context.Context) error {
	var deployments appsv1.DeploymentList
	if err := r.list(ctx, &deployments, "deployments", client.InNamespace(r.facts.Namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		if deployments.Items[i].Name == "layerwright-controller" {
			r.facts.Controller = &deployments.Items[i]
		}
	}
	var sets appsv1.DaemonSetList
	if err := r.list(ctx, &sets, "daemonsets"); err != nil {
		return err
	}
	for i := range sets.Items {
		r.facts.DaemonSets = append(r.facts.DaemonSets, sets.Items[i].Name)
		if sets.Items[i].Namespace == r.facts.Namespace && sets.Items[i].Name == "layerwright-agent" {
			r.facts.Agent = &sets.Items[i]
		}
	}
	return nil
}

func (r *reader) nodes(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := r.list(ctx, &nodes, "nodes"); err != nil {
		return err
	}
	r.facts.Nodes = nodes.Items
	var leases coordinationv1.LeaseList
	if err := r.list(ctx, &leases, "leases", client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return err
	}
	r.facts.Heartbeats = map[string]coordinationv1.Lease{}
	for _, lease := range leases.Items {
		r.facts.Heartbeats[lease.Name] = lease
	}
	return nil
}

func (r *reader) configs(ctx context.Context) error {
	var streams mcfgv1.OSImageStreamList
	if err := r.list(ctx, &streams, "osimagestreams"); err != nil {
		return err
	}
	r.facts.Streams = streams.Items
	var configs mcfgv1.MachineOSConfigList
	if err := r.list(ctx, &configs, "machineosconfigs"); err != nil {
		return err
	}
	r.facts.Configs, r.facts.Secrets = configs.Items, map[string]bool{}
	if err := r.anchors(ctx); err != nil {
		return err
	}
	for _, config := range configs.Items {
		name := config.Spec.RenderedImagePushSecret.Name
		secret := &metav1.PartialObjectMetadata{} // not its content
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: r.facts.Namespace, Name: name}, secret); {
		case apierrors.IsForbidden(err): // what the controller says of it remains
		case apierrors.IsNotFound(err):
			r.facts.Secrets[name] = false
		case err != nil:
			return fmt.Errorf("reading secret %q: %w", name, err)
		default:
			r.facts.Secrets[name] = true
		}
	}
	return nil
}

// anchors finds the pools of MachineOSConfigs whose rendered MachineConfig has certificate
// authorities.
func (r *reader) anchors(ctx context.Context) error {
	var pools mcfgv1.MachineConfigPoolList
	if err := r.list(ctx, &pools, "machineconfigpools"); err != nil {
		return err
	}
	r.facts.Anchors = map[string]bool{}
	for _, pool := range pools.Items {
		if !slices.ContainsFunc(r.facts.Configs, func(c mcfgv1.MachineOSConfig) bool { return c.Spec.MachineConfigPool.Name == pool.Name }) {
			continue
		}
		var rendered mcfgv1.MachineConfig
		err := r.client.Get(ctx, client.ObjectKey{Name: pool.Spec.Configuration.Name}, &rendered)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading MachineConfig %q: %w", pool.Spec.Configuration.Name, err)
		}
		r.facts.Anchors[pool.Name] = bytes.Contains(rendered.Spec.Config.Raw, []byte("/etc/pki/ca-trust/source/anchors/"))
	}
	return nil
}
