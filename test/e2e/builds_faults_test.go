//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/test/cluster/faultproxy"
	"github.com/layerwright/layerwright/test/cluster/registry"
)

// Requests that make an image, by their method and the end of their path. Each is a moment at which
// something can go wrong.
type moment struct{ method, path string }

var (
	beginUpload   = moment{http.MethodPost, "blobs/uploads/$"}
	sendLayer     = moment{http.MethodPatch, "blobs/uploads/"}
	endUpload     = moment{http.MethodPut, "blobs/uploads/"}
	askForImage   = moment{http.MethodHead, "manifests/"}
	writeManifest = moment{http.MethodPut, "manifests/sha256:"}
	writeTags     = moment{http.MethodPut, "manifests/[^:.]*$"}
	writeContent  = moment{http.MethodPut, "manifests/content-"}
	attach        = moment{http.MethodPut, `manifests/sha256-[0-9a-f]{64}\.`}
)

// rule lets a fault happen to the pool's requests of a moment.
func (p *layered) rule(m moment, times int, fault faultproxy.Fault) faultproxy.Rule {
	return faultproxy.Rule{Method: m.method, Path: p.path(m.path), Times: times, Fault: fault}
}

// moreThanOnce is how often a request fails before it goes through: more often than one call of the
// registry is tried, so that the build has to be tried again too.
const moreThanOnce = 4

// testBuildsSurvive has everything that goes wrong between the controller and registries happen at
// once, each to a pool of its own.
func testBuildsSurvive(t *testing.T) {
	b := newBuilds(t)
	for name, test := range map[string]func(*testing.T, *builds){
		"a registry that fails":                       testFailing,
		"a connection that is lost":                   testLostConnection,
		"a registry that hangs until it is restarted": testHanging,
		"a retry limit that is reached":               testRetryLimit,
		"a registry that is read-only":                testReadOnly,
		"a base image that is deleted midway":         testDeletedBase,
		"a push secret that is revoked midway":        testRevokedSecret,
		"a disk that is full":                         testFullDisk,
		"another configuration meanwhile":             testChangeMeanwhile,
		"deletion meanwhile":                          testDeletionMeanwhile,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// testFailing lets the requests of a moment fail and then go through: in the end there is one
// image. That this is so for each request and each answer, package registry tests; here are those
// after which a real registry keeps something.
func testFailing(t *testing.T, b *builds) {
	t.Helper()
	tests := map[string]struct {
		moment moment
		fault  faultproxy.Fault
	}{
		"502 while a layer is sent": {sendLayer, faultproxy.Answer(http.StatusBadGateway, "")},
		"500 for the tags":          {writeTags, faultproxy.Answer(http.StatusInternalServerError, "UNKNOWN")},
		"429 with a pause":          {writeManifest, faultproxy.Answer(http.StatusTooManyRequests, "TOOMANYREQUESTS", "Retry-After", "1")},
		"the upload is gone":        {sendLayer, faultproxy.Answer(http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN")},
		"500 for what is attached":  {attach, faultproxy.Answer(http.StatusInternalServerError, "UNKNOWN")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.unasked(t, "fails-"+slug(name))
			p.breaking(p.rule(tt.moment, moreThanOnce, tt.fault))
			p.ask()
			p.requireOneImage("one")
			assert.Len(t, p.told("BuildStarted"), 1, "one build, however often it was tried")
		})
	}
}

// testLostConnection loses it at each moment: before the request, in its middle, behind it, in the
// middle of the answer and at its last byte, one after the other.
func testLostConnection(t *testing.T, b *builds) {
	t.Helper()
	for name, m := range map[string]moment{
		"layer": sendLayer, "end of an upload": endUpload, "tags": writeTags,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.unasked(t, "lost-"+slug(name))
			for _, cut := range []faultproxy.Fault{
				faultproxy.CutRequest(0), faultproxy.CutRequest(0.5), faultproxy.CutRequest(1),
				faultproxy.CutAnswer(0), faultproxy.CutAnswer(0.5), faultproxy.CutAnswer(1),
			} {
				p.breaking(p.rule(m, 1, cut))
			}
			p.ask()
			p.requireOneImage("one")
			assert.Len(t, p.told("BuildStarted"), 1)
		})
	}
	t.Run("base image", func(t *testing.T) {
		t.Parallel()
		p := b.unasked(t, "lost-base")
		base := b.copyBase(t, "lost")
		for _, share := range []float64{0, 0.1, 0.5, 0.9, 1} {
			t.Cleanup(b.proxy.Add(faultproxy.Rule{Method: http.MethodGet, Path: base.path, Skip: 1, Times: 1, Fault: faultproxy.CutAnswer(share)}))
		}
		p.ask(func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(base.pinned) })
		p.requireReady("one")
	})
}

