package version

import (
	"runtime"
	"runtime/debug"
)

// Version and Revision are set by the linker in release builds and by nothing else:
//
//	go build -ldflags "-X github.com/layerwright/layerwright/internal/version.Version=v1.2.3
//	  -X github.com/layerwright/layerwright/internal/version.Revision=0123abcd"
var (
	Version  string
	Revision string
)

// What is reported when neither the linker nor the Go tool knows better.
const (
	unknownVersion  = "devel"
	unknownRevision = "unknown"
)

// goDevel is what the Go tool records as the version of a main module that was not built at a tag.
const goDevel = "(devel)"

// Info describes one build.
type Info struct {
	// Version is the release, such as v1.2.3, or "devel".
	Version string `json:"version"`
	// Revision is the git commit, with "-dirty" behind it when files had been changed, or
	// "unknown".
	Revision string `json:"revision"`
	// GoVersion is the Go release that compiled the binary.
	GoVersion string `json:"goVersion"`
	// Platform is operating system and architecture, such as linux/amd64.
	Platform string `json:"platform"`
}

// Current describes the running binary.
func Current() Info {
	build, _ := debug.ReadBuildInfo()
	return describe(Version, Revision, build)
}

// describe prefers what the linker set over what the Go tool recorded; build may be nil.
func describe(linkedVersion, linkedRevision string, build *debug.BuildInfo) Info {
	info := Info{
		Version:   linkedVersion,
		Revision:  linkedRevision,
		GoVersion: runtime.Version(),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	if build != nil {
		info.Version = firstOf(info.Version, releaseOf(build))
		info.Revision = firstOf(info.Revision, revisionOf(build))
	}
	info.Version = firstOf(info.Version, unknownVersion)
	info.Revision = firstOf(info.Revision, unknownRevision)
	return info
}

// releaseOf is the main module's version, empty when the Go tool did not know it.
func releaseOf(build *debug.BuildInfo) string {
	if build.Main.Version == goDevel {
		return ""
	}
	return build.Main.Version
}

// revisionOf is the recorded commit, empty when the build was not made inside a checkout.
func revisionOf(build *debug.BuildInfo) string {
	var revision, suffix string
	for _, setting := range build.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			suffix = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + suffix
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
