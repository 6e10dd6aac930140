package healthchecks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/testjobs"
	"github.com/layerwright/layerwright/rollout/plan"
)

const (
	// atOnce is how many Jobs a reconcile creates, and how many it deletes: others wait for their
	// reconcile, too.
	atOnce = 20
	// goOn is when the next ones follow.
	goOn = time.Second
	// whileStarting is when to ask again why a Job has no pod: the API server's refusal is in an
	// event, and events are not watched.
	whileStarting = 5 * time.Second
)

// Environment variables of every container of a check.
const (
	variableNode   = "NODE"
	variablePool   = "POOL"
	variableImage  = "IMAGE"
	variableConfig = "CONFIGURATION"
)

// test is the Job of a check as its ConfigMap has it.
type test struct {
	version  string
	manifest *batchv1.Job
	hash     string
	parsed   error
	// err is why it can't be run.
	err error
}

// refusal is why a Job could not be created, and when that was tried.
type refusal struct {
	why string
	at  time.Time
}

// work is which Jobs are to be created and deleted.
type work struct {
	// own is what there is.
	own    *jobs
	create []*subject
	remove []*batchv1.Job
}

// subject is a check on a node.
type subject struct {
	scope  *Scope
	of     *compiled
	check  int
	member *plan.Node
	node   *corev1.Node
	// jobs are those for it, pods those of Jobs by their names. attempt is that of the next Job.
	jobs    []*batchv1.Job
	pods    map[string][]*corev1.Pod
	attempt int
}

// podsOf are the pods of a Job.
func (s *subject) podsOf(job *batchv1.Job) (pods []corev1.Pod) {
	for _, pod := range s.pods[job.Name] {
		if metav1.IsControlledBy(pod, job) {
			pods = append(pods, *pod)
		}
	}
	return pods
}

func (s *subject) spec() *mcfgv1.RolloutHealthCheck { return &s.of.spec[s.check] }

func (s *subject) test() *test { return &s.of.tests[s.check] }

func (s *subject) target() string { return targetOf(s.scope, s.node, s.spec()) }

// name is that of the next Job.
func (s *subject) name() string {
	return names.HealthCheckJob(s.node.Name, s.target(), s.test().hash, s.attempt)
}

// targetOf identifies the Node, its pool, what it was updated to, and the check.
func targetOf(p *Scope, n *corev1.Node, check *mcfgv1.RolloutHealthCheck) string {
	const enough = 16
	sum := sha256.Sum256([]byte(strings.Join([]string{p.Pool.Name, string(n.UID), p.Target.Config, p.Target.Image, check.Name}, "\x00")))
	return hex.EncodeToString(sum[:])[:enough]
}

// PoolOfJob is the pool that a Job or a pod of a health check is of; empty for others.
func PoolOfJob(o client.Object) string {
	if o.GetLabels()[testjobs.ComponentLabel] != testjobs.Component {
		return ""
	}
	pool, _, _ := strings.Cut(o.GetAnnotations()[mcfgv1.AnnotationHealthCheck], "/")
	return pool
}

// jobs are the Jobs of a pool's checks.
type jobs struct {
	// wanted are those of nodes that have the target, by targetOf.
	wanted map[string][]*batchv1.Job
	// unwanted are all others.
	unwanted []*batchv1.Job
	// pods are those of Jobs of tests, by the Job's name.
	pods map[string][]*corev1.Pod
}

// of are the Jobs of a check on a node.
func (j *jobs) of(n *corev1.Node, p *Scope, check *mcfgv1.RolloutHealthCheck) []*batchv1.Job {
	return j.wanted[targetOf(p, n, check)]
}

// jobsOf are the Jobs of a pool's checks that are not being deleted. They are the cache's own.
func (c *Checker) jobsOf(ctx context.Context, pool string) (own []*batchv1.Job, _ error) {
	var list batchv1.JobList
	if err := c.list(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if job := &list.Items[i]; PoolOfJob(job) == pool && job.DeletionTimestamp.IsZero() {
			own = append(own, job)
		}
	}
	return own, nil
}

