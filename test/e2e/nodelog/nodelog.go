package nodelog

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Log is what was seen of all Nodes.
type Log struct {
	describe func(*corev1.Node) string

	mu      sync.Mutex
	now     map[string]*corev1.Node
	changes []Change
	begin   time.Time
}

// Change is a Node that is described with other words than before.
type Change struct {
	// At is when that was seen.
	At time.Time
	// Node is as it is now, and Before as it was; nil where it is new.
	Node, Before *corev1.Node
	// All are the Nodes at that time, by name.
	All map[string]*corev1.Node
	// Line is what happened, for people.
	Line string
}

// New begins to write, until the test ends. describe says what of a Node matters; an empty text
// leaves it out.
func New(tb testing.TB, clients kubernetes.Interface, describe func(*corev1.Node) string) *Log {
	tb.Helper()
	l := &Log{describe: describe, now: map[string]*corev1.Node{}, begin: time.Now()}
	factory := informers.NewSharedInformerFactory(clients, 0)
	_, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { l.see(object.(*corev1.Node)) },
		UpdateFunc: func(_, object any) { l.see(object.(*corev1.Node)) },
	})
	require.NoError(tb, err)
	factory.Start(tb.Context().Done())
	tb.Cleanup(factory.Shutdown)
	factory.WaitForCacheSync(tb.Context().Done())
	return l
}

// see takes a Node as it is now.
func (l *Log) see(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, line, at := l.now[node.Name], l.describe(node), time.Now()
	l.now[node.Name] = node
	if line == "" || before != nil && l.describe(before) == line {
		return
	}
	l.changes = append(l.changes, Change{
		At: at, Node: node, Before: before, All: maps.Clone(l.now),
		Line: fmt.Sprintf("%7.2f %s %s", at.Sub(l.begin).Seconds(), node.Name, line),
	})
}

// Node is a Node as it was seen last; nil where there is none.
func (l *Log) Node(name string) *corev1.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now[name]
}

// Changes are those since the last Forget, in their order.
func (l *Log) Changes() []Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Change(nil), l.changes...)
}

// Lines are the changes in words.
func (l *Log) Lines() (lines []string) {
	for _, c := range l.Changes() {
		lines = append(lines, c.Line)
	}
	return lines
}

// Forget begins a new story.
func (l *Log) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = nil
}
