package provenance

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
)

// What kinds of builds there are; docs/signing.md says what the parameters of each mean.
const (
	// BuildTypeImage is the making of a pool's image.
	BuildTypeImage = "https://layerwright.io/provenance/image/v1"
	// BuildTypeContent is the making of what is in a pool's image below its configuration, which no
	// node gets as it is.
	BuildTypeContent = "https://layerwright.io/provenance/content/v1"
)

// DefaultBuilderID is who made an image, where an installation does not say it otherwise.
const DefaultBuilderID = "https://layerwright.io/builder"

// Append is the backend of an image that needed no build: its configuration was appended to what
// was there.
const Append = "Append"

// Predicate is an SLSA provenance, version 1.
type Predicate struct {
	BuildDefinition Definition `json:"buildDefinition"`
	RunDetails      Run        `json:"runDetails"`
}

// Definition says what was asked for, and what it was made of.
type Definition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   External   `json:"externalParameters"`
	InternalParameters   Internal   `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies,omitempty"`
}

// External is what people asked for.
type External struct {
	MachineConfigPool     string `json:"machineConfigPool,omitempty"`
	MachineOSConfig       string `json:"machineOSConfig,omitempty"`
	OSImageStream         string `json:"osImageStream,omitempty"`
	RenderedImagePushSpec string `json:"renderedImagePushSpec,omitempty"`
}

// Internal is what the controller made of it.
type Internal struct {
	// Backend is what made the image: Append, Job, PipelineRun, or Local without a cluster.
	Backend string `json:"backend,omitempty"`
	// BuildKey identifies everything in the image, and ContentKey everything but the configuration.
	BuildKey   string `json:"buildKey,omitempty"`
	ContentKey string `json:"contentKey,omitempty"`
	// MachineConfig is the name of the rendered MachineConfig.
	MachineConfig string `json:"machineConfig,omitempty"`
	// Architectures are those that were asked for, where the base image is for several.
	Architectures []mcfgv1.Architecture `json:"architectures,omitempty"`
	Extensions    []string              `json:"extensions,omitempty"`
	KernelType    string                `json:"kernelType,omitempty"`
	Cause         string                `json:"cause,omitempty"`
	// PulledImagesMissing is how many more images the content was built with than are among the
	// resolved dependencies.
	PulledImagesMissing int `json:"pulledImagesMissing,omitempty"`
}

// Resource is something that went into the image.
type Resource struct {
	Name   string            `json:"name"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
	// Annotations say of an image that was pulled how it was named, for which architecture, and
	// which manifest that was.
	Annotations *Pull `json:"annotations,omitempty"`
}

// Pull is how an image was pulled.
type Pull struct {
	// Reference is its name in the Containerfile, with variables expanded.
	Reference string `json:"reference"`
	// Architecture is as image indexes name it.
	Architecture string `json:"architecture"`
	// Manifest is the digest of the image for the architecture; empty where it is not known. That
	// of the Resource is the index's where there is one.
	Manifest string `json:"manifest,omitempty"`
}

// Run is how it was made.
type Run struct {
	Builder  Builder  `json:"builder"`
	Metadata Metadata `json:"metadata"`
}

// Builder is who made it.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version,omitempty"`
}

// Metadata says which build it was, and when.
type Metadata struct {
	// InvocationID is the name of the MachineOSBuild and its UID, with a slash between them.
	InvocationID string     `json:"invocationId,omitempty"`
	StartedOn    *time.Time `json:"startedOn,omitempty"`
	FinishedOn   *time.Time `json:"finishedOn,omitempty"`
}

// Origin is what asked for an image: a MachineOSBuild, or a trial.
type Origin struct {
	// Invocation names it, as InvocationOf does.
	Invocation string
	// Config is the MachineOSConfig, Stream and Cause what it says of the stream and of a repeated
	// build.
	Config, Stream, Cause string
	// PushSpec and MachineConfig are those of the image; content has none.
	PushSpec, MachineConfig string
	// Backend is what built content; empty where nothing did.
	Backend string
	// Base and Extensions are the images that it is made from, by digest.
	Base, Extensions string
	// Began is when it began; zero where that is not known.
	Began time.Time
}

// OriginOf is the origin of what a build makes.
func OriginOf(b *mcfgv1.MachineOSBuild) *Origin {
	asked := b.Asked()
	o := &Origin{
		Invocation: InvocationOf(b), Config: b.Spec.MachineOSConfig.Name, Stream: asked.OSImageStream, Cause: string(asked.Cause),
		PushSpec: string(b.Spec.RenderedImagePushSpec), MachineConfig: b.Spec.MachineConfig.Name,
		Base: string(asked.BaseImage), Extensions: string(asked.ExtensionsImage),
		Began: b.CreationTimestamp.UTC(), // a build that has to wait for nothing is over before it says that it has begun
	}
	if b.Status.Builder != nil {
		o.Backend = string(b.Status.Builder.ImageBuilderType)
	}
	if start := b.Status.BuildStart; start != nil {
		o.Began = start.UTC()
	}
	return o
}

