package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
)

func TestVerbosity(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want       verbosity
		wantString string
		wantErr    bool
	}{
		"error": {want: errorsOnly, wantString: "error"},
		"info":  {want: 0, wantString: "info"},
		"0":     {want: 0, wantString: "info"},
		"3":     {want: 3, wantString: "3"},
		"debug": {want: 5, wantString: "debug"},
		"7":     {want: 7, wantString: "7"},
		"8":     {wantErr: true},
		"-1":    {wantErr: true},
		"INFO":  {wantErr: true},
		"":      {wantErr: true},
	}
	for input, tt := range tests {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			var got verbosity
			err := got.Set(input)
			if tt.wantErr {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.wantString, got.String())
		})
	}
}

func TestNewLoggerLevels(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ want []string }{
		"error": {want: []string{"Broke"}},
		"info":  {want: []string{"Changed", "Broke"}},
		"4":     {want: []string{"Changed", "How", "Broke"}},
		"debug": {want: []string{"Changed", "How", "How exactly", "Broke"}},
	}
	for level, tt := range tests {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			options := DefaultLogOptions()
			require.NoError(t, options.verbosity.Set(level))
			var out bytes.Buffer
			logger := options.NewLogger(&out)
			logger.Info("Changed")
			logger.V(4).Info("How")
			logger.V(5).Info("How exactly")
			logger.Error(errors.New("cause"), "Broke")

			var got []string
			for line := range strings.Lines(out.String()) {
				var entry struct{ Msg string }
				require.NoError(t, json.Unmarshal([]byte(line), &entry))
				got = append(got, entry.Msg)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestNewLoggerShape(t *testing.T) {
	t.Parallel()
	line := func(t *testing.T, format string, verbosity int) string {
		t.Helper()
		options := DefaultLogOptions()
		options.verbosity = debugVerbosity
		require.NoError(t, options.format.Set(format))
		var out bytes.Buffer
		options.NewLogger(&out).WithName("builder").V(verbosity).
			Info("Started a build", "MachineOSBuild", klog.KRef("ns", "worker-1"), "level", "mine")
		return out.String()
	}

	t.Run("json is one object with the object's name and namespace", func(t *testing.T) {
		t.Parallel()
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line(t, "json", 5)), &entry))
		assert.NotEmpty(t, entry["time"])
		assert.Equal(t, "builder", entry["logger"])
		assert.Equal(t, map[string]any{"name": "worker-1", "namespace": "ns"}, entry["MachineOSBuild"])
	})
	t.Run("a verbosity reads as debug, and a value keeps its own level", func(t *testing.T) {
		t.Parallel()
		assert.Contains(t, line(t, "text", 5), `level=debug msg="Started a build"`)
		assert.Contains(t, line(t, "text", 0), `level=info msg="Started a build"`)
		assert.Contains(t, line(t, "text", 0), "level=mine")
	})
}
