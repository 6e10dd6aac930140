package progress

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDo(t *testing.T) {
	tests := map[string]struct {
		run  func(*Step) error
		want string
	}{
		"prints how long a step took": {
			run:  func(*Step) error { time.Sleep(1500 * time.Millisecond); return nil },
			want: "✓ starting etcd                                  1.5s   at   1.5s\n",
		},
		"marks a failed step": {
			run:  func(*Step) error { return errors.New("no") },
			want: "✗ starting etcd                                  0.0s   at   0.0s\n",
		},
		"is silent about a step that had nothing to do": {
			run:  func(*Step) error { return ErrNothingToDo },
			want: "",
		},
		"gives signs of life where lines can't be redrawn": {
			run: func(s *Step) error {
				s.Detail("(2 of 3)")
				time.Sleep(70*time.Second + time.Millisecond)
				return nil
			},
			want: "… starting etcd: 30.0s so far (2 of 3)\n" +
				"… starting etcd: 60.0s so far (2 of 3)\n" +
				"✓ starting etcd                                 70.0s   at  70.0s\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := New(&out)
				_ = p.Do("starting etcd", tc.run)
				p.Close()
				synctest.Wait()
				require.Equal(t, tc.want, out.String())
			})
		})
	}
}

func TestTerminalLineNeverWraps(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"what fits stays":             {"… waiting", "… waiting"},
		"what is too long is cut":     {"… waiting for godot", "… waiting…"},
		"the last column stays empty": {"… waiting f", "… waiting…"},
		"lines become one":            {"… a\nb", "… a b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, fit(tc.text, 11))
		})
	}
}

func TestTerminalRedrawsInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := New(&out)
		p.terminal = true
		require.NoError(t, p.Do("waiting", func(*Step) error { return nil }))
		p.Note("ready")
		p.Close()
		synctest.Wait()
		require.Equal(t, "… waiting 0.0s \r\033[K✓ waiting"+
			"                                        0.0s   at   0.0s\nready\n", out.String())
	})
}

func TestLinesChangeInPlace(t *testing.T) {
	nodes := func(s *Step) error {
		s.Line("node2", "waits")
		s.Line("node1", "drains")
		s.Line("node2", "waits")
		s.Line("node1", "reboots")
		return nil
	}
	tests := map[string]struct {
		terminal bool
		want     string
	}{
		"on a terminal": {terminal: true, want: "… nodes 0.0s " +
			"\r\x1b[K  node2       waits\n… nodes 0.0s " +
			"\r\x1b[K\x1b[A\x1b[K  node1       drains\n  node2       waits\n… nodes 0.0s " +
			"\r\x1b[K\x1b[A\x1b[K\x1b[A\x1b[K  node1       reboots\n  node2       waits\n… nodes 0.0s " +
			"\r\x1b[K\x1b[A\x1b[K\x1b[A\x1b[K  node1       reboots\n  node2       waits\n" +
			"✓ nodes                                          0.0s   at   0.0s\n"},
		"each change is a line elsewhere": {want: "  node2       waits\n  node1       drains\n  node1       reboots\n" +
			"✓ nodes                                          0.0s   at   0.0s\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := New(&out)
				p.terminal = tc.terminal
				require.NoError(t, p.Do("nodes", nodes))
				p.Close()
				synctest.Wait()
				require.Equal(t, tc.want, out.String())
			})
		})
	}
}
