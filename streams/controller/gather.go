package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry/dockerconfig"
	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/streams"
	"github.com/layerwright/layerwright/streams/source"
)

// found is what the sources gave in one reconcile.
type found struct {
	gathered      []streams.Gathered
	contributions []streams.Contribution
	knowledge     streams.Knowledge
	// problems are those that belong to no source of images.
	problems []streams.Problem
	// releaseFailed reports whether the release could not be read to its end.
	releaseFailed bool
	// provenance are the annotations that the streams get; empty ones are removed.
	provenance map[string]string
	cluster    cluster
	// distribution is from Options.
	distribution streams.Distribution
}

// isOfRelease reports whether the annotations of the object say what provenance does.
func (f *found) isOfRelease(object *mcfgv1.OSImageStream) bool {
	for key, value := range f.provenance {
		if object.Annotations[key] != value {
			return false
		}
	}
	return true
}

// allProblems are those of all sources.
func (f *found) allProblems() []streams.Problem {
	problems := append([]streams.Problem(nil), f.problems...)
	for i := range f.contributions {
		problems = append(problems, f.contributions[i].Problems...)
	}
	return problems
}

func (f *found) defaultInput(wanted, previous string, available []mcfgv1.OSImageStreamSet) streams.DefaultInput {
	return streams.DefaultInput{
		Wanted: wanted, Previous: previous, Available: available, Distribution: f.distribution, InstallVersion: f.cluster.installVersion,
	}
}

// waitForRelease is how soon the cluster's release is looked at again, where nothing else tells.
const waitForRelease = time.Minute

// gather asks all sources, those of the object too. Where what it found is nil, it could not ask;
// else the error is of sources that may answer the next time.
func (r *Reconciler) gather(ctx context.Context, object *mcfgv1.OSImageStream) (*found, error) {
	images := object.Spec.Images
	f := &found{knowledge: streams.Knowledge{}, provenance: map[string]string{}, distribution: r.options.Distribution}
	var err error
	if f.cluster, err = r.cluster(ctx); err != nil {
		return nil, err
	}
	if wanted := f.cluster.desiredVersion; wanted != "" && r.options.ReleaseVersion != "" && wanted != r.options.ReleaseVersion {
		return nil, fault.NewWaiting(mcfgv1.ReasonWaitingForRelease, waitForRelease, fmt.Errorf(
			"the cluster's desired release is %q, but this controller belongs to %q: the controller of the desired release will read the streams", wanted, r.options.ReleaseVersion))
	}
	access, err := r.access(ctx, f)
	if err != nil {
		return nil, err
	}
	access.Anew = wantsCheck(object)
	var errs []error
	add := func(g streams.Gathered) {
		inspected, err := r.options.Reader.Inspect(ctx, access, g)
		errs = append(errs, err)
		f.gathered = append(f.gathered, inspected)
		f.contributions = append(f.contributions, streams.Group(inspected))
		if g.Source == streams.SourceRelease && err != nil {
			f.releaseFailed = true
		}
	}
	configMap, err := r.configMap(ctx, streams.ConfigMapName)
	if err != nil {
		return nil, err
	}
	if configMap != nil {
		add(streams.FromConfigMap(configMap, r.options.ReleaseVersion))
	}
	if r.options.ReleaseVersion != "" {
		f.provenance[mcfgv1.AnnotationReleaseImageVersion] = r.options.ReleaseVersion
	}
	if image := r.releaseImage(f.cluster); image != "" {
		f.provenance[mcfgv1.AnnotationReleasePayloadImage] = image
		g, release, err := r.release(ctx, access, image)
		errs = append(errs, err)
		f.releaseFailed = g.Failed
		f.cluster.installVersion = cmp.Or(f.cluster.installVersion, release.Version)
		f.provenance[mcfgv1.AnnotationBootImageSkewLimits] = release.SkewLimits
		add(g)
	}
	if len(images) > 0 {
		add(streams.FromSpec(images))
	}
	if err := r.readKnowledge(ctx, f, images); err != nil {
		return nil, err
	}
	return f, fault.Join(errs...)
}

func (r *Reconciler) releaseImage(c cluster) string {
	if r.options.ReleaseImage != "" {
		return r.options.ReleaseImage
	}
	return c.desiredImage
}

