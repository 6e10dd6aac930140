package attempts

import (
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Count is how often something has failed, and how often it may be tried again.
type Count struct{ Failed, Retries int }

// IsSpent reports whether no attempt is left.
func (c Count) IsSpent() bool { return c.Failed > c.Retries }

// AndOne is the count after one more failure.
func (c Count) AndOne() Count { return Count{c.Failed + 1, c.Retries} }

// String is the attempt that follows, or the last one where none does.
func (c Count) String() string {
	return fmt.Sprintf("attempt %d of %d", min(c.Failed, c.Retries)+1, c.Retries+1)
}

// mostDoublings keeps a pause from growing beyond what a duration holds.
const mostDoublings = 16

// Pause is how long to wait after the last failure: first, and each time twice as long, up to most.
func (c Count) Pause(first, most time.Duration) time.Duration {
	return min(first<<min(max(c.Failed-1, 0), mostDoublings), most)
}

// Most is the highest count that is written.
const Most = 100

// Written is the count that an annotation of an object has; zero where it has none.
func Written(o metav1.Object, key string) int { return Read(o.GetAnnotations()[key]) }

// Read is the count that a text has; zero where it has none.
func Read(text string) int {
	n, _ := strconv.Atoi(text)
	return min(max(n, 0), Most)
}
