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
	"github.com/layerwright/layerwright/containerfiles/render"
)

// shapes are the texts and inputs of the golden files in testdata/render.
var shapes = map[string]struct {
	text   string
	change func(*render.Input)
}{
	"append-after":                   {text: file("FROM os-base-image", "RUN dnf install -y tree && dnf clean all", "RUN bootc container lint")},
	"config-first":                   {text: file("FROM os-base-image-with-configs", "RUN cat /etc/chrony.conf", "RUN bootc container lint")},
	"config-first-by-alias":          {text: file("FROM configs AS final", "RUN rpm-ostree install tree && ostree container commit")},
	"both-names-of-configs":          {text: file("FROM configs AS a", "RUN true", "FROM os-base-image-with-configs", "COPY --from=a /etc/a /etc/a")},
	"both-strategies":                {text: file("FROM os-base-image", "COPY --from=configs /etc/chrony.conf /usr/share/chrony.conf", "RUN bootc container lint")},
	"both-strategies-with-extension": {text: file("FROM configs AS a", "RUN true", "FROM os-base-image", "COPY --from=a /etc/a /etc/a"), change: withExtensions("usbguard")},
	"only-copied-from-has-no-extension": {
		text:   file("FROM os-base-image", "COPY --from=configs /etc/a /usr/share/a"),
		change: withExtensions("sysstat"),
	},
	"no-from": {
		text:   file("# syntax=docker/dockerfile:1", "# escape=\\", "# what", "ARG A=1", "LABEL a=b c=$A", "RUN <<EOF", "true", "EOF", "RUN \\", "true \\"),
		change: both(withExtensions("usbguard"), withLabels("a", "b")),
	},
	"no-from-but-labels":          {text: file("LABEL maintainer=a"), change: withLabels("a", "b")},
	"offered-stage-in-upper-case": {text: file("FROM OS-Base-Image AS a", "RUN true", "FROM os-base-image", "COPY --from=a /etc/a /etc/a")},
	"offered-stage-by-arg":        {text: file("ARG STRATEGY=configs", "ARG BASE=${STRATEGY}", "", "# The strategy.", "FROM ${BASE}", "RUN true")},
	"arg-with-continuation":       {text: file("# Where from", "ARG A=quay.io/a \\", "    B=b:1", "FROM $A/$B AS x", "FROM os-base-image", "COPY --from=x /a /etc/a")},
	"multi-stage-with-builder": {text: file(
		"ARG GO=1.26", "FROM docker.io/library/golang:${GO} AS build", "WORKDIR /src", "RUN go build -o /out/tool ./...", "",
		"FROM quay.io/example/docs@sha256:"+strings.Repeat("d", 64)+" AS docs", "",
		"FROM os-base-image AS final", "COPY --from=build /out/tool /usr/bin/tool", "COPY --from=docs /docs /usr/share/doc/tool",
		"RUN --mount=type=bind,from=registry.example.com:5000/data:v1,target=/data cp /data/x /usr/share/x", "RUN bootc container lint",
	)},
	"numbers-of-stages": {text: file(
		"FROM quay.io/a/b:1", "RUN make", "FROM quay.io/a/c:1", "COPY --from=0 /a /a",
		"FROM os-base-image", "COPY --from=0 \\", "  /a /etc/a", `COPY --chown=0:0 --from="1" /b /etc/b`, "COPY --from=configs /etc/0 /usr/0",
	)},
	"unused-stage":       {text: file("FROM quay.io/a/unused:1 AS unused", "FROM os-base-image", "RUN true")},
	"chain-of-stages":    {text: file("FROM os-base-image AS first", "RUN one", "FROM first AS second", "RUN two", "FROM second", "RUN three")},
	"heredoc":            {text: file("FROM os-base-image", "COPY <<EOF /etc/a", "FROM not-an-instruction", "# not a comment", "EOF", "RUN <<-'A' <<B", "set -e", "\tA", "echo $b", "B", "RUN true")},
	"heredoc-at-the-end": {text: "FROM os-base-image\nRUN <<EOF\ntrue\nEOF"},
	"crlf":               {text: "ARG A=1\r\nFROM os-base-image\r\nRUN true && \\\r\n  false\r\nRUN <<EOF\r\necho a\r\nEOF\r\n", change: withLabels("a", "b")},
	"bom":                {text: "\ufeff# escape=\\\nFROM os-base-image\nRUN true\n"},
	"escape-directive": {text: file("# syntax=docker/dockerfile:1", "# escape=`", "# a comment", "ARG A=os-base-image `", "    B=1", "FROM $A", "RUN one && `", "    two", `COPY a\b /etc/`), change: func(in *render.Input) {
		withExtensions("ipsec")(in)
		in.Context = map[string][]byte{"ab": nil}
	}},
	"syntax-directive":             {text: file("# syntax=docker/dockerfile:1.7", "# escape=`x", "FROM os-base-image", "RUN true")[0:0] + file("# syntax=docker/dockerfile:1.7", "# a", "# escape=`", "FROM os-base-image", "RUN true")},
	"check-directive":              {text: file("# check=skip=NoFinalCheck;error=true", "FROM os-base-image", "RUN true")},
	"comments-only":                {text: file("# nothing", "", "   # more")},
	"comments-only-with-extension": {text: file("# nothing yet"), change: withExtensions("sysstat")},
	"empty":                        {text: ""},
	"empty-with-labels":            {text: "", change: withLabels("a", "b")},
	"extensions-only":              {change: withExtensions("usbguard", "kerberos", "ipsec", "kerberos", "two-node-ha", "sandboxed-containers", "sysstat", "kernel-devel")},
	"extension-before-content":     {text: file("FROM configs", "RUN usbguard generate-policy > /etc/usbguard/rules.conf", "RUN ostree container commit"), change: withExtensions("usbguard")},
	"kernel-realtime-amd64":        {change: withKernel(render.KernelRealtime, mcfgv1.Amd64)},
	"kernel-realtime-arm64":        {text: file("FROM os-base-image", "RUN true"), change: withKernel(render.KernelRealtime, mcfgv1.Arm64)},
	"kernel-64k-arm64":             {change: withKernel(render.Kernel64kPages, mcfgv1.Arm64)},
	"kernel-and-extensions":        {text: file("FROM os-base-image", "RUN true"), change: both(withKernel(render.KernelRealtime, mcfgv1.Amd64), withExtensions("sysstat"))},
	"kernel-default":               {change: withKernel(render.KernelDefault, mcfgv1.Amd64)},
	"dnf-extensions":               {text: file("FROM os-base-image", "RUN dnf install -y tree && dnf clean all"), change: both(withExtensions("usbguard"), withDNF)},
	"dnf-kernel":                   {change: both(withKernel(render.Kernel64kPages, mcfgv1.Arm64), withDNF)},
	"labels": {text: file("FROM os-base-image", "RUN true"), change: withLabels(
		"io.example/plain", "v1", "quotes", `it's "quoted" 'twice'`, "dollar", "$HOME ${PATH} $(id)", "backslash", `a\b\`, "unicode", "grün ☃ 日本", "empty", "",
		"hash", "# no comment", "heredoc", "<<EOF", "tab", "a\tb", "backtick", "`x`",
	)},
	"labels-with-escape-directive":  {text: file("# escape=`", "FROM os-base-image", "RUN true"), change: withLabels("a", `it's "a\b" $c`)},
	"continuation-at-the-end":       {text: "FROM os-base-image\nRUN true && \\\n  true \\  \n# a comment\n\n", change: withLabels("a", "b")},
	"continuation-lines-at-the-end": {text: "FROM os-base-image\nRUN true \\\n\\\n # a comment\n \\", change: withLabels("a", "b")},
	"no-newline-at-the-end":         {text: "FROM os-base-image\nRUN true", change: withLabels("a", "b")},
	"blank-lines":                   {text: "\n\n\nFROM os-base-image\n\n\nRUN true\n\n\n", change: withLabels("a", "b")},
	"platform": {
		text:   file("FROM --platform=$TARGETPLATFORM quay.io/a/b-${TARGETARCH}:1 AS b", "FROM os-base-image", "COPY --from=b /a /etc/a"),
		change: func(in *render.Input) { in.Architecture = mcfgv1.S390 },
	},
	"context-files": {
		text: file("FROM os-base-image", "COPY chrony.conf /etc/", "RUN --mount=type=bind,target=/ctx cp /ctx/* /etc/a/"),
		change: func(in *render.Input) {
			in.Context = map[string][]byte{"chrony.conf": []byte("server a")}
		},
	},
	"lower-case": {text: file("from os-base-image as final", "run true && \\", "   # why", "   false", "copy <<a /etc/b", "x", "a")},
}

func both(changes ...func(*render.Input)) func(*render.Input) {
	return func(in *render.Input) {
		for _, change := range changes {
			change(in)
		}
	}
}

func withExtensions(names ...string) func(*render.Input) {
	return func(in *render.Input) { in.Extensions = names }
}

func withKernel(kernel render.KernelType, arch mcfgv1.ContainerfileArch) func(*render.Input) {
	return func(in *render.Input) { in.Kernel, in.Architecture = kernel, arch }
}

func withDNF(in *render.Input) { in.PackageManager = render.DNF }

func withLabels(pairs ...string) func(*render.Input) {
	return func(in *render.Input) {
		in.Labels = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			in.Labels[pairs[i]] = pairs[i+1]
		}
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	for name, test := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, test.text)
			if test.change != nil {
				test.change(&in)
			}
			got, err := render.Render(in)
			require.NoError(t, err)
			again, err := render.Render(in)
			require.NoError(t, err)
			require.Equal(t, got, again)
			requireGolden(t, "render/"+name+".golden", describe(got))
			requireSound(t, in, got)
		})
	}
}

