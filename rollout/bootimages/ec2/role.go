package ec2

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	corev1 "k8s.io/api/core/v1"

	"github.com/layerwright/layerwright/internal/fault"
)

// TokenFile is the token of this controller's ServiceAccount for AWS, by the name that OpenShift
// writes into all secrets with roles. No other file is ever sent.
const TokenFile = "/var/run/secrets/openshift/serviceaccount/token" //nolint:gosec // a path

// stsVersion of the API of the Security Token Service that is spoken.
const stsVersion = "2011-06-15"

// renewBefore is how long before their end keys of a role are not used any more.
const renewBefore = 5 * time.Minute

// role is what a secret of OpenShift's manual mode with STS has in place of keys.
type role struct{ arn, tokenFile string }

// roleOf reads the role of a secret, from keys of its own or from the AWS configuration file in it.
func roleOf(secret *corev1.Secret) role {
	of := role{string(secret.Data["role_arn"]), string(secret.Data["web_identity_token_file"])}
	for line := range strings.Lines(string(secret.Data["credentials"])) {
		switch key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) {
		case "role_arn":
			of.arn = strings.TrimSpace(value)
		case "web_identity_token_file":
			of.tokenFile = strings.TrimSpace(value)
		}
	}
	return of
}

// assume gets keys for a role with the token of this controller's ServiceAccount. They are kept
// until shortly before they end.
func (o *Owners) assume(ctx context.Context, of role, region string) (*aws.Credentials, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.assumed != nil && o.assumedOf == of && o.clock.Now().Add(renewBefore).Before(o.assumed.Expires) {
		return o.assumed, nil
	}
	if of.tokenFile != o.tokenFile {
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q names token file %q, and the controller uses %q only", Credentials, of.tokenFile, o.tokenFile))
	}
	token, err := os.ReadFile(o.tokenFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf("secret %q names role %q, and the controller has no token %q; mount it, as deploy/overlays/openshift does",
			Credentials, of.arn, o.tokenFile))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the token for AWS: %w", err)
	}
	status, answer, err := o.post(ctx, "sts", region, url.Values{
		"Action": {"AssumeRoleWithWebIdentity"}, "Version": {stsVersion}, "RoleArn": {of.arn}, "RoleSessionName": {"layerwright"},
		"WebIdentityToken": {strings.TrimSpace(string(token))},
	}, nil)
	if err != nil {
		return nil, err
	}
	keys, err := parseKeys(status, answer, of.arn)
	if err != nil {
		return nil, err
	}
	o.assumed, o.assumedOf = keys, of
	return keys, nil
}

// parseKeys reads an answer of the Security Token Service.
func parseKeys(status int, answer []byte, arn string) (*aws.Credentials, error) {
	var is struct {
		ID      string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>AccessKeyId"`
		Key     string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SecretAccessKey"`
		Session string    `xml:"AssumeRoleWithWebIdentityResult>Credentials>SessionToken"`
		Expires time.Time `xml:"AssumeRoleWithWebIdentityResult>Credentials>Expiration"`
		Code    string    `xml:"Error>Code"`
	}
	err := xml.Unmarshal(answer, &is)
	switch {
	case status == http.StatusForbidden || status == http.StatusBadRequest:
		return nil, fault.NewTerminal(reasonCredentials, fmt.Errorf(
			"AWS refuses role %q (%s); add ServiceAccount layerwright-controller of the controller's namespace to the role's trust policy", arn, is.Code))
	case status != http.StatusOK:
		return nil, fmt.Errorf("the Security Token Service answers %d %s", status, is.Code)
	case err != nil || is.ID == "" || is.Key == "" || is.Session == "":
		return nil, errors.New("the answer of the Security Token Service has no keys")
	}
	return &aws.Credentials{AccessKeyID: is.ID, SecretAccessKey: is.Key, SessionToken: is.Session, CanExpire: true, Expires: is.Expires}, nil
}
