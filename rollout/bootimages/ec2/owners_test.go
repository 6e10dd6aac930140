package ec2

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestOwnerOf(t *testing.T) {
	t.Parallel()
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: Credentials.Namespace, Name: Credentials.Name},
		Data:       map[string][]byte{"aws_access_key_id": []byte("AKIDEXAMPLE"), "aws_secret_access_key": []byte("hunter2")},
	}
	empty := keys.DeepCopy()
	empty.Data = nil
	const found = `<DescribeImagesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><imagesSet><item><imageId>ami-1</imageId>` +
		`<imageOwnerId>531415883065</imageOwnerId></item></imagesSet></DescribeImagesResponse>`
	for name, tt := range map[string]struct {
		secret *corev1.Secret
		status int
		answer string
		want   string
		err    string
	}{
		"an image of Red Hat":      {keys, http.StatusOK, found, "531415883065", ""},
		"an image that is gone":    {keys, http.StatusOK, `<DescribeImagesResponse><imagesSet/></DescribeImagesResponse>`, "", ""},
		"an image that never was":  {keys, http.StatusBadRequest, `<Response><Errors><Error><Code>InvalidAMIID.NotFound</Code></Error></Errors></Response>`, "", ""},
		"keys that are refused":    {keys, http.StatusUnauthorized, `<Response><Errors><Error><Code>AuthFailure</Code></Error></Errors></Response>`, "", "EC2 answers 401 AuthFailure"},
		"an answer that is no XML": {keys, http.StatusOK, "<", "", "reading the answer of EC2"},
		"no keys":                  {empty, 0, "", "", `secret "openshift-machine-api/aws-cloud-credentials" has neither aws_access_key_id and aws_secret_access_key nor role_arn`},
		"no secret":                {nil, 0, "", "", `secret "openshift-machine-api/aws-cloud-credentials", with the credentials for EC2, cannot be read (NotFound)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				assert.NoError(t, r.ParseForm())
				assert.Equal(t, "DescribeImages", r.PostForm.Get("Action"))
				assert.Equal(t, "ami-1", r.PostForm.Get("ImageId.1"))
				assert.Contains(t, r.Header.Get("Authorization"), "/us-east-1/ec2/aws4_request")
				w.WriteHeader(tt.status)
				_, _ = w.Write([]byte(tt.answer))
			}))
			defer server.Close()
			var objects []client.Object
			if tt.secret != nil {
				objects = append(objects, tt.secret.DeepCopy())
			}
			o := New(fake.NewClientBuilder().WithObjects(objects...).Build(), server.Client())
			o.endpoint = func(string, string) string { return server.URL }
			got, err := o.OwnerOf(t.Context(), "us-east-1", "ami-1")
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				assert.NotContains(t, err.Error(), "hunter2")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.status != 0, asked == 1)
		})
	}
	assert.Equal(t, "https://ec2.eu-west-1.amazonaws.com/", endpointOf("ec2", "eu-west-1"))
	assert.Equal(t, "https://sts.cn-north-1.amazonaws.com.cn/", endpointOf("sts", "cn-north-1"))
	got, err := New(nil, nil).OwnerOf(t.Context(), "evil.example.com/", "ami-1")
	require.NoError(t, err)
	assert.Empty(t, got, "no one is asked at a place that a specification makes up")
}
