package demo

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// size formats a number of bytes as people read it, in units of 1000 as registries and disks count.
func size(bytes int64) string {
	if bytes < 1000 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB"} {
		if value /= 1000; value < 999.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// took formats a duration as people read it.
func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// trafficText is how the message of a build says what it moved.
var trafficText = regexp.MustCompile(`^(?:the content was built, and )?the configuration was appended in (\S+), with (\d+) bytes sent and (\d+) received$`)

// moved says what a build moved, from the message of its condition, beside the size of the base
// image. A message that says something else is taken as it is.
func moved(message string, base int64) string {
	found := trafficText.FindStringSubmatch(message)
	if found == nil {
		return message
	}
	sent, errSent := strconv.ParseInt(found[2], 10, 64)
	received, errReceived := strconv.ParseInt(found[3], 10, 64)
	if errSent != nil || errReceived != nil {
		return message
	}
	return fmt.Sprintf("%s sent and %s received in %s; the base image has %s", size(sent), size(received), found[1], size(base))
}

// indent puts two more spaces before every line.
func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// home shortens a path below the home folder, for commands that a shell takes.
func home(path, folder string) string {
	if rest, ok := strings.CutPrefix(path, folder+"/"); ok && folder != "" {
		return "~/" + rest
	}
	return path
}