// list reads the Jobs or pods of tests from the cache.
func (c *Checker) list(ctx context.Context, list client.ObjectList) error {
	err := c.Client.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingLabels{testjobs.ComponentLabel: testjobs.Component}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing %T of health checks: %w", list, err)
	}
	return nil
}

// gatherJobs reads the pool's Jobs and their pods. Those are wanted whose nodes have what they were
// updated to, until the rollout is over.
func (c *Checker) gatherJobs(ctx context.Context, p *Scope, of *compiled) (*jobs, error) {
	own, err := c.jobsOf(ctx, p.Pool.Name)
	if err != nil || len(own) == 0 {
		return &jobs{}, err
	}
	owners := map[string]*corev1.Node{}
	for i := range p.Members {
		m := &p.Members[i]
		isJudged := !p.Started.IsZero() || !p.Superseded.IsZero()
		hasTarget := m.CurrentConfig == p.Target.Config && m.CurrentImage == p.Target.Image && !m.IsMoving()
		for check := range of.spec {
			if n := p.Nodes[m.Name]; hasTarget && isJudged && of.spec[check].Job != nil {
				owners[targetOf(p, n, &of.spec[check])] = n
			}
		}
	}
	found := &jobs{wanted: map[string][]*batchv1.Job{}, pods: map[string][]*corev1.Pod{}}
	for _, job := range own {
		target := job.Annotations[mcfgv1.AnnotationHealthCheckTarget]
		if n := owners[target]; n != nil && metav1.IsControlledBy(job, n) {
			found.wanted[target] = append(found.wanted[target], job)
		} else {
			found.unwanted = append(found.unwanted, job)
		}
	}
	var pods corev1.PodList
	if err := c.list(ctx, &pods); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		name := pods.Items[i].Labels[batchv1.JobNameLabel]
		found.pods[name] = append(found.pods[name], &pods.Items[i])
	}
	return found, nil
}

// readTests reads the Jobs of checks from their ConfigMaps, and reports whether they may be run.
func (c *Checker) readTests(ctx context.Context, of *compiled) error {
	var rule *testjobs.Rule
	for i := range of.spec {
		if of.spec[i].Job == nil {
			continue
		}
		if rule == nil {
			var err error
			if rule, err = c.rule(ctx); err != nil {
				return err
			}
		}
		t := &of.tests[i]
		o, err := c.Objects.Object(of.keys[i])
		if err != nil {
			t.err = err
			continue
		}
		if v := version(o); v != t.version {
			*t = readTest(o, of.spec[i].Job)
			t.version = v
		}
		if t.err = t.parsed; t.err == nil {
			t.err = rule.Check(t.manifest)
		}
		if t.err != nil {
			t.err = fmt.Errorf("key %q of ConfigMap %q: %w", keyOfTest(of.spec[i].Job), of.spec[i].Job.Name, t.err)
		}
	}
	return nil
}

func keyOfTest(ref *mcfgv1.ConfigMapKeyReference) string { return cmp.Or(ref.Key, testjobs.DefaultKey) }

// readTest reads a Job from its ConfigMap.
func readTest(configMap *unstructured.Unstructured, ref *mcfgv1.ConfigMapKeyReference) test {
	text, isThere, err := unstructured.NestedString(configMap.Object, "data", keyOfTest(ref))
	if err != nil || !isThere {
		return test{parsed: errors.New("it does not exist: add it, or correct spec.rollout.healthChecks")}
	}
	manifest, err := testjobs.Parse(text)
	return test{manifest: manifest, hash: testjobs.Hash(text, 0), parsed: err}
}

// rule is what Jobs of checks may not do: what tests of images may not, nor choose their node.
func (c *Checker) rule(ctx context.Context) (*testjobs.Rule, error) {
	var configs mcfgv1.MachineOSConfigList
	if err := c.Client.List(ctx, &configs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing MachineOSConfigs: %w", err)
	}
	return &testjobs.Rule{
		Namespace: c.Namespace, IsPinned: true, Reserved: testjobs.Reserved(configs.Items, c.SigningSecret),
		Variables: []string{variableNode, variablePool, variableImage, variableConfig},
	}, nil
}

