package testjobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const plain = `apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
        - name: image
          image: $(IMAGE)
          command: ["true"]
`

func TestParse(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a Job":                       plain,
		"with comments and markers":   "# about it\n---\n" + plain + "---\n# nothing more\n",
		"as JSON":                     `{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":{"containers":[{"name":"image","image":"$(IMAGE)","command":["true"]}]}}}}`,
		"without line end at its end": plain[:len(plain)-1],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job, err := Parse(text)
			require.NoError(t, err)
			require.Len(t, job.Spec.Template.Spec.Containers, 1)
			assert.Equal(t, []string{"true"}, job.Spec.Template.Spec.Containers[0].Command)
		})
	}
}

func TestManifestsThatAreNone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                 {"", "the manifest is empty: write a Job of batch/v1"},
		"comments":                {"# later\n---\n", "the manifest is empty: write a Job of batch/v1"},
		"several documents":       {plain + "---\n" + plain, "the manifest has 2 documents: write one Job"},
		"another kind":            {"apiVersion: v1\nkind: Pod\n", "the manifest is of a Pod of v1: write a Job of batch/v1"},
		"another kind of batch":   {"apiVersion: batch/v1\nkind: CronJob\n", "the manifest is of a CronJob: write a Job"},
		"no kind":                 {"apiVersion: batch/v1\n", "the manifest has no apiVersion or no kind"},
		"no version":              {"kind: Job\n", "the manifest has no apiVersion or no kind"},
		"no YAML":                 {"apiVersion: batch/v1\nkind: Job\nspec: [\n  a:\n", "yaml: line 4: "},
		"nonsense":                {"this is no manifest", "reading the manifest: "},
		"a field that is unknown": {plain + "          imag: x\n", `unknown field "spec.template.spec.containers[0].imag"`},
		"a field that is there twice": {
			"apiVersion: batch/v1\nkind: Job\nspec:\n  backoffLimit: 1\n  backoffLimit: 2\n", `key "backoffLimit" already set in map`,
		},
		"a value of another type": {"apiVersion: batch/v1\nkind: Job\nspec:\n  backoffLimit: many\n", "backoffLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.text)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	hash := Hash(plain, time.Hour)
	assert.Len(t, hash, 16)
	assert.Equal(t, hash, Hash(plain, time.Hour))
	assert.NotEqual(t, hash, Hash(plain+"\n", time.Hour))
	assert.NotEqual(t, hash, Hash(plain, time.Minute), "a test that gets more time is run again")
}

func FuzzParse(f *testing.F) {
	f.Add(plain)
	f.Add(plain + "---\n" + plain)
	f.Fuzz(func(t *testing.T, text string) {
		job, err := Parse(text)
		require.Equal(t, err == nil, job != nil)
		if job != nil {
			_ = testRule().Check(job)
		}
	})
}