// describe is everything that a rendering says, for people.
func describe(r *render.Rendered) string {
	var b strings.Builder
	fmt.Fprintf(&b, "empty: %t\nstrategy: %s, because %s\nstage: %s\nhash: %s\n", r.Empty, r.Strategy, r.Reason, r.Stage, r.Hash)
	for _, image := range r.Images {
		fmt.Fprintf(&b, "image: %s\n", image)
	}
	for _, notice := range r.Notices {
		fmt.Fprintf(&b, "notice: %s\n", notice)
	}
	if r.Empty {
		return b.String()
	}
	b.WriteString("\nline  from  for\n")
	origin := ""
	for i, line := range strings.Split(strings.TrimSuffix(r.Text, "\n"), "\n") {
		admin := ""
		if n, ok := r.AdminLine(i + 1); ok {
			admin = fmt.Sprint(n)
		}
		if now := r.Origin(i + 1); now != origin {
			origin = now
			fmt.Fprintf(&b, "            -- %s\n", origin)
		}
		fmt.Fprintf(&b, "%4d  %4s  %s\n", i+1, admin, line)
	}
	return b.String()
}

// requireSound checks what is true of every rendering.
func requireSound(tb testing.TB, in render.Input, r *render.Rendered) {
	tb.Helper()
	if r.Empty {
		require.Empty(tb, r.Text)
		require.True(tb, in.Containerfile.Empty())
		return
	}
	require.True(tb, strings.HasSuffix(r.Text, "\n"))
	require.NotContains(tb, r.Text, "\ufeff")
	parsed, err := containerfiles.Parse("rendered", []byte(r.Text))
	if len([]rune(r.Text)) > containerfiles.MaxLength {
		return // only an administrator's file has a limit
	}
	require.NoError(tb, err, r.Text)
	findings := lint.Lint(parsed, lint.Options{Architecture: in.Architecture, Context: in.Context, Rendered: true})
	require.False(tb, lint.HasErrors(findings), "%v\n%s", findings, r.Text)
	stages := parsed.Stages()
	require.NotEmpty(tb, stages)
	admin := in.Containerfile.Stages()
	require.GreaterOrEqual(tb, len(stages), len(admin))
	for i, want := range admin { // the administrator's stages are the last ones, and each is found by its line
		got := stages[len(stages)-len(admin)+i]
		require.Equal(tb, [2]string{want.Name, want.Base}, [2]string{got.Name, got.Base})
		line, ok := r.AdminLine(got.Line)
		require.Equal(tb, !in.Containerfile.LacksFrom(), ok)
		if !ok {
			continue
		}
		require.Equal(tb, want.Line, line)
	}
	requireLines(tb, r)
}

