package builds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/builder/making"
	"github.com/layerwright/layerwright/builder/runs"
	"github.com/layerwright/layerwright/internal/inwork"
)

// makeImage brings the image into the registry and writes down that it is there. Everything in it
// can be done again, and ends the same.
func (s *scope) makeImage(ctx context.Context) error {
	running, end, ok := s.options.Runs.Begin(ctx, s.config.Name, s.build.Name)
	if !ok {
		s.show.Message = "it waits for the previous build to stop"
		s.after = runs.SlotInterval
		return nil
	}
	defer end()
	if pushed := making.Pushed(s.build); pushed != nil {
		return s.finish(ctx, pushed)
	}
	running, cancel := context.WithTimeout(running, s.attempt())
	defer cancel()
	result, err := s.obtainImageNoted(running)
	if errors.Is(running.Err(), context.Canceled) && ctx.Err() == nil || errors.Is(err, making.ErrEnded) {
		s.after = runs.SlotInterval // someone stopped it: the object says why
		return nil
	}
	if err != nil {
		if !s.record.Inputs.HasContent() { // else the backend counts its attempts
			err = s.judge(ctx, running, err)
		}
		return err
	}
	if result == nil {
		return nil
	}
	s.build.Status.Architectures, s.build.Status.PoolTag = architectures(result), result.PoolTag
	return s.finish(ctx, result)
}

// obtainImageNoted obtains the image, and notes meanwhile that it is in work.
func (s *scope) obtainImageNoted(ctx context.Context) (*making.Result, error) {
	end, err := s.options.InWork.Begin(ctx, inwork.Work{
		Object: fmt.Sprintf("MachineOSBuild %q", s.build.Name), Version: string(s.build.UID),
		Retry: "set the annotation " + mcfgv1.AnnotationRebuild + " on the MachineOSConfig",
	})
	if err != nil {
		return nil, err
	}
	defer end()
	result, step, err := s.options.Imager.Obtain(ctx, s.config, s.build, s.show)
	s.show, s.after, s.began = step.Show, step.After, step.Began
	return result, err
}

// finish writes down which image was made, and ends the build once that is signed. What is written
// is what reconciles that follow go on with, so that the digest which is signed is the one that was
// pushed, whatever the tags stand for then. It takes no longer than an attempt.
func (s *scope) finish(ctx context.Context, result *making.Result) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Attempt)
	defer cancel()
	if err := s.options.Imager.Write(ctx, s.config, s.build, &result.Image); err != nil {
		return err
	}
	s.after = 0
	s.show.Stage, s.show.Reason, s.show.Message = mcfgv1.BuildStageSucceeded, result.Reason, result.Message
	return nil
}

// architectures are the results of each architecture, where there are several.
func architectures(m *making.Result) []mcfgv1.ArchitectureBuild {
	if len(m.Platforms) < 2 { //nolint:mnd // one is the image itself
		return nil
	}
	repository, _, _ := strings.Cut(m.Pinned, "@")
	var out []mcfgv1.ArchitectureBuild
	for _, p := range m.Platforms {
		arch, known := mcfgv1.ArchitectureFromOCI(cmp.Or(p.Platform.Architecture, "amd64"))
		if !known {
			continue
		}
		out = append(out, mcfgv1.ArchitectureBuild{
			Architecture: arch, State: mcfgv1.ArchitectureSucceeded,
			DigestedImagePushSpec: mcfgv1.ImageDigestFormat(repository + "@" + p.Digest.String()),
		})
	}
	return out
}
