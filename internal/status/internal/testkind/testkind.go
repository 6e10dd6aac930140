package testkind

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Widget is a kind whose status has an observedGeneration.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec         `json:"spec"`
	Status WidgetStatus `json:"status"`
}

// Spec is what is wanted.
type Spec struct {
	Size int `json:"size,omitempty"`
}

// WidgetStatus is what was seen.
type WidgetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	Size               int                `json:"size,omitempty"`
	Count              int                `json:"count"`
}

// GetConditions implements status.Object.
func (w *Widget) GetConditions() []metav1.Condition { return w.Status.Conditions }

// SetConditions implements status.Object.
func (w *Widget) SetConditions(conditions []metav1.Condition) { w.Status.Conditions = conditions }

// GetObservedGeneration implements status.Observer.
func (w *Widget) GetObservedGeneration() int64 { return w.Status.ObservedGeneration }

// SetObservedGeneration implements status.Observer.
func (w *Widget) SetObservedGeneration(generation int64) { w.Status.ObservedGeneration = generation }

// DeepCopyObject implements runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := *w
	w.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(w.Status.Conditions)
	return &out
}

// Build is a kind whose status has no observedGeneration.
type Build struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status BuildStatus `json:"status"`
}

// BuildStatus is how the build went.
type BuildStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	BuildStart *metav1.Time       `json:"buildStart,omitempty"`
	BuildEnd   *metav1.Time       `json:"buildEnd,omitempty"`
}

// GetConditions implements status.Object.
func (b *Build) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions implements status.Object.
func (b *Build) SetConditions(conditions []metav1.Condition) { b.Status.Conditions = conditions }

// DeepCopyObject implements runtime.Object.
func (b *Build) DeepCopyObject() runtime.Object {
	out := *b
	b.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(b.Status.Conditions)
	out.Status.BuildStart = b.Status.BuildStart.DeepCopy()
	out.Status.BuildEnd = b.Status.BuildEnd.DeepCopy()
	return &out
}

// Scheme is a scheme that knows both kinds.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	version := schema.GroupVersion{Group: "test.example", Version: "v1"}
	scheme.AddKnownTypes(version, &Widget{}, &Build{})
	metav1.AddToGroupVersion(scheme, version)
	return scheme
}
