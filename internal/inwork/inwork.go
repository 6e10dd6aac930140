package inwork

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
)

// maxKills is how often the process may be killed while something alone is in work.
const maxKills = 2

const (
	// patience is how long a suspect waits for another one: it keeps a worker from other work.
	patience = time.Second
	// again is when to ask again.
	again = 2 * time.Second
)

// Work is something that is worked on.
type Work struct {
	// Object names it for people, such as `MachineOSConfig "worker"`.
	Object string `json:"object"`
	// Version identifies what of it is read. Another version is tried again.
	Version string `json:"version"`
	// Retry is what a person does to have the same version tried again; empty where there is
	// nothing but a change.
	Retry string `json:"-"`
}

// Log is what is in work. A nil Log remembers nothing.
type Log struct {
	dir string
	// turn is for what was in work at a kill: one at a time, so that the next kill tells which it
	// was.
	turn chan struct{}

	mu sync.Mutex
	// suspects were in work at a kill, and have not ended well since, by their files.
	suspects map[string]entry
	active   map[string]int
}

// entry is the content of a file.
type entry struct {
	Work

	// Kills is how often the process was killed while nothing else was in work.
	Kills int `json:"kills"`
	// IsActive reports whether it is in work, and not only under suspicion.
	IsActive bool `json:"isActive"`
}

// Open reads what the process before has left in a folder, which is made where it is missing. Where
// one thing alone was in work when it was killed, that was it; where there were several, each is
// under suspicion until it has ended well.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("remembering what is in work: %w", err)
	}
	l := &Log{dir: dir, turn: make(chan struct{}, 1), suspects: map[string]entry{}, active: map[string]int{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("remembering what is in work: %w", err)
	}
	atOnce := 0
	for _, file := range files {
		var e entry
		path := filepath.Join(dir, file.Name())
		text, err := os.ReadFile(path) //nolint:gosec // a folder of our own
		if err != nil || json.Unmarshal(text, &e) != nil || fileOf(e.Object) != file.Name() {
			_ = os.Remove(path) // cut off by the kill, or no file of ours
			continue
		}
		l.suspects[file.Name()] = e
		if e.IsActive {
			atOnce++
		}
	}
	for name, e := range l.suspects {
		if e.IsActive && atOnce == 1 {
			e.Kills++
		}
		e.IsActive = false
		l.suspects[name] = e
		if err := l.write(e); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Begin notes that work begins; end takes the note back. It is Terminal where the process was
// killed twice while nothing but this work was noted, and Waiting where this work is under
// suspicion while other such work goes on.
func (l *Log) Begin(ctx context.Context, w Work) (end func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	name := fileOf(w.Object)
	switch before, isSuspect := l.suspect(name, w); {
	case !isSuspect:
		return l.note(name, entry{Work: w}, func() {})
	case before.Kills >= maxKills:
		return nil, w.refused()
	}
	if err := l.takeTurn(ctx, w); err != nil {
		return nil, err
	}
	before, _ := l.suspect(name, w)
	return l.note(name, entry{Work: w, Kills: before.Kills}, func() { <-l.turn })
}

// takeTurn waits for a moment until no other suspect is in work.
func (l *Log) takeTurn(ctx context.Context, w Work) error {
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-short.Done():
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fault.NewWaiting(mcfgv1.ReasonWaitingForTurn, again, fmt.Errorf(
		"%s was in work when the controller was killed; it waits for other work that was too, since such work goes on one at a time", w.Object))
}

// Note is Begin for those who don't know this package.
func (l *Log) Note(ctx context.Context, object, version, retry string) (end func(), err error) {
	return l.Begin(ctx, Work{Object: object, Version: version, Retry: retry})
}

// suspect is what is known of some work that was noted at a kill.
func (l *Log) suspect(name string, w Work) (before entry, isSuspect bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, isSuspect = l.suspects[name]
	return before, isSuspect && before.Version == w.Version
}

// note writes the file of some work, which several may do at the same time.
func (l *Log) note(name string, e entry, done func()) (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.IsActive = true
	if err := l.write(e); err != nil {
		done()
		return nil, err
	}
	l.active[name]++
	return func() {
		defer done()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.active[name]--; l.active[name] == 0 {
			delete(l.active, name)
			delete(l.suspects, name)
			_ = os.Remove(filepath.Join(l.dir, name))
		}
	}, nil
}

// write makes the file of an entry. It appears whole.
func (l *Log) write(e entry) error {
	text, err := json.Marshal(e)
	if err == nil {
		path := filepath.Join(l.dir, fileOf(e.Object))
		if err = os.WriteFile(path+".new", text, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return fmt.Errorf("noting that %s is in work: %w", e.Object, err)
	}
	return nil
}

// Close takes all notes back whose work has not ended: the process ends in order, and is not
// killed.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for name := range l.active {
		if err := os.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// refused is why the work does not begin.
func (w Work) refused() error {
	fix := "change what it reads to something smaller"
	if w.Retry != "" {
		fix += ", or " + w.Retry + " to try again"
	}
	return fault.NewTerminal(mcfgv1.ReasonControllerKilled, fmt.Errorf(
		"the controller was killed %d times while it worked on %s alone, which may take more memory than it has: %s", maxKills, w.Object, fix))
}

// fileOf is the name of the file of an object.
func fileOf(object string) string {
	sum := sha256.Sum256([]byte(object))
	return hex.EncodeToString(sum[:16])
}
