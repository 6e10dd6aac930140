package containerfiles

// Reasons of errors.
const (
	ReasonNotText            = "NotText"
	ReasonSyntax             = "Syntax"
	ReasonUnknownInstruction = "UnknownInstruction"
	ReasonMissingArguments   = "MissingArguments"
	ReasonBeforeFrom         = "InstructionBeforeFrom"
	ReasonNotOffered         = "NotFromOfferedStage"
	ReasonEmptyBase          = "InvalidDefaultArgInFrom" // BuildKit's name
	ReasonUndefinedArgInFrom = "UndefinedArgInFrom"      // BuildKit's name
	ReasonReservedStageName  = "ReservedStageName"       // BuildKit's name
	ReasonDuplicateStageName = "DuplicateStageName"      // BuildKit's name
	ReasonStageNameCase      = "StageNameCase"
	ReasonLaterStage         = "LaterStage"
	ReasonUnknownStage       = "UnknownStage"
	ReasonStageByNumber      = "StageByNumber"
	ReasonInvalidImage       = "InvalidImage"
	ReasonSubstitution       = "UnknownSubstitution"
	ReasonUnsupportedFlag    = "UnsupportedFlag"
	ReasonUnsupportedMount   = "UnsupportedMount"
	ReasonSecretMount        = "SecretMount"
	ReasonInsecureRun        = "InsecureRun"
	ReasonOnbuild            = "Onbuild"
	ReasonPlatform           = "OtherPlatform"
	ReasonMissingFile        = "FileNotInContext"
	ReasonContinuation       = "AmbiguousContinuation"
)

// Reasons of warnings.
const (
	ReasonUnpinnedImage   = "UnpinnedImage"
	ReasonShortImage      = "ShortImageName"
	ReasonSecretVariable  = "SecretsUsedInArgOrEnv" // BuildKit's name
	ReasonSecretText      = "SecretInText"
	ReasonUnverified      = "UnverifiedDownload"
	ReasonPipeToShell     = "PipeToShell"
	ReasonPackageCache    = "PackageCache"
	ReasonNoCommit        = "RpmOstreeWithoutCommit"
	ReasonNotInImage      = "PathNotInImage"
	ReasonNoEffect        = "NoEffectOnHost"
	ReasonNotInit         = "NotInit"
	ReasonLegacyKeyValue  = "LegacyKeyValueFormat" // BuildKit's name
	ReasonUser            = "UserLeftSet"
	ReasonShell           = "ShellChanged"
	ReasonKernelRemoved   = "KernelRemoved"
	ReasonNoSystemd       = "NoSystemdInBuild"
	ReasonHostCommand     = "HostCommand"
	ReasonSELinux         = "SELinuxMode"
	ReasonNoErrexit       = "HeredocIgnoresErrors"
	ReasonUndefinedVar    = "UndefinedVar"         // BuildKit's name
	ReasonRelativeWorkdir = "WorkdirRelativePath"  // BuildKit's name
	ReasonEmptyContinued  = "NoEmptyContinuation"  // BuildKit's name
	ReasonMaintainer      = "MaintainerDeprecated" // BuildKit's name
	ReasonHostNetwork     = "HostNetwork"
)

// Reasons of advice.
const (
	ReasonFinalCheck      = "NoFinalCheck"
	ReasonSyntaxDirective = "SyntaxDirective"
	ReasonUnusedStage     = "UnusedStage"
	ReasonStageNameCasing = "StageNameCasing" // BuildKit's name
)
