package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
	"github.com/layerwright/layerwright/test/cluster/daemon"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/registry"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// DefaultName is the cluster that commands mean when none is named.
const DefaultName = "layerwright"

// state is what must survive the program that brought the cluster up.
type state struct {
	Name             string `json:"name"`
	ControlPlaneOnly bool   `json:"controlPlaneOnly"`
	// Controller says that a control plane without nodes has the registry and
	// the controller too, as processes.
	Controller bool `json:"controller,omitempty"`
	Nodes      int  `json:"nodes"`
	// Guests is the number of nodes that are virtual machines.
	Guests int `json:"guests,omitempty"`
	// Hosts says that the nodes have roots of their own.
	Hosts bool `json:"hosts,omitempty"`
	// Bare says that nothing of Layerwright is installed, until deploy does.
	Bare bool `json:"bare,omitempty"`
	// Tekton says that Tekton Pipelines is installed.
	Tekton bool `json:"tekton,omitempty"`
	// APIPort and RegistryPort are those on the host's loopback interface. The
	// registry has the same one inside, so that one name fits everywhere.
	APIPort      int `json:"apiPort"`
	RegistryPort int `json:"registryPort,omitempty"`
	// MetricsPort is that of a controller that is a process.
	MetricsPort int                `json:"metricsPort,omitempty"`
	Ports       controlplane.Ports `json:"ports"`
	Accounts    []registry.Account `json:"accounts,omitempty"`
	// Sysctls are kernel settings as they were before the first kubelet.
	Sysctls map[string]string `json:"sysctls,omitempty"`
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// Stack is a cluster by its name. It is not safe for concurrent use.
type Stack struct {
	name  string
	cache string
	dir   string
	tools *toolchain.Toolchain
	// repository is the checkout that programs and manifests come from.
	repository string
}

// New returns the cluster of that name, which need not exist.
func New(repository, cache, name string) (*Stack, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("cluster name %q: use 1 to 32 lower-case letters, digits and dashes", name)
	}
	return &Stack{
		name:       name,
		cache:      cache,
		dir:        filepath.Join(cache, "clusters", name),
		tools:      toolchain.New(repository, cache),
		repository: repository,
	}, nil
}

// Names lists the clusters that exist in a cache folder.
func Names(cache string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(cache, "clusters", "*", stateFile))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(files))
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names, nil
}

const stateFile = "state.json"

// NotFoundError says that there is no cluster of a name.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("there is no cluster %q: run `make up` (or `cluster up --name %s`)", e.Name, e.Name)
}

// load reads the state, or returns a *NotFoundError.
func (s *Stack) load() (*state, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotFoundError{Name: s.name}
	}
	if err != nil {
		return nil, err
	}
	st := &state{}
	if err := json.Unmarshal(text, st); err != nil {
		return nil, fmt.Errorf("reading the state of cluster %q: %w; `cluster down` removes it", s.name, err)
	}
	return st, nil
}

func (s *Stack) save(st *state) error {
	text, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(s.dir, stateFile), append(text, '\n'), 0o600)
}

// lock keeps other programs from changing the same cluster.
func (s *Stack) lock() (unlock func(), err error) {
	// Beside the cluster's folder, because down removes that.
	unlock, err = files.TryLock(filepath.Join(s.cache, "clusters", s.name+".lock"))
	if errors.Is(err, files.ErrLocked) {
		return nil, fmt.Errorf("cluster %q is being changed by another `cluster` command: wait for it to end", s.name)
	}
	return unlock, err
}

func (s *Stack) manager() (*daemon.Manager, error) {
	return daemon.New(filepath.Join(s.dir, "run"), filepath.Join(s.dir, "logs"))
}

// RegistryHost is the name of the cluster's registry without its port. A
// control plane without nodes has it at localhost.
func (s *Stack) RegistryHost() string { return "registry." + s.name + ".test" }

// registry is the name and port of the cluster's registry.
func (s *Stack) registry(st *state) string {
	host := s.RegistryHost()
	if st.ControlPlaneOnly {
		host = localHost // only root can teach a machine another name
	}
	return fmt.Sprintf("%s:%d", host, st.RegistryPort)
}

// localHost is the registry's name where there is no root to give it another.
const localHost = "localhost"

// HasNodes tells of which kind the cluster is, or returns a *NotFoundError.
func (s *Stack) HasNodes() (bool, error) {
	st, err := s.load()
	if err != nil {
		return false, err
	}
	return !st.ControlPlaneOnly, nil
}

// Dir is the folder of the cluster, which down removes.
func (s *Stack) Dir() string { return s.dir }

// Kubeconfig is the path of the admin's kubeconfig for use on the host.
func (s *Stack) Kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }
