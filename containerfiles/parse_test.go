package containerfiles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles"
	"github.com/layerwright/layerwright/containerfiles/lint"
)

func TestParseFindsStages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []containerfiles.Stage
	}{
		"nothing":       {"", nil},
		"comments only": {"\ufeff# a\r\n\r\n \t# b", nil},
		"one stage":     {"FROM configs", []containerfiles.Stage{{Base: "configs", Line: 1, EndLine: 1}}},
		"names, continuation lines and CRLF": {
			"ARG A=x\r\nfrom $A \\\r\n # why\r\n  As Build\r\nRUN true\r\n\r\nFROM Build\r\n",
			[]containerfiles.Stage{{Name: "Build", Base: "$A", Line: 2, EndLine: 4}, {Base: "Build", Line: 7, EndLine: 7}},
		},
		"no stages in heredocs": {"FROM a\nRUN <<E\nFROM b\nE\nFROM c", []containerfiles.Stage{
			{Base: "a", Line: 1, EndLine: 1}, {Base: "c", Line: 5, EndLine: 5},
		}},
		"the escape directive": {"# escape=`\nFROM a `\nAS b\nRUN x \\\nFROM c", []containerfiles.Stage{
			{Name: "b", Base: "a", Line: 2, EndLine: 3}, {Base: "c", Line: 5, EndLine: 5},
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := parse(t, test.text)
			require.Equal(t, test.want, c.Stages())
			require.Equal(t, test.want == nil, c.Empty())
			require.Equal(t, "Containerfile", c.Name())
		})
	}
	var none *containerfiles.Containerfile
	require.True(t, none.Empty())
	require.Nil(t, none.Stages())
	require.Nil(t, lint.Lint(none, lint.Options{}))
}

func TestParseErrorsNameFileAndLine(t *testing.T) {
	t.Parallel()
	for name, test := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := containerfiles.Parse(`ConfigMap "x" key "Containerfile"`, []byte(test.text))
			bad := &containerfiles.Error{}
			require.ErrorAs(t, err, &bad)
			require.Equal(t, test.want, fmt.Sprintf("%d %s", bad.Line, bad.Reason))
			where := `ConfigMap "x" key "Containerfile"`
			if bad.Line > 0 {
				where += fmt.Sprintf(" line %d", bad.Line)
			}
			require.True(t, strings.HasPrefix(err.Error(), where+": "), err)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, err := containerfiles.Parse("", []byte("FROM a\nRUN [1]"))
	require.EqualError(t, err, "Containerfile line 2: RUN: when using JSON array syntax, arrays must be comprised of strings only")
}

func TestParseHasTheLimitOfTheSchema(t *testing.T) {
	t.Parallel()
	line := "# " + strings.Repeat("é", 62) + "\n"
	text := "FROM configs\n" + strings.Repeat(line, 1007)
	text += strings.Repeat("#", containerfiles.MaxLength-len([]rune(text)))
	require.Len(t, []rune(text), containerfiles.MaxLength)
	require.Len(t, parse(t, text).Stages(), 1)
	_, err := containerfiles.Parse("", []byte(text+"#"))
	require.ErrorContains(t, err, "Containerfile: the text is longer than 65536 characters")
}

