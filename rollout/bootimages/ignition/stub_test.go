package ignition

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stub2 is a stub of specification 2 as installers wrote it, with what an administrator added.
const stub2 = `{"ignition":{"config":{"append":[{"source":"https://api-int.lab.example.com:22623/config/worker","verification":{}}]},
	"security":{"tls":{"certificateAuthorities":[{"source":"data:text/plain;charset=utf-8;base64,LS0tQ0EtLS0=","verification":{}}]}},
	"timeouts":{},"version":"2.2.0"},"networkd":{},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA admin"]}]},
	"storage":{"files":[{"filesystem":"root","path":"/etc/mine","mode":420,"contents":{"source":"data:,hello","verification":{}}}]},
	"systemd":{"units":[{"name":"mine.service","enabled":true,"contents":"[Unit]\n[Install]\nWantedBy=multi-user.target\n"}]}}`

func TestAStubIsTranslatedWithAllThatWasAdded(t *testing.T) {
	t.Parallel()
	got, err := Translate([]byte(stub2))
	require.NoError(t, err)
	require.Equal(t, "3.1.0", got.Version)
	var is struct {
		Ignition struct {
			Version  string
			Config   struct{ Merge []struct{ Source string } }
			Security struct {
				TLS struct{ CertificateAuthorities []struct{ Source string } }
			}
		}
		Passwd struct {
			Users []struct{ SSHAuthorizedKeys []string }
		}
		Storage struct {
			Files []struct {
				Path     string
				Mode     int
				Contents struct{ Source string }
			}
		}
		Systemd struct {
			Units []struct{ Name, Contents string }
		}
	}
	require.NoError(t, json.Unmarshal(got.Translated, &is))
	assert.Equal(t, "3.1.0", is.Ignition.Version)
	assert.Equal(t, "https://api-int.lab.example.com:22623/config/worker", is.Ignition.Config.Merge[0].Source)
	assert.Equal(t, "data:text/plain;charset=utf-8;base64,LS0tQ0EtLS0=", is.Ignition.Security.TLS.CertificateAuthorities[0].Source)
	assert.Equal(t, "ssh-ed25519 AAAA admin", is.Passwd.Users[0].SSHAuthorizedKeys[0])
	assert.Equal(t, "/etc/mine", is.Storage.Files[0].Path)
	assert.Equal(t, 0o644, is.Storage.Files[0].Mode)
	assert.Equal(t, "data:,hello", is.Storage.Files[0].Contents.Source)
	assert.Equal(t, "mine.service", is.Systemd.Units[0].Name)

	again, err := Translate(got.Translated)
	require.NoError(t, err)
	assert.Equal(t, Stub{Version: "3.1.0"}, again, "once is enough")
}

func FuzzTranslate(f *testing.F) {
	f.Add([]byte(stub2))
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := Translate(content)
		if err != nil || got.Translated == nil {
			return
		}
		again, err := Translate(got.Translated)
		require.NoError(t, err)
		require.Equal(t, Stub{Version: got.Version}, again)
	})
}

func TestStubsThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ content, want string }{
		"no JSON":                  {"#cloud-config\npassword: hunter2", "it is not JSON"},
		"nothing":                  {"", "it is not JSON"},
		"no version":               {`{"ignition":{}}`, "it does not say which specification of Ignition it is in"},
		"an unknown version":       {`{"ignition":{"version":"4.0.0"}}`, `specification "4.0.0" of Ignition is unknown`},
		"an invalid stub":          {`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"relative","filesystem":"root"}]}}`, "it is not valid in specification 2.2.0 of Ignition"},
		"another filesystem":       {`{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"var","path":"/var"}],"files":[{"path":"/x","filesystem":"var"}]}}`, `$.storage.files.0 is on another filesystem than "root"`},
		"a password for a version": {`{"ignition":{"version":"2.hunter2"}}`, "what it says is no specification of Ignition"},
		"a URL that is none": {
			`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/x","filesystem":"root","contents":{"source":"data:,hunter2%zz"}}]}}`,
			"it is not valid in specification 2.2.0 of Ignition",
		},
		"a file that is there twice": {
			`{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/hunter2","filesystem":"root"}],"directories":[{"path":"/hunter2","filesystem":"root"}]}}`,
			"it cannot be translated from specification 2.2.0 of Ignition to 3.1.0",
		},
		"a user that is there twice": {
			`{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"hunter2"},{"name":"hunter2"}]}}`,
			"it cannot be translated from specification 2.2.0 of Ignition to 3.1.0",
		},
		"units of networkd":    {`{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network","contents":"[Match]\nName=x"}]}}`, "it cannot be translated from specification 2.2.0 of Ignition to 3.1.0: it has units of networkd"},
		"a type that is wrong": {`{"ignition":{"version":"2.2.0"},"passwd":"hunter2"}`, "it is not valid in specification 2.2.0 of Ignition"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Translate([]byte(tt.content))
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "hunter2", "it may be secret")
		})
	}
}
