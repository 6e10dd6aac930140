package hostcheck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/fault"
	"github.com/layerwright/layerwright/rollout/host"
)

// timeToClean is how long cleaning up may take after the check was ended.
const timeToClean = 5 * time.Minute

// attempt is what is tried by doing it: all of it with the image that runs, so that no layer is
// pulled and none stays.
type attempt struct {
	h            host.Host
	finalization host.Finalization
	booted       *host.Deployment
	// line is how the host boots; nil where that can't be changed.
	line []string
	// canLock reports whether ostree has a lock, and admits whether the host's policy lets signed
	// images through.
	canLock, admits bool
}

// disrupt stages what runs, and takes that back. ostree's lock keeps it from booting meanwhile.
func (c *checker) disrupt(ctx context.Context, h host.Host, s *host.Status, a attempt) {
	a.h, a.finalization, a.booted = h, host.FinalizationIn(c.Root), s.Booted
	if why := a.whyNot(s); why != "" {
		c.say(NotDone, "staging", "%s", why)
		return
	}
	if err := a.finalization.Lock(); err != nil {
		c.sayError(Mend, "lock", err)
		return
	}
	defer c.cleanUp(ctx, &a)
	c.stage(ctx, &a)
	if a.line != nil {
		c.changeArguments(ctx, &a, a.line, append(slices.Clone(a.line), probe))
	}
	staged, err := a.staged(ctx)
	switch {
	case err != nil:
		c.sayError(Mend, "staging", err)
		return
	case staged == nil:
		c.say(NotDone, "lock", "nothing is staged")
		return
	}
	c.softReboot(staged)
	c.lockAndUnlock(ctx, &a)
	if a.line != nil {
		c.changeArguments(ctx, &a, append(slices.Clone(a.line), probe), a.line)
	}
}

// whyNot is why nothing is tried on a host: what others have staged would be lost, or what is
// staged here could boot or would stay.
func (a *attempt) whyNot(s *host.Status) string {
	isLocked, err := a.finalization.IsLocked()
	switch {
	case s.IsComposefs:
		return "a staged image can't be removed from a composefs store"
	case s.CheckStaging() != nil || s.Booted.Digest == "":
		return "the host can't stage an image, or runs none"
	case !a.canLock:
		return "ostree has no lock here: a reboot meanwhile would boot what is staged"
	case s.Staged != nil || s.RollbackQueued || isLocked || err != nil:
		return "something is staged, or is to boot next, which would be lost: try again after the host's reboot"
	default:
		return ""
	}
}

func (a *attempt) staged(ctx context.Context) (*host.Deployment, error) {
	s, err := a.h.Status(ctx)
	return s.Staged, err
}

// stage stages the image that runs by its digest.
func (c *checker) stage(ctx context.Context, a *attempt) {
	const what = "staging"
	image := pinned(a.booted)
	if a.booted.Image == image {
		c.say(NotDone, what, "the host runs its image by digest, and its programs stage no image twice")
		return
	}
	trust, how := host.TrustDigest, "without a signature, since the policy wants none of it"
	if a.admits {
		trust, how = host.TrustSignature, "with its signature verified"
	}
	if err := a.h.Stage(ctx, mcfgv1.ImageDigestFormat(image), trust); err != nil {
		c.sayError(Mend, what, err)
		return
	}
	switch staged, err := a.staged(ctx); {
	case err != nil:
		c.sayError(Mend, what, err)
	case !staged.IsOf(mcfgv1.ImageDigestFormat(image)):
		c.say(Mend, what, "the host says that it has staged the image, and has not")
	default:
		c.say(OK, what, "the image that runs was staged by its digest, %s", how)
	}
}

// changeArguments changes kernel arguments of what boots next, and reads them again.
func (c *checker) changeArguments(ctx context.Context, a *attempt, from, to []string) {
	what := "kernel arguments there"
	if len(to) < len(from) {
		what = "kernel arguments back"
	}
	err := a.h.SetKernelArguments(ctx, host.ArgumentChange{From: from, To: to})
	var now []string
	if err == nil {
		now, err = a.h.KernelArguments(ctx)
	}
	switch {
	case err != nil:
		c.sayError(Mend, what, err)
	case !slices.Equal(now, to):
		c.say(Mend, what, "the host has set %d of them and not %d, or in another order", len(now), len(to))
	default:
		c.say(OK, what, "what boots next has %d of them", len(now))
	}
}

// lockAndUnlock tries ostree's command. Its file alone, which is there already, is as good.
func (c *checker) lockAndUnlock(ctx context.Context, a *attempt) {
	const what = "lock and unlock"
	err := a.h.Lock(ctx)
	locked, unlocked := false, false
	if err == nil {
		locked, err = a.isLocked(ctx)
	}
	if err == nil {
		err = a.h.Unlock(ctx)
	}
	if err == nil {
		unlocked, err = a.isLocked(ctx)
		unlocked = !unlocked
	}
	if again := a.finalization.Lock(); err == nil {
		err = again
	}
	switch {
	case err != nil:
		c.sayError(Mend, what, err)
	case locked && unlocked:
		c.say(OK, what, "by ostree admin lock-finalization")
	default:
		c.say(Limited, what, "by ostree's file alone, which the host's programs don't show")
	}
}

func (a *attempt) isLocked(ctx context.Context) (bool, error) {
	staged, err := a.staged(ctx)
	return staged != nil && staged.Locked, err
}

// cleanUp removes what was staged, also when the check was ended, and looks whether all is as it
// was.
func (c *checker) cleanUp(ctx context.Context, a *attempt) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), timeToClean)
	defer done()
	const what = "unstaging"
	err := a.h.Unstage(ctx, mcfgv1.ImageDigestFormat(pinned(a.booted)))
	if err == nil {
		err = a.checkClean(ctx)
	}
	if err != nil { // the lock stays: without it the next reboot boots what is left
		c.say(Mend, what, "%s; remove what is staged with ostree admin undeploy 0, and /run/ostree/staged-deployment-locked", fault.Clean(err.Error()))
		return
	}
	if err := a.finalization.Unlock(); err != nil {
		c.sayError(Mend, what, err)
		return
	}
	c.say(OK, what, "what boots next is what boots without this check")
}

func (a *attempt) checkClean(ctx context.Context) error {
	staged, err := a.staged(ctx)
	switch {
	case err != nil:
		return err
	case staged != nil:
		return errors.New("something is still staged")
	case a.line == nil:
		return nil
	}
	now, err := a.h.KernelArguments(ctx)
	if err == nil && !slices.Equal(now, a.line) {
		err = errors.New("kernel arguments are other ones than before")
	}
	return err
}

// pinned is the image of a deployment, by its digest.
func pinned(d *host.Deployment) string {
	name, _, _ := strings.Cut(d.Image, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name = name[:at]
	}
	return name + "@" + d.Digest
}
