package containerfiles_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/containerfiles/lint"
)

const check = "RUN bootc container lint"

// mistakes has every mistake that docs/containerfiles.md lists, with all findings of a file that
// has it. The text has no comment on its own findings but those.
var mistakes = map[string]struct {
	text []string
	opts lint.Options
	want []string // "line Reason"
}{
	// Errors of the file.
	"unknown instruction": {
		text: []string{"FROM os-base-image", "RNU true", check},
		want: []string{"2 UnknownInstruction"},
	},
	"a line whose predecessor lacks its backslash": {
		text: []string{"FROM os-base-image", "RUN true &&", "  false", check},
		want: []string{"3 UnknownInstruction"},
	},
	"RUN without arguments":     {text: []string{"FROM os-base-image", "RUN", check}, want: []string{"2 MissingArguments"}},
	"RUN with flags alone":      {text: []string{"FROM os-base-image", "RUN --network=none", check}, want: []string{"2 MissingArguments"}},
	"COPY without arguments":    {text: []string{"FROM os-base-image", "COPY", check}, want: []string{"2 MissingArguments"}},
	"COPY without destination":  {text: []string{"FROM os-base-image", "COPY a", check}, want: []string{"2 MissingArguments"}},
	"ADD without arguments":     {text: []string{"FROM os-base-image", "ADD", check}, want: []string{"2 MissingArguments"}},
	"WORKDIR without arguments": {text: []string{"FROM os-base-image", "WORKDIR", check}, want: []string{"2 MissingArguments"}},
	"FROM without arguments":    {text: []string{"FROM", check}, want: []string{"1 MissingArguments"}},
	"USER without arguments":    {text: []string{"FROM os-base-image", "USER", check}, want: []string{"2 MissingArguments"}},
	"a flag without its value":  {text: []string{"FROM os-base-image", "COPY --from= /a /etc/a", check}, want: []string{"2 MissingArguments", "2 UnknownStage"}},
	"a mount without a target":  {text: []string{"FROM os-base-image", "RUN --mount=type=tmpfs true", check}, want: []string{"2 MissingArguments"}},
	"FROM with a strange tail":  {text: []string{"FROM os-base-image LIKE it", check}, want: []string{"1 Syntax"}},
	"FROM misspelled":           {text: []string{"ARG A=1", "FORM os-base-image", check}, want: []string{"2 UnknownInstruction"}},
	"an instruction before FROM": {
		text: []string{"LABEL a=b", "FROM os-base-image", check},
		want: []string{"1 InstructionBeforeFrom"},
	},
	"legacy ENV":   {text: []string{"FROM os-base-image", "ENV A b", check}, want: []string{"2 LegacyKeyValueFormat"}},
	"legacy LABEL": {text: []string{"FROM os-base-image", "LABEL a b", check}, want: []string{"2 LegacyKeyValueFormat"}},
	"a line that ends with two backslashes": {
		text: []string{"FROM os-base-image", `RUN echo a \\`, check},
		want: []string{"2 AmbiguousContinuation"},
	},

	// Errors of stages and images.
	"another last stage": {
		text: []string{"FROM os-base-image AS a", "FROM quay.io/fedora/fedora:40", check},
		want: []string{"1 UnusedStage", "2 NotFromOfferedStage"},
	},
	"a last stage from scratch": {text: []string{"FROM scratch", "LABEL a=b"}, want: []string{"1 NotFromOfferedStage"}},
	"a last stage derived from another image": {
		text: []string{"FROM quay.io/a/b:1 AS a", "FROM a", check},
		want: []string{"2 NotFromOfferedStage"},
	},
	"an offered stage defined again": {
		text: []string{"FROM quay.io/a/b:1 AS Configs", "FROM os-base-image", check},
		want: []string{"1 ReservedStageName", "1 StageNameCasing", "1 UnusedStage"},
	},
	"a stage named scratch": {
		text: []string{"FROM os-base-image AS scratch", check},
		want: []string{"1 ReservedStageName"},
	},
	"two stages of a name": {
		text: []string{"FROM os-base-image AS a", "FROM a AS A", check},
		want: []string{"2 DuplicateStageName", "2 StageNameCasing"},
	},
	"a stage in another case": {
		text: []string{"FROM os-base-image AS a", "FROM A", check},
		want: []string{"1 UnusedStage", "2 StageNameCase"},
	},
	"COPY from a later stage": {
		text: []string{"FROM os-base-image AS a", "COPY --from=b /x /etc/x", "FROM a AS b", check},
		want: []string{"2 LaterStage"},
	},
	"COPY from itself": {
		text: []string{"FROM os-base-image AS a", "COPY --from=a /x /etc/x", check},
		want: []string{"2 LaterStage"},
	},
	"COPY from a later stage by number":   {text: []string{"FROM os-base-image", "COPY --from=1 /x /etc/x", check}, want: []string{"2 UnknownStage"}},
	"COPY from a number that is too long": {text: []string{"FROM os-base-image", "COPY --from=99999999999999999999 /x /etc/x", check}, want: []string{"2 UnknownStage"}},
	"COPY from an unknown stage":          {text: []string{"FROM os-base-image", "COPY --from=biulder /x /etc/x", check}, want: []string{"2 UnknownStage"}},
	"COPY from scratch":                   {text: []string{"FROM os-base-image", "COPY --from=scratch /x /etc/x", check}, want: []string{"2 UnknownStage"}},
	"a mount from an unknown stage": {
		text: []string{"FROM os-base-image", "RUN --mount=from=tools,target=/tools true", check},
		want: []string{"2 UnknownStage"},
	},
	"a mount from a number": {
		text: []string{"FROM os-base-image AS a", "FROM a", "RUN --mount=from=0,target=/tools true", check},
		want: []string{"3 StageByNumber"},
	},
	"FROM a number": {text: []string{"FROM os-base-image", "FROM 0", check}, want: []string{"1 UnusedStage", "2 StageByNumber"}},
	"a number in a variable": {
		text: []string{"FROM os-base-image AS a", "FROM a", "ARG N=0", "COPY --from=$N /x /etc/x", check},
		want: []string{"4 StageByNumber"},
	},
	"an image with a transport": {
		text: []string{"FROM docker://quay.io/a/b:1 AS a", "FROM os-base-image", "COPY --from=a /x /etc/x", check},
		want: []string{"1 InvalidImage"},
	},
	"an image in upper case": {
		text: []string{"FROM os-base-image", "COPY --from=quay.io/A/b:1 /x /etc/x", check},
		want: []string{"2 InvalidImage"},
	},
	"an image with tag and digest": {
		text: []string{"FROM os-base-image", "COPY --from=quay.io/a/b:1@sha256:" + strings.Repeat("0", 64) + " /x /etc/x", check},
		want: []string{}, // the digest counts
	},
	"a mount with a tag and half a digest": {
		text: []string{"FROM os-base-image", "RUN --mount=type=bind,from=quay.io/a/b:1@sha256:00,target=/x /x/run", check},
		want: []string{"2 InvalidImage"},
	},
	"an ARG in FROM that no one declares": {
		text: []string{"FROM quay.io/a/b:$TAG AS a", "FROM os-base-image", "COPY --from=a /x /etc/x", check},
		want: []string{"1 UndefinedArgInFrom"},
	},
	"an ARG in FROM without a value": {
		text: []string{"ARG BASE", "FROM $BASE", check},
		want: []string{"2 InvalidDefaultArgInFrom"},
	},
	"an ARG in FROM that is empty": {
		text: []string{`ARG BASE=""`, "FROM ${BASE}", check},
		want: []string{"2 InvalidDefaultArgInFrom"},
	},
	"a substitution that Buildah does not know": {
		text: []string{"ARG BASE", "FROM ${BASE-os-base-image}", check},
		want: []string{"2 UnknownSubstitution"},
	},
	"a quote that does not end": {
		text: []string{"FROM os-base-image", `LABEL a="b`, check},
		want: []string{"2 UnknownSubstitution"},
	},
	"a substitution in ENV": {
		text: []string{"FROM os-base-image", "ENV A=${B-c}", check},
		want: []string{"2 UnknownSubstitution"},
	},
	"another platform": {
		text: []string{"FROM --platform=linux/arm64 quay.io/a/b:1 AS a", "FROM os-base-image", "COPY --from=a /x /etc/x", check},
		opts: lint.Options{Architecture: mcfgv1.Amd64},
		want: []string{"1 OtherPlatform"},
	},

	// Errors of what Buildah does not know.
	"RUN with more privileges":              {text: []string{"FROM os-base-image", "RUN --security=insecure true", check}, want: []string{"2 InsecureRun"}},
	"RUN with a device":                     {text: []string{"FROM os-base-image", "RUN --device=nvidia.com/gpu true", check}, want: []string{"2 UnsupportedFlag"}},
	"RUN with a strange network":            {text: []string{"FROM os-base-image", "RUN --network=mine true", check}, want: []string{"2 UnsupportedFlag"}},
	"ADD with --unpack":                     {text: []string{"FROM os-base-image", "ADD --unpack --checksum=sha256:0 https://x.example.com/a.tar /etc/", check}, want: []string{"2 UnsupportedFlag"}},
	"ADD with --from":                       {text: []string{"FROM os-base-image", "ADD --from=quay.io/a/b:1 https://x.example.com/a.tar /etc/", check}, want: []string{"2 UnsupportedFlag", "2 UnverifiedDownload"}},
	"COPY with symbolic modes":              {text: []string{"FROM os-base-image", "COPY --chmod=u=rw <<E /etc/a", "x", "E", check}, want: []string{"2 UnsupportedFlag"}},
	"a switch with a strange value":         {text: []string{"FROM os-base-image", "COPY --link=maybe <<E /etc/a", "x", "E", check}, want: []string{"2 UnsupportedFlag"}},
	"a flag twice":                          {text: []string{"FROM os-base-image", "COPY --chown=1 --chown=2 <<E /etc/a", "x", "E", check}, want: []string{"2 UnsupportedFlag"}},
	"a signal that does not exist":          {text: []string{"FROM os-base-image", "STOPSIGNAL x", check}, want: []string{"2 Syntax", "2 NoEffectOnHost"}},
	"a flag whose variable is empty":        {text: []string{"FROM os-base-image", "COPY --chown=$X <<E /etc/a", "x", "E", check}, want: []string{"2 MissingArguments"}},
	"a flag with a quote that does not end": {text: []string{"FROM os-base-image", `COPY --chown='"'x <<E /etc/a`, "x", "E", check}, want: []string{"2 UnknownSubstitution"}},
	"a name with a quote that does not end": {text: []string{"FROM os-base-image", `ENV A="b \`, `ENV A="b c" D='e'`, check}, want: []string{"2 UnknownSubstitution"}},
	"a secret mount":                        {text: []string{"FROM os-base-image", "RUN --mount=type=secret,id=a true", check}, want: []string{"2 SecretMount"}},
	"an SSH mount":                          {text: []string{"FROM os-base-image", "RUN --mount=type=ssh true", check}, want: []string{"2 SecretMount"}},
	"a mount of an unknown type":            {text: []string{"FROM os-base-image", "RUN --mount=type=nfs,target=/x true", check}, want: []string{"2 UnsupportedMount"}},
	"a tmpfs with BuildKit's size":          {text: []string{"FROM os-base-image", "RUN --mount=type=tmpfs,target=/x,size=1m true", check}, want: []string{"2 UnsupportedMount"}},
	"a private cache":                       {text: []string{"FROM os-base-image", "RUN --mount=type=cache,target=/x,sharing=private true", check}, want: []string{"2 UnsupportedMount"}},
	"ONBUILD":                               {text: []string{"FROM os-base-image", "ONBUILD RUN true", check}, want: []string{"2 Onbuild"}},

	// Errors of the build context.
	"COPY without a ConfigMap": {text: []string{"FROM os-base-image", "COPY a.conf /etc/", check}, want: []string{"2 FileNotInContext"}},
	"COPY of a missing key": {
		text: []string{"FROM os-base-image", "COPY a.conf \\", "  b.conf /etc/", check},
		opts: lint.Options{Context: map[string][]byte{"a.conf": nil}},
		want: []string{"2 FileNotInContext"},
	},
	"a mount of a missing key": {
		text: []string{"FROM os-base-image", "RUN --mount=type=bind,source=a.conf,target=/a true", check},
		want: []string{"2 FileNotInContext"},
	},
	"COPY of a URL": {text: []string{"FROM os-base-image", "COPY https://x.example.com/a /etc/", check}, want: []string{"2 FileNotInContext"}},

	// Warnings of images and secrets.
	"the newest image": {
		text: []string{"FROM quay.io/a/b:latest AS a", "FROM os-base-image", "COPY --from=a /x /etc/x", "COPY --from=quay.io/c/d /x /etc/y", check},
		want: []string{"1 UnpinnedImage", "4 UnpinnedImage"},
	},
	"an image without registry": {
		text: []string{"FROM golang:1.26 AS a", "FROM os-base-image", "COPY --from=a /x /etc/x", check},
		want: []string{"1 ShortImageName"},
	},
	"a secret in ENV": {text: []string{"FROM os-base-image", "ENV API_TOKEN=x", check}, want: []string{"2 SecretsUsedInArgOrEnv"}},
	"a secret in ARG": {text: []string{"ARG password", "FROM os-base-image", check}, want: []string{"1 SecretsUsedInArgOrEnv"}},
	"a token by its form": {
		text: []string{"FROM os-base-image", "RUN true && \\", "  echo ghp_" + strings.Repeat("a", 36), check},
		want: []string{"3 SecretInText"},
	},
	"an AWS key":                  {text: []string{"FROM os-base-image", "LABEL a=AKIA" + strings.Repeat("A", 16), check}, want: []string{"2 SecretInText"}},
	"a GitLab token":              {text: []string{"FROM os-base-image", "RUN echo glpat-" + strings.Repeat("a", 20), check}, want: []string{"2 SecretInText"}},
	"a Slack token":               {text: []string{"FROM os-base-image", "RUN echo xoxb-1234567890", check}, want: []string{"2 SecretInText"}},
	"a fine-grained GitHub token": {text: []string{"FROM os-base-image", "RUN echo github_pat_" + strings.Repeat("a", 22), check}, want: []string{"2 SecretInText"}},
	"a JSON web token":            {text: []string{"FROM os-base-image", "RUN echo eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.dozjgNryP4J3jVmN", check}, want: []string{"2 SecretInText"}},
	"a password hash":             {text: []string{"FROM os-base-image", "RUN echo 'root:$6$abc$0123456789abcdef' | chpasswd -e", check}, want: []string{"2 SecretInText"}},
	"a private key in a heredoc": {
		text: []string{"FROM os-base-image", "COPY <<E /etc/key", "-----BEGIN RSA PRIVATE KEY-----", "E", check},
		want: []string{"3 SecretInText"},
	},
	"a password in a URL": {
		text: []string{"FROM os-base-image", "RUN git clone https://me:hunter2@git.example.com/a", check},
		want: []string{"2 SecretInText"},
	},

	// Warnings of downloads and packages.
	"ADD of a URL": {text: []string{"FROM os-base-image", "ADD https://x.example.com/a /etc/a", check}, want: []string{"2 UnverifiedDownload"}},
	"ADD of a branch": {
		text: []string{"FROM os-base-image", "ADD https://git.example.com/a.git#main /etc/a", check},
		want: []string{"2 UnverifiedDownload"},
	},
	"a script from the network": {
		text: []string{"FROM os-base-image", "RUN true; \\", "  curl -fsSL https://x.example.com | bash -s --", check},
		want: []string{"3 PipeToShell"},
	},
	"a substituted script": {
		text: []string{"FROM os-base-image", `RUN bash -c "$(curl https://x.example.com)"`, check},
		want: []string{"2 PipeToShell"},
	},
	"dnf without cleanup": {text: []string{"FROM os-base-image", "RUN dnf install -y tree", check}, want: []string{"2 PackageCache"}},
	"rpm-ostree without anything": {
		text: []string{"FROM os-base-image", "RUN rpm-ostree install tree", check},
		want: []string{"2 PackageCache", "2 RpmOstreeWithoutCommit"},
	},

	// Warnings of what a node does not take from an image.
	"COPY to /var": {text: []string{"FROM os-base-image", "COPY <<E /var/lib/a", "x", "E", check}, want: []string{"2 PathNotInImage"}},
	"COPY to a link into /var": {
		text: []string{"FROM os-base-image", "WORKDIR /usr/local", "COPY <<E bin/a", "x", "E", check},
		want: []string{"2 PathNotInImage", "3 PathNotInImage"},
	},
	"WORKDIR below /var":    {text: []string{"FROM os-base-image", "WORKDIR /var/lib/a", check}, want: []string{"2 PathNotInImage"}},
	"mkdir below /opt":      {text: []string{"FROM os-base-image", "RUN true && \\", "    mkdir -p /opt/a", check}, want: []string{"3 PathNotInImage"}},
	"a redirection to /var": {text: []string{"FROM os-base-image", "RUN echo x > /var/lib/a", check}, want: []string{"2 PathNotInImage"}},
	"VOLUME":                {text: []string{"FROM os-base-image", "VOLUME /x", check}, want: []string{"2 NoEffectOnHost"}},
	"EXPOSE":                {text: []string{"FROM os-base-image", "EXPOSE 80", check}, want: []string{"2 NoEffectOnHost"}},
	"HEALTHCHECK":           {text: []string{"FROM os-base-image", "HEALTHCHECK --interval=5s CMD true", check}, want: []string{"2 NoEffectOnHost"}},
	"STOPSIGNAL":            {text: []string{"FROM os-base-image", "STOPSIGNAL 9", check}, want: []string{"2 NoEffectOnHost"}},
	"CMD":                   {text: []string{"FROM os-base-image", `CMD ["/bin/bash"]`, check}, want: []string{"2 NotInit"}},
	"ENTRYPOINT":            {text: []string{"FROM os-base-image", `ENTRYPOINT ["/x"]`, check}, want: []string{"2 NotInit"}},
	"USER at the end":       {text: []string{"FROM os-base-image", "USER 1000:1000", check}, want: []string{"2 UserLeftSet"}},
	"SHELL":                 {text: []string{"FROM os-base-image", `SHELL ["/bin/bash", "-c"]`, check}, want: []string{"2 ShellChanged"}},
	"the kernel removed":    {text: []string{"FROM os-base-image", "RUN dnf remove -y kernel-core && dnf clean all", check}, want: []string{"2 KernelRemoved"}},
	"the modules removed":   {text: []string{"FROM os-base-image", "RUN rm -rf /usr/lib/modules/*", check}, want: []string{"2 KernelRemoved"}},
	"systemctl start": {
		text: []string{"FROM os-base-image", "RUN systemctl enable a && \\", "  systemctl daemon-reload && \\", "  systemctl start a", check},
		want: []string{"3 NoSystemdInBuild", "4 NoSystemdInBuild"},
	},
	"systemctl enable --now": {text: []string{"FROM os-base-image", "RUN systemctl enable --now a", check}, want: []string{"2 NoSystemdInBuild"}},
	"service start":          {text: []string{"FROM os-base-image", "RUN service a start", check}, want: []string{"2 NoSystemdInBuild"}},
	"kernel arguments":       {text: []string{"FROM os-base-image", "RUN rpm-ostree kargs --append=a", check}, want: []string{"2 HostCommand"}},
	"bootc switch":           {text: []string{"FROM os-base-image", "RUN bootc switch quay.io/a/b", check}, want: []string{"2 HostCommand"}},
	"bootc upgrade":          {text: []string{"FROM os-base-image", "RUN bootc upgrade", check}, want: []string{"2 HostCommand"}},
	"bootc rollback":         {text: []string{"FROM os-base-image", "RUN bootc rollback", check}, want: []string{"2 HostCommand"}},
	"reboot":                 {text: []string{"FROM os-base-image", "RUN true; reboot", check}, want: []string{"2 HostCommand"}},
	"firewall-cmd":           {text: []string{"FROM os-base-image", "RUN firewall-cmd --add-port=80/tcp", check}, want: []string{"2 HostCommand"}},
	"sysctl -w":              {text: []string{"FROM os-base-image", "RUN sysctl -w a=1", check}, want: []string{"2 HostCommand"}},
	"sysctl a=1":             {text: []string{"FROM os-base-image", "RUN sysctl a=1", check}, want: []string{"2 HostCommand"}},
	"sysctl -p":              {text: []string{"FROM os-base-image", "RUN sysctl -p", check}, want: []string{"2 HostCommand"}},
	"setenforce":             {text: []string{"FROM os-base-image", "RUN setenforce 0", check}, want: []string{"2 SELinuxMode"}},
	"a script in a heredoc": {
		text: []string{"FROM os-base-image", "RUN <<E", "true", "reboot", "E", check},
		want: []string{"2 HeredocIgnoresErrors", "4 HostCommand"},
	},
	"a global ARG in a stage": {
		text: []string{"ARG VERSION=1", "FROM os-base-image", "RUN echo $VERSION", check},
		want: []string{"3 UndefinedVar"},
	},
	"a WORKDIR with a quote that does not end":     {text: []string{"FROM os-base-image", "WORKDIR \"a", check}, want: []string{"2 UnknownSubstitution"}},
	"a destination with a quote that does not end": {text: []string{"FROM os-base-image", "COPY --from=configs /a '/etc/a", check}, want: []string{"2 UnknownSubstitution"}},
	"a source with a quote that does not end":      {text: []string{"FROM os-base-image", "COPY 'a /etc/a", check}, want: []string{"2 UnknownSubstitution"}},
	"a relative destination in a derived stage": {
		text: []string{"FROM os-base-image AS a", "WORKDIR /srv", "WORKDIR www", "FROM a", "COPY <<E x", "y", "E", check},
		want: []string{"2 PathNotInImage", "5 PathNotInImage"},
	},
	"only a redirection to /var": {text: []string{"FROM os-base-image", "RUN > /var/lib/a", check}, want: []string{"2 PathNotInImage"}},
	"cp to /root":                {text: []string{"FROM os-base-image", "RUN cp -a /etc/a /root/", check}, want: []string{"2 PathNotInImage"}},
	"tee to /boot":               {text: []string{"FROM os-base-image", "RUN echo a | tee -a /boot/a", check}, want: []string{"2 PathNotInImage"}},
	"apt without cleanup":        {text: []string{"FROM os-base-image", "RUN apt-get install -y tree", check}, want: []string{"2 PackageCache"}},
	"a group without cleanup":    {text: []string{"FROM os-base-image", "RUN dnf group install -y x", check}, want: []string{"2 PackageCache"}},
	"USER with a variable":       {text: []string{"FROM os-base-image", "ARG U=me", "USER $U", check}, want: []string{"3 UserLeftSet"}},
	"a message that would be long": {
		text: []string{"FROM os-base-image", "COPY --from=" + strings.Repeat("x", 500) + " /a /etc/a", check},
		want: []string{"2 InvalidImage"},
	},
	"a relative WORKDIR": {text: []string{"FROM os-base-image", "WORKDIR a", check}, want: []string{"2 WorkdirRelativePath"}},
	"an empty line in an instruction": {
		text: []string{"FROM os-base-image", "RUN true && \\", "", "  true", check},
		want: []string{"3 NoEmptyContinuation"},
	},
	"MAINTAINER":       {text: []string{"FROM os-base-image", "MAINTAINER me", check}, want: []string{"2 MaintainerDeprecated"}},
	"the host network": {text: []string{"FROM os-base-image", "RUN --network=host true", check}, want: []string{"2 HostNetwork"}},

	// Advice.
	"no check at the end": {text: []string{"FROM os-base-image", check, "RUN true"}, want: []string{"3 NoFinalCheck"}},
	"a syntax directive":  {text: []string{"# syntax=docker/dockerfile:1", "FROM os-base-image", check}, want: []string{"1 SyntaxDirective"}},
	"a stage for nothing": {text: []string{"FROM quay.io/a/b:1 AS a", "FROM os-base-image", check}, want: []string{"1 UnusedStage"}},
	"a stage name in upper case": {
		text: []string{"FROM os-base-image AS Final", check},
		want: []string{"1 StageNameCasing"},
	},
}

func TestLintFindsEachMistakeWithItsLine(t *testing.T) {
	t.Parallel()
	for name, test := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, findings := lint.Check("Containerfile", []byte(file(test.text...)), test.opts)
			require.Empty(t, cmp.Diff(test.want, short(findings)))
			for _, f := range findings {
				assert.NotEmpty(t, f.Message)
				assert.NotEmpty(t, f.Fix, "a fix for %s", f.Reason)
				assert.NotContains(t, f.Message, "\n")
				assert.Less(t, len(f.Message), 400)
				assert.GreaterOrEqual(t, f.EndLine, f.Line)
			}
		})
	}
}

// TestOldFormsAreBuilt has what Containerfiles of bootable images say: Buildah builds it.
func TestOldFormsAreBuilt(t *testing.T) {
	t.Parallel()
	_, findings := lint.Check("Containerfile", []byte(file(
		"FROM os-base-image", "LABEL containers.bootc 1", "ENV LANG C.UTF-8", "ENV API_TOKEN ${X-y}", "STOPSIGNAL SIGRTMIN+3", `CMD ["/sbin/init"]`, check,
	)), lint.Options{})
	require.Equal(t, []string{
		"2 LegacyKeyValueFormat", "3 LegacyKeyValueFormat", "4 UnknownSubstitution", "4 LegacyKeyValueFormat", "4 SecretsUsedInArgOrEnv", "5 NoEffectOnHost",
	}, short(findings))
	for _, f := range findings {
		require.Equal(t, f.Reason == "UnknownSubstitution", f.Severity == lint.SeverityError, f.Reason)
	}
}

// broken are texts that Parse refuses: Check makes one finding of each.
var broken = map[string]struct{ text, want string }{
	"a heredoc without its end":    {"FROM os-base-image\nRUN true\nRUN <<E\ntrue\n", "3 Syntax"},
	"a number in a JSON array":     {"FROM os-base-image\nRUN [\"a\", 1]\n", "2 Syntax"},
	"a bad escape directive":       {"# escape=x\nFROM os-base-image\n", "1 Syntax"},
	"two escape directives":        {"# escape=`\n# escape=`\nFROM os-base-image\n", "2 Syntax"},
	"ENV without a value":          {"FROM os-base-image\nENV A\n", "2 Syntax"},
	"a word without equals sign":   {"FROM os-base-image\nLABEL a=b hunter2\n", "2 Syntax"},
	"a NUL byte":                   {"FROM os-base-image\nRUN \x00\n", "2 NotText"},
	"bytes that are no UTF-8":      {"FROM os-base-image\n# ok\nRUN \xff\xfe\n", "3 NotText"},
	"a line of 64 KiB":             {"FROM os-base-image\nRUN " + strings.Repeat("a", 65531) + "\n", "0 NotText"},
	"more than 65536 characters":   {strings.Repeat("#\n", 32769), "0 NotText"},
	"a line that is just too long": {"RUN " + strings.Repeat("a", 65531), "1 NotText"},
}

func TestCheckReportsParseErrors(t *testing.T) {
	t.Parallel()
	for name, test := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, findings := lint.Check("x", []byte(test.text), lint.Options{})
			require.Nil(t, c)
			require.Equal(t, []string{test.want}, short(findings))
			require.True(t, lint.HasErrors(findings))
			require.NotContains(t, findings[0].String(), "hunter2")
		})
	}
}

