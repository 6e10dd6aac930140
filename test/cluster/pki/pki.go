package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/layerwright/layerwright/test/cluster/files"
)

const (
	validity = 365 * 24 * time.Hour
	// renewBefore is how much validity a certificate must have left to be kept.
	renewBefore = 30 * 24 * time.Hour
	backdate    = time.Hour
)

// Store is a folder of certificates and keys. Files are <name>.crt, <name>.key
// and <name>.kubeconfig.
type Store struct {
	dir string
	now func() time.Time
}

// New returns the Store in dir, which is created if absent.
func New(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Store{dir: dir, now: time.Now}, nil
}

// Cert is the path of a certificate in PEM form.
func (s *Store) Cert(name string) string { return filepath.Join(s.dir, name+".crt") }

// Key is the path of a private key in PEM form.
func (s *Store) Key(name string) string { return filepath.Join(s.dir, name+".key") }

// PublicKey is the path of a public key in PEM form.
func (s *Store) PublicKey(name string) string { return filepath.Join(s.dir, name+".pub") }

// Kubeconfig is the path of a kubeconfig file.
func (s *Store) Kubeconfig(name string) string { return filepath.Join(s.dir, name+".kubeconfig") }

// Leaf describes a certificate that an authority issues.
type Leaf struct {
	// Name of its files.
	Name string
	// CommonName and Organization are user and group where the certificate
	// authenticates a client to the API server.
	CommonName   string
	Organization []string
	// Hosts are the names and addresses it serves under; none for clients.
	Hosts []string
}

// EnsureAuthority makes a self-signed authority.
func (s *Store) EnsureAuthority(name string) error {
	template := s.template(pkix.Name{CommonName: "layerwright test " + name})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if current, err := s.load(name); err == nil && s.fits(current, template, current.cert) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return s.sign(name, template, key, template, key)
}

// EnsureLeaf makes a certificate signed by an authority of the same Store.
func (s *Store) EnsureLeaf(authority string, leaf Leaf) error {
	issuer, err := s.load(authority)
	if err != nil {
		return fmt.Errorf("loading authority %s: %w", authority, err)
	}
	template := s.template(pkix.Name{CommonName: leaf.CommonName, Organization: leaf.Organization})
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if current, err := s.load(leaf.Name); err == nil && s.fits(current, template, issuer.cert) {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	return s.sign(leaf.Name, template, key, issuer.cert, issuer.key)
}

// EnsureKeyPair makes a key without a certificate, as for service account
// tokens.
func (s *Store) EnsureKeyPair(name string) error {
	if _, err := readPEM(s.PublicKey(name)); err == nil {
		return nil
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := s.writeKey(name, key); err != nil {
		return err
	}
	return writePEM(s.PublicKey(name), "PUBLIC KEY", public)
}

// WriteKubeconfig writes a kubeconfig that authenticates with the named leaf.
// Everything is embedded, so that the file can be copied elsewhere.
func (s *Store) WriteKubeconfig(leaf, authority, cluster, server string) error {
	ca, err := os.ReadFile(s.Cert(authority))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(s.Cert(leaf))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(s.Key(leaf))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[leaf] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: leaf}
	config.CurrentContext = cluster
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return files.Write(s.Kubeconfig(leaf), text, 0o600)
}

func (s *Store) template(subject pkix.Name) *x509.Certificate {
	now := s.now()
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-backdate), NotAfter: now.Add(validity)}
}

// fits reports whether a stored certificate says what the template wants, was
// issued by the issuer and is valid for long enough.
func (s *Store) fits(current *pair, want, issuer *x509.Certificate) bool {
	c := current.cert
	return c.CheckSignatureFrom(issuer) == nil &&
		c.NotAfter.After(s.now().Add(renewBefore)) &&
		c.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(c.Subject.Organization, want.Subject.Organization) &&
		slices.Equal(c.DNSNames, want.DNSNames) &&
		slices.EqualFunc(c.IPAddresses, want.IPAddresses, net.IP.Equal)
}

func (s *Store) sign(name string, template *x509.Certificate, key crypto.Signer, issuer *x509.Certificate, issuerKey crypto.Signer) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return fmt.Errorf("signing certificate %s: %w", name, err)
	}
	if err := s.writeKey(name, key); err != nil {
		return err
	}
	return writePEM(s.Cert(name), "CERTIFICATE", der)
}

func (s *Store) writeKey(name string, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(s.Key(name), "PRIVATE KEY", der)
}

// pair is a certificate and its key.
type pair struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (s *Store) load(name string) (*pair, error) {
	certDER, err := readPEM(s.Cert(name))
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, err
	}
	keyDER, err := readPEM(s.Key(name))
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyDER)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("key %s does not belong to its certificate", name)
	}
	return &pair{cert: cert, key: signer}, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("reading %s: no PEM block", path)
	}
	return block.Bytes, nil
}

func writePEM(path, kind string, der []byte) error {
	return files.Write(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
