package registry

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/api/errcode"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage that handlers looks up by name
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/sirupsen/logrus"
)

// Account may use the registry.
type Account struct {
	Name     string `json:"name"`
	Password string `json:"password"`
	// Push allows it to change the registry's content, not only to read it.
	Push bool `json:"push"`
}

// Login logs the account in.
func (a Account) Login() authn.Authenticator {
	return &authn.Basic{Username: a.Name, Password: a.Password}
}

// Resolve makes it a keychain that logs in everywhere.
func (a Account) Resolve(authn.Resource) (authn.Authenticator, error) { return a.Login(), nil }

// DockerConfig returns the docker configuration file, as it goes into a
// kubernetes.io/dockerconfigjson Secret, that logs the account in at host.
func (a Account) DockerConfig(host string) ([]byte, error) {
	type auth struct {
		Auth string `json:"auth"`
	}
	token := base64.StdEncoding.EncodeToString([]byte(a.Name + ":" + a.Password))
	return json.Marshal(map[string]map[string]auth{"auths": {host: {Auth: token}}})
}

// Options say what to serve.
type Options struct {
	// Dir holds the content.
	Dir string
	// Accounts that may log in; anonymous access is always refused.
	Accounts []Account
}

// New returns the handler of a registry.
func New(ctx context.Context, options Options) http.Handler {
	config := &configuration.Configuration{
		Version: configuration.MajorMinorVersion(0, 1),
		Storage: configuration.Storage{
			"filesystem": configuration.Parameters{"rootdirectory": options.Dir},
			"delete":     configuration.Parameters{"enabled": true},
			"maintenance": configuration.Parameters{
				"uploadpurging": map[any]any{"enabled": false},
			},
		},
	}
	config.Log.AccessLog.Disabled = true
	config.Log.Level = "warn"
	config.Catalog.MaxEntries = 1000
	logrus.SetLevel(logrus.WarnLevel)
	return authenticate(options.Accounts, handlers.NewApp(ctx, config))
}

// authenticate admits known accounts and keeps those without Push from
// changing anything.
func authenticate(accounts []Account, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := login(accounts, r)
		switch {
		case account == nil:
			w.Header().Set("WWW-Authenticate", `Basic realm="layerwright test registry"`)
			_ = errcode.ServeJSON(w, errcode.ErrorCodeUnauthorized)
		case !account.Push && r.Method != http.MethodGet && r.Method != http.MethodHead:
			_ = errcode.ServeJSON(w, errcode.ErrorCodeDenied.WithMessage("account "+account.Name+" may pull but not push"))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func login(accounts []Account, r *http.Request) *Account {
	name, password, _ := r.BasicAuth()
	for i, account := range accounts {
		if subtle.ConstantTimeCompare([]byte(name), []byte(account.Name)) == 1 &&
			subtle.ConstantTimeCompare([]byte(password), []byte(account.Password)) == 1 {
			return &accounts[i]
		}
	}
	return nil
}
