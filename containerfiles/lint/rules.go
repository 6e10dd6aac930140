package lint

import (
	"slices"

	"github.com/moby/buildkit/frontend/dockerfile/linter"

	"github.com/layerwright/layerwright/containerfiles"
)

var errorRules = []Rule{
	{
		containerfiles.ReasonNotText, SeverityError, "The file is longer than 65536 characters, has a line of 64 KiB, or is no UTF-8 text.",
		"Move files into a ConfigMap beside the Containerfile, and COPY them.",
	},
	{containerfiles.ReasonSyntax, SeverityError, "The rest of the file cannot be read.", "See the message; often a heredoc lacks its last line."},
	{
		containerfiles.ReasonUnknownInstruction, SeverityError, "The line begins with no instruction, often because the line before lacks its backslash.",
		"Correct the keyword, or end the line before with a backslash.",
	},
	{containerfiles.ReasonMissingArguments, SeverityError, "The instruction is not complete.", "Add what the message names."},
	{containerfiles.ReasonBeforeFrom, SeverityError, "Only ARG may come before the first FROM.", "Move the line below FROM."},
	{
		containerfiles.ReasonNotOffered, SeverityError, "The image would lack the cluster's operating system and its configuration.",
		"Start the last stage from " + containerfiles.OfferedNames + ".",
	},
	{
		containerfiles.ReasonEmptyBase, SeverityError, "A build passes no build arguments, so the name of the image would be empty.",
		"Give the ARG a default: ARG NAME=value.",
	},
	{containerfiles.ReasonUndefinedArgInFrom, SeverityError, "Part of the image name would be missing.", "Write ARG NAME=value before the first FROM."},
	{
		containerfiles.ReasonReservedStageName, SeverityError, "Stages of that name are added to the file; two of a name cannot be told apart.",
		"Give the stage another name.",
	},
	{containerfiles.ReasonDuplicateStageName, SeverityError, "Tools differ in which of the two they take.", "Give each stage a name of its own."},
	{
		containerfiles.ReasonStageNameCase, SeverityError, "Buildah tells upper and lower case apart and would look for an image of that name.",
		"Write the name as the stage has it.",
	},
	{containerfiles.ReasonLaterStage, SeverityError, "Stages are built from top to bottom.", "Move the stage above its first use."},
	{
		containerfiles.ReasonUnknownStage, SeverityError, "Buildah would look for an image of that name in whatever registries it knows.",
		"Name an earlier stage, or an image with its registry: registry.example.com/name:tag.",
	},
	{
		containerfiles.ReasonStageByNumber, SeverityError, "The build adds stages to the file, so the numbers change.",
		"Give the stage a name: FROM ... AS name.",
	},
	{containerfiles.ReasonInvalidImage, SeverityError, "The image cannot be pulled.", "Write registry/path:tag or registry/path@sha256:digest."},
	{containerfiles.ReasonSubstitution, SeverityError, "Buildah cannot replace the variable.", "Use $NAME, ${NAME}, ${NAME:-default} or ${NAME:+value}."},
	{containerfiles.ReasonUnsupportedFlag, SeverityError, "Buildah, which runs the build, does not know it.", "Leave it out."},
	{containerfiles.ReasonUnsupportedMount, SeverityError, "Buildah, which runs the build, does not know it.", "Leave it out."},
	{
		containerfiles.ReasonSecretMount, SeverityError, "RUN lines get no secret and no SSH agent, so that they cannot leak one.",
		"Put public files into the ConfigMap, and repositories and entitlements where the cluster keeps them.",
	},
	{containerfiles.ReasonInsecureRun, SeverityError, "RUN lines never get more privileges.", "Leave it out."},
	{containerfiles.ReasonOnbuild, SeverityError, "Nothing is built from a node's image, so the line would never run.", "Write the instruction without ONBUILD."},
	{
		containerfiles.ReasonPlatform, SeverityError, "The stage would be of another architecture than the node.",
		"Leave --platform out, or write --platform=$TARGETPLATFORM; add a containerFile entry for the other architecture.",
	},
	{
		containerfiles.ReasonMissingFile, SeverityError, "The build has the keys of the ConfigMap that the Containerfile comes from, and no other files.",
		"Use configMapRef and add the file as a key, or write it with a heredoc.",
	},
	{
		containerfiles.ReasonContinuation, SeverityError, "Buildah takes the next line as part of this one; other tools do not.",
		"End the line with one backslash to continue it, or put quotes around the backslashes.",
	},
}

