package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/progress"
	"github.com/layerwright/layerwright/test/cluster/stack"
	"github.com/layerwright/layerwright/test/fixtures"
)

// demo shows, step by step, what a cluster that is up can do.
type demo struct {
	cmd     *cobra.Command
	stack   *stack.Stack
	clients kubernetes.Interface
	printer *progress.Printer
}

func (p *program) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show cluster, registry and controller at work",
		Args:  cobra.NoArgs,
		RunE: p.onStack(func(cmd *cobra.Command, s *stack.Stack, _ []string) error {
			clients, err := s.Clients()
			if err != nil {
				return err
			}
			printer := progress.New(cmd.OutOrStdout())
			defer printer.Close()
			d := &demo{cmd: cmd, stack: s, clients: clients, printer: printer}
			return d.run(cmd.Context())
		}),
	}
}

func (d *demo) run(ctx context.Context) error {
	if err := d.showNodes(ctx); err != nil {
		return err
	}
	image, err := d.pushImages(ctx)
	if err != nil {
		return err
	}
	if err := d.runJob(ctx, image); err != nil {
		return err
	}
	return d.showController(ctx)
}

func (d *demo) showNodes(ctx context.Context) error {
	nodes, err := d.clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	d.printer.Note("\nA cluster of real parts:")
	for _, n := range nodes.Items {
		d.printer.Note("  %s  kubelet %s, %s, kernel %s", n.Name, n.Status.NodeInfo.KubeletVersion, n.Status.NodeInfo.ContainerRuntimeVersion, n.Status.NodeInfo.KernelVersion)
	}
	return nil
}

// pushImages pushes the small base OS images and returns one of them.
func (d *demo) pushImages(ctx context.Context) (image string, err error) {
	d.printer.Note("\nA registry with base OS images of two streams:")
	var references *fixtures.References
	err = d.printer.Do("pushing tiny base images", func(step *progress.Step) error {
		references, err = d.stack.PushFixtures(ctx, fixtures.Tiny, nil, step.Detail)
		return err
	})
	if err != nil {
		return "", err
	}
	for _, stream := range fixtures.Streams() {
		d.printer.Note("  %s", references.OS[stream])
	}
	return references.OS[fixtures.RHEL10].String(), nil
}

// demoJob prints what an image says that it is.
const demoJob = "layerwright-demo"

func (d *demo) runJob(ctx context.Context, image string) error {
	d.printer.Note("\nA Job that runs one of them:")
	jobs := d.clients.BatchV1().Jobs("default")
	background := metav1.DeletePropagationBackground
	job, err := jobs.Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: demoJob + "-"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "hello", Image: image,
				Command: []string{"sh", "-c", `. /usr/lib/os-release; echo "hello from $NAME $VERSION_ID"`},
			}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	defer func() {
		_ = jobs.Delete(context.WithoutCancel(ctx), job.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	}()
	if err := d.printer.Do("Job "+job.Name, func(*progress.Step) error {
		return await.JobComplete(ctx, d.clients, "default", job.Name)
	}); err != nil {
		return err
	}
	return d.printLog(ctx, "default", "job-name="+job.Name)
}

// printLog prints the log of the first pod that a selector finds.
func (d *demo) printLog(ctx context.Context, namespace, selector string) error {
	pods, err := d.clients.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return fmt.Errorf("no pod in %s has the labels %s", namespace, selector)
	}
	lines := int64(3)
	log, err := d.clients.CoreV1().Pods(namespace).GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{TailLines: &lines}).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(log)
	if err != nil {
		return err
	}
	d.printer.Note("  %s", text)
	return nil
}

func (d *demo) showController(ctx context.Context) error {
	deployment, err := d.clients.AppsV1().Deployments(stack.Namespace).Get(ctx, stack.ControllerName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("looking for the controller: %w; `cluster deploy` deploys it", err)
	}
	d.printer.Note("The Layerwright controller:\n  %d of %d replicas available, image %s", deployment.Status.AvailableReplicas,
		deployment.Status.Replicas, deployment.Spec.Template.Spec.Containers[0].Image)
	leases, err := d.clients.CoordinationV1().Leases(stack.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, lease := range leases.Items {
		if lease.Spec.HolderIdentity != nil {
			d.printer.Note("  lease %s is held by %s", lease.Name, *lease.Spec.HolderIdentity)
		}
	}
	d.printer.Note("")
	return nil
}
