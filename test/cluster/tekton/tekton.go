package tekton

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/layerwright/layerwright/test/cluster/await"
	"github.com/layerwright/layerwright/test/cluster/binimage"
	"github.com/layerwright/layerwright/test/cluster/toolchain"
)

// Namespace is where Tekton's controller and webhook run, and Controller the name of a Deployment.
const (
	Namespace  = "tekton-pipelines"
	Controller = "tekton-pipelines-controller"
)

// module is what Tekton's programs are compiled from, and where its manifests are.
const module = "github.com/tektoncd/pipeline"

// images are its images by the program that each starts with. The last has the programs that Tekton
// puts into pods, where it looks for them.
var images = map[string]struct {
	path   string
	others []string
}{
	"controller": {},
	"webhook":    {},
	"entrypoint": {path: "/ko-app/entrypoint", others: []string{"nop", "sidecarlogresults", "workingdirinit"}},
}

// Installer has what is particular to a cluster.
type Installer struct {
	// Bin is the folder with Tekton's programs, and Repository the checkout.
	Bin, Repository string
	// Image makes an image in an archive, brings it onto all nodes, and gives its tag.
	Image   func(ctx context.Context, archive, name string, options binimage.Options) (tag string, err error)
	Apply   func(ctx context.Context, manifests []byte) error
	Clients kubernetes.Interface
}

// Install brings Tekton onto the cluster, and waits until its webhook is asked.
func (i *Installer) Install(ctx context.Context) error {
	tags := map[string]string{}
	for program, image := range images {
		options := binimage.Options{Binary: filepath.Join(i.Bin, program), Path: image.path, Others: map[string][]string{}}
		for _, other := range image.others {
			options.Others[filepath.Join(i.Bin, other)] = nil
		}
		// The archive is beside the programs, so it goes when they do.
		tag, err := i.Image(ctx, i.Bin+"-"+program+".tar", "layerwright.test/tekton-"+program, options)
		if err != nil {
			return err
		}
		for _, of := range append(slices.Clone(image.others), program) {
			tags[of] = tag
		}
	}
	folder, err := sources(ctx, i.Repository)
	if err != nil {
		return err
	}
	text, err := manifests(filepath.Join(folder, "config"), tags)
	if err != nil {
		return err
	}
	if err := i.Apply(ctx, text); err != nil {
		return err
	}
	for _, name := range []string{"tekton-pipelines-webhook", Controller} {
		if err := await.DeploymentAvailable(ctx, i.Clients, Namespace, name); err != nil {
			return err
		}
	}
	// It tells the API server itself what to ask it, and whom to trust.
	webhooks := i.Clients.AdmissionregistrationV1().RESTClient()
	return await.Object(ctx, await.Target{Client: webhooks, Resource: "mutatingwebhookconfigurations", Name: "webhook.pipeline.tekton.dev"},
		&admissionv1.MutatingWebhookConfiguration{}, func(c *admissionv1.MutatingWebhookConfiguration) (bool, string) {
			return len(c.Webhooks) > 0 && len(c.Webhooks[0].ClientConfig.CABundle) > 0 && len(c.Webhooks[0].Rules) > 0, "it is not filled in"
		})
}

// sources is the folder of the module that the programs are compiled from.
func sources(ctx context.Context, repository string) (string, error) {
	download := exec.CommandContext(ctx, "go", "mod", "download", module)
	where := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	var out []byte
	for _, cmd := range []*exec.Cmd{download, where} {
		cmd.Dir, cmd.Env = filepath.Join(repository, toolchain.Tekton.Dir), append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		var err error
		if out, err = cmd.Output(); err != nil {
			return "", fmt.Errorf("finding the manifests of Tekton: %s: %w", strings.Join(cmd.Args, " "), err)
		}
	}
	return string(bytes.TrimSpace(out)), nil
}

// builtImage is how the manifests in Tekton's sources name an image that a release makes.
var builtImage = regexp.MustCompile(`ko://` + module + `/cmd/([a-z]+)`)

// manifests are those of a release, with the images: the controller and the webhook without what
// scales them, sends events, or resolves what is not in the cluster. Tekton's own containers drop
// their capabilities, as docs/pipelines.md asks for.
func manifests(folder string, tags map[string]string) ([]byte, error) {
	var paths []string
	for _, pattern := range []string{"100-namespace/*.yaml", "*.yaml", "300-crds/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	var out bytes.Buffer
	for _, path := range paths {
		if name := filepath.Base(path); name == "events.yaml" || name == "webhook-hpa.yaml" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
		out.WriteString("\n")
	}
	var missing []string
	text := builtImage.ReplaceAllStringFunc(out.String(), func(reference string) string {
		program := builtImage.FindStringSubmatch(reference)[1]
		if tags[program] == "" {
			missing = append(missing, program)
		}
		return tags[program]
	})
	const off, on = `set-security-context: "false"`, `set-security-context: "true"`
	if len(missing) > 0 || strings.Count(text, off) != 1 {
		return nil, fmt.Errorf("the manifests in %s are not those of Tekton that this program knows: images without a program: %v", folder, missing)
	}
	return []byte(strings.Replace(text, off, on, 1)), nil
}
