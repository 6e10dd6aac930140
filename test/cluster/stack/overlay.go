package stack

import (
	"context"
	_ "embed" // the overlays
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/layerwright/layerwright/test/cluster/controlplane"
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

// overlay is what a cluster makes of deploy/: the files of a kustomization by their names.
type overlay struct {
	templates map[string]string
	// Base is the kustomization below it, Components the folder of those that can be added, and the
	// others what is particular to the cluster.
	Base, Components, Image, NewName, NewTag, Builder, Gateway string
	// HostRoot is where agents find the roots of nodes; empty where these have none of their own.
	Agent, AgentName, AgentTag, HostRoot string
	RegistryPort                         int
	// Tekton takes in the component that has content built by PipelineRuns.
	Tekton bool
}

// podOverlay runs the controller as a Deployment with the images, and lets it reach and trust the
// registry.
func podOverlay(image *controllerImage, st *state) *overlay {
	newName, newTag, _ := strings.Cut(image.tag, ":")
	o := &overlay{
		templates: map[string]string{"kustomization.yaml": podTemplate, "registry-policy.yaml": registryPolicyTemplate},
		Image:     ControllerImage, NewName: newName, NewTag: newTag, Builder: image.builderTag, RegistryPort: st.RegistryPort, Tekton: st.Tekton, Gateway: gateway.NodeAddress(1),
	}
	if image.agentTag != "" {
		o.Agent, o.HostRoot = AgentImage, HostRoot
		o.AgentName, o.AgentTag, _ = strings.Cut(image.agentTag, ":")
	}
	return o
}

// processOverlay leaves out what would want a pod.
func processOverlay() *overlay {
	return &overlay{templates: map[string]string{"kustomization.yaml": processTemplate}}
}

// write writes the files into a folder.
func (o *overlay) write(dir string) error {
	for name, text := range o.templates {
		parsed, err := template.New(name).Option("missingkey=error").Parse(text)
		if err != nil {
			return err
		}
		var out strings.Builder
		if err := parsed.Execute(&out, o); err != nil {
			return err
		}
		if err := files.Write(filepath.Join(dir, name), []byte(out.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// applyOverlay applies deploy/ as the overlay has it.
func (u *up) applyOverlay(ctx context.Context, o *overlay) error {
	dir := filepath.Join(u.dir, "deploy")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	manifests, err := filepath.Rel(dir, filepath.Join(u.repository, "deploy"))
	if err != nil {
		return err
	}
	o.Base, o.Components = filepath.Join(manifests, "overlays", "kubernetes"), filepath.Join(manifests, "components")
	// A kustomization takes files from its own folder only.
	authority, err := os.ReadFile(filepath.Join(u.dir, "pki", controlplane.Authority+".crt"))
	if err != nil {
		return err
	}
	if err := files.Write(filepath.Join(dir, "ca.crt"), authority, 0o600); err != nil {
		return err
	}
	if err := o.write(dir); err != nil {
		return err
	}
	return u.kubectl(ctx, nil, "apply", "--server-side", "--force-conflicts", "--field-manager="+fieldManager, "-k", dir)
}
