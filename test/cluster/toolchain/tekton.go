package toolchain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// tektonModule is what Tekton's programs are compiled from, and where its manifests are.
const tektonModule = "github.com/tektoncd/pipeline"

// builtImage is how the manifests in Tekton's sources name an image that a release makes.
var builtImage = regexp.MustCompile(`ko://` + regexp.QuoteMeta(tektonModule) + `/cmd/([a-z]+)`)

// tektonFlags are settings that are not Tekton's own: its containers drop their capabilities, and
// steps do not wait for sidecars that no one injects.
var tektonFlags = map[string]bool{"set-security-context": true, "running-in-environment-with-injected-sidecars": false}

// TektonManifests are those of a release of Tekton, with an image for each program.
func (t *Toolchain) TektonManifests(ctx context.Context, images map[string]string) ([]byte, error) {
	var out []byte
	for _, argv := range [][]string{{"go", "mod", "download", tektonModule}, {"go", "list", "-m", "-f", "{{.Dir}}", tektonModule}} {
		var err error
		if out, err = t.Run(ctx, filepath.Join(t.repository, Tekton.Dir), []string{"GOFLAGS=", "GOWORK=off"}, argv...); err != nil {
			return nil, fmt.Errorf("finding the manifests of Tekton: %w", err)
		}
	}
	return tektonManifests(filepath.Join(string(bytes.TrimSpace(out)), "config"), images)
}

// tektonManifests are the controller and the webhook, without what scales them, sends events, or
// resolves what is not in the cluster. The settings are those of docs/pipelines.md.
func tektonManifests(folder string, images map[string]string) ([]byte, error) {
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
		if images[program] == "" {
			missing = append(missing, program)
		}
		return images[program]
	})
	isKnown := len(missing) == 0
	for flag, value := range tektonFlags {
		before := fmt.Sprintf("%s: %q", flag, strconv.FormatBool(!value))
		isKnown = isKnown && strings.Count(text, before) == 1
		text = strings.Replace(text, before, fmt.Sprintf("%s: %q", flag, strconv.FormatBool(value)), 1)
	}
	if !isKnown {
		return nil, fmt.Errorf("the manifests in %s are not those of Tekton that this program knows: images without a program: %v", folder, missing)
	}
	return []byte(text), nil
}
