package deploy

import (
	"context"
	_ "embed" // the overlays
	"os"
	"path/filepath"
	"strings"
	"text/template"

	releases "github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/test/cluster/files"
	"github.com/layerwright/layerwright/test/cluster/gateway"
)

// The overlays over deploy/ are templates.
var (
	//go:embed manifests/overlay-pod.yaml
	podTemplate string
	//go:embed manifests/overlay-process.yaml
	processTemplate string
	//go:embed manifests/registry-policy.yaml
	registryPolicyTemplate string
)

// Overlay is what a cluster makes of deploy/: the files of a kustomization by their names.
type Overlay struct {
	templates map[string]string
	values    values
}

// values are what the templates are filled with.
type values struct {
	// Base is the kustomization below it, Components the folder of those that can be added, and the
	// others what is particular to the cluster.
	Base, Components, Image, NewName, NewTag, Builder, Gateway string
	// Agent is empty where nodes have no roots of their own.
	Agent, AgentName, AgentTag string
	RegistryPort               int
	// Tekton takes in the component that has content built by PipelineRuns.
	Tekton bool
}

// Playground is what is particular to a cluster whose controller runs in a pod.
type Playground struct {
	// RegistryPort is that of the cluster's registry.
	RegistryPort int
	// Tekton has content built by PipelineRuns.
	Tekton bool
}

// Pods runs the controller as a Deployment with the images, and lets it reach and trust the
// registry.
func Pods(images Images, of Playground) *Overlay {
	newName, newTag, _ := strings.Cut(images.Controller.Tag, ":")
	v := values{
		Image: releases.Controller, NewName: newName, NewTag: newTag, Builder: images.Builder.Tag,
		RegistryPort: of.RegistryPort, Tekton: of.Tekton, Gateway: gateway.NodeAddress(1),
	}
	if images.Agent.Tag != "" {
		v.Agent = releases.Agent
		v.AgentName, v.AgentTag, _ = strings.Cut(images.Agent.Tag, ":")
	}
	return &Overlay{
		templates: map[string]string{"kustomization.yaml": podTemplate, "registry-policy.yaml": registryPolicyTemplate}, values: v,
	}
}

// Process leaves out what would want a pod.
func Process() *Overlay {
	return &Overlay{templates: map[string]string{"kustomization.yaml": processTemplate}}
}

// write writes the files into a folder.
func (o *Overlay) write(dir string) error {
	for name, text := range o.templates {
		parsed, err := template.New(name).Option("missingkey=error").Parse(text)
		if err != nil {
			return err
		}
		var out strings.Builder
		if err := parsed.Execute(&out, o.values); err != nil {
			return err
		}
		if err := files.Write(filepath.Join(dir, name), []byte(out.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Apply applies deploy/ of a checkout as the overlay has it, which it writes into a folder.
// authority is the path of the certificate that the registry's is signed by.
func (o *Overlay) Apply(ctx context.Context, kubectl Kubectl, repository, dir, authority string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	manifests, err := filepath.Rel(dir, filepath.Join(repository, "deploy"))
	if err != nil {
		return err
	}
	o.values.Base, o.values.Components = filepath.Join(manifests, "overlays", "kubernetes"), filepath.Join(manifests, "components")
	// A kustomization takes files from its own folder only.
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return err
	}
	if err := files.Write(filepath.Join(dir, "ca.crt"), certificate, 0o600); err != nil {
		return err
	}
	if err := o.write(dir); err != nil {
		return err
	}
	return kubectl.Run(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager="+FieldManager, "-k", dir)
}
