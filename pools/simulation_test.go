package pools

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/streams"
)

// simulation is a cluster in which things happen by chance, and a person asks for streams now and
// then.
type simulation struct {
	*world
	random *rand.Rand
	r      *Reconciler
	pools  []string
	// images is what each pool has, asked whether someone has named a stream for it since.
	images map[string]string
	asked  map[string]bool
	done   []string
}

// TestNoAccidentAnywhereChangesAnOperatingSystem has defaults change, streams come, go and get
// newer images, processes restart, nodes arrive, statuses and annotations get lost, and pools be
// paused. An OS image of another stream only ever follows from someone's naming it, in the pool or
// in the worker pool, and never one of an older version.
func TestNoAccidentAnywhereChangesAnOperatingSystem(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := &simulation{
				world:  newWorld(t, newPool("master"), newPool("worker"), newPool("infra"), newPool("gpu"), newStream("rhel-9", "rhel-10"), newConfig("00-a", "worker", "/etc/a")),
				random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // a test that can be repeated wants no secret numbers
				pools:  []string{"infra", "master", "gpu", "worker"}, images: map[string]string{}, asked: map[string]bool{},
			}
			for i, pool := range s.pools {
				s.add(newNode(fmt.Sprint("n", i), []string{pool}))
			}
			s.r = s.reconciler()
			for range 30 {
				s.happen()
				s.look()
			}
		})
	}
}

// happen makes one thing happen.
func (s *simulation) happen() {
	all := []string{"rhel-9", "rhel-10", "rhel-11"}
	pool := s.pools[s.random.IntN(len(s.pools))]
	what := ""
	switch s.random.IntN(11) {
	case 0, 1:
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		offered := all[:1+s.random.IntN(len(all))]
		what = fmt.Sprint("streams, and the default, become ", offered)
		s.offer(offered...)
	case 2:
		what = "the images of streams become newer"
		digit := fmt.Sprint(s.random.IntN(10))
		s.editStreams(func(set *mcfgv1.OSImageStream) {
			for i := range set.Status.AvailableStreams {
				set.Status.AvailableStreams[i].OSImage = mcfgv1.ImageDigestFormat(pinned(digit) + set.Status.AvailableStreams[i].Name)
			}
		})
	case 3:
		what = "restart"
		s.r = s.reconciler()
	case 4:
		what = "status lost of " + pool
		p := s.pool(pool)
		p.Status = mcfgv1.MachineConfigPoolStatus{}
		s.quietly(func() error { return s.Status().Update(s.t.Context(), p) })
	case 5:
		if s.pool(pool).Status.OSImageStream.Name == s.remembered(pool) { // else nothing knows any more
			what = "annotation lost of " + pool
			s.editPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Annotations = nil })
		}
	case 6:
		name := append(all, "")[s.random.IntN(4)]
		what = fmt.Sprintf("%s names %q", pool, name)
		s.editPool(pool, naming(name))
		s.asked[pool] = true
		if pool == mcfgv1.PoolWorker {
			s.asked["infra"], s.asked["gpu"] = true, true
		}
	case 7:
		what = "pause or resume " + pool
		s.editPool(pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = !p.Spec.Paused })
	case 8:
		what = "another MachineConfig"
		s.add(newConfig(fmt.Sprint("50-", len(s.done)), "worker", "/etc/b"))
	default:
		what = "the node of " + pool + " arrives"
		if config := s.wants(pool); config != "" {
			s.editNode(fmt.Sprint("n", slices.Index(s.pools, pool)), func(n *corev1.Node) { having(config)(n) })
		}
	}
	s.done = append(s.done, what)
	s.settle(s.r, s.pools...)
}

// look compares what pools have with what they had.
func (s *simulation) look() {
	for _, pool := range s.pools {
		config := s.wants(pool)
		if config == "" {
			continue
		}
		is, was := s.config(config).Annotations[mcfgv1.AnnotationOSImageStream], s.images[pool]
		if is != was && was != "" {
			require.True(s.t, s.asked[pool], "%s went from %s to %s, and no one asked: %v", pool, was, is, s.done)
			require.Less(s.t, slices.Index([]string{"rhel-9", "rhel-10", "rhel-11"}, was), slices.Index([]string{"rhel-9", "rhel-10", "rhel-11"}, is),
				"%s went back from %s to %s: %v", pool, was, is, s.done)
			s.asked[pool] = s.isStillAsked(pool, is)
		}
		s.images[pool] = is
	}
}

// isStillAsked reports whether what a person named has yet to come, as with a stream that is not
// there or a pool that is paused.
func (s *simulation) isStillAsked(pool, is string) bool {
	p, w := s.pool(pool), s.pool(mcfgv1.PoolWorker)
	return streams.Following(p, w) != is
}