// Inputs are what a build was made of, as far as it is recorded.
type Inputs struct {
	// ContentKey is of what was built, and BuildKey of that and the configuration.
	ContentKey, BuildKey string
	Architectures        []mcfgv1.Architecture
	// ExtensionNames were installed, and UsesExtensions is set where anything was taken from the
	// extensions image.
	ExtensionNames []string
	UsesExtensions bool
	KernelType     string
	// Containerfiles are the administrator's, with their text unless WithoutText.
	Containerfiles []Containerfile
	WithoutText    bool
}

// Containerfile is one of a build.
type Containerfile struct {
	Arch mcfgv1.ContainerfileArch
	Text string
}

// Facts are what is known of a build.
type Facts struct {
	// Origin is what asked for the image; nil where that is not known.
	Origin *Origin
	Inputs *Inputs
	// Pool is what the image is for.
	Pool string
	// BuilderID is who made it, DefaultBuilderID where empty.
	BuilderID string
	// Version is that of the controller, and BuilderImage, by digest, what built the content; empty
	// where that is not known any more.
	Version, BuilderImage string
	// Content is the image below the configuration, by digest, where that was built and is known.
	Content string
	// Pulled are the images that the content was built with: beside the base image and the
	// extensions image.
	Pulled Pulled
	// ConfigHash is the SHA-256 of the rendered MachineConfig, in hexadecimal characters; empty
	// where it is gone.
	ConfigHash string
	// Finished is when the image was pushed; zero where that is not known.
	Finished time.Time
}

// OfImage is how a pool's image was made.
func OfImage(f *Facts) Predicate {
	p := f.predicate(BuildTypeImage)
	d := &p.BuildDefinition
	d.InternalParameters.BuildKey = f.Inputs.BuildKey
	if f.Origin != nil {
		d.ExternalParameters.RenderedImagePushSpec, d.InternalParameters.MachineConfig = f.Origin.PushSpec, f.Origin.MachineConfig
	}
	d.add(image("content image", f.Content))
	if f.ConfigHash != "" {
		d.add(&Resource{Name: "rendered MachineConfig " + d.InternalParameters.MachineConfig, Digest: map[string]string{"sha256": f.ConfigHash}})
	}
	return p
}

// OfContent is how the content with a key was made, which the pools that have it share.
func OfContent(f *Facts, key string) Predicate {
	p := f.predicate(BuildTypeContent)
	p.BuildDefinition.InternalParameters.BuildKey, p.BuildDefinition.InternalParameters.ContentKey = key, key
	return p
}

// ContentKey is the key of the content that a predicate is about; empty where it is about something
// else.
func ContentKey(predicate []byte) string {
	p := &Predicate{}
	if json.Unmarshal(predicate, p) != nil || p.BuildDefinition.BuildType != BuildTypeContent {
		return ""
	}
	return p.BuildDefinition.InternalParameters.ContentKey
}

// InvocationOf names a build in predicates.
func InvocationOf(build *mcfgv1.MachineOSBuild) string { return build.Name + "/" + string(build.UID) }

// Invocation is the build that a predicate is of; empty where it does not say.
func Invocation(predicate []byte) string {
	p := &Predicate{}
	if json.Unmarshal(predicate, p) != nil {
		return ""
	}
	return p.RunDetails.Metadata.InvocationID
}

// Pulled are images that content was built with, as far as they are known.
type Pulled struct {
	Images []mcfgv1.PulledImage
	// Missing is how many more there were.
	Missing int
}

// PulledBy are those of a build, as its status says.
func PulledBy(build *mcfgv1.MachineOSBuild) Pulled {
	return Pulled{Images: build.Status.PulledImages, Missing: int(build.Status.PulledImagesMissing)}
}

// ReadPulled are the images that a predicate says were pulled.
func ReadPulled(predicate []byte) (out Pulled) {
	p := &Predicate{}
	if json.Unmarshal(predicate, p) != nil {
		return out
	}
	out.Missing = p.BuildDefinition.InternalParameters.PulledImagesMissing
	for _, r := range p.BuildDefinition.ResolvedDependencies {
		if r.Annotations == nil {
			continue
		}
		architecture, known := mcfgv1.ArchitectureFromOCI(r.Annotations.Architecture)
		repository, isImage := strings.CutPrefix(r.URI, scheme)
		if !known || !isImage || r.Digest["sha256"] == "" {
			continue
		}
		out.Images = append(out.Images, mcfgv1.PulledImage{
			Name: r.Annotations.Reference, Image: repository + "@sha256:" + r.Digest["sha256"], Architecture: architecture,
			ManifestDigest: r.Annotations.Manifest,
		})
	}
	return out
}

