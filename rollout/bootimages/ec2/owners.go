package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/layerwright/layerwright/internal/fault"
)

// Credentials is the secret that OpenShift's Machine API makes machines with.
var Credentials = types.NamespacedName{Namespace: "openshift-machine-api", Name: "aws-cloud-credentials"}

// reasonCredentials is why nothing can be asked until a person has corrected something.
const reasonCredentials = "NoCredentials"

// maxAnswer is how much of an answer is read.
const maxAnswer = 1 << 20

// version of the API that is spoken.
const version = "2016-11-15"

var regionName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// Owners asks whose images are.
type Owners struct {
	reader client.Reader
	http   *http.Client
	clock  clock.PassiveClock
	// endpoint of a service in a region; tests have one of their own.
	endpoint func(service, region string) string
	// tokenFile is TokenFile, but in tests.
	tokenFile string

	mu        sync.Mutex
	assumed   *aws.Credentials // keys of a role
	assumedOf role
}

// New makes Owners that reads the credentials with a reader that has no cache.
func New(reader client.Reader, httpClient *http.Client) *Owners {
	return &Owners{reader: reader, http: httpClient, clock: clock.RealClock{}, endpoint: endpointOf, tokenFile: TokenFile}
}

// endpointOf is where a service is asked for a region. China has a domain of its own.
func endpointOf(service, region string) string {
	host := "https://" + service + "." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	return host + "/"
}

// OwnerOf is the account that an AMI in a region belongs to; empty where EC2 knows no such AMI. An
// error is Terminal where the credentials can't be used until a person has corrected them.
func (o *Owners) OwnerOf(ctx context.Context, region, image string) (string, error) {
	if !regionName.MatchString(region) {
		return "", nil
	}
	keys, err := o.credentials(ctx, region)
	if err != nil {
		return "", err
	}
	status, answer, err := o.post(ctx, "ec2", region, url.Values{"Action": {"DescribeImages"}, "Version": {version}, "ImageId.1": {image}}, keys)
	if err != nil {
		return "", err
	}
	return parse(status, answer)
}

// post asks a service, signed where there are keys.
func (o *Owners) post(ctx context.Context, service, region string, question url.Values, keys *aws.Credentials) (status int, answer []byte, err error) {
	body := question.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint(service, region), strings.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("asking %s: %w", service, err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if keys != nil {
		sum := sha256.Sum256([]byte(body))
		if err := v4.NewSigner().SignHTTP(ctx, *keys, request, hex.EncodeToString(sum[:]), service, region, o.clock.Now()); err != nil {
			return 0, nil, fmt.Errorf("signing a request to %s: %w", service, err)
		}
	}
	response, err := o.http.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("asking %s: %w", service, err)
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return 0, nil, fmt.Errorf("reading the answer of %s: %w", service, err)
	}
	return response.StatusCode, answer, nil
}

// credentials are the keys of the secret, or those of its role.
func (o *Owners) credentials(ctx context.Context, region string) (*aws.Credentials, error) {
	var secret corev1.Secret
	err := o.reader.Get(ctx, Credentials, &secret)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q, with the credentials for EC2, cannot be read (%s)", Credentials, apierrors.ReasonForError(err)))
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %q: %w", Credentials, err)
	}
	if of := roleOf(&secret); of.arn != "" {
		return o.assume(ctx, of, region)
	}
	id, key := string(secret.Data["aws_access_key_id"]), string(secret.Data["aws_secret_access_key"])
	if id == "" || key == "" {
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q has neither aws_access_key_id and aws_secret_access_key nor role_arn", Credentials))
	}
	return &aws.Credentials{AccessKeyID: id, SecretAccessKey: key}, nil
}

// parse reads an answer of EC2.
func parse(status int, answer []byte) (string, error) {
	var is struct {
		Owners []string `xml:"imagesSet>item>imageOwnerId"`
		Codes  []string `xml:"Errors>Error>Code"`
	}
	err := xml.Unmarshal(answer, &is)
	switch {
	case err == nil && len(is.Codes) > 0 && strings.HasPrefix(is.Codes[0], "InvalidAMIID"):
		return "", nil
	case status != http.StatusOK:
		return "", fmt.Errorf("EC2 answers %d %s", status, strings.Join(is.Codes, " "))
	case err != nil:
		return "", fmt.Errorf("reading the answer of EC2: %w", err)
	case len(is.Owners) != 1:
		return "", nil
	}
	return is.Owners[0], nil
}