func TestStrategy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text     string
		strategy containerfiles.Strategy
		reason   string
	}{
		"no text":                 {"", containerfiles.AppendAfter, "there is no Containerfile"},
		"no FROM":                 {"ARG A=1", containerfiles.ConfigFirst, "there is no FROM, which means FROM configs"},
		"the base":                {"FROM os-base-image", containerfiles.AppendAfter, "the last stage, on line 1, starts from os-base-image"},
		"configs":                 {"FROM configs", containerfiles.ConfigFirst, "the last stage, on line 1, starts from configs"},
		"with configs":            {"FROM OS-base-image-WITH-configs", containerfiles.ConfigFirst, "the last stage, on line 1, starts from OS-base-image-WITH-configs"},
		"through stages":          {"FROM configs AS a\nFROM a AS b\nFROM b", containerfiles.ConfigFirst, "the last stage, on line 3, starts from configs"},
		"the last stage counts":   {"FROM configs AS a\nFROM os-base-image", containerfiles.AppendAfter, "the last stage, on line 2, starts from os-base-image"},
		"a stage hides the image": {"FROM scratch AS a\nFROM a", "", `the last stage, on line 2, starts from "scratch"`},
		"an ARG":                  {"ARG A=x\nARG B=${A:+configs}\nFROM ${B}", containerfiles.ConfigFirst, "the last stage, on line 3, starts from configs"},
		"the architecture":        {"FROM os-base-image AS amd64\nFROM configs AS arm64\nFROM ${TARGETARCH}", containerfiles.ConfigFirst, "the last stage, on line 3, starts from configs"},
		"an argument that is given": {
			"ARG STRATEGY=os-base-image\nFROM $STRATEGY", containerfiles.ConfigFirst, "the last stage, on line 2, starts from configs",
		},
		"a wrong name": {"FROM configs AS a\nFROM A", "", `what the last stage, on line 2, starts from is not known: the stage on line 1 is named "a": Buildah tells upper and lower case apart`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := containerfiles.PlatformArgs(mcfgv1.Arm64)
			args["STRATEGY"] = "configs"
			strategy, reason := parse(t, test.text).Strategy(args)
			require.Equal(t, test.strategy, strategy)
			require.Equal(t, test.reason, reason)
		})
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	c := parse(t, file(
		"ARG REGISTRY=quay.io TAG=1 EMPTY",
		"ARG NAME=${REGISTRY}/a/b${EMPTY}",
		"FROM ${NAME}:${TAG} AS a",                           // 3
		"FROM docker.io/golang AS b",                         // 4
		"ARG TAG",                                            // 5
		"ENV OTHER=localhost:5000/x:${TAG}",                  // 6
		"COPY --from=$OTHER /a /b",                           // 7
		"FROM b AS c",                                        // 8
		"RUN --mount=type=bind,from=${OTHER},target=/x true", // 9
		"COPY --from=golang:1.26 \\", "  /a /b",              // 10, 11
		"FROM scratch AS d",                            // 12
		"FROM tools-${TARGETARCH}:${GIVEN:-none} AS e", // 13
		"FROM os-base-image",                           // 14
		"COPY --from=a /a /b", "COPY --from=3 /a /b",   // 15, 16
		"COPY --from=configs /a /b",                                        // 17
		"COPY --from=quay.io/a/b:1 /c /d",                                  // 18
		"COPY --from=quay.io/a/b@sha256:"+strings.Repeat("0", 64)+" /c /d", // 19
		"COPY --from=golang:1@sha256:"+strings.Repeat("0", 64)+" /c /d",    // 20
	))
	images, err := containerfiles.Images(c, containerfiles.PlatformArgs(mcfgv1.Ppc))
	require.NoError(t, err)
	place := func(instruction string, line, end, stage int, name string) containerfiles.Place {
		return containerfiles.Place{Instruction: instruction, Line: line, EndLine: end, Stage: stage, StageName: name}
	}
	want := []containerfiles.ImageUse{
		{Reference: "quay.io/a/b:1", Normalized: "quay.io/a/b:1", Places: []containerfiles.Place{place("FROM", 3, 3, 0, "a"), place("COPY", 18, 18, 5, "")}},
		{Reference: "docker.io/golang", Normalized: "docker.io/library/golang:latest", Places: []containerfiles.Place{place("FROM", 4, 4, 1, "b")}},
		{Reference: "localhost:5000/x:1", Normalized: "localhost:5000/x:1", Places: []containerfiles.Place{place("COPY", 7, 7, 1, "b"), place("RUN", 9, 9, 2, "c")}},
		{Reference: "golang:1.26", Normalized: "golang:1.26", Short: true, Places: []containerfiles.Place{place("COPY", 10, 11, 2, "c")}},
		{Reference: "tools-ppc64le:none", Normalized: "tools-ppc64le:none", Short: true, Places: []containerfiles.Place{place("FROM", 13, 13, 4, "e")}},
		{
			Reference: "quay.io/a/b@sha256:" + strings.Repeat("0", 64), Normalized: "quay.io/a/b@sha256:" + strings.Repeat("0", 64),
			Places: []containerfiles.Place{place("COPY", 19, 19, 5, "")},
		},
		{
			Reference: "golang:1@sha256:" + strings.Repeat("0", 64), Normalized: "golang@sha256:" + strings.Repeat("0", 64), Short: true,
			Places: []containerfiles.Place{place("COPY", 20, 20, 5, "")},
		},
	}
	require.Equal(t, want, images)
	images, err = containerfiles.Images(nil, nil)
	require.NoError(t, err)
	require.Empty(t, images)
}

func TestImagesErrors(t *testing.T) {
	t.Parallel()
	images, err := containerfiles.Images(parse(t, file(
		"ARG NONE", "FROM quay.io/A AS a", "FROM quay.io/a/b:1 AS b", "COPY --from=nothing /a /b",
		"FROM $NONE", "RUN --mount=from=https://x.example.com/a,target=/a true", "COPY --from=${A?} /a /b",
	)), nil)
	require.Len(t, images, 1)
	require.EqualError(t, err, strings.Join([]string{
		`Containerfile line 2: FROM: "quay.io/A" is no name of an image: invalid reference format: repository name (A) must be lowercase`,
		`Containerfile line 4: COPY: no stage before this one is named "nothing", and it is no image with a registry or a tag`,
		`Containerfile line 5: FROM: the variable NONE has no value: its ARG has no default, and builds pass none`,
		`Containerfile line 6: RUN: "https://x.example.com/a" is no name of an image: images are pulled from registries only; write it without a transport such as docker://`,
		`Containerfile line 7: COPY: ${NAME-x}, ${NAME+x} and ${NAME?x} want a colon, such as ${NAME:-x}`,
	}, "\n"))
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	for _, part := range joined.Unwrap() {
		bad := &containerfiles.Error{}
		require.ErrorAs(t, part, &bad)
		assert.Positive(t, bad.Line)
	}
}

func TestPlatformArgs(t *testing.T) {
	t.Parallel()
	assert.Nil(t, containerfiles.PlatformArgs(mcfgv1.NoArch))
	assert.Equal(t, map[string]string{
		"TARGETPLATFORM": "linux/s390x", "TARGETOS": "linux", "TARGETARCH": "s390x", "TARGETVARIANT": "",
		"BUILDPLATFORM": "linux/s390x", "BUILDOS": "linux", "BUILDARCH": "s390x", "BUILDVARIANT": "",
	}, containerfiles.PlatformArgs(mcfgv1.S390))
}
