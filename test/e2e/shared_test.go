//go:build e2e

package e2e

import (
	"sync"
	"testing"
)

// TestSharedCluster is what happens to the cluster that tests share, one part after the other;
// those that run side by side come last.
func TestSharedCluster(t *testing.T) {
	firstHalf.Add(1)
	half := sync.OnceFunc(firstHalf.Done)
	t.Cleanup(half)
	t.Parallel()
	t.Run("builds survive what registries do", testBuildsSurvive)
	t.Run("the controller dies", testTheControllerDies)
	t.Run("the holder of the lease goes", testTheHolderOfTheLeaseGoes)
	t.Run("a paused controller writes nothing after its lease", testAPausedControllerWritesNothingAfterItsLease)
	t.Run("a clock that was ahead", testAClockThatWasAhead)
	t.Run("names make no image", testNamesMakeNoImage)
	t.Run("images equal those built slowly", testImagesEqualThoseBuiltSlowly)
	t.Run("content of every kind", testContentCases)
	t.Run("the controller dies while content is built", testTheControllerDiesWhileContentIsBuilt)
	half() // what follows waits more than it computes
	t.Run("a digest that no one knows", testADigestThatNoOneKnows)
	t.Run("RUN lines find no secret", testRunLinesFindNoSecret)
	t.Run("content is built in a pod", testContentIsBuiltInAPod)
	t.Run("content that sees the configuration", testContentThatSeesTheConfiguration)
	t.Run("the demo", testDemo)
	t.Run("images built elsewhere", testImagesBuiltElsewhere)
	t.Run("pools on streams", testPoolsOnStreams)
	t.Run("images are signed", testImagesAreSigned)
	t.Run("trying a stream", testTryingAStream)
	t.Run("images are verified", testImagesAreVerified)

	t.Run("content survives", testContentSurvives)
	t.Run("a line that tampers gets no secret", testALineThatTampersGetsNoSecret)
	t.Run("a rendered layer over a real root file system", testRenderedLayerOverARealRootFileSystem)
	t.Run("what is wrong is said", testWhatIsWrongIsSaid)
}

// firstHalf ends when the machine has time for more.
var firstHalf sync.WaitGroup

// TestBesideSharedCluster is what does without the controller of TestSharedCluster: most parts have
// a cluster of their own. They run one after the other beside its second half, since more at once
// make a small machine miss deadlines; beside its first half run the tests of build steps and of
// hosts (test/e2e/engine, test/e2e/host).
func TestBesideSharedCluster(t *testing.T) { //nolint:tparallel // its parts wait for each other
	t.Parallel()
	firstHalf.Wait()
	t.Run("streams", testStreams)
	t.Run("content of several architectures", testContentOfSeveralArchitectures)
	t.Run("the demo without root", testDemoWithoutRoot)
	t.Run("builds as Jobs", testBuildsAsJobs)
	t.Run("a node dies while content is built", testANodeDiesWhileContentIsBuilt)
}
