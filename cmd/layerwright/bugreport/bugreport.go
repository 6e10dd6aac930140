package bugreport

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/internal/fault"
)

const (
	pageSize = 500
	// mostLog is how many bytes of a container's log are kept, the last ones.
	mostLog = 1 << 20
	// longestLine is how long a line of a log may be; the rest is left out.
	longestLine = 64 << 10
)

// kind is one of those in a report.
type kind struct {
	schema.GroupVersionResource

	name string
	// isNamespaced says that only those in the namespace of Layerwright are taken.
	isNamespaced bool
}

func of(group, version, resource, name string) kind {
	return kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, name: name}
}

func in(group, resource, name string) kind {
	k := of(group, "v1", resource, name)
	k.isNamespaced = true
	return k
}

const own = "machineconfiguration.openshift.io"

// kinds are all of them. There is no Secret among them.
var kinds = []kind{
	of(own, "v1", "machineconfigpools", "MachineConfigPool"), of(own, "v1", "machineconfigs", "MachineConfig"),
	of(own, "v1", "machineosconfigs", "MachineOSConfig"), of(own, "v1", "machineosbuilds", "MachineOSBuild"),
	of(own, "v1alpha1", "machineosimages", "MachineOSImage"), of(own, "v1", "machineconfignodes", "MachineConfigNode"),
	of(own, "v1", "osimagestreams", "OSImageStream"), of("operator.openshift.io", "v1", "machineconfigurations", "MachineConfiguration"),
	of("", "v1", "nodes", "Node"), of("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
	of("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
	in("apps", "deployments", "Deployment"), in("apps", "daemonsets", "DaemonSet"), in("batch", "jobs", "Job"),
	in("", "pods", "Pod"), in("", "configmaps", "ConfigMap"), in("", "events", "Event"),
	in("networking.k8s.io", "networkpolicies", "NetworkPolicy"), in("coordination.k8s.io", "leases", "Lease"),
}

// Mapper knows where the API server has what a report has, so that it need not be asked.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range kinds {
		scope := meta.RESTScopeRoot
		if k.isNamespaced || k.Resource == "poddisruptionbudgets" {
			scope = meta.RESTScopeNamespace
		}
		mapper.AddSpecific(k.GroupVersion().WithKind(k.name), k.GroupVersionResource, k.GroupVersionResource, scope)
	}
	return mapper
}

// Collector makes reports.
type Collector struct {
	// Objects needs the mapper of this package.
	Objects client.Reader
	Pods    corev1client.PodsGetter
	// Namespace is that of Layerwright. Events of its cluster-wide objects are in "default", and
	// taken too.
	Namespace string
	// WithContents leaves in it what may be secret.
	WithContents bool
	Clock        clock.PassiveClock
	// Progress is told what is read.
	Progress func(doing string)

	archive *tar.Writer
	lacks   []string
}

// Collect writes a report (tar.gz) that has the given files too, and gives what it lacks, and why.
// An error is of writing, or the end of the context: what can't be read is no error.
func (c *Collector) Collect(ctx context.Context, to io.Writer, files map[string][]byte) (lacks []string, err error) {
	compressed := gzip.NewWriter(to)
	c.archive, c.lacks = tar.NewWriter(compressed), nil
	for name, content := range files {
		if err := c.add(name, []byte(fault.Redact(string(content)))); err != nil {
			return nil, err
		}
	}
	for _, k := range kinds {
		if err := c.kind(ctx, k); err != nil {
			return nil, err
		}
	}
	if err := c.logs(ctx); err != nil {
		return nil, err
	}
	if err := c.add("lacks.txt", []byte(strings.Join(append(c.lacks, ""), "\n"))); err != nil {
		return nil, err
	}
	if err := c.archive.Close(); err != nil {
		return nil, err
	}
	return c.lacks, compressed.Close()
}

func (c *Collector) add(name string, content []byte) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join("layerwright-report", name), Mode: 0o600, Size: int64(len(content)), ModTime: c.Clock.Now()}
	if err := c.archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := c.archive.Write(content)
	return err
}

// kind adds the objects of a kind, in pages.
func (c *Collector) kind(ctx context.Context, k kind) error {
	c.Progress("reading " + k.Resource)
	namespaces := []string{""}
	if k.isNamespaced {
		namespaces = []string{c.Namespace}
	}
	if k.Resource == "events" && c.Namespace != metav1.NamespaceDefault {
		namespaces = append(namespaces, metav1.NamespaceDefault)
	}
	var text strings.Builder
	for _, namespace := range namespaces {
		for next := ""; ; {
			page := &unstructured.UnstructuredList{}
			page.SetGroupVersionKind(k.GroupVersion().WithKind(k.name + "List"))
			err := c.Objects.List(ctx, page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(next))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				c.lacks = append(c.lacks, fmt.Sprintf("%s: %s", k.Resource, fault.Clean(err.Error())))
				break
			}
			if err := c.write(&text, k, page.Items); err != nil {
				return err
			}
			if next = page.GetContinue(); next == "" {
				break
			}
		}
	}
	return c.add(path.Join("objects", k.Resource+".yaml"), []byte(text.String()))
}

func (c *Collector) write(text *strings.Builder, k kind, items []unstructured.Unstructured) error {
	for _, item := range items {
		redact(item.Object, k.name, c.WithContents)
		content, err := yaml.Marshal(item.Object)
		if err != nil {
			return err
		}
		text.WriteString("---\n")
		text.Write(content)
	}
	return nil
}

// logs adds the end of the logs of all pods of Layerwright, also of a container before it
// restarted.
func (c *Collector) logs(ctx context.Context) error {
	pods, err := c.Pods.Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return ctx.Err() // that pods can't be listed is said already
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			for _, previous := range []bool{false, true} {
				if previous && status.RestartCount == 0 || status.State.Waiting != nil && !previous {
					continue
				}
				if err := c.log(ctx, pod, status.Name, previous); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Collector) log(ctx context.Context, pod *corev1.Pod, container string, previous bool) error {
	name := path.Join("logs", pod.Name, container+".log")
	if previous {
		name = path.Join("logs", pod.Name, container+".previous.log")
	}
	c.Progress("reading " + name)
	stream, err := c.Pods.Pods(c.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, Timestamps: true, TailLines: ptr.To(int64(20_000)),
	}).Stream(ctx)
	if err != nil {
		c.lacks = append(c.lacks, name+": "+fault.Clean(err.Error()))
		return ctx.Err()
	}
	defer stream.Close() //nolint:errcheck // it was only read
	content, err := tailOf(stream)
	if err != nil {
		c.lacks = append(c.lacks, name+": "+fault.Clean(err.Error()))
	}
	if err := c.add(name, content); err != nil {
		return err
	}
	return ctx.Err()
}

// tailOf is the end of a log, without what URLs may have of secrets.
func tailOf(from io.Reader) ([]byte, error) {
	var kept []byte
	reader := bufio.NewReaderSize(from, longestLine)
	for {
		line, isPrefix, err := reader.ReadLine()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return kept, err
		}
		kept = append(append(kept, fault.Redact(string(line))...), '\n')
		for isPrefix && err == nil {
			_, isPrefix, err = reader.ReadLine()
		}
		if excess := len(kept) - mostLog; excess > mostLog/4 { // now and then, and not with each line
			kept = append(kept[:0], kept[excess:]...)
		}
	}
}