// release reads the list of a release, and what else the release says.
func (r *Reconciler) release(ctx context.Context, access source.Access, image string) (streams.Gathered, streams.Release, error) {
	release, err := r.options.Reader.Release(ctx, access, image)
	if err == nil {
		return streams.FromRelease(release.Tags), release, nil
	}
	if fault.IsTransient(err) {
		return streams.Failing(streams.SourceRelease, mcfgv1.StreamReleaseImageUnreadable, mcfgv1.ReasonRetrying, fault.Message(err)), streams.Release{}, err
	}
	return streams.Failing(streams.SourceRelease, mcfgv1.StreamReleaseImageUnreadable, mcfgv1.ReasonSourceFailed, fault.Message(err)), streams.Release{}, nil
}

// readKnowledge reads what is known of streams beside their images.
func (r *Reconciler) readKnowledge(ctx context.Context, f *found, images []mcfgv1.OSImageStreamImages) error {
	for _, place := range []struct {
		name  string
		parse func(string, map[string]string) (streams.Knowledge, []streams.Problem)
	}{{streams.MetadataConfigMap, streams.ParseStreamMetadata}, {streams.LifecycleConfigMap, streams.ParseLifecycle}} {
		data, err := r.configMap(ctx, place.name)
		if err != nil {
			return err
		}
		knowledge, problems := place.parse(place.name, data)
		f.knowledge.Add(knowledge)
		f.problems = append(f.problems, problems...)
	}
	f.knowledge.Add(streams.KnowledgeOfSpec(images))
	return nil
}

// configMap reads a ConfigMap, past the cache, which knows no contents; nil where there is none.
func (r *Reconciler) configMap(ctx context.Context, name string) (map[string]string, error) {
	var configMap corev1.ConfigMap
	err := r.reader.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, &configMap)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %q: %w", name, err)
	}
	if configMap.Data == nil {
		return map[string]string{}, nil
	}
	return configMap.Data, nil
}

// access finds credentials and mirrors.
func (r *Reconciler) access(ctx context.Context, f *found) (source.Access, error) {
	var keychain authn.Keychain
	if r.options.PullSecret.Name != "" {
		var secret corev1.Secret
		err := r.reader.Get(ctx, r.options.PullSecret, &secret)
		switch {
		case err == nil:
			store, err := dockerconfig.Parse(&secret)
			if err != nil {
				return source.Access{}, err
			}
			keychain = store
		case !apierrors.IsNotFound(err):
			return source.Access{}, fmt.Errorf("reading the pull secret %q: %w", r.options.PullSecret, err)
		}
	}
	rules, err := r.mirrors.Rules(ctx)
	if fault.IsTerminal(err) { // those that can be used are
		f.problems = append(f.problems, streams.Problem{Type: mcfgv1.StreamConfigMapInvalid, Reason: mcfgv1.ReasonInvalid, Message: fault.Message(err)})
		err = nil
	}
	return source.Access{Registry: r.options.Connect(keychain, mirrors.Table{rules})}, err
}

// cluster is what OpenShift's ClusterVersion says; where there is none, the release is what the
// cluster is installed with.
type cluster struct {
	desiredVersion, desiredImage, installVersion string
}

// errNoClusterVersion means that a cluster of OpenShift has no ClusterVersion.
var errNoClusterVersion = errors.New("the cluster has the kind ClusterVersion, and none of the name " + clusterVersionName)

func (r *Reconciler) cluster(ctx context.Context) (cluster, error) {
	if !r.hasClusterVersion {
		return cluster{installVersion: r.options.ReleaseVersion}, nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(clusterVersion)
	err := r.cache.Get(ctx, client.ObjectKey{Name: clusterVersionName}, object)
	if apierrors.IsNotFound(err) {
		return cluster{}, fault.NewWaiting(mcfgv1.ReasonWaiting, waitForRelease, errNoClusterVersion)
	}
	if err != nil {
		return cluster{}, fmt.Errorf("reading ClusterVersion %q: %w", clusterVersionName, err)
	}
	return clusterOf(object), nil
}

// clusterOf reads a ClusterVersion. The oldest entry of its history that was completed is what the
// cluster was installed with.
func clusterOf(object *unstructured.Unstructured) cluster {
	var c cluster
	c.desiredVersion, _, _ = unstructured.NestedString(object.Object, "status", "desired", "version")
	c.desiredImage, _, _ = unstructured.NestedString(object.Object, "status", "desired", "image")
	history, _, _ := unstructured.NestedSlice(object.Object, "status", "history")
	for _, entry := range history { // the newest first
		if update, isObject := entry.(map[string]any); isObject && update["state"] == "Completed" {
			c.installVersion, _ = update["version"].(string)
		}
	}
	if c.installVersion == "" {
		c.installVersion = c.desiredVersion // it is being installed
	}
	return c
}
