package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/rollout/plan"
)

func nightly(zone string, days ...mcfgv1.Weekday) mcfgv1.RolloutWindow {
	return mcfgv1.RolloutWindow{Name: "nightly", Days: days, Start: "22:00", Duration: "4h", TimeZone: zone}
}

func TestWindows(t *testing.T) {
	t.Parallel()
	weekend := mcfgv1.RolloutWindow{Name: "weekend", Days: []mcfgv1.Weekday{"Saturday"}, Start: "00:00", Duration: "48h"}
	tests := map[string]struct {
		windows []mcfgv1.RolloutWindow
		now     string
		want    string
		changes string
	}{
		"without windows any time will do":    {now: "2026-03-04T05:00:00Z", want: "open "},
		"before it opens":                     {windows: []mcfgv1.RolloutWindow{nightly("")}, now: "2026-03-04T21:59:59Z", want: "closed nightly", changes: "2026-03-04T22:00:00Z"},
		"at its start":                        {windows: []mcfgv1.RolloutWindow{nightly("")}, now: "2026-03-04T22:00:00Z", want: "open nightly", changes: "2026-03-05T02:00:00Z"},
		"after midnight":                      {windows: []mcfgv1.RolloutWindow{nightly("")}, now: "2026-03-05T01:59:59Z", want: "open nightly", changes: "2026-03-05T02:00:00Z"},
		"at its end":                          {windows: []mcfgv1.RolloutWindow{nightly("")}, now: "2026-03-05T02:00:00Z", want: "closed nightly", changes: "2026-03-05T22:00:00Z"},
		"the day is that of its start":        {windows: []mcfgv1.RolloutWindow{nightly("", "Wednesday")}, now: "2026-03-05T01:00:00Z", want: "open nightly", changes: "2026-03-05T02:00:00Z"},
		"another day of the week":             {windows: []mcfgv1.RolloutWindow{nightly("", "Wednesday")}, now: "2026-03-05T22:30:00Z", want: "closed nightly", changes: "2026-03-11T22:00:00Z"},
		"the same day a week later":           {windows: []mcfgv1.RolloutWindow{nightly("", "Wednesday")}, now: "2026-03-05T02:00:00Z", want: "closed nightly", changes: "2026-03-11T22:00:00Z"},
		"days and start are of its time zone": {windows: []mcfgv1.RolloutWindow{nightly("Pacific/Auckland", "Thursday")}, now: "2026-03-05T09:30:00Z", want: "open nightly", changes: "2026-03-05T13:00:00Z"},
		"the night when clocks go forward":    {windows: []mcfgv1.RolloutWindow{nightly("Europe/Prague", "Saturday")}, now: "2026-03-29T00:59:00Z", want: "open nightly", changes: "2026-03-29T01:00:00Z"},
		"the day after clocks went forward":   {windows: []mcfgv1.RolloutWindow{nightly("Europe/Prague", "Sunday")}, now: "2026-03-29T19:00:00Z", want: "closed nightly", changes: "2026-03-29T20:00:00Z"},
		"the night when clocks go back":       {windows: []mcfgv1.RolloutWindow{nightly("Europe/Prague", "Saturday")}, now: "2026-10-24T23:59:00Z", want: "open nightly", changes: "2026-10-25T00:00:00Z"},
		"of two open ones the longer":         {windows: []mcfgv1.RolloutWindow{nightly(""), weekend}, now: "2026-03-07T22:30:00Z", want: "open weekend", changes: "2026-03-09T00:00:00Z"},
		"of two closed ones the next":         {windows: []mcfgv1.RolloutWindow{nightly(""), weekend}, now: "2026-03-06T03:00:00Z", want: "closed nightly", changes: "2026-03-06T22:00:00Z"},
		"a week without a gap":                {windows: []mcfgv1.RolloutWindow{{Name: "always", Start: "00:00", Duration: "168h"}}, now: "2026-03-06T03:00:00Z", want: "open always", changes: "2026-03-13T00:00:00Z"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, err := time.Parse(time.RFC3339, tt.now)
			require.NoError(t, err)
			got := plan.Windows(tt.windows, now)
			state := "closed "
			if got.Open {
				state = "open "
			}
			assert.Equal(t, tt.want, state+got.Name)
			assert.Empty(t, got.Problem)
			changes := ""
			if !got.Changes.IsZero() {
				changes = got.Changes.UTC().Format(time.RFC3339)
			}
			assert.Equal(t, tt.changes, changes)
		})
	}
}