// follow says what the Jobs of a check say of a node, and which are to be created and deleted. A
// Job that succeeded stays a success, whatever becomes of the test.
func (c *Checker) follow(ctx context.Context, s *subject, f *Findings) (plan.HealthResult, error) {
	for _, job := range s.jobs {
		if testjobs.IsPassed(job) {
			return plan.HealthResult{Holds: true, Value: "passed"}, nil
		}
	}
	if err := s.test().err; err != nil {
		return plan.HealthResult{Broken: true, Value: err.Error()}, nil //nolint:nilerr // it says nothing of the node
	}
	hash := s.test().hash
	var since time.Time
	for _, job := range s.jobs {
		switch made := job.CreationTimestamp.Time; {
		case job.Annotations[mcfgv1.AnnotationVerificationTest] != hash:
			f.jobs.remove = append(f.jobs.remove, job)
		case since.IsZero() || made.Before(since):
			since = made
		}
	}
	job := testjobs.Newest(s.jobs, hash)
	if job == nil {
		return c.begin(s, f, plan.HealthResult{Value: "not begun yet", Since: c.Clock.Now()}), nil
	}
	pods := s.podsOf(job)
	o := testjobs.Observe(job, pods, nil)
	if o.IsInterrupted() { // or the cache has not heard how its pods ended
		var err error
		if pods, err = testjobs.Pods(ctx, c.Reader, job); err != nil {
			return plan.HealthResult{}, fmt.Errorf("listing the pods of Job %q: %w", job.Name, err)
		}
		o = testjobs.Observe(job, pods, nil)
	}
	result := plan.HealthResult{Since: since, Value: fmt.Sprintf("Job %q: %s", job.Name, o.Text), Failed: o.Phase == testjobs.Failed && !o.IsInterrupted()}
	switch {
	case o.Phase == testjobs.Running:
		result.Value = fmt.Sprintf("not over yet (Job %q)", job.Name)
		if o.Text != "" {
			result.Value += ": " + o.Text
		}
		if len(pods) > 0 {
			return result, nil
		}
		return c.starting(ctx, job, f, result)
	case o.IsInterrupted():
		return c.again(s, job, &o, f, result), nil
	default:
		return result, nil
	}
}

// starting says what keeps a Job from having a pod. One whose pod the cluster refuses says nothing
// of the node.
func (c *Checker) starting(ctx context.Context, job *batchv1.Job, f *Findings, result plan.HealthResult) (plan.HealthResult, error) {
	f.wake(whileStarting)
	if c.Clock.Since(job.CreationTimestamp.Time) < goOn {
		return result, nil
	}
	refused, err := testjobs.Refusal(ctx, c.Reader, job)
	if refused != "" {
		result = plan.HealthResult{Broken: true, Value: fmt.Sprintf("Job %q: %s", job.Name, refused)}
	}
	return result, err
}

// again has a test run again that something else ended.
func (c *Checker) again(s *subject, job *batchv1.Job, o *testjobs.Observation, f *Findings, result plan.HealthResult) plan.HealthResult {
	count := testjobs.Interrupted(job)
	if s.attempt = count.Failed; count.IsSpent() {
		result.Value = fmt.Sprintf("not run to its end, %d times: %s", testjobs.MaxAttempts, o.Text)
		return result
	}
	if wait := testjobs.RetryAt(count, o.Ended.Time).Sub(c.Clock.Now()); wait > 0 {
		f.wake(wait)
		return result
	}
	return c.begin(s, f, result)
}

