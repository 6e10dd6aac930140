package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// askTimeout bounds each question that Status asks.
const askTimeout = 10 * time.Second

// Status is what can be said of a cluster.
type Status struct {
	Name             string `json:"name"`
	ControlPlaneOnly bool   `json:"controlPlaneOnly"`
	Kubeconfig       string `json:"kubeconfig"`
	// Registry is its name and port, the same on the host, nodes and in pods;
	// RegistryCA the path of the authority that signed its certificate.
	Registry   string        `json:"registry,omitempty"`
	RegistryCA string        `json:"registryCA,omitempty"`
	Processes  []daemon.Info `json:"processes"`
	Nodes      []NodeStatus  `json:"nodes,omitempty"`
	// Problems are one line each, but for the last lines of logs; none means
	// that all is well.
	Problems []string `json:"problems,omitempty"`
}

// NodeStatus is what the API says of a node.
type NodeStatus struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Message string `json:"message,omitempty"`
}

// Status looks at a cluster.
func (s *Stack) Status(ctx context.Context) (*Status, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	manager, err := s.manager()
	if err != nil {
		return nil, err
	}
	status := &Status{Name: s.name, ControlPlaneOnly: st.ControlPlaneOnly, Kubeconfig: s.Kubeconfig()}
	if status.Processes, err = manager.List(); err != nil {
		return nil, err
	}
	if len(status.Processes) == 0 {
		status.problem("no process was started: run up again")
	}
	for _, p := range status.Processes {
		if !p.Alive {
			status.problem("%v", manager.Died(p.Name, ""))
		} else if !p.Ready {
			status.problem("%s was started but never ready: run up again", p.Name)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if st.RegistryPort != 0 {
		status.Registry, status.RegistryCA = s.registry(st), s.Authority()
	}
	if !st.ControlPlaneOnly {
		s.judgeRegistryName(ctx, status)
	}
	s.judgeAPI(ctx, status, st)
	return status, nil
}

func (status *Status) problem(format string, args ...any) {
	status.Problems = append(status.Problems, fmt.Sprintf(format, args...))
}

// judgeRegistryName checks that the host knows the registry's name.
func (s *Stack) judgeRegistryName(ctx context.Context, status *Status) {
	if err := requireRegistryName(ctx, s.RegistryHost()); err != nil {
		status.problem("%v", err)
	}
}

func (s *Stack) judgeAPI(ctx context.Context, status *Status, st *state) {
	clients, err := s.Clients()
	if err != nil {
		status.problem("%v", err)
		return
	}
	if body, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		status.problem("the API server is not ready: %v %s", err, body)
		return
	}
	for number := range st.Nodes {
		status.addNode(ctx, clients, fmt.Sprintf("node%d", number+1))
	}
	for number := range st.Guests {
		status.addNode(ctx, clients, GuestName(number+1))
	}
}

func (status *Status) addNode(ctx context.Context, clients kubernetes.Interface, name string) {
	n := NodeStatus{Name: name, Message: "it has no Ready condition"}
	object, err := clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		n.Message = err.Error()
	} else {
		for _, c := range object.Status.Conditions {
			if c.Type == corev1.NodeReady {
				n.Ready, n.Message = c.Status == corev1.ConditionTrue, c.Message
			}
		}
	}
	status.Nodes = append(status.Nodes, n)
	if !n.Ready {
		status.problem("node %s is not Ready: %s", name, n.Message)
	}
}

// Config returns the admin's client configuration.
func (s *Stack) Config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if errors.Is(err, os.ErrNotExist) {
		return nil, &NotFoundError{Name: s.name}
	}
	return config, err
}

// LogFiles maps the names of processes to the files with their output.
func (s *Stack) LogFiles() (map[string]string, error) {
	if _, err := s.load(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(s.dir, "logs", "*.log"))
	if err != nil {
		return nil, err
	}
	logs := make(map[string]string, len(files))
	for _, file := range files {
		name := filepath.Base(file)
		logs[name[:len(name)-len(".log")]] = file
	}
	return logs, nil
}

// Environment is what a shell needs to work with the cluster.
func (s *Stack) Environment(ctx context.Context) ([]string, error) {
	st, err := s.load()
	if err != nil {
		return nil, err
	}
	bin, err := s.tools.Find(ctx, toolchain.Kubernetes)
	if err != nil {
		return nil, err
	}
	path := bin
	cosign, err := s.tools.Find(ctx, toolchain.Cosign)
	if missing := (*toolchain.NotBuiltError)(nil); err == nil {
		path += ":" + cosign
	} else if !errors.As(err, &missing) { // clusters run without it
		return nil, err
	}
	variables := []string{"KUBECONFIG=" + s.Kubeconfig(), "PATH=" + path + ":" + os.Getenv("PATH")}
	if st.RegistryPort != 0 {
		variables = append(variables,
			"LAYERWRIGHT_REGISTRY="+s.registry(st),
			AuthorityVariable+"="+s.Authority(),
			"DOCKER_CONFIG="+s.DockerConfig("push"),
		)
	}
	return variables, nil
}