func TestEveryRuleHasATestAndAText(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, test := range mistakes {
		for _, want := range test.want {
			_, reason, _ := strings.Cut(want, " ")
			tested[reason] = true
		}
	}
	for _, test := range broken {
		_, reason, _ := strings.Cut(test.want, " ")
		tested[reason] = true
	}
	seen := map[string]bool{}
	for _, rule := range lint.Rules() {
		assert.True(t, tested[rule.Reason], "a test has %s", rule.Reason)
		assert.False(t, seen[rule.Reason], "%s is there once", rule.Reason)
		assert.Regexp(t, `^[A-Z][A-Za-z]+$`, rule.Reason)
		assert.NotEmpty(t, rule.Why, rule.Reason)
		assert.NotEmpty(t, rule.Fix, rule.Reason)
		seen[rule.Reason] = true
		delete(tested, rule.Reason)
	}
	assert.Empty(t, tested, "every finding is of a rule")
}

// TestLintAcceptsGoodFiles has what is easily taken for a mistake.
func TestLintAcceptsGoodFiles(t *testing.T) {
	t.Parallel()
	context := map[string][]byte{"chrony.conf": nil, "a.service": nil, "b.service": nil}
	tests := map[string][]string{
		"a package":                   {"FROM os-base-image", "RUN dnf install -y tree && dnf clean all && bootc container lint"},
		"a package on CoreOS":         {"FROM configs", "RUN rpm-ostree install tree && ostree container commit"},
		"a commit in a later line":    {"FROM configs", "RUN rpm-ostree install tree && rpm-ostree cleanup -m", "RUN ostree container commit"},
		"a cache mount":               {"FROM os-base-image", "RUN --mount=type=cache,target=/var/cache/libdnf5 dnf install -y tree", check},
		"apt with cleanup":            {"FROM os-base-image", "RUN apt-get install -y tree && rm -rf /var/lib/apt/lists/*", check},
		"the cache of rpm-ostree":     {"FROM os-base-image", "RUN rpm-ostree install a && rm -rf /var/cache/rpm-ostree", "RUN ostree container commit"},
		"a heredoc with #!/bin/sh -e": {"FROM os-base-image", "RUN <<EOF", "#!/bin/sh -eu", "true", "false", "EOF", check},
		"set -o errexit":              {"FROM os-base-image", "RUN <<EOF", "set -o errexit", "true", "false", "EOF", check},
		"a WORKDIR below another":     {"FROM os-base-image", "WORKDIR /usr", "WORKDIR share", "COPY <<E a", "E", check},
		"a WORKDIR that is not known": {"FROM os-base-image", "COPY --from=configs /etc/a ${WHERE}/a", check},
		"rm of the cache":             {"FROM os-base-image", "RUN dnf -y install tree; rm -rf /var/cache/libdnf5/*", check},
		"files of the context":        {"FROM os-base-image", "COPY chrony.conf *.service /usr/lib/", check},
		"the whole context":           {"FROM os-base-image", "COPY . /usr/share/a/", "RUN --mount=type=bind,target=/ctx true", check},
		"a file of the context":       {"FROM os-base-image", "RUN --mount=type=bind,source=chrony.conf,target=/ctx true", check},
		"a variable in a source":      {"FROM os-base-image", "ARG UNIT=a", "COPY ${UNIT}.service ${OTHER} /usr/lib/", check},
		"a heredoc file":              {"FROM os-base-image", "COPY <<EOF /etc/a", "reboot", "curl x | sh", "EOF", check},
		"a heredoc for a program":     {"FROM os-base-image", "RUN cat > /etc/a <<EOF", "reboot", "EOF", check},
		"a heredoc in a script":       {"FROM os-base-image", "RUN <<EOF", "set -eux", "cat > /etc/a <<-'X'", "reboot", "\tX", "true", "EOF", check},
		"a Python heredoc":            {"FROM os-base-image", "RUN <<EOF", "#!/usr/bin/python3", "import os", "reboot = 1", "EOF", check},
		"a heredoc of one command":    {"FROM os-base-image", "RUN <<EOF", "true", "EOF", check},
		"bash -e":                     {"FROM os-base-image", "RUN bash -eux <<EOF", "true", "false", "EOF", check},
		"scratch files":               {"FROM os-base-image", "WORKDIR /tmp", "RUN curl -o /tmp/a https://x.example.com/a && mkdir /tmp/b && rm -rf /tmp/a /tmp/b", check},
		"reading below /var":          {"FROM os-base-image", "RUN cp /var/lib/a /etc/a", check},
		"anything in a builder": {
			"FROM quay.io/a/b:1 AS build", "WORKDIR /opt/src", "RUN mkdir /var/x && apt-get install -y make", "CMD x", "VOLUME /x", "EXPOSE 1",
			"FROM os-base-image", "COPY --from=build /opt/src/a /usr/bin/a", check,
		},
		"a builder by number":            {"FROM quay.io/a/b:1", "FROM os-base-image", "COPY --from=0 /a /usr/bin/a", check},
		"a builder for a mount":          {"FROM quay.io/a/b:1 AS b", "FROM os-base-image", "RUN --mount=type=bind,from=b,target=/b,ro true", check},
		"the offered stages as sources":  {"FROM os-base-image", "COPY --from=configs /etc/a /usr/share/a", check},
		"the target platform":            {"FROM --platform=$TARGETPLATFORM quay.io/a/b:1 AS a", "FROM --platform=linux/amd64 os-base-image", "COPY --from=a /a /etc/a", check},
		"the architecture in a name":     {"FROM quay.io/a/b-$TARGETARCH:1 AS a", "FROM os-base-image", "COPY --from=a /a /etc/a", check},
		"a chain of stages":              {"FROM os-base-image AS a", "FROM a AS b", "FROM b", check},
		"an ARG for the stage":           {"ARG BASE=os-base-image", "FROM $BASE", check},
		"a default in place":             {"FROM ${BASE:-os-base-image}", check},
		"an offered stage in upper case": {"FROM OS-Base-Image", check},
		"a global ARG that is repeated":  {"ARG V=1", "FROM os-base-image", "ARG V", "RUN echo $V", check},
		"a global ARG of the same name":  {"ARG V=1", "FROM os-base-image", "RUN V=2; echo $V", check},
		"names that are no secret":       {"FROM os-base-image", "ENV KEYBOARD=us PUBLIC_KEY=x TOKEN_FILE=/a MONKEY=1", check},
		"CMD of a bootable image":        {"FROM os-base-image", `CMD ["/sbin/init"]`, check},
		"USER and back":                  {"FROM os-base-image", "USER 1000", "RUN true", "USER root", check},
		"another kernel":                 {"FROM os-base-image", "RUN dnf remove -y kernel kernel-core && dnf install -y kernel-rt-core && dnf clean all", check},
		"an override with a kernel":      {"FROM os-base-image", "RUN rpm-ostree override remove kernel kernel-core --install kernel-rt-core && ostree container commit"},
		"a package like a kernel":        {"FROM os-base-image", "RUN dnf remove -y kernel-tools && dnf clean all", check},
		"systemctl enable":               {"FROM os-base-image", "RUN systemctl enable a.service && systemctl mask b && systemctl --root=/ preset-all", check},
		"a verified download":            {"FROM os-base-image", "ADD --checksum=sha256:1 https://x.example.com/a /etc/a", "ADD https://x.example.com/a.git#" + strings.Repeat("a", 40) + ":d /etc/b", check},
		"a download that is looked at":   {"FROM os-base-image", "RUN curl https://x.example.com | tar -xz -C /usr", check},
		"an image by digest":             {"FROM os-base-image", "COPY --from=quay.io/a/b@sha256:" + strings.Repeat("1", 64) + " /a /etc/a", check},
		"a port":                         {"FROM os-base-image", "COPY --from=localhost:5000/b:1 /a /etc/a", check},
		"quotes and comments":            {"FROM os-base-image", `RUN echo "reboot; dnf install x" '| sh' \; reboot \`, "  # reboot", "  && true # ; reboot", check},
		"a comment line in RUN":          {"FROM os-base-image", "RUN true && \\", "# a comment", "  true", check},
		"labels only":                    {"FROM os-base-image", `LABEL a="b c" d=e`},
		"empty":                          {""},
		"comments only":                  {"# a", "", "  # b"},
		"all flags of Buildah": {
			"FROM os-base-image",
			"COPY --chown=0:0 --chmod=0644 --link --parents=true --exclude=*.x --exclude=*.y chrony.conf /etc/",
			"ADD --keep-git-dir=true --link=false --chmod=${MODE:-0644} --checksum=sha256:1 https://x.example.com/a.tar /etc/",
			"RUN --network=none --mount=type=cache,id=a,target=/c,sharing=locked,mode=0700,uid=0,gid=0 --mount=type=tmpfs,target=/t,tmpfs-size=1m true",
			"RUN --mount=type=bind,from=quay.io/a/b:1,source=/a,target=/a,bind-propagation=rshared,z,rw true", check,
		},
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := lint.Options{Architecture: mcfgv1.Amd64, Context: context}
			_, findings := lint.Check("", []byte(file(text...)), opts)
			require.Empty(t, findings)
		})
	}
}

func TestLintSkipsByComment(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text []string
		want []string
	}{
		"a directive for the file": {
			text: []string{"# check=skip=NoEffectOnHost,NoFinalCheck", "FROM os-base-image", "VOLUME /a", "RUN reboot"},
			want: []string{"4 HostCommand"},
		},
		"a directive for all": {
			text: []string{"# check=skip=all", "FROM os-base-image", "VOLUME /a", "RUN reboot"},
			want: []string{},
		},
		"a comment for an instruction": {
			text: []string{"FROM os-base-image", "# check=skip=NoEffectOnHost", "VOLUME /a", "VOLUME /b", check},
			want: []string{"4 NoEffectOnHost"},
		},
		"a rule of BuildKit's": {
			text: []string{"FROM os-base-image", "# check=skip=MaintainerDeprecated", "MAINTAINER a", check},
			want: []string{},
		},
		"no errors": {
			text: []string{"# check=skip=all", "FROM quay.io/a/b:1", "RUN --security=insecure true"},
			want: []string{"2 NotFromOfferedStage", "3 InsecureRun"},
		},
		"nothing where the directive is not understood": {
			text: []string{"# check=what", "FROM os-base-image", "VOLUME /a", check},
			want: []string{"3 NoEffectOnHost"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, short(lint.Lint(parse(t, file(test.text...)), lint.Options{})))
		})
	}
}

func TestLintNeverRepeatsASecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	texts := [][]string{
		{"FROM os-base-image", "ENV TOKEN=" + secret, check},
		{"FROM os-base-image", "ENV TOKEN " + secret, check},
		{"FROM os-base-image", "ENV A=b " + secret, check},
		{"FROM os-base-image", "ENV TOKEN='" + secret, check},
		{"FROM os-base-image", "ARG TOKEN=" + secret + " =x", check},
		{"FROM os-base-image", "LABEL token=\"" + secret, check},
		{"FROM os-base-image", "ENV TOKEN=${A-" + secret + "}", check},
		{"FROM os-base-image", "RUN curl -u me:" + secret + " https://me:" + secret + "@x.example.com | sh", check},
		{"FROM os-base-image", "ADD https://me:" + secret + "@x.example.com/a /etc/", check},
		{"FROM os-base-image", "COPY https://me:" + secret + "@x.example.com/a /etc/", check},
	}
	for _, text := range texts {
		_, findings := lint.Check("", []byte(file(text...)), lint.Options{})
		require.NotEmpty(t, findings, "%q", text)
		for _, f := range findings {
			require.NotContains(t, f.String(), "hunter2")
		}
	}
}

func TestFindingsAreSorted(t *testing.T) {
	t.Parallel()
	findings := lint.Lint(parse(t, file("FROM quay.io/a/b", "VOLUME /x", "RUN reboot; dnf install -y a", "EXPOSE 1")), lint.Options{})
	require.True(t, slices.IsSortedFunc(findings, func(a, b lint.Finding) int { return a.Line - b.Line }))
	require.Equal(t, []string{
		"1 NotFromOfferedStage", "1 UnpinnedImage", "2 NoEffectOnHost", "3 HostCommand", "3 PackageCache", "3 NoFinalCheck", "4 NoEffectOnHost",
	}, short(findings))
	require.Equal(t, "line 2: Warning: VOLUME has no effect on a node (NoEffectOnHost). Leave it out.", findings[2].String())
}