// testHanging takes requests and answers none, until their connections end.
func testHanging(t *testing.T, b *builds) {
	t.Helper()
	p := b.unasked(t, "hangs")
	hang, end := faultproxy.Hang()
	heal := p.breaking(p.rule(writeManifest, 0, hang))
	p.ask()
	build := p.building()
	p.eventually(func(t *assert.CollectT) {
		assert.NotEmpty(t, b.proxy.Requests(regexp.MustCompile("^PUT .*/hangs/manifests/")))
	})
	heal()
	end()
	p.requireOneImage("one")
	assert.Equal(t, build.UID, p.machineOSBuilds(t.Context(), t)[0].UID, "the same build goes on")
}

func testRetryLimit(t *testing.T, b *builds) {
	t.Helper()
	p := b.unasked(t, "limited")
	heal := p.breaking(p.rule(sendLayer, 0, faultproxy.Answer(http.StatusInternalServerError, "UNKNOWN")))
	p.ask(func(c *mcfgv1.MachineOSConfig) { c.Spec.BuildRetryLimit = new(int32(1)) })
	p.says("Stalled", `True RetryLimitReached build "`+p.building().Name+`" failed: attempt 2 of 2 (spec.buildRetryLimit) failed: pushing image `)
	heal()
	p.rebuild()
	p.requireOneImage("one")
}

// testReadOnly is waited for.
func testReadOnly(t *testing.T, b *builds) {
	t.Helper()
	p := b.unasked(t, "read-only")
	heal := p.breaking(p.rule(beginUpload, 0, faultproxy.Answer(http.StatusMethodNotAllowed, "UNSUPPORTED")))
	p.ask()
	p.says("Reconciling", "True Waiting spec.renderedImagePushSpec: checking access to repository \""+b.host+"/builds/read-only\": "+
		"the registry takes no uploads (405 Method Not Allowed, UNSUPPORTED: a fault that was asked for); it may be read-only for now, or a mere mirror")
	heal()
	p.rebuild() // sooner than it is looked at again
	p.requireOneImage("one")
}

// testDeletedBase after preflight has seen it, and before it is appended to.
func testDeletedBase(t *testing.T, b *builds) {
	t.Helper()
	p := b.unasked(t, "no-base")
	base := b.copyBase(t, "deleted")
	hold, held := faultproxy.HoldRequest()
	p.breaking(faultproxy.Rule{Path: base.manifests(), Fault: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		var builds mcfgv1.MachineOSBuildList
		if err := p.List(r.Context(), &builds, client.MatchingLabels{mcfgv1.LabelMachineOSConfig: p.name}); err == nil && len(builds.Items) == 0 {
			next.ServeHTTP(w, r) // preflight asks
			return
		}
		hold(w, r, next)
	}})
	p.ask(func(c *mcfgv1.MachineOSConfig) { c.Spec.BaseOSImagePullSpec = mcfgv1.ImageReferenceFormat(base.pinned) })
	build := p.building()
	<-held.Arrived
	base.delete(t)
	held.Release()
	p.says("Stalled", `True ImageNotFound build "`+build.Name+`" failed: reading image "`+base.pinned+`": it does not exist (404 Not Found, MANIFEST_UNKNOWN`)
	assert.Empty(t, p.machineOSImages(t.Context(), t))
	base.push(t)
	p.rebuild()
	p.requireReady("one")
}

// testRevokedSecret has a registry of its own, whose accounts change in the middle of a push.
func testRevokedSecret(t *testing.T, b *builds) {
	t.Helper()
	own := b.ownRegistry(t, "size=64m")
	b.secret(t, "e2e-revoked", dockerConfig(t, own.host, "push", "first"))
	p := b.unasked(t, "revoked")
	own.serve(registry.Account{Name: "push", Password: "first", Push: true})
	hold, held := faultproxy.HoldRequest()
	own.proxy.Add(faultproxy.Rule{Method: writeManifest.method, Path: regexp.MustCompile("/manifests/"), Fault: hold})
	p.ask(own.target("revoked"))
	build := p.building()
	<-held.Arrived
	own.serve(registry.Account{Name: "push", Password: "second", Push: true})
	held.Release()
	p.says("Stalled", `True PushDenied build "`+build.Name+`" failed: pushing image "`+own.host+"/builds/revoked@sha256:")
	p.toldOf(build.Name, "BuildFailed", `PushDenied: pushing image "`+own.host)
	assert.Empty(t, p.machineOSImages(t.Context(), t))
	b.secret(t, "e2e-revoked", dockerConfig(t, own.host, "push", "second"))
	p.says("Ready", "True Succeeded") // within a minute: nothing tells of a secret
	require.Len(t, p.machineOSBuilds(t.Context(), t), 1)
	require.Len(t, p.machineOSImages(t.Context(), t), 1)
	require.Len(t, own.tags(t, "push", "second", "builds/revoked"), 2)
}