var warningRules = []Rule{
	{
		containerfiles.ReasonUnpinnedImage, SeverityWarning, "The same file builds something else tomorrow, without anybody changing it.",
		"Use a digest, or at least a tag that does not move.",
	},
	{
		containerfiles.ReasonShortImage, SeverityWarning, "Which registry is asked depends on the cluster's settings.",
		"Write the registry: docker.io/library/name:tag, quay.io/name/name:tag.",
	},
	{
		containerfiles.ReasonSecretVariable, SeverityWarning, "Variables are in the image's history, and whoever can pull the image can read them.",
		"Leave the secret out of the image; put it on nodes with a MachineConfig that is kept out of images.",
	},
	{
		containerfiles.ReasonSecretText, SeverityWarning, "It has the form of a password, token or private key, and whoever can pull the image can read it.",
		"Revoke it, and leave it out of the file.",
	},
	{
		containerfiles.ReasonUnverified, SeverityWarning, "Whoever controls the address controls the image.",
		"Add --checksum=sha256:... to ADD; name a commit for git.",
	},
	{
		containerfiles.ReasonPipeToShell, SeverityWarning, "Whoever controls the address runs commands in the build, and a broken download runs half of them.",
		"Download to a file, compare its checksum, then run it.",
	},
	{
		containerfiles.ReasonPackageCache, SeverityWarning, "Metadata and packages of the package manager stay in the image and are copied to every node.",
		"End the same RUN with the cleanup: && dnf clean all.",
	},
	{containerfiles.ReasonNoCommit, SeverityWarning, "rpm-ostree leaves its working files in the image.", "End the RUN with && ostree container commit."},
	{
		containerfiles.ReasonNotInImage, SeverityWarning, "A node takes nothing below that path from an image, or only on its first boot.",
		"Put files below /usr or /etc; make directories of /var with a file in /usr/lib/tmpfiles.d.",
	},
	{containerfiles.ReasonNoEffect, SeverityWarning, "It is for containers; a node that boots the image ignores it.", "Leave it out."},
	{
		containerfiles.ReasonNotInit, SeverityWarning, "A node boots /sbin/init, whatever the image says; tools that run the image as a container expect it.",
		"Leave it out; start programs with a systemd unit.",
	},
	{
		containerfiles.ReasonLegacyKeyValue, SeverityWarning, "Without the equals sign it is easy to get one name where two were meant.",
		`Write NAME="value".`,
	},
	{containerfiles.ReasonUser, SeverityWarning, "It has no effect on a node, and checks that run in the image fail.", "Write USER root below."},
	{
		containerfiles.ReasonShell, SeverityWarning, "It changes what later RUN lines mean, and Buildah keeps it only in images of Docker's format.",
		`Name the shell in the line: RUN ["/bin/bash", "-c", "..."], or a heredoc with #!/bin/bash.`,
	},
	{containerfiles.ReasonKernelRemoved, SeverityWarning, "An image without a kernel does not boot.", "Install the other kernel in the same RUN."},
	{containerfiles.ReasonNoSystemd, SeverityWarning, "No systemd runs during a build.", "Use systemctl enable; the service starts when the node boots."},
	{
		containerfiles.ReasonHostCommand, SeverityWarning, "It is for a running host and fails or does nothing during a build.",
		"Write the configuration file instead; kernel arguments belong into a MachineConfig.",
	},
	{containerfiles.ReasonSELinux, SeverityWarning, "It would change, or fail to change, the machine that builds.", "Set the mode in /etc/selinux/config."},
	{
		containerfiles.ReasonNoErrexit, SeverityWarning, "A command that fails in the middle is not noticed, and the image is built without it.",
		"Begin the heredoc with set -e.",
	},
	{containerfiles.ReasonUndefinedVar, SeverityWarning, "An ARG from before the first FROM is empty inside of stages.", "Repeat ARG NAME in the stage."},
	{containerfiles.ReasonRelativeWorkdir, SeverityWarning, "Where it leads depends on the base image.", "Write the path from /."},
	{containerfiles.ReasonEmptyContinued, SeverityWarning, "It is to become an error.", "Remove the empty line."},
	{containerfiles.ReasonMaintainer, SeverityWarning, "MAINTAINER is deprecated.", "Write LABEL org.opencontainers.image.authors=\"...\"."},
	{containerfiles.ReasonHostNetwork, SeverityWarning, "Builds get the network that the cluster gives them.", "Leave it out."},
}

