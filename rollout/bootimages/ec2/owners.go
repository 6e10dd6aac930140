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

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Credentials is the secret that OpenShift's Machine API makes machines with.
var Credentials = types.NamespacedName{Namespace: "openshift-machine-api", Name: "aws-cloud-credentials"}

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
	// endpoint of a region; tests have one of their own.
	endpoint func(region string) string
}

// New makes Owners that reads the credentials with a reader that has no cache.
func New(reader client.Reader, httpClient *http.Client) *Owners {
	return &Owners{reader: reader, http: httpClient, clock: clock.RealClock{}, endpoint: endpointOf}
}

// endpointOf is where EC2 is asked for a region. China has a domain of its own.
func endpointOf(region string) string {
	if strings.HasPrefix(region, "cn-") {
		return "https://ec2." + region + ".amazonaws.com.cn/"
	}
	return "https://ec2." + region + ".amazonaws.com/"
}

// OwnerOf is the account that an AMI in a region belongs to; empty where there are no keys to ask
// with, or EC2 knows no such AMI.
func (o *Owners) OwnerOf(ctx context.Context, region, image string) (string, error) {
	if !regionName.MatchString(region) {
		return "", nil
	}
	keys, err := o.credentials(ctx)
	if err != nil || keys == nil {
		return "", err
	}
	body := url.Values{"Action": {"DescribeImages"}, "Version": {version}, "ImageId.1": {image}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, o.endpoint(region), strings.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("asking EC2: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	sum := sha256.Sum256([]byte(body))
	if err := v4.NewSigner().SignHTTP(ctx, *keys, request, hex.EncodeToString(sum[:]), "ec2", region, o.clock.Now()); err != nil {
		return "", fmt.Errorf("signing a request to EC2: %w", err)
	}
	response, err := o.http.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking EC2: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the answer of EC2: %w", err)
	}
	return parse(response.StatusCode, answer)
}

// credentials are the keys of the secret; nil where there are none.
func (o *Owners) credentials(ctx context.Context) (*aws.Credentials, error) {
	var secret corev1.Secret
	err := o.reader.Get(ctx, Credentials, &secret)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %q: %w", Credentials, err)
	}
	id, key := string(secret.Data["aws_access_key_id"]), string(secret.Data["aws_secret_access_key"])
	if id == "" || key == "" {
		return nil, nil
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
