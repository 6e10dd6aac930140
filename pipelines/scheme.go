package pipelines

import (
	tektonv1 "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme adds Tekton's kinds.
func AddToScheme(scheme *runtime.Scheme) error { return tektonv1.AddToScheme(scheme) }