func (f *Facts) predicate(buildType string) Predicate {
	in := f.Inputs
	p := Predicate{
		BuildDefinition: Definition{
			BuildType:          buildType,
			ExternalParameters: External{MachineConfigPool: f.Pool},
			InternalParameters: Internal{
				ContentKey: in.ContentKey, Architectures: in.Architectures, Extensions: in.ExtensionNames, KernelType: in.KernelType,
				PulledImagesMissing: f.Pulled.Missing,
			},
		},
		RunDetails: Run{Builder: Builder{ID: cmp.Or(f.BuilderID, DefaultBuilderID)}},
	}
	if f.Version != "" {
		p.RunDetails.Builder.Version = map[string]string{"layerwright": f.Version}
	}
	if f.Origin != nil {
		f.addOrigin(&p)
	}
	d := &p.BuildDefinition
	f.addFiles(d)
	f.addPulled(d)
	d.add(image("builder image", f.BuilderImage))
	return p
}

func (f *Facts) addOrigin(p *Predicate) {
	d, o := &p.BuildDefinition, f.Origin
	d.ExternalParameters.MachineOSConfig, d.ExternalParameters.OSImageStream = o.Config, o.Stream
	d.InternalParameters.Cause, d.InternalParameters.Backend = o.Cause, cmp.Or(o.Backend, Append)
	d.add(image("base image", o.Base))
	if f.Inputs.UsesExtensions {
		d.add(image("extensions image", o.Extensions))
	}
	p.RunDetails.Metadata.InvocationID = o.Invocation
	if o.Began.IsZero() {
		return
	}
	p.RunDetails.Metadata.StartedOn = &o.Began
	if !f.Finished.Before(o.Began) {
		ended := f.Finished.UTC()
		p.RunDetails.Metadata.FinishedOn = &ended
	}
}

// addPulled adds the images that were pulled for the Containerfiles.
func (f *Facts) addPulled(d *Definition) {
	for _, p := range f.Pulled.Images {
		of := fileName(mcfgv1.NoArch)
		for _, file := range f.Inputs.Containerfiles {
			if mcfgv1.Architecture(file.Arch) == p.Architecture {
				of = fileName(file.Arch)
			}
		}
		if r := image(imageOf+of, p.Image); r != nil {
			r.Annotations = &Pull{Reference: p.Name, Architecture: p.Architecture.OCI(), Manifest: p.ManifestDigest}
			d.add(r)
		}
	}
}

func fileName(arch mcfgv1.ContainerfileArch) string {
	if arch == "" || arch == mcfgv1.NoArch {
		return "Containerfile"
	}
	return "Containerfile for " + containerfiles.GoArch(arch)
}

// addFiles adds the Containerfiles, and the images that they name by digest and that are not known
// to have been pulled, where the record has their text.
func (f *Facts) addFiles(d *Definition) {
	if f.Inputs.WithoutText {
		return
	}
	for _, file := range f.Inputs.Containerfiles {
		name := fileName(file.Arch)
		sum := sha256.Sum256([]byte(file.Text))
		d.add(&Resource{Name: name, Digest: map[string]string{"sha256": hex.EncodeToString(sum[:])}})
		parsed, err := containerfiles.Parse(name, []byte(file.Text))
		if err != nil {
			continue
		}
		uses, _ := containerfiles.Images(parsed, nil)
		for _, use := range uses {
			if !slices.ContainsFunc(f.Pulled.Images, func(p mcfgv1.PulledImage) bool { return p.Image == use.Normalized }) {
				d.add(image(imageOf+name, use.Normalized))
			}
		}
	}
}

// add adds what is known, once.
func (d *Definition) add(r *Resource) {
	if r == nil || slices.ContainsFunc(d.ResolvedDependencies, func(o Resource) bool { return reflect.DeepEqual(&o, r) }) {
		return
	}
	d.ResolvedDependencies = append(d.ResolvedDependencies, *r)
}

const (
	// scheme is that of the URIs of images.
	scheme = "oci://"
	// imageOf begins the names of images that a Containerfile names.
	imageOf = "image of the "
)

// image is an image that is named by its digest; nil for others.
func image(name, pinned string) *Resource {
	repository, digest, _ := strings.Cut(pinned, "@")
	algorithm, sum, isDigest := strings.Cut(digest, ":")
	if !isDigest {
		return nil
	}
	return &Resource{Name: name, URI: scheme + repository, Digest: map[string]string{algorithm: sum}}
}

// HashConfig is the SHA-256 of what a rendered MachineConfig says (its spec), written as JSON with
// sorted keys and without spaces.
func HashConfig(mc *mcfgv1.MachineConfig) (string, error) {
	text, err := json.Marshal(mc.Spec)
	if err != nil {
		return "", fmt.Errorf("hashing MachineConfig %q: %w", mc.Name, err)
	}
	var spec any
	if err := json.Unmarshal(text, &spec); err != nil {
		return "", fmt.Errorf("hashing MachineConfig %q: %w", mc.Name, err)
	}
	if text, err = json.Marshal(spec); err != nil {
		return "", fmt.Errorf("hashing MachineConfig %q: %w", mc.Name, err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