// requireLines checks the map of lines: each line of the administrator's at most once, and every
// line with its purpose.
func requireLines(tb testing.TB, r *render.Rendered) {
	tb.Helper()
	n := strings.Count(r.Text, "\n")
	seen := map[int]bool{}
	for i := 1; i <= n; i++ {
		require.NotEmpty(tb, r.Origin(i))
		line, ok := r.AdminLine(i)
		require.Equal(tb, ok, line > 0)
		require.False(tb, ok && seen[line], "line %d is there once", line)
		seen[line] = true
	}
	for _, outside := range []int{-1, 0, n + 1} {
		_, ok := r.AdminLine(outside)
		require.False(tb, ok)
		require.Empty(tb, r.Origin(outside))
	}
}

func TestRenderErrors(t *testing.T) {
	t.Parallel()
	const good = "FROM os-base-image\nRUN true\n"
	tests := map[string]struct {
		text   string
		change func(*render.Input)
		want   string
	}{
		"an unknown extension":          {good, withExtensions("sysstat", "usbgard", "x"), `unknown extension "usbgard", "x"; known are ipsec, kerberos, kernel-devel, sandboxed-containers, sysstat, two-node-ha, usbguard`},
		"an extension without an image": {good, both(withExtensions("usbguard"), func(in *render.Input) { in.ExtensionsImage = "" }), "no extensions image is known"},
		"a kernel without an image":     {"", both(withKernel("realtime", mcfgv1.Amd64), func(in *render.Input) { in.ExtensionsImage = "" }), "no extensions image is known"},
		"an unknown kernel":             {good, withKernel("tiny", mcfgv1.Amd64), `unknown kernel type "tiny"; known are default, realtime and 64k-pages`},
		"64k pages on another machine":  {good, withKernel("64k-pages", mcfgv1.Amd64), "there is no kernel 64k-pages for AMD64; there is one for ARM64"},
		"64k pages for any machine":     {good, withKernel("64k-pages", mcfgv1.NoArch), "there is no kernel 64k-pages for NoArch"},
		"realtime on s390x":             {good, withKernel("realtime", mcfgv1.S390), "there is no kernel realtime for S390X; there is one for AMD64 and ARM64"},
		"kernel-devel with realtime":    {good, both(withKernel("realtime", mcfgv1.Amd64), withExtensions("kernel-devel")), "kernel-devel belongs to the default kernel"},
		"an unknown package manager":    {good, both(withExtensions("usbguard"), func(in *render.Input) { in.PackageManager = "apt" }), `unknown package manager "apt"`},
		"no base image":                 {good, func(in *render.Input) { in.BaseImage = "" }, `the base image "" is no reference`},
		"a base image by tag":           {good, func(in *render.Input) { in.BaseImage = "quay.io/a/b:1" }, "is no reference of the form"},
		"a base image with a command": {good, func(in *render.Input) {
			in.BaseImage = "quay.io/a/b\nRUN x@sha256:" + strings.Repeat("a", 64)
		}, "is no reference of the form"},
		"an extensions image with an option": {good, both(withExtensions("usbguard"), func(in *render.Input) {
			in.ExtensionsImage = "quay.io/a/b,target=/etc@sha256:" + strings.Repeat("a", 64)
		}), "the extensions image"},
		"configs without their image": {"FROM configs\n", func(in *render.Input) { in.ConfigImage = "" }, "there is no image with the configuration"},
		"configs by tag":              {"FROM configs\n", func(in *render.Input) { in.ConfigImage = "quay.io/a/b:1" }, "the config image"},
		"a label with a line break":   {good, withLabels("a", "b\nRUN x"), `the value of the label "a" has a line break`},
		"a label with a return":       {good, withLabels("a", "b\rc"), `the value of the label "a" has a line break`},
		"a label with broken bytes":   {good, withLabels("a", "\xff"), `the value of the label "a" has a line break`},
		"a label that is too long":    {good, withLabels("a", strings.Repeat("x", 8193)), "longer than 8192 bytes"},
		"a label with a strange name": {good, withLabels("a b", "c"), `the label "a b" is not of letters`},
		"findings":                    {"FROM os-base-image\nRUN --security=insecure true\nFRMO x\n", nil, `Containerfile line 2: RUN --security is not supported. Leave it out; line 3: unknown instruction: "FRMO". Correct the keyword`},
		"another base":                {"FROM quay.io/a/b:1\n", nil, `Containerfile line 1: the last stage, on line 1, starts from "quay.io/a/b:1", and not from os-base-image`},
		"a number that is hidden":     {"FROM quay.io/a/b:1\nFROM os-base-image\nCOPY --fr\\om=0 /a /etc/a\n", nil, "Containerfile line 3: COPY: the number in --from is not written plainly"},
		"a missing file":              {"FROM os-base-image\nCOPY a /etc/\n", nil, "Containerfile line 2: COPY: there are no files to take"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, test.text)
			if test.change != nil {
				test.change(&in)
			}
			_, err := render.Render(in)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestRenderNamesTheFindings(t *testing.T) {
	t.Parallel()
	_, err := render.Render(input(t, "FROM os-base-image\nRUN --security=insecure reboot\n"))
	bad := &lint.Error{}
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, "Containerfile", bad.File)
	assert.Equal(t, []string{"2 InsecureRun"}, short(bad.Findings))
}

func TestRenderHashIsAboutContent(t *testing.T) {
	t.Parallel()
	rendered := func(text string, changes ...func(*render.Input)) string {
		in := input(t, text)
		both(changes...)(&in)
		r, err := render.Render(in)
		require.NoError(t, err)
		return r.Hash
	}
	const text = "FROM os-base-image\nRUN true\n"
	same := rendered(text)
	assert.Equal(t, same, rendered(text, withLabels("a", "b")), "labels say where content is from")
	assert.Equal(t, same, rendered("\ufeffFROM os-base-image\r\nRUN true"), "line ends are no content")
	assert.Equal(t, same, rendered(text, func(in *render.Input) { in.ConfigImage = "" }), "an image that is not used is no content")
	assert.NotEqual(t, same, rendered(text, withExtensions("usbguard")))
	assert.NotEqual(t, same, rendered(text, func(in *render.Input) { in.BaseImage = extensionsImage }))
	assert.Equal(t, rendered(text, withExtensions("usbguard", "ipsec")), rendered(text, withExtensions("ipsec", "usbguard", "ipsec")))
}

func TestUsesConfigImage(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"":                   false,
		"FROM os-base-image": false,
		"FROM configs":       true,
		"FROM os-base-image\nCOPY --from=OS-base-image-with-configs /a /etc/a": true,
		"FROM os-base-image\nRUN --mount=from=configs,target=/c true":          true,
	} {
		assert.Equal(t, want, render.UsesConfigImage(parse(t, text), mcfgv1.Amd64), text)
	}
}

func TestPulledImagesOfTheNeededStages(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		want []string
	}{
		"a chain of stages": {
			"FROM a.example/1:1 AS one\nFROM a.example/2:1 AS two\nCOPY --from=one /a /a\nFROM os-base-image\nRUN --mount=type=bind,from=two,target=/mnt true\n",
			[]string{"a.example/1:1", "a.example/2:1"},
		},
		"by number": {"FROM a.example/1:1\nFROM a.example/2:1\nFROM os-base-image\nCOPY --from=1 /a /etc/a\n", []string{"a.example/2:1"}},
		"what only an unneeded stage takes": {
			"FROM a.example/1:1 AS one\nFROM a.example/2:1 AS two\nCOPY --from=one /a /a\nCOPY --from=a.example/3:1 /a /a\nFROM os-base-image\nRUN true\n", nil,
		},
		"what both take": {
			"FROM a.example/2:1 AS two\nCOPY --from=a.example/3:1 /a /a\nFROM os-base-image\nCOPY --from=a.example/3:1 /a /etc/a\n", []string{"a.example/3:1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input(t, test.text)
			got, err := render.Render(in)
			require.NoError(t, err)
			assert.Equal(t, append([]string{in.BaseImage}, test.want...), got.Images)
		})
	}
}
