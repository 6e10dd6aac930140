package main

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/internal/registry/mirrors"
	"github.com/layerwright/layerwright/internal/registry/registrytest"
	"github.com/layerwright/layerwright/internal/version"
	"github.com/layerwright/layerwright/pools"
)

// byIdentity signs without a key.
var byIdentity = keylessOptions{
	fulcioURL: "https://fulcio.example.com", rekorURL: "https://rekor.example.com", tokenFile: "/token", fulcioRoots: "/roots.pem",
	rekorKey: "/rekor.pub", identity: "builder@example.com", issuer: "https://issuer.example.com",
}

// identifying changes options that sign without a key.
func identifying(change func(*signingOptions)) func(*controllerOptions) {
	return func(o *controllerOptions) {
		o.leaderElect, o.signing = false, signingOptions{keyless: byIdentity}
		change(&o.signing)
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	tests := map[string]struct {
		change        func(*controllerOptions)
		env           map[string]string
		files         map[string]string
		wantNamespace string
		wantErr       string
	}{
		"the flag wins": {
			change:        func(o *controllerOptions) { o.leaderElectionNamespace = "from-flag" },
			env:           map[string]string{"POD_NAMESPACE": "from-env"},
			files:         map[string]string{namespaceFile: "from-file"},
			wantNamespace: "from-flag",
		},
		"then the environment": {
			env:           map[string]string{"POD_NAMESPACE": "from-env"},
			files:         map[string]string{namespaceFile: "from-file"},
			wantNamespace: "from-env",
		},
		"then the pod's own file": {
			files:         map[string]string{namespaceFile: "from-file\n"},
			wantNamespace: "from-file",
		},
		"outside a pod it must be said": {
			wantErr: "--leader-election-namespace is needed outside a pod",
		},
		"an empty file is no namespace": {
			files:   map[string]string{namespaceFile: "\n"},
			wantErr: "--leader-election-namespace is needed outside a pod",
		},
		"a file that cannot be read is reported": {
			files:   map[string]string{namespaceFile: unreadable},
			wantErr: "reading the pod's namespace: permission denied",
		},
		"without leader election none is needed": {
			change: func(o *controllerOptions) { o.leaderElect = false },
		},
		"servers can be off": {
			change: func(o *controllerOptions) {
				o.leaderElect = false
				o.metricsBindAddress, o.healthProbeBindAddress = "0", "0"
				o.metricsCertDir = "/not/needed/then"
			},
		},
		"an address may name host and port": {
			change: func(o *controllerOptions) {
				o.leaderElect = false
				o.metricsBindAddress, o.healthProbeBindAddress = "[::1]:8443", "127.0.0.1:0"
			},
		},
		"an address needs a port": {
			change:  func(o *controllerOptions) { o.metricsBindAddress = "localhost:" },
			wantErr: `--metrics-bind-address "localhost:": must be host:port, :port, or 0 to turn it off`,
		},
		"a certificate directory holds both files": {
			change: func(o *controllerOptions) { o.leaderElect, o.metricsCertDir = false, "/certs" },
			files:  map[string]string{"/certs/tls.crt": "c", "/certs/tls.key": "k"},
		},
		"one key signs": {
			change: func(o *controllerOptions) {
				o.leaderElect, o.signing = false, signingOptions{secret: "key", kmsKey: "awskms:///alias/os"}
			},
			wantErr: "--signing-secret and --signing-kms-key: images are signed with one key",
		},
		"a builder is called by a URI": {
			change:  func(o *controllerOptions) { o.leaderElect, o.signing = false, signingOptions{builderID: "layerwright"} },
			wantErr: `--builder-id: "layerwright" is no URI with a scheme`,
		},
		"a key that is generated is kept in a secret": {
			change:  func(o *controllerOptions) { o.leaderElect, o.signing = false, signingOptions{generate: true} },
			wantErr: "--generate-signing-key: it needs --signing-secret",
		},
		"keys beside that of a service take one of a service": {
			change: func(o *controllerOptions) {
				o.leaderElect, o.signing = false, signingOptions{secret: "key", trustedKeys: "trusted.pub"}
			},
			wantErr: "--signing-trusted-keys: it needs --signing-kms-key",
		},
		"what nodes insist on is signed": {
			change:  func(o *controllerOptions) { o.leaderElect, o.signing = false, signingOptions{enforce: true} },
			wantErr: "--enforce-signatures: it needs a key",
		},
		"a key signs or an identity": {
			change: func(o *controllerOptions) {
				o.leaderElect, o.signing = false, signingOptions{kmsKey: "awskms:///alias/os", keyless: byIdentity}
			},
			wantErr: "name one of --signing-secret, --signing-kms-key and --signing-fulcio-url",
		},
		"a key of a service has a URI": {
			change:  func(o *controllerOptions) { o.leaderElect, o.signing = false, signingOptions{kmsKey: "alias/os"} },
			wantErr: `--signing-kms-key: "alias/os" is no URI of a key, such as awskms:///alias/os`,
		},
		"an identity is all of its flags": {
			change:  identifying(func(o *signingOptions) { o.keyless.rekorKey = "" }),
			wantErr: "--signing-rekor-key: signing without a key needs it",
		},
		"Fulcio is a web service": {
			change:  identifying(func(o *signingOptions) { o.keyless.fulcioURL = "fulcio.example.com" }),
			wantErr: `--signing-fulcio-url: "fulcio.example.com" is no URL`,
		},
		"Fulcio is sent a token, which takes encryption": {
			change:  identifying(func(o *signingOptions) { o.keyless.fulcioURL = "http://fulcio.sigstore.svc" }),
			wantErr: `--signing-fulcio-url: "http://fulcio.sigstore.svc" has no encryption`,
		},
		"and so does Rekor": {
			change:  identifying(func(o *signingOptions) { o.keyless.rekorURL = "http://localhost.example.com:3000" }),
			wantErr: `--signing-rekor-url: "http://localhost.example.com:3000" has no encryption`,
		},
		"what is on this host needs none": {
			change: identifying(func(o *signingOptions) {
				o.keyless.fulcioURL, o.keyless.rekorURL = "http://localhost:5555", "http://[::1]:3000"
			}),
		},
		"nodes know email addresses alone": {
			change: identifying(func(o *signingOptions) {
				o.enforce, o.keyless.identity = true, "https://kubernetes.io/namespaces/layerwright/serviceaccounts/layerwright-controller"
			}),
			wantErr: "--enforce-signatures: nodes verify only email addresses",
		},
		"images can be signed without a key, and nodes insist on it": {
			change: identifying(func(o *signingOptions) { o.enforce = true }),
		},
		"images can be signed": {
			change: func(o *controllerOptions) {
				o.leaderElect, o.signing = false, signingOptions{secret: "key", generate: true}
			},
		},
		"a trust policy needs no key": {
			change: func(o *controllerOptions) { o.leaderElect, o.signing = false, signingOptions{trustPolicy: "trust"} },
		},
		"a trust policy is one ConfigMap": {
			change: func(o *controllerOptions) {
				o.leaderElect, o.signing = false, signingOptions{trustPolicy: "other/trust"}
			},
			wantErr: `--trust-policy "other/trust": it has to be the name of a ConfigMap in the namespace of --namespace`,
		},
		"a certificate without key is refused": {
			change:  func(o *controllerOptions) { o.leaderElect, o.metricsCertDir = false, "/certs" },
			files:   map[string]string{"/certs/tls.crt": "c"},
			wantErr: "--metrics-cert-dir: file does not exist",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := defaultControllerOptions()
			if tt.change != nil {
				tt.change(options)
			}
			err := options.complete(func(key string) string { return tt.env[key] }, fileReader(tt.files))
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.wantNamespace, options.leaderElectionNamespace)
		})
	}
}

