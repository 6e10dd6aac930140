package plan

import (
	"fmt"
	"slices"
	"time"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/words"
)

// day is a calendar day of at most 25 hours, when clocks are put back.
const day = 25 * time.Hour

// Window is what the maintenance windows of a pool say at one moment.
type Window struct {
	// Open reports whether nodes may start to change. Without windows they always may.
	Open bool
	// Name is the window that is open, or the one that opens next.
	Name string
	// Changes is when the open window closes, or the next one opens; zero where neither is known.
	Changes time.Time
	// Problem is why a window can never open, for people; empty where all can.
	Problem string
}

// Windows says which of the windows is open now, or which opens next. A window opens on each of its
// days at its start by the clock of its time zone, or when clocks are put forward over it, and
// stays open for its duration, also when clocks change meanwhile. Of several open windows the one
// that closes last is named.
func Windows(windows []mcfgv1.RolloutWindow, now time.Time) Window {
	if len(windows) == 0 {
		return Window{Open: true}
	}
	var open, next Window
	problem := ""
	for i := range windows {
		w, err := parseWindow(&windows[i])
		if err != nil {
			problem = err.Error()
			continue
		}
		if until := w.openUntil(now); until.After(open.Changes) {
			open = Window{Open: true, Name: w.name, Changes: until}
		}
		if opens := w.opensAfter(now); next.Changes.IsZero() || opens.Before(next.Changes) {
			next = Window{Name: w.name, Changes: opens}
		}
	}
	if !open.Open {
		open = next
	}
	open.Problem = problem
	return open
}

// window is a RolloutWindow that was read.
type window struct {
	name         string
	days         []mcfgv1.Weekday // empty means every day
	hour, minute int
	duration     time.Duration
	zone         *time.Location
}

func parseWindow(w *mcfgv1.RolloutWindow) (window, error) {
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return window{}, fmt.Errorf("window %q: start %q is no time of day", w.Name, w.Start)
	}
	duration, err := time.ParseDuration(w.Duration)
	if err != nil {
		return window{}, fmt.Errorf("window %q: duration %q: %w", w.Name, w.Duration, err)
	}
	zone, err := time.LoadLocation(w.TimeZone) // "" is UTC
	if err != nil {
		return window{}, fmt.Errorf("window %q: timeZone %q is not in the time zone database", w.Name, w.TimeZone)
	}
	return window{w.Name, w.Days, start.Hour(), start.Minute(), duration, zone}, nil
}

// openUntil is when the window closes that is open now; zero where it is not open. Windows of one
// name that overlap are one.
func (w *window) openUntil(now time.Time) time.Time {
	var until time.Time
	for begin := range w.from(now.Add(-w.duration - day)) {
		if begin.After(now) {
			break
		}
		if end := begin.Add(w.duration); end.After(now) {
			until = end
		}
	}
	return until
}

// opensAfter is when the window opens next.
func (w *window) opensAfter(now time.Time) time.Time {
	for begin := range w.from(now.Add(-day)) {
		if begin.After(now) {
			return begin
		}
	}
	return time.Time{} // never reached: a week has all days
}

// from yields when the window opens, from the day of a time on, for as long as any caller needs.
func (w *window) from(t time.Time) func(yield func(time.Time) bool) {
	const most = 24 // days: the longest window, twice
	return func(yield func(time.Time) bool) {
		year, month, first := t.In(w.zone).Date()
		for i := range most {
			wall := time.Date(year, month, first+i, w.hour, w.minute, 0, 0, time.UTC)
			isDay := len(w.days) == 0 || slices.Contains(w.days, mcfgv1.Weekday(wall.Weekday().String()))
			if isDay && !yield(w.at(wall)) {
				return
			}
		}
	}
}

// at is the first moment at which clocks of the window's zone show what those of UTC show at wall.
// Where clocks are put forward over it, it is the moment at which that is done.
func (w *window) at(wall time.Time) time.Time {
	after := wall.Add(day).In(w.zone)
	for _, near := range []time.Time{wall.Add(-day).In(w.zone), after} {
		_, offset := near.Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(w.zone)
		if _, is := t.Zone(); is == offset {
			return t
		}
	}
	changed, _ := after.ZoneBounds()
	return changed
}

// waits is why no node may start to change now, in words.
func (w *Window) waits() string {
	if w.Changes.IsZero() {
		return words.NoWindow + w.Problem
	}
	return fmt.Sprintf(words.WaitsForWindow+"%s, which opens at %s", w.Name, w.Changes.UTC().Format(time.RFC3339))
}
