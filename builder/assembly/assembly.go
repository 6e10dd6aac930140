package assembly

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/utils/clock"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/backend"
	"github.com/layerwright/layerwright/builder/engine/report"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/internal/registry"
)

// Options are what both steps work with.
type Options struct {
	// Instructions has the instructions of each architecture, as files
	// <architecture>/instructions.json, or those of the only one itself.
	Instructions string
	// Architectures are those that are built, by their names in OCI.
	Architectures []string
	// Image is the repository and tag of the result.
	Image string
	// Results is the folder for the results of the Task.
	Results string
	// Expected are the Fingerprints of what the controller made, as backend.ExpectedVariable has
	// them; empty where a person runs a step.
	Expected string
	// Started is when the run did, as Preflight said; empty where that is not known.
	Started string
	// Pull and Push are clients with the credentials for each.
	Pull, Push *registry.Client
	Clock      clock.PassiveClock
}

// Preflight asks whether the images that will be pulled are there, and whether the result may be
// pushed.
func Preflight(ctx context.Context, o *Options) error {
	if err := o.result(backend.ResultStarted, strconv.FormatInt(o.Clock.Now().Unix(), 10)); err != nil {
		return err
	}
	all, err := o.instructions()
	if err != nil {
		return err
	}
	asked := map[string]bool{}
	for i := range all {
		for _, image := range all[i].Images {
			if image.Image == "" || asked[image.Image] { // short names are for registries.conf to complete
				continue
			}
			asked[image.Image] = true
			if _, err := o.Pull.Resolve(ctx, image.Image); err != nil {
				return err
			}
		}
		repository, err := repositoryOf(all[i].Target)
		if err != nil {
			return err
		}
		if asked[repository] {
			continue
		}
		asked[repository] = true
		if err := o.Push.CanPush(ctx, repository); err != nil {
			return err
		}
	}
	return nil
}

// Assemble finds the images that were pushed, joins those of several architectures under Image, and
// writes the results. It returns the image by digest.
func Assemble(ctx context.Context, o *Options) (image string, err error) {
	all, err := o.instructions()
	if err != nil {
		return "", err
	}
	request := registry.AppendRequest{}
	images, size := make([]string, len(all)), int64(0)
	for i := range all {
		if images[i], err = o.pushed(ctx, all[i].Target); err != nil {
			return "", err
		}
		built, err := o.Push.Open(ctx, images[i])
		if err != nil {
			return "", err
		}
		manifest, err := built.Manifest()
		if err != nil {
			return "", fmt.Errorf("reading the manifest of %q: %w", images[i], err)
		}
		for _, part := range append(manifest.Layers, manifest.Config) {
			size += part.Size
		}
		request.Images = append(request.Images, registry.PlatformImage{
			Platform: v1.Platform{OS: "linux", Architecture: o.Architectures[i]}, Image: images[i],
		})
	}
	image = images[0]
	if len(all) > 1 {
		target, err := name.NewTag(o.Image)
		if err != nil {
			return "", fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", o.Image, err))
		}
		request.Repository = target.Context().Name()
		joined, err := o.Push.Append(ctx, request)
		if err == nil {
			err = o.Push.TagNewest(ctx, joined.Image, target.TagStr())
		}
		if err != nil {
			return "", err
		}
		image = joined.Image
	}
	return image, o.results(image, images, size)
}

// pushed is what a build has just pushed under a tag, by digest.
func (o *Options) pushed(ctx context.Context, target string) (string, error) {
	tag, err := name.NewTag(target)
	if err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", target, err))
	}
	repository := tag.Context().Name()
	digest, found, err := o.Push.Newest(ctx, repository, tag.TagStr())
	if err == nil && !found {
		err = fmt.Errorf("the build has succeeded, and image %q is not there", target)
	}
	return repository + "@" + digest.String(), err
}

// results are written when everything is known.
func (o *Options) results(image string, images []string, size int64) error {
	_, digest, _ := strings.Cut(image, "@")
	written := []error{
		o.result(backend.ResultURL, o.Image), o.result(backend.ResultDigest, digest),
		o.result(backend.ResultImages, strings.Join(images, ",")), o.result(backend.ResultSize, strconv.FormatInt(size, 10)),
	}
	took := "0"
	if started, err := strconv.ParseInt(o.Started, 10, 64); err == nil {
		took = strconv.FormatInt(int64(o.Clock.Since(time.Unix(started, 0)).Seconds()), 10)
	}
	return errors.Join(append(written, o.result(backend.ResultDuration, took))...)
}

func (o *Options) result(file, value string) error {
	if err := os.WriteFile(filepath.Join(o.Results, file), []byte(value), 0o644); err != nil { //nolint:gosec // results are for everyone
		return fmt.Errorf("writing result %s: %w", file, err)
	}
	return nil
}

// instructions are those of all architectures, in their order.
func (o *Options) instructions() ([]backend.Instructions, error) {
	if len(o.Architectures) == 0 {
		return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, errors.New("no architecture is named"))
	}
	all := make([]backend.Instructions, len(o.Architectures))
	for i, architecture := range o.Architectures {
		file := filepath.Join(o.Instructions, architecture, filepath.Base(backend.InstructionsFile))
		text, err := os.ReadFile(file) //nolint:gosec // the path or index is the program's own
		if errors.Is(err, fs.ErrNotExist) && len(o.Architectures) == 1 {
			text, err = os.ReadFile(filepath.Join(o.Instructions, filepath.Base(backend.InstructionsFile)))
		}
		if err == nil {
			err = o.check(architecture, text)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the instructions of %s: %w", architecture, err)
		}
		if err := json.Unmarshal(text, &all[i]); err != nil || all[i].Target == "" {
			return nil, fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("the instructions of %s are not those of a build", architecture))
		}
	}
	return all, nil
}

// check refuses instructions that the controller did not make: whoever may write ConfigMaps could
// name another image.
func (o *Options) check(architecture string, text []byte) error {
	if o.Expected == "" {
		return nil
	}
	folders, err := report.Expected(o.Expected, backend.ExpectedKey(architecture, backend.Push))
	if err != nil {
		return err
	}
	dir, file := filepath.Split(backend.InstructionsFile)
	if folders[filepath.Clean(dir)] != backend.Fingerprint(map[string][]byte{file: text}) {
		return report.NewAdmin(mcfgv1.ReasonInputsChanged, errors.New("they are not those that the controller made: someone else wrote the ConfigMap"))
	}
	return nil
}

func repositoryOf(target string) (string, error) {
	reference, err := name.ParseReference(target)
	if err != nil {
		return "", fault.NewTerminal(mcfgv1.ReasonInvalid, fmt.Errorf("reading the name of image %q: %w", target, err))
	}
	return reference.Context().Name(), nil
}
