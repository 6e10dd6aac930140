package streams

import (
	"fmt"
	"testing"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
)

// BenchmarkResolve500Pools is what a change of the OSImageStream costs to resolve: 500 custom pools
// of all kinds and 100 streams, with what is said of deprecated ones. The budget is 50 ms.
func BenchmarkResolve500Pools(b *testing.B) {
	const budget = 50 * time.Millisecond
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("rhel%d-coreos", i+1))
	}
	streams := listing(names...)
	for i := range streams.Status.AvailableStreams {
		streams.Status.AvailableStreams[i].DeprecationDate, streams.Status.AvailableStreams[i].EndOfLifeDate = "2026-01-01", "2030-01-01"
	}
	worker := remembering(pool("worker", "", ""), names[99])
	var subjects []Subject
	for i := range 500 {
		s := Subject{Pool: pool(fmt.Sprint("custom-", i), "", ""), Worker: worker, On: []string{names[i%100]}}
		switch i % 5 {
		case 0:
			s.Pool.Spec.OSImageStream.Name = names[99]
		case 1:
			remembering(s.Pool, names[i%100])
		case 2:
			s.Pool.Status.OSImageStream.Name = names[i%100]
		case 3: // removed
			configured(remembering(s.Pool, "rhel0-coreos"))
			s.Rendered, s.On = rendered("os/0", "rhel0-coreos"), nil
		case 4: // from before streams
			configured(s.Pool)
			s.Rendered, s.Kernels, s.On = rendered("os/0", ""), []string{el9, el9, el9}, nil
		}
		subjects = append(subjects, s)
	}
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		for i := range subjects {
			choice, err := ForPool(subjects[i], streams)
			if err != nil {
				b.Fatal(err)
			}
			if StandingOf(streams, choice.Name, now).Lifecycle != mcfgv1.StreamDeprecated && !choice.Frozen {
				b.Fatal("not deprecated")
			}
		}
	}
	if each := b.Elapsed() / time.Duration(b.N); each > budget {
		b.Errorf("500 pools took %v, the budget is %v", each, budget)
	}
}
