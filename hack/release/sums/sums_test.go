package sums_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/hack/release/sums"
	"github.com/layerwright/layerwright/trust/sign/signtest"
)

// folder has two files and their checksums, signed if there is a pair.
func folder(t *testing.T, pair *signtest.Pair) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "below"), 0o755))
	write(t, dir, "one", "1")
	write(t, dir, "below/two", "2")
	list, err := sums.Of(dir)
	require.NoError(t, err)
	write(t, dir, sums.File, string(list))
	if pair != nil {
		signature, err := pair.Key.SignBlob(t.Context(), list)
		require.NoError(t, err)
		write(t, dir, sums.Signature, string(signature))
		write(t, dir, sums.Key, string(pair.Public))
	}
	return dir
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

func TestCheck(t *testing.T) {
	t.Parallel()
	ours, others := signtest.NewPair(), signtest.NewPair()
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); require.NoError(t, os.Remove(filepath.Join(dir, name))) }
	}
	put := func(name, content string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { t.Helper(); write(t, dir, name, content) }
	}
	tests := map[string]struct {
		signed  *signtest.Pair
		key     []byte
		change  func(*testing.T, string)
		wantErr string
		wantKey string
	}{
		"as it was made":                       {},
		"signed, by the key in it":             {signed: &ours, wantKey: ours.ID()},
		"signed, by the key that is given":     {signed: &ours, key: ours.Public, wantKey: ours.ID()},
		"by another key than the one given":    {signed: &ours, key: others.Public, wantErr: "nothing of the release can be trusted"},
		"not signed, though a key is given":    {key: ours.Public, wantErr: "the release is not signed"},
		"the signature was taken away":         {signed: &ours, change: remove(sums.Signature), wantErr: "SHA256SUMS.sig is missing"},
		"the key was taken away":               {signed: &ours, change: remove(sums.Key), wantErr: "reading the key that SHA256SUMS.sig is by"},
		"another key was put in":               {signed: &ours, change: put(sums.Key, string(others.Public)), wantErr: "is not signed with this key"},
		"the key is none":                      {signed: &ours, change: put(sums.Key, "key"), wantErr: "no public key in PEM"},
		"checksums were changed after signing": {signed: &ours, change: put(sums.File, "0  one\n"), wantErr: "is not signed with this key"},
		"no checksums":                         {change: remove(sums.File), wantErr: "SHA256SUMS is missing"},
		"checksums that are none":              {change: put(sums.File, "nothing\n"), wantErr: "SHA256SUMS is damaged"},
		"a file is missing":                    {change: remove("below/two"), wantErr: `"below/two" is missing`},
		"a file is damaged":                    {change: put("one", "2"), wantErr: `"one" is damaged`},
		"a file too many":                      {change: put("three", "3"), wantErr: `"three" is not part of the release`},
		"a list below hides nothing":           {change: put("below/SHA256SUMS", ""), wantErr: `"below/SHA256SUMS" is not part of the release`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, tt.signed)
			if tt.change != nil {
				tt.change(t, dir)
			}
			fingerprint, err := sums.Check(dir, tt.key)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.wantKey, fingerprint)
		})
	}
}

func TestAFolderWithItsOwnListIsInByThatList(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	require.NoError(t, os.Rename(folder(t, nil), filepath.Join(outer, "inner")))
	list, err := sums.Of(outer)
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9a-f]{64}  inner/SHA256SUMS\n$`, string(list))
}

func TestSha256sumReadsTheList(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sums.File)
	cmd.Dir = folder(t, nil)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}
