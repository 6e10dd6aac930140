package ec2

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/layerwright/layerwright/internal/fault"
)

// amazon stands for two of its services, and counts what each is asked.
type amazon struct {
	asked   map[string]int
	refuses bool
	expires time.Time
}

func (a *amazon) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	action := r.PostForm.Get("Action")
	a.asked[action]++
	switch {
	case action == "DescribeImages" && r.Header.Get("X-Amz-Security-Token") == "a session":
		_, _ = w.Write([]byte(`<DescribeImagesResponse><imagesSet><item><imageOwnerId>531415883065</imageOwnerId></item></imagesSet></DescribeImagesResponse>`))
	case a.refuses || r.PostForm.Get("WebIdentityToken") != "hunter2":
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code></Error></ErrorResponse>`))
	default:
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>k</SecretAccessKey><SessionToken>a session</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, a.expires.Format(time.RFC3339))
	}
}

var t0 = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)

// withRole is a cluster whose Machine API has a role, and an Amazon that gives keys for it.
func withRole(t *testing.T, secretOf func(file string) map[string][]byte) (*Owners, *amazon, *clocktesting.FakePassiveClock) {
	t.Helper()
	is := &amazon{asked: map[string]int{}, expires: t0.Add(time.Hour)}
	server := httptest.NewServer(is)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("hunter2\n"), 0o600))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: Credentials.Namespace, Name: Credentials.Name}, Data: secretOf(file)}
	o := New(fake.NewClientBuilder().WithObjects(secret).Build(), server.Client())
	o.endpoint = func(string, string) string { return server.URL }
	at := clocktesting.NewFakePassiveClock(t0)
	o.clock, o.tokenFile = at, file
	return o, is, at
}

// byFile is a secret as OpenShift's tool for STS writes it.
func byFile(file string) map[string][]byte {
	return map[string][]byte{"credentials": []byte("[default]\nsts_regional_endpoints = regional\nrole_arn = arn:aws:iam::1:role/lab\nweb_identity_token_file = " + file + "\n")}
}

func TestARoleIsAssumedAndKept(t *testing.T) {
	t.Parallel()
	for name, secretOf := range map[string]func(file string) map[string][]byte{
		"a configuration file of AWS": byFile,
		"keys of their own": func(file string) map[string][]byte {
			return map[string][]byte{"role_arn": []byte("arn:aws:iam::1:role/lab"), "web_identity_token_file": []byte(file)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, is, at := withRole(t, secretOf)
			for range 2 {
				owner, err := o.OwnerOf(t.Context(), "us-east-1", "ami-1")
				require.NoError(t, err)
				assert.Equal(t, "531415883065", owner)
			}
			assert.Equal(t, map[string]int{"AssumeRoleWithWebIdentity": 1, "DescribeImages": 2}, is.asked)
			at.SetTime(is.expires.Add(-renewBefore))
			_, err := o.OwnerOf(t.Context(), "us-east-1", "ami-1")
			require.NoError(t, err)
			assert.Equal(t, 2, is.asked["AssumeRoleWithWebIdentity"], "they are about to end")
		})
	}
}

func TestWhatKeepsFromARoleIsNamed(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file   string // empty is that of the controller
		change func(*testing.T, *Owners, *amazon)
		want   string
	}{
		"AWS does not trust the ServiceAccount": {
			"", func(_ *testing.T, _ *Owners, is *amazon) { is.refuses = true },
			`AWS refuses role "arn:aws:iam::1:role/lab" (AccessDenied); add ServiceAccount layerwright-controller of the controller's namespace to the role's trust policy`,
		},
		"the token is not mounted": {"", func(t *testing.T, o *Owners, _ *amazon) {
			t.Helper()
			require.NoError(t, os.Remove(o.tokenFile))
		}, `names role "arn:aws:iam::1:role/lab", and the controller has no token`},
		"a file of the writer's choice": {"/var/run/secrets/kubernetes.io/serviceaccount/token", func(*testing.T, *Owners, *amazon) {}, "and the controller uses"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, is, _ := withRole(t, func(file string) map[string][]byte { return byFile(cmp.Or(tt.file, file)) })
			tt.change(t, o, is)
			_, err := o.OwnerOf(t.Context(), "us-east-1", "ami-1")
			require.ErrorContains(t, err, tt.want)
			assert.True(t, fault.IsTerminal(err), "who asks goes on without an answer")
			assert.NotContains(t, err.Error(), "hunter2")
			assert.Zero(t, is.asked["DescribeImages"])
		})
	}
}