// begin has a Job created. One that was refused is tried again after a while, and says nothing of
// the node meanwhile.
func (c *Checker) begin(s *subject, f *Findings, result plan.HealthResult) plan.HealthResult {
	refused, isRefused := s.of.refused[s.name()]
	if isRefused {
		result = plan.HealthResult{Broken: true, Value: refused.why}
		f.wake(rereadInterval)
		if c.Clock.Since(refused.at) < rereadInterval {
			return result
		}
	}
	if s.member.Ready {
		f.jobs.create = append(f.jobs.create, s)
	}
	return result
}

// Run creates and deletes Jobs as they were found to be needed.
func (c *Checker) Run(ctx context.Context, f *Findings) error {
	var errs []error
	for _, job := range f.jobs.remove[:min(len(f.jobs.remove), atOnce)] {
		errs = append(errs, c.remove(ctx, job))
	}
	for _, s := range f.jobs.create[:min(len(f.jobs.create), atOnce)] {
		errs = append(errs, c.create(ctx, s))
	}
	if max(len(f.jobs.remove), len(f.jobs.create)) > atOnce {
		f.wake(goOn)
	}
	return errors.Join(errs...)
}

func (c *Checker) remove(ctx context.Context, job *batchv1.Job) error {
	err := client.IgnoreNotFound(c.Client.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: &job.UID}))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting Job %q: %w", job.Name, err)
	}
	return nil
}

// create makes the Job of a check for a node. One that is there already was made by a reconcile
// that the cache has not heard of.
func (c *Checker) create(ctx context.Context, s *subject) error {
	job := c.jobFor(s)
	err := c.Client.Create(ctx, job)
	delete(s.of.refused, job.Name)
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Checking a node", "node", s.node.Name, "check", s.spec().Name, "job", job.Name)
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.adopt(ctx, s, job)
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		s.of.refused[job.Name] = refusal{why: fmt.Sprintf("creating Job %q: %s", job.Name, err), at: c.Clock.Now()}
		return nil
	}
	return fmt.Errorf("creating Job %q: %w", job.Name, err)
}

// adopt takes a Job that has the name of the wanted one, if it is that one.
func (c *Checker) adopt(ctx context.Context, s *subject, job *batchv1.Job) error {
	there := &batchv1.Job{}
	if err := c.Reader.Get(ctx, client.ObjectKeyFromObject(job), there); err != nil {
		return client.IgnoreNotFound(err)
	}
	isOurs := metav1.IsControlledBy(there, s.node) && there.Annotations[mcfgv1.AnnotationHealthCheckTarget] == s.target()
	if isOurs && there.DeletionTimestamp.IsZero() {
		return nil
	}
	s.of.refused[job.Name] = refusal{why: fmt.Sprintf("another Job %q is in the way, and has to go first", job.Name), at: c.Clock.Now()}
	return nil
}

// jobFor is the Job of a check for a node. It is the pod that is limited in time: a Job whose pod
// is refused says nothing of the node.
func (c *Checker) jobFor(s *subject) *batchv1.Job {
	job := testjobs.Make(s.test().manifest, &testjobs.Run{
		Name: s.name(), Namespace: c.Namespace,
		Owner:  metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: s.node.Name, UID: s.node.UID, Controller: new(true)},
		Labels: map[string]string{mcfgv1.LabelTargetMachineConfigPool: s.scope.Pool.Name},
		Annotations: map[string]string{
			mcfgv1.AnnotationHealthCheck:       s.scope.Pool.Name + "/" + s.node.Name + "/" + s.spec().Name,
			mcfgv1.AnnotationHealthCheckTarget: s.target(),
		},
		TestHash: s.test().hash, Attempt: s.attempt,
		Variables: []corev1.EnvVar{
			{Name: variableNode, Value: s.node.Name},
			{Name: variablePool, Value: s.scope.Pool.Name},
			{Name: variableImage, Value: s.scope.Image},
			{Name: variableConfig, Value: s.scope.Target.Config},
		},
		UsersAssigned: c.UsersAssigned, Node: s.node.Name,
	})
	testjobs.Limit(&job.Spec.Template.Spec.ActiveDeadlineSeconds, plan.Duration(s.spec().Timeout, plan.DefaultHealthTimeout))
	return job
}