// testFullDisk has a registry of its own, whose disk is too small for the image, and then is not.
func testFullDisk(t *testing.T, b *builds) {
	t.Helper()
	own := b.ownRegistry(t, "size=256k")
	b.secret(t, "e2e-full", dockerConfig(t, own.host, "push", "first"))
	p := b.unasked(t, "full")
	own.serve(registry.Account{Name: "push", Password: "first", Push: true})
	p.ask(own.target("full"))
	p.says("Reconciling", `True Retrying pushing image "`+own.host+`/builds/full@sha256:`)
	own.resize(t, "size=64m")
	p.says("Ready", "True Succeeded")
	require.Len(t, p.machineOSBuilds(t.Context(), t), 1)
	require.Len(t, own.tags(t, "push", "first", "builds/full"), 2)
}

// testChangeMeanwhile ends the build that is under way, in the middle of an upload, and makes the
// other image.
func testChangeMeanwhile(t *testing.T, b *builds) {
	t.Helper()
	p := b.unasked(t, "changes")
	hold, held := faultproxy.HoldAnswer()
	p.breaking(p.rule(sendLayer, 1, hold))
	p.ask()
	first := p.building()
	<-held.Arrived
	p.write("two")
	p.requireReady("two")
	held.Release()
	p.requireReady("two")
	p.eventually(func(t *assert.CollectT) {
		var states []string
		for _, build := range p.machineOSBuilds(p.t.Context(), t) {
			state := "second "
			if build.UID == first.UID {
				state = "first "
			}
			states = append(states, state+strings.Join(strings.Fields(conditionText(build.Status.Conditions, "Ready"))[:2], " "))
		}
		assert.ElementsMatch(t, []string{"first False Interrupted", "second True Succeeded"}, states)
	})
	p.toldOf(first.Name, "BuildInterrupted", "")
	require.Len(t, p.machineOSImages(t.Context(), t), 1)
	require.Len(t, p.tags(), 2, "no tag of the image that no one wants")
}

// testDeletionMeanwhile of the MachineOSConfig, in the middle of an upload and when the image has
// its tags: nothing is left.
func testDeletionMeanwhile(t *testing.T, b *builds) {
	t.Helper()
	for name, m := range map[string]moment{"uploading": sendLayer, "tagging": writeTags} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := b.unasked(t, "deleted-"+name)
			hold, held := faultproxy.HoldAnswer()
			p.breaking(p.rule(m, 1, hold))
			p.ask()
			<-held.Arrived
			require.NoError(t, b.Delete(t.Context(), p.config(t)))
			p.eventually(func(t *assert.CollectT) { assert.Empty(t, p.machineOSBuilds(p.t.Context(), t)) })
			held.Release()
			assert.Empty(t, p.machineOSImages(t.Context(), t))
			assert.Empty(t, p.allTags())
		})
	}
}

// slug makes a name of an object of what a test is called.
func slug(text string) string {
	return strings.Trim(regexp.MustCompile("[^a-z0-9]+").ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// baseImage is an OS image of one test's own.
type baseImage struct {
	*builds
	repository string
	pinned     string
	path       *regexp.Regexp
}

// copyBase gives a test an OS image that it may do everything to.
func (b *builds) copyBase(t *testing.T, name string) *baseImage {
	t.Helper()
	base := &baseImage{builds: b, repository: "bases/" + name}
	base.push(t)
	base.pinned = b.host + "/" + base.repository + "@" + digestIn(b.base)
	base.path = regexp.MustCompile("^/v2/" + base.repository + "/")
	return base
}

func (i *baseImage) reference(t *testing.T) name.Digest {
	t.Helper()
	ref, err := name.NewDigest(i.registry.Host + "/" + i.repository + "@" + digestIn(i.base))
	require.NoError(t, err)
	return ref
}

// blobs are the paths of its layers.
func (i *baseImage) blobs() *regexp.Regexp {
	return regexp.MustCompile("^/v2/" + i.repository + "/blobs/")
}

// manifests are the paths of its manifest.
func (i *baseImage) manifests() *regexp.Regexp {
	return regexp.MustCompile("^/v2/" + i.repository + "/manifests/")
}

func (i *baseImage) push(t *testing.T) {
	t.Helper()
	options := i.registry.Options(t.Context(), "push")
	from, err := name.ParseReference(strings.Replace(i.base, i.host, i.registry.Host, 1))
	require.NoError(t, err)
	image, err := remote.Image(from, options...)
	require.NoError(t, err)
	require.NoError(t, remote.Write(i.reference(t), image, options...))
}

func (i *baseImage) delete(t *testing.T) {
	t.Helper()
	require.NoError(t, remote.Delete(i.reference(t), i.registry.Options(t.Context(), "push")...))
}

// target makes a MachineOSConfig push to the test's own registry.
func (r *ownRegistry) target(name string) func(*mcfgv1.MachineOSConfig) {
	return func(c *mcfgv1.MachineOSConfig) {
		c.Spec.RenderedImagePushSpec = mcfgv1.ImageTagFormat(fmt.Sprintf("%s/builds/%s:latest", r.host, name))
		c.Spec.RenderedImagePushSecret.Name = "e2e-" + name
	}
}
