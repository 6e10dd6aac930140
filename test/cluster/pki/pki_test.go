package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := New(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, s.EnsureAuthority("ca"))
	return s
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestKubeconfigAuthenticatesBothSides(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	require.NoError(t, s.EnsureLeaf("ca", Leaf{Name: "server", CommonName: "server", Hosts: []string{"127.0.0.1", "localhost"}}))
	require.NoError(t, s.EnsureLeaf("ca", Leaf{Name: "admin", CommonName: "admin", Organization: []string{"system:masters"}}))

	cert, err := tls.LoadX509KeyPair(s.Cert("server"), s.Key("server"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(read(t, s.Cert("ca")))))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = w.Write([]byte(subject.CommonName + "/" + subject.Organization[0]))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)

	require.NoError(t, s.WriteKubeconfig("admin", "ca", "test", server.URL))
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig("admin"))
	require.NoError(t, err)
	tlsConfig, err := tlsFor(config.CAData, config.CertData, config.KeyData)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	body := make([]byte, 64)
	n, _ := response.Body.Read(body)
	require.Equal(t, "admin/system:masters", string(body[:n]))
}

func tlsFor(ca, cert, key []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

func TestEnsureLeaf(t *testing.T) {
	t.Parallel()
	leaf := Leaf{Name: "node1", CommonName: "system:node:node1", Hosts: []string{"10.0.0.1", "node1"}}
	tests := map[string]struct {
		change func(t *testing.T, s *Store, leaf *Leaf)
		keeps  bool
	}{
		"keeps what fits": {
			change: func(*testing.T, *Store, *Leaf) {},
			keeps:  true,
		},
		"issues anew for another address": {
			change: func(_ *testing.T, _ *Store, leaf *Leaf) { leaf.Hosts = []string{"10.0.0.2", "node1"} },
		},
		"issues anew before it expires": {
			change: func(_ *testing.T, s *Store, _ *Leaf) {
				s.now = func() time.Time { return time.Now().Add(validity - renewBefore + time.Hour) }
			},
		},
		"issues anew under another authority": {
			change: func(t *testing.T, s *Store, _ *Leaf) {
				t.Helper()
				require.NoError(t, os.Remove(s.Key("ca")))
				require.NoError(t, s.EnsureAuthority("ca"))
			},
		},
		"issues anew when the file is damaged": {
			change: func(t *testing.T, s *Store, _ *Leaf) {
				t.Helper()
				require.NoError(t, os.WriteFile(s.Cert("node1"), []byte("half a certif"), 0o600))
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			leaf := leaf
			require.NoError(t, s.EnsureLeaf("ca", leaf))
			before := read(t, s.Cert("node1"))
			tc.change(t, s, &leaf)
			require.NoError(t, s.EnsureLeaf("ca", leaf))
			require.Equal(t, tc.keeps, before == read(t, s.Cert("node1")))
			_, err := s.load("node1")
			require.NoError(t, err, "what is stored must be a certificate and its key")
		})
	}
}

func TestKeyFileModes(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	require.NoError(t, s.EnsureKeyPair("sa"))
	for _, path := range []string{s.Key("ca"), s.Key("sa")} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, path)
	}
	before := read(t, s.Key("sa"))
	require.NoError(t, s.EnsureKeyPair("sa"))
	require.Equal(t, before, read(t, s.Key("sa")), "tokens signed earlier stay valid")
}