func TestWindowsThatCanNeverOpen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 22, 30, 0, 0, time.UTC)
	got := plan.Windows([]mcfgv1.RolloutWindow{nightly("Europe/Atlantis")}, now)
	assert.Equal(t, plan.Window{Problem: `window "nightly": timeZone "Europe/Atlantis" is not in the time zone database`}, got)

	got = plan.Windows([]mcfgv1.RolloutWindow{nightly("Europe/Atlantis"), nightly("")}, now)
	assert.True(t, got.Open, "the others still open")
	assert.NotEmpty(t, got.Problem)
}

// TestWindowsOpenOnceADay follows a window through a year of minutes with two changes of the clock.
func TestWindowsOpenOnceADay(t *testing.T) {
	t.Parallel()
	windows := []mcfgv1.RolloutWindow{{Name: "w", Start: "02:30", Duration: "30m", TimeZone: "Europe/Prague"}}
	opened, open := 0, 0
	was := false
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for now := begin; now.Before(begin.AddDate(1, 0, 0)); now = now.Add(5 * time.Minute) {
		is := plan.Windows(windows, now).Open
		if is {
			open++
		}
		if is && !was {
			opened++
		}
		was = is
	}
	assert.Equal(t, 365, opened)
	assert.Equal(t, 365*6, open, "each time for 30 minutes")
}

// TestWindowsWhenClocksChange holds for all changes of clocks of some years that a window opens
// when clocks first show its start or more, on its day, and not before.
func TestWindowsWhenClocksChange(t *testing.T) {
	t.Parallel()
	const step = 30 * time.Minute
	zones := []string{
		"America/Santiago", "America/Havana", "America/Asuncion", "Africa/Cairo", "Asia/Beirut", // at midnight
		"Europe/Prague", "America/New_York", "Atlantic/Azores", "Africa/Casablanca",
		"Australia/Lord_Howe", // by half an hour
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			require.NoError(t, err)
			changes := 0
			end := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			for _, change := time.Date(2023, 1, 1, 0, 0, 0, 0, zone).ZoneBounds(); !change.IsZero() && change.Before(end); _, change = change.ZoneBounds() {
				changes++
				requireOpens(t, zone, change, step)
			}
			require.NotZero(t, changes)
		})
	}
}

func requireOpens(t *testing.T, zone *time.Location, change time.Time, step time.Duration) {
	t.Helper()
	year, month, date := change.In(zone).Date()
	for ahead := -1; ahead <= 1; ahead++ {
		for _, start := range []string{"00:00", "00:30", "01:00", "01:30", "02:00", "02:30", "03:00", "12:00", "23:00", "23:30"} {
			clock, err := time.Parse("15:04", start)
			require.NoError(t, err)
			wall := time.Date(year, month, date+ahead, clock.Hour(), clock.Minute(), 0, 0, time.UTC)
			opens := change.Add(-72 * time.Hour)
			for shows(opens.In(zone)).Before(wall) {
				opens = opens.Add(step)
			}
			windows := []mcfgv1.RolloutWindow{{
				Name: "w", Days: []mcfgv1.Weekday{mcfgv1.Weekday(wall.Weekday().String())}, Start: start, Duration: "30m", TimeZone: zone.String(),
			}}
			require.Equal(t, plan.Window{Open: true, Name: "w", Changes: opens.Add(step).UTC()}, inUTC(plan.Windows(windows, opens)), "%s at %s", wall, opens)
			require.Equal(t, plan.Window{Name: "w", Changes: opens.UTC()}, inUTC(plan.Windows(windows, opens.Add(-time.Second))), "%s before %s", wall, opens)
		}
	}
}

// shows is what clocks show at a time, as a time of UTC.
func shows(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
}

func inUTC(w plan.Window) plan.Window {
	w.Changes = w.Changes.UTC()
	return w
}
