package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StreamTrialState is how far a trial is.
// +kubebuilder:validation:Enum=Running;Reported;Failed
type StreamTrialState string

const (
	// StreamTrialRunning means that the images are looked at, or the trial image is made. The
	// message says which, or what it waits for.
	StreamTrialRunning StreamTrialState = "Running"
	// StreamTrialReported means that the report is there. It is renewed when something that it
	// speaks of changes.
	StreamTrialReported StreamTrialState = "Reported"
	// StreamTrialFailed means that there can be no report before someone acts; the message says
	// how. It is tried again every few minutes.
	StreamTrialFailed StreamTrialState = "Failed"
)

// StreamTrial is what a pool's move to another stream would change.
type StreamTrial struct {
	// stream that was tried.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Stream string `json:"stream"`

	// state is Running, Reported or Failed.
	// +required
	State StreamTrialState `json:"state"`

	// message is the report in one line, or why there is none yet. At most 32768 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// imagePullSpec is the pool's image for the stream, by digest. No node gets it. When it is
	// omitted, none was made; the report says why.
	// +optional
	ImagePullSpec ImageDigestFormat `json:"imagePullSpec,omitempty"`

	// blockers are what has to be changed before the pool moves: the name of the rule, the object
	// and the place. At most 32 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Blockers []string `json:"blockers,omitempty"`

	// blockerCount and warningCount are how many there are of each. When the first is 0 in a
	// Reported trial, nothing known is in the way.
	// +optional
	BlockerCount int32 `json:"blockerCount"`

	// warningCount is how many things have to be looked at before the pool moves.
	// +optional
	WarningCount int32 `json:"warningCount"`

	// packages are how many packages the move changes. When it is omitted, one of the OS images has
	// no package database.
	// +optional
	Packages *StreamTrialPackages `json:"packages,omitempty"`

	// report is the ConfigMap with the whole report: report.txt for people, report.json for
	// programs.
	// +optional
	Report *StreamTrialReport `json:"report,omitempty"`

	// inputs identifies what was looked at. The trial is renewed when it changes.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Inputs string `json:"inputs,omitempty"`

	// completionTime is when the report was written.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// StreamTrialReport names the ConfigMap of a report.
type StreamTrialReport struct {
	// namespace is the one that Layerwright runs in.
	// +kubebuilder:validation:MaxLength=63
	// +required
	Namespace string `json:"namespace"`
	// name of the ConfigMap.
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// StreamTrialPackages are how many packages a move changes.
type StreamTrialPackages struct {
	// added is how many only the other stream has.
	Added int32 `json:"added"`
	// removed is how many only the pool's stream has.
	Removed int32 `json:"removed"`
	// upgraded is how many the other stream has in a newer version.
	Upgraded int32 `json:"upgraded"`
	// downgraded is how many the other stream has in an older version.
	Downgraded int32 `json:"downgraded"`
}