var adviceRules = []Rule{
	{
		containerfiles.ReasonFinalCheck, SeverityAdvice, "It finds what would keep a node from booting, while it is only a failed build.",
		"End the file with RUN bootc container lint, or with RUN ostree container commit on rpm-ostree systems.",
	},
	{containerfiles.ReasonSyntaxDirective, SeverityAdvice, "It names an image that reads the file for Docker; Buildah reads it itself.", "Leave it out."},
	{containerfiles.ReasonUnusedStage, SeverityAdvice, "It is not built.", "Leave it out, or COPY --from it."},
	{containerfiles.ReasonStageNameCasing, SeverityAdvice, "Some tools tell upper and lower case apart, some do not.", "Use lower case."},
}

// BuildKitRule is a rule of BuildKit's linter.
type BuildKitRule struct {
	// Name is BuildKit's.
	Name string
	// Used reports whether it is one of Rules.
	Used bool
	// Why says what stands in its place, or what is otherwise.
	Why string
}

// BuildKitRules says for each rule of BuildKit's linter what became of it. Those of the linter that
// need no image run through BuildKit's own code while the file is read, or stand here under
// BuildKit's name.
func BuildKitRules() []BuildKitRule { return slices.Clone(buildKitRules) }

var buildKitRules = []BuildKitRule{
	{linter.RuleConsistentInstructionCasing.Name, false, "style only"},
	{linter.RuleCopyIgnoredFile.Name, false, "a build context has no .dockerignore"},
	{linter.RuleDuplicateStageName.Name, true, "an error here"},
	{linter.RuleExposeInvalidFormat.Name, false, containerfiles.ReasonNoEffect + " says more"},
	{linter.RuleExposeProtoCasing.Name, false, containerfiles.ReasonNoEffect + " says more"},
	{linter.RuleFromAsCasing.Name, false, "style only"},
	{linter.RuleFromPlatformFlagConstDisallowed.Name, false, containerfiles.ReasonPlatform + " compares with the node's architecture"},
	{linter.RuleInvalidBaseImagePlatform.Name, false, "needs the image; the builder checks it"},
	{linter.RuleInvalidDefaultArgInFrom.Name, true, "an error here: builds pass no arguments"},
	{linter.RuleInvalidDefinitionDescription.Name, false, "experimental, and style only"},
	{linter.RuleJSONArgsRecommended.Name, false, containerfiles.ReasonNotInit + " says more"},
	{linter.RuleLegacyKeyValueFormat.Name, true, ""},
	{linter.RuleMaintainerDeprecated.Name, true, ""},
	{linter.RuleMultipleInstructionsDisallowed.Name, false, containerfiles.ReasonNotInit + " and " + containerfiles.ReasonNoEffect + " report each of them"},
	{linter.RuleNoEmptyContinuation.Name, true, ""},
	{linter.RuleRedundantTargetPlatform.Name, false, "it does no harm"},
	{linter.RuleReservedStageName.Name, true, "an error here, and about the offered stages too"},
	{linter.RuleSecretsUsedInArgOrEnv.Name, true, ""},
	{linter.RuleStageNameCasing.Name, true, ""},
	{linter.RuleUndefinedArgInFrom.Name, true, "an error here"},
	{linter.RuleUndefinedVar.Name, true, "for ARGs from before the first FROM; what the base image sets is not known"},
	{linter.RuleWorkdirRelativePath.Name, true, ""},
}
