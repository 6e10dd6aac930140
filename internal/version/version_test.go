package version

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	recorded := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}

	tests := map[string]struct {
		version, revision string
		build             *debug.BuildInfo
		wantVersion       string
		wantRevision      string
	}{
		"the linker wins over the Go tool": {
			version: "v1.2.3", revision: "feedbeef", build: recorded("v9.9.9", commit),
			wantVersion: "v1.2.3", wantRevision: "feedbeef",
		},
		"the Go tool fills what the linker left out": {
			version: "v1.2.3", build: recorded("v9.9.9", commit),
			wantVersion: "v1.2.3", wantRevision: "0123abcd",
		},
		"a module build has the module's version": {
			build:       recorded("v0.4.0"),
			wantVersion: "v0.4.0", wantRevision: "unknown",
		},
		"a changed checkout is marked": {
			build:       recorded("(devel)", commit, debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			wantVersion: "devel", wantRevision: "0123abcd-dirty",
		},
		"a clean checkout is not marked": {
			build:       recorded("(devel)", debug.BuildSetting{Key: "vcs.modified", Value: "false"}, commit),
			wantVersion: "devel", wantRevision: "0123abcd",
		},
		"changes without a commit say nothing": {
			build:       recorded("", debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			wantVersion: "devel", wantRevision: "unknown",
		},
		"a binary without build information is still described": {
			wantVersion: "devel", wantRevision: "unknown",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := describe(tt.version, tt.revision, tt.build)
			assert.Equal(t, Info{
				Version:   tt.wantVersion,
				Revision:  tt.wantRevision,
				GoVersion: runtime.Version(),
				Platform:  runtime.GOOS + "/" + runtime.GOARCH,
			}, got)
		})
	}
}

func TestCurrentIsNeverAnonymous(t *testing.T) {
	t.Parallel()
	got := Current()
	assert.NotEmpty(t, got.Version)
	assert.NotEmpty(t, got.Revision)
	assert.Equal(t, runtime.Version(), got.GoVersion)
}

func TestInfoKeepsItsFieldNames(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(Info{Version: "v1", Revision: "r", GoVersion: "go1", Platform: "linux/amd64"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"version":"v1","revision":"r","goVersion":"go1","platform":"linux/amd64"}`, string(got))
}
