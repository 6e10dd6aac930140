//go:build e2e

package engine

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/test/cluster/registry"
)

// secretsOf are the forms that an account's password has in files and requests.
func secretsOf(account registry.Account) []string {
	return []string{account.Password, base64.StdEncoding.EncodeToString([]byte(account.Name + ":" + account.Password))}
}

func TestNoCredentialIsLeftBehind(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), "FROM os-base-image\nRUN echo hello > /etc/hello\n", nil)
	fetched := p.succeed(t, backend.Fetch)
	built := p.buildAndExport(t)
	p.login(t, pusher)
	pushed := p.succeed(t, backend.Push)
	require.NotEmpty(t, p.grep(t, "layerwright/result"), "the search finds what is there")
	for _, account := range []registry.Account{puller, pusher} {
		for _, secret := range secretsOf(account) {
			assert.Empty(t, p.grep(t, secret), "%s", account.Name)
			for _, e := range []ended{fetched, built, pushed} {
				assert.NotContains(t, e.output, secret)
				text, err := json.Marshal(e.report)
				require.NoError(t, err)
				assert.NotContains(t, string(text), secret)
			}
		}
	}
}

func TestTheOlderFormatOfSecrets(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM os-base-image\nRUN true\n", nil)
	p.write(t, "credentials/.dockerconfigjson", "")
	require.NoError(t, removeAll(p, "credentials"))
	p.write(t, "credentials/.dockercfg", `{"http://`+h.host+`/v1/":{"username":"`+puller.Name+`","password":"`+puller.Password+`"}}`)
	p.succeed(t, backend.Fetch)
}

func TestALoginGoesToItsOwnRegistryOnly(t *testing.T) {
	t.Parallel()
	own, mirror := newHub(t), newHub(t)
	p := newPod(t, own, "FROM os-base-image\nRUN true\n", nil)
	mirror.put(t, "os/base", tiny)
	seen := mirror.logins()
	p.write(t, "registries.conf", `[[registry]]
location = "`+own.host+`"
insecure = true
[[registry.mirror]]
location = "`+mirror.host+`"
insecure = true
`)
	own.pulls()
	p.succeed(t, backend.Fetch)
	assert.NotEmpty(t, own.pulls(), "the mirror gives nothing to someone without a login, so that the registry is asked")
	for _, login := range seen() {
		assert.Contains(t, []string{"", "Basic " + base64.StdEncoding.EncodeToString([]byte(":"))}, login, "a login that is not for the mirror")
	}
}

func TestAMirrorIsPulledFrom(t *testing.T) {
	t.Parallel()
	own, mirror := newHub(t), newHub(t)
	p := newPod(t, own, "FROM os-base-image\nRUN true\n", nil)
	mirror.put(t, "os/base", tiny)
	config, err := json.Marshal(map[string]any{"auths": map[string]any{
		mirror.host: map[string]string{"username": puller.Name, "password": puller.Password},
	}})
	require.NoError(t, err)
	p.write(t, "credentials/.dockerconfigjson", string(config))
	p.write(t, "registries.conf", `[[registry]]
location = "`+own.host+`"
[[registry.mirror]]
location = "`+mirror.host+`"
insecure = true
`)
	own.pulls()
	p.succeed(t, backend.Fetch)
	assert.Empty(t, own.pulls())
	assert.NotEmpty(t, mirror.pulls())
}

func TestShortNamesFollowRegistriesConf(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	p := newPod(t, h, "FROM tools/agent:1 AS agent\nFROM os-base-image\nCOPY --from=agent /etc/motd /etc/copied\n", nil)
	h.put(t, "tools/agent", tiny)
	h.tag(t, "tools/agent:latest", "1")
	p.instructions.Images[len(p.instructions.Images)-1] = backend.PinnedImage{Name: "tools/agent:1"}
	p.write(t, "registries.conf", "unqualified-search-registries = [\""+h.host+"\"]\n[[registry]]\nlocation = \""+h.host+"\"\ninsecure = true\n")
	p.buildAndPush(t)
}

func TestRunLinesFindNoCredential(t *testing.T) {
	t.Parallel()
	p := newPod(t, newHub(t), `FROM os-base-image
RUN cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\0' '\n' | grep -v LOOK-FOR | sort -u
RUN cat /proc/self/mountinfo; for p in /proc/[0-9]*; do ls -l $p/fd 2>/dev/null; done | grep -c memfd || true
`, nil)
	p.succeed(t, backend.Fetch)
	p.login(t, pusher)
	e := p.succeed(t, backend.Build)
	for _, account := range []registry.Account{puller, pusher} {
		for _, secret := range secretsOf(account) {
			assert.NotContains(t, e.output, secret)
		}
	}
	assert.NotContains(t, e.output, p.dir+"/credentials")
}