const unreadable = "unreadable"

func fileReader(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		content, ok := files[name]
		switch {
		case !ok:
			return nil, fs.ErrNotExist
		case content == unreadable:
			return nil, fs.ErrPermission
		default:
			return []byte(content), nil
		}
	}
}

func TestRestConfigReadsTheGivenFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, file, "https://cluster.example.test:6443")
	got, err := restConfig(file)
	require.NoError(t, err)
	assert.Equal(t, "https://cluster.example.test:6443", got.Host)
	assert.InDelta(t, -1, got.QPS, 0, "no limit of our own")

	require.NoError(t, os.WriteFile(file, []byte("{broken"), 0o600))
	_, err = restConfig(file)
	require.ErrorContains(t, err, "--kubeconfig: ")
}

func TestPoolOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flag, env, want string
	}{
		"the flag":        {flag: "4.20", env: "4.19", want: "4.20"},
		"the environment": {env: "4.19", want: "4.19"},
		"none":            {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := defaultControllerOptions()
			options.leaderElect, options.releaseVersion, options.renderedConfigLimit = false, tt.flag, 3
			require.NoError(t, options.complete(func(key string) string { return map[string]string{"RELEASE_VERSION": tt.env}[key] }, fileReader(nil)))
			got := options.pools()
			assert.NotNil(t, got.Check, "signature policies are kept")
			got.Check = nil // functions can't be compared
			assert.Equal(t, pools.Options{
				RenderedConfigLimit: 3, ControllerVersion: version.Current().Version, ReleaseVersion: tt.want, Settle: time.Second,
			}, got)
		})
	}
}

func TestBuildsTrustTheControllersCAs(t *testing.T) {
	t.Parallel()
	read := func(file string) ([]byte, error) {
		if file == "/ca.crt" {
			return []byte("authority"), nil
		}
		return nil, fs.ErrNotExist
	}
	for name, test := range map[string]struct{ file, bundle, problem string }{
		"nothing said": {},
		"a file":       {file: "/ca.crt", bundle: "authority"},
		"none there":   {file: "/gone", problem: "$SSL_CERT_FILE: file does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bundle, err := trustBundle(func(string) string { return test.file }, read)
			if test.problem != "" {
				require.EqualError(t, err, test.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.bundle, string(bundle))
		})
	}
}

func TestBuildsUseTheControllersProxies(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"HTTPS_PROXY": "http://upper", "https_proxy": "http://lower", "no_proxy": "cluster.local"}
	assert.Equal(t, map[string]string{"HTTPS_PROXY": "http://upper", "NO_PROXY": "cluster.local"},
		proxy(func(name string) string { return environment[name] }))
}

// TestStreamsWithoutAPullSecret says which flag would name one.
func TestStreamsWithoutAPullSecret(t *testing.T) {
	t.Parallel()
	server := registrytest.New(t, nil)
	server.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	options := defaultControllerOptions()
	options.namespace, options.plainHTTPRegistries = "layerwright", []string{server.Host}
	_, err := options.streams().Connect(nil, mirrors.Table{}).Resolve(t.Context(), server.Host+"/release:1")
	require.ErrorContains(t, err, `no secret with credentials for "`+server.Host+`" is named: name one in --stream-pull-secret (there is no secret "layerwright/global-pull-secret-copy")`)
}
