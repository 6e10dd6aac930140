package controller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/internal/names"
	"github.com/layerwright/layerwright/internal/status"
	"github.com/layerwright/layerwright/streams"
)

func TestTheObjectIsMadeFromARelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.ReleaseImage, w.options.ReleaseVersion = w.release("4.21", w.registry.addStream("rhel-9", "1"), w.registry.addStream("rhel-10", "1")), "4.21.0"
	require.NoError(t, w.settle())
	object := w.get()
	require.NotNil(t, object)
	assert.Equal(t, "rhel-9", object.Spec.DefaultStream)
	assert.Equal(t, "rhel-9", object.Status.DefaultStream)
	assert.Equal(t, "rhel-10,rhel-9", object.Status.StreamNames)
	assert.Equal(t, map[string]string{"rhel-9": image("rhel-9-1"), "rhel-10": image("rhel-10-1")}, w.images())
	assert.Equal(t, map[string]string{"Ready": "True Succeeded"}, w.conditions())
	assert.Equal(t, object.Generation, object.Status.ObservedGeneration)
	assert.Equal(t, map[string]string{
		mcfgv1.AnnotationReleaseImageVersion: "4.21.0", mcfgv1.AnnotationReleasePayloadImage: w.options.ReleaseImage,
	}, object.Annotations)
	assert.Contains(t, status.Find(object.Status.Conditions, "Ready").Message, `the default is "rhel-9"`)
	assert.Contains(t, <-w.recorder.Events, "StreamsCreated")
	assert.Contains(t, <-w.recorder.Events, "rhel-10 is new; rhel-9 is new")
}

func TestNewClusterStartsWithTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registry.version = "5.0.0"
	w.options.ReleaseImage = w.release("5.0", w.registry.addStream("rhel-9", "1"), w.registry.addStream("rhel-10", "1"))
	require.NoError(t, w.settle())
	assert.Equal(t, "rhel-10", w.get().Status.DefaultStream)
	w.registry.version = "4.21.0"
	require.NoError(t, w.settle())
	assert.Equal(t, "rhel-10", w.get().Status.DefaultStream, "only where there is no default yet")
}

func TestNoSourceMakesNoOSImageStream(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world){
		"no source": func(*world) {},
		"a ConfigMap of others": func(w *world) {
			require.NoError(w.t, w.Create(w.t.Context(), configMap(streams.LifecycleConfigMap, nil)))
		},
		"nonsense in the ConfigMap": func(w *world) {
			require.NoError(w.t, w.Create(w.t.Context(), configMap(streams.ConfigMapName, map[string]string{"baseOSContainerImage": "x"})))
		},
		"a release without streams": func(w *world) {
			w.options.ReleaseImage = w.release("4.1", []streams.Tag{{Name: "etcd", Kind: "DockerImage"}})
		},
		"several streams of which none is a default": func(w *world) {
			w.options.ReleaseImage = w.release("4.1", w.registry.addStream("a", "1"), w.registry.addStream("b", "1"))
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			prepare(w)
			require.NoError(t, w.reconcile())
			assert.Nil(t, w.get())
		})
	}
}

func TestAConfigMapGivesAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tags := w.registry.addStream("fedora-coreos", "1")
	require.NoError(t, w.Create(t.Context(), configMap(streams.ConfigMapName, map[string]string{
		streams.KeyOSImage: tags[0].Image, streams.KeyExtensionsImage: tags[1].Image,
	})))
	require.NoError(t, w.settle())
	assert.Equal(t, "fedora-coreos", w.get().Status.DefaultStream)
	assert.Empty(t, w.get().Annotations, "people's data is of no release")
}

func TestSpecImagesAreFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("fcos", mcfgv1.OSImageStreamImages{Name: "fcos", OSImage: "quay.io/os/fcos:stable"}))
	w.registry.tags["quay.io/os/fcos:stable"] = image("fcos-1")
	w.registry.next = t0.Add(10 * time.Minute)
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"fcos": image("fcos-1")}, w.images())
	assert.Equal(t, map[string]string{"Ready": "True Succeeded"}, w.conditions(), "an OS image needs no extensions here")
	assert.Equal(t, 10*time.Minute, w.result.RequeueAfter, "the tag is looked at again")

	w.registry.tags["quay.io/os/fcos:stable"] = image("fcos-2")
	w.clock.SetTime(w.registry.next)
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"fcos": image("fcos-2")}, w.images(), "the tag moved")

	w.edit(func(o *mcfgv1.OSImageStream) {
		o.Spec.Images = append(o.Spec.Images, mcfgv1.OSImageStreamImages{Name: "next", OSImage: mcfgv1.ImageReferenceFormat(image("next-1"))})
	})
	require.NoError(t, w.settle())
	assert.Equal(t, "fcos,next", w.get().Status.StreamNames)
}

func TestCheckOfImagesOnRequest(t *testing.T) {
	t.Parallel()
	const tag = "quay.io/os/fcos:stable"
	w := newWorld(t, osImageStream("fcos", mcfgv1.OSImageStreamImages{Name: "fcos", OSImage: tag}))
	w.registry.tags[tag] = image("fcos-1")
	require.NoError(t, w.settle())
	assert.False(t, w.registry.anew)

	w.edit(func(o *mcfgv1.OSImageStream) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, mcfgv1.AnnotationCheckImages, "")
	})
	w.registry.tags[tag], w.registry.down[tag] = image("fcos-2"), true
	require.Error(t, w.reconcile())
	assert.True(t, w.registry.anew, "what is known of tags does not count")
	assert.Contains(t, w.get().Annotations, mcfgv1.AnnotationCheckImages, "a registry that does not answer is asked again")

	w.registry.down[tag] = false
	require.NoError(t, w.settle())
	assert.NotContains(t, w.get().Annotations, mcfgv1.AnnotationCheckImages)
	assert.Equal(t, map[string]string{"fcos": image("fcos-2")}, w.images())
	assert.False(t, w.registry.anew, "once")
	assert.Contains(t, w.told(), "Normal ImagesChecked The registries were asked again, as the annotation requests")
}

// TestProblemsKeepTheLastStatus goes from a good state to each kind of bad one.
func TestProblemsKeepTheLastStatus(t *testing.T) {
	t.Parallel()
	const key = "quay.io/os/mine:stable"
	set := func(name string, data map[string]string) func(w *world) {
		return func(w *world) {
			var c corev1.ConfigMap
			c.Name, c.Namespace = name, namespace
			_ = w.Delete(w.t.Context(), &c)
			require.NoError(w.t, w.Create(w.t.Context(), configMap(name, data)))
		}
	}
	tags := func(change func(w *world, good []streams.Tag) []streams.Tag) func(w *world) {
		return func(w *world) {
			w.registry.releases[w.options.ReleaseImage] = change(w, w.registry.releases[w.options.ReleaseImage])
		}
	}
	tests := map[string]struct {
		spoil   func(w *world)
		want    map[string]string
		message string
		isError bool
	}{
		"missing labels": {
			spoil: tags(func(_ *world, good []streams.Tag) []streams.Tag {
				return append(good, streams.Tag{Name: "rhel-coreos-x", Kind: "DockerImage", Image: image("unlabelled-1")})
			}),
			want: map[string]string{"Ready": "True Succeeded", "ImageLabelsMissing": "LabelMissing"}, message: "has no label io.openshift.os.streamclass",
		},
		"labels that lie": {
			spoil: func(w *world) {
				w.registry.labels[image("rhel-9-1")] = map[string]string{mcfgv1.ImageLabelStream: "rhel-9", mcfgv1.ImageLabelExtensions: "true"}
			},
			want:    map[string]string{"Ready": "False LabelsContradictory", "Stalled": "LabelsContradictory", "ImageLabelsContradictory": "LabelsContradictory"},
			message: "is labelled as extensions image, and named as OS image",
		},
		"duplicate streams": {
			spoil: tags(func(w *world, good []streams.Tag) []streams.Tag {
				return append(good, w.registry.addStream("rhel-9", "2")...)
			}),
			want: map[string]string{"Ready": "False DuplicateImages", "Stalled": "DuplicateImages", "DuplicateStreams": "DuplicateImages"}, message: "has two different images",
		},
		"100 and more streams": {
			spoil: tags(func(w *world, good []streams.Tag) []streams.Tag {
				for i := range 100 {
					good = append(good, w.registry.addStream("a"+strings.Repeat("x", i), "1")...)
				}
				return good
			}),
			want: map[string]string{"Ready": "False TooManyStreams", "Stalled": "TooManyStreams", "TooManyStreams": "TooManyStreams"}, message: "lists 100",
		},
		"names that are no DNS names": {
			spoil: tags(func(w *world, good []streams.Tag) []streams.Tag {
				return append(good, w.registry.addStream("rhel_x", "1")...)
			}),
			want: map[string]string{"Ready": "False InvalidName", "Stalled": "InvalidName", "InvalidStreamNames": "InvalidName"}, message: `stream "rhel_x"`,
		},
		"digests of a wrong length": {
			spoil: tags(func(_ *world, good []streams.Tag) []streams.Tag {
				good[0].Image = "quay.io/os/rhel-9@sha256:0123"
				return good
			}),
			want:    map[string]string{"Ready": "False InvalidImageReference", "Stalled": "InvalidImageReference", "InvalidDigests": "InvalidImageReference", "IncompleteStreams": "OSImageMissing"},
			message: "its digest has 4 characters",
		},
		"a release image that is none": {
			spoil:   func(w *world) { delete(w.registry.releases, w.options.ReleaseImage) },
			want:    map[string]string{"Ready": "False SourceFailed", "Stalled": "SourceFailed", "ReleaseImageUnreadable": "SourceFailed"},
			message: "it has no file",
		},
		"a release image that can't be reached": {
			spoil:   func(w *world) { w.registry.down[w.options.ReleaseImage] = true },
			want:    map[string]string{"Ready": "False Retrying", "Reconciling": "Retrying", "ReleaseImageUnreadable": "Retrying"},
			message: "connection refused", isError: true,
		},
		"an image of the release that may not be read": {
			spoil:   func(w *world) { w.registry.denied[image("rhel-9-1")] = true },
			want:    map[string]string{"Ready": "False SourceFailed", "Stalled": "SourceFailed", "ImagesUnreadable": "SourceFailed", "IncompleteStreams": "OSImageMissing"},
			message: "may not be read",
		},
		"an image of spec that can't be reached": {
			spoil:   func(w *world) { w.registry.down[key] = true },
			want:    map[string]string{"Ready": "False Retrying", "Reconciling": "Retrying", "ImagesUnreadable": "Retrying"},
			message: "may not be read", isError: true,
		},
		"a ConfigMap with nonsense": {
			spoil:   set(streams.ConfigMapName, map[string]string{"hello": "world"}),
			want:    map[string]string{"Ready": "False Invalid", "Stalled": "Invalid", "ConfigMapInvalid": "Invalid"},
			message: `ConfigMap "machine-config-osimageurl" names no image`,
		},
		"a ConfigMap of lifecycles with nonsense": {
			spoil:   set(streams.LifecycleConfigMap, map[string]string{"rhel-9": "the end is near"}),
			want:    map[string]string{"Ready": "False Invalid", "Stalled": "Invalid", "ConfigMapInvalid": "Invalid"},
			message: `ConfigMap "osimagestream-lifecycle": key "rhel-9"`,
		},
		"stream metadata that is none": {
			spoil: set(streams.MetadataConfigMap, map[string]string{"stream": "<html>"}),
			want:  map[string]string{"Ready": "False Invalid", "Stalled": "Invalid", "ConfigMapInvalid": "Invalid"}, message: `ConfigMap "coreos-bootimages"`,
		},
		"mirrors that are none": {
			spoil: set(names.RegistryMirrors, map[string]string{"mirrors.yaml": "yes"}),
			want:  map[string]string{"Ready": "False Invalid", "Stalled": "Invalid", "ConfigMapInvalid": "Invalid"}, message: `ConfigMap "registry-mirrors"`,
		},
		"a default that is not there": {
			spoil: func(w *world) { w.edit(func(o *mcfgv1.OSImageStream) { o.Spec.DefaultStream = "rhel-8" }) },
			want: map[string]string{
				"Ready": "False DefaultStreamNotAvailable", "Stalled": "DefaultStreamNotAvailable", "DefaultStreamNotAvailable": "DefaultStreamNotAvailable",
			},
			message: `spec.defaultStream "rhel-8" is not available; available are: mine, rhel-10, rhel-9; the default is "rhel-9" until then`,
		},
		"two sources that differ": {
			spoil: func(w *world) {
				w.edit(func(o *mcfgv1.OSImageStream) {
					o.Spec.Images = append(o.Spec.Images, mcfgv1.OSImageStreamImages{Name: "rhel-10", OSImage: mcfgv1.ImageReferenceFormat(image("rhel-10-1")), OSExtensionsImage: mcfgv1.ImageReferenceFormat(image("rhel-10-extensions-1"))})
					w.registry.labels[image("rhel-10-1")] = nil
				})
				w.registry.releases[w.options.ReleaseImage] = append(w.registry.releases[w.options.ReleaseImage][:2:2], w.registry.addStream("rhel-10", "2")...)
			},
			want: map[string]string{"Ready": "True Succeeded", "ConflictingSources": "Overridden"}, message: "the images of spec.images are used, and not those of the release image",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, osImageStream("rhel-9", mcfgv1.OSImageStreamImages{Name: "mine", OSImage: key}))
			w.registry.tags[key] = image("mine-1")
			w.options.ReleaseImage = w.release("4.21", w.registry.addStream("rhel-9", "1"), w.registry.addStream("rhel-10", "1"))
			require.NoError(t, w.settle())
			require.Equal(t, map[string]string{"Ready": "True Succeeded"}, w.conditions())
			good := w.get()
			images := w.images()

			tt.spoil(w)
			if tt.isError {
				require.Error(t, w.settle(), "it is tried again")
			} else {
				require.NoError(t, w.settle())
			}
			assert.Equal(t, tt.want, w.conditions())
			all := ""
			for _, c := range w.get().Status.Conditions {
				all += c.Message + "\n"
			}
			assert.Contains(t, all, tt.message)
			after := w.images()
			for stream, image := range images {
				assert.Equal(t, image, after[stream], "what was there stays: %s", stream)
			}
			assert.Equal(t, good.Status.DefaultStream, w.get().Status.DefaultStream)
			assert.Equal(t, good.Annotations, w.get().Annotations)
		})
	}
}

func TestProblemsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-9"))
	w.options.ReleaseImage = w.release("4.21", w.registry.addStream("rhel-9", "1"))
	w.registry.down[w.options.ReleaseImage] = true
	require.Error(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "False Retrying", "Reconciling": "Retrying", "ReleaseImageUnreadable": "Retrying"}, w.conditions())
	assert.Empty(t, w.get().Annotations)
	w.registry.down = nil
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "True Succeeded"}, w.conditions())
	assert.Len(t, w.get().Annotations, 1)
}

func TestNothingIsAvailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-9"))
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "False NoOSImageStreamAvailable", "Stalled": "NoOSImageStreamAvailable"}, w.conditions())
	assert.Empty(t, w.get().Status.DefaultStream)
	w.edit(func(o *mcfgv1.OSImageStream) { o.Spec.DefaultStream = "rhel-10" })
	tags := w.registry.addStream("rhel-10", "1")
	require.NoError(t, w.Create(t.Context(), configMap(streams.ConfigMapName, map[string]string{streams.KeyOSImage: tags[0].Image})))
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "False NoOSImageStreamAvailable", "Stalled": "NoOSImageStreamAvailable", "IncompleteStreams": "ExtensionsImageMissing"}, w.conditions())
	require.Len(t, w.get().Status.UnusableStreams, 1)
	assert.Equal(t, mcfgv1.UnusableOSImageStream{
		Name: "rhel-10", OSImage: tags[0].Image, Reason: "ExtensionsImageMissing",
		Message: `stream "rhel-10" of ConfigMap "machine-config-osimageurl" has an OS image and no extensions image; to use it without extensions, name its OS image in spec.images`,
	}, w.get().Status.UnusableStreams[0])
}

func TestAnUpgradeOfTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openShift = append(w.openShift, clusterVersion)
	first := w.release("4.21", w.registry.addStream("rhel-9", "1"), w.registry.addStream("rhel-10", "1"))
	cv := version("4.21.0", first, "4.21.0", "4.18.0")
	require.NoError(t, w.Create(t.Context(), cv))
	w.options.ReleaseVersion = "4.21.0"
	require.NoError(t, w.settle())
	require.Equal(t, "rhel-9", w.get().Status.DefaultStream)
	require.Equal(t, first, w.get().Annotations[mcfgv1.AnnotationReleasePayloadImage])
	before := w.images()

	second := w.release("5.02", w.registry.addStream("rhel-9", "2"), w.registry.addStream("rhel-10", "2"), w.registry.addStream("rhel-11", "2"))
	update := version("5.0.2", second, "4.21.0", "4.18.0")
	update.SetResourceVersion(cv.GetResourceVersion())
	require.NoError(t, w.Update(t.Context(), update))
	asked := w.registry.asked
	require.NoError(t, w.settle())
	assert.Equal(t, asked, w.registry.asked, "the controller of the old release asks no one")
	assert.Equal(t, map[string]string{"Ready": "Unknown WaitingForRelease", "Reconciling": "WaitingForRelease"}, w.conditions())
	assert.Equal(t, before, w.images())

	w.options.ReleaseVersion = "5.0.2" // that of the new one starts, and the registry is away
	w.registry.down[image("rhel-10-2")] = true
	require.Error(t, w.settle())
	assert.Equal(t, before, w.images(), "images of two releases are not mixed")
	assert.Equal(t, "4.21.0", w.get().Annotations[mcfgv1.AnnotationReleaseImageVersion])
	assert.Equal(t, "False Retrying", w.conditions()["Ready"])

	w.registry.down = nil
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"rhel-9": image("rhel-9-2"), "rhel-10": image("rhel-10-2"), "rhel-11": image("rhel-11-2")}, w.images())
	assert.Equal(t, "rhel-9", w.get().Status.DefaultStream, "the default stays what it was")
	assert.Equal(t, "5.0.2", w.get().Annotations[mcfgv1.AnnotationReleaseImageVersion])
	assert.Equal(t, second, w.get().Annotations[mcfgv1.AnnotationReleasePayloadImage])
}

func TestBootImageLimitsOfTheRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.registry.limits = `{"rhelVersion":"9.6"}`
	w.options.ReleaseImage = w.release("1", w.registry.addStream("rhel-9", "1"))
	require.NoError(t, w.settle())
	require.Equal(t, w.registry.limits, w.get().Annotations[mcfgv1.AnnotationBootImageSkewLimits])
	w.registry.limits = ""
	w.options.ReleaseImage = w.release("2", w.registry.addStream("rhel-9", "2"))
	require.NoError(t, w.settle())
	assert.NotContains(t, w.get().Annotations, mcfgv1.AnnotationBootImageSkewLimits)
}

func TestAnImageOfSpecDoesNotHoldUpAnUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-9", mcfgv1.OSImageStreamImages{Name: "mine", OSImage: mcfgv1.ImageReferenceFormat(image("mine-1"))}))
	w.options.ReleaseImage = w.release("1", w.registry.addStream("rhel-9", "1"))
	require.NoError(t, w.settle())
	w.registry.down[image("mine-1")] = true
	w.options.ReleaseImage = w.release("2", w.registry.addStream("rhel-9", "2"))
	require.Error(t, w.settle())
	assert.Equal(t, map[string]string{"rhel-9": image("rhel-9-2"), "mine": image("mine-1")}, w.images())
	assert.Equal(t, w.options.ReleaseImage, w.get().Annotations[mcfgv1.AnnotationReleasePayloadImage])
	assert.Equal(t, map[string]string{"Ready": "False Retrying", "Reconciling": "Retrying", "ImagesUnreadable": "Retrying"}, w.conditions())
}

func TestTheDefaultOfAReleaseThatDroppedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-9"))
	w.options.ReleaseImage = w.release("1", w.registry.addStream("rhel-9", "1"))
	require.NoError(t, w.settle())
	w.options.ReleaseImage = w.release("2", w.registry.addStream("a", "1"), w.registry.addStream("b", "1"))
	require.NoError(t, w.settle())
	assert.Empty(t, w.get().Status.AvailableStreams, "so that an administrator can name any: the API lets him choose from what is listed")
	assert.Equal(t, "False DefaultStreamNotAvailable", w.conditions()["Ready"])
	w.edit(func(o *mcfgv1.OSImageStream) { o.Spec.DefaultStream = "b" })
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"Ready": "True Succeeded"}, w.conditions())
	assert.Equal(t, "b", w.get().Status.DefaultStream)
}

func TestLifecycleOfToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-10"))
	w.options.ReleaseImage = w.release("1", w.registry.addStream("rhel-9", "1"), w.registry.addStream("rhel-10", "1"), w.registry.addStream("rhel-8", "1"))
	require.NoError(t, w.Create(t.Context(), configMap(streams.LifecycleConfigMap, map[string]string{"rhel-9": "deprecationDate: 2027-02-01\nendOfLifeDate: 2027-03-01\n"})))
	require.NoError(t, w.Create(t.Context(), configMap(streams.MetadataConfigMap, map[string]string{
		"stream": `{"stream":"rhel-8","metadata":{"eol":true,"labels":["node.openshift.io/ID=rhcos"]}}`,
	})))
	require.NoError(t, w.settle())
	assert.Empty(t, w.get().Status.DeprecatedStreamNames)
	assert.Equal(t, "rhel-8", w.get().Status.EndOfLifeStreamNames)
	assert.Equal(t, "rhcos", w.get().Status.AvailableStreams[1].NodeLabels["node.openshift.io/ID"])
	assert.Equal(t, 31*24*time.Hour, w.result.RequeueAfter, "until the day comes")

	w.clock.SetTime(t0.Add(w.result.RequeueAfter))
	require.NoError(t, w.settle())
	assert.Equal(t, "rhel-9", w.get().Status.DeprecatedStreamNames)
	w.clock.SetTime(w.clock.Now().Add(w.result.RequeueAfter))
	require.NoError(t, w.settle())
	assert.Equal(t, "rhel-8,rhel-9", w.get().Status.EndOfLifeStreamNames)
	assert.Zero(t, w.result.RequeueAfter)
}

func TestASecretThatCannotBeReadIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, osImageStream("rhel-9"))
	w.options.ReleaseImage = w.release("1", w.registry.addStream("rhel-9", "1"))
	require.NoError(t, w.settle())
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: namespace}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{".dockerconfigjson": []byte("{")}}
	require.NoError(t, w.Create(t.Context(), secret))
	require.NoError(t, w.settle())
	assert.Equal(t, map[string]string{"rhel-9": image("rhel-9-1")}, w.images())
	assert.Contains(t, status.Find(w.get().Status.Conditions, "Ready").Message, `registry secret "layerwright/pull"`)
	assert.Positive(t, w.result.RequeueAfter)
}

func TestAPassThatFindsNothingNewWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.ReleaseImage, w.options.ReleaseVersion = w.release("1", w.registry.addStream("rhel-9", "1")), "4.21"
	require.NoError(t, w.settle())
	writes := w.writes
	w.clock.SetTime(t0.Add(time.Hour))
	require.NoError(t, w.reconcile())
	assert.Equal(t, writes, w.writes)
}

// TestMirrorsOfTheCluster has the deprecated ImageContentSourcePolicy too.
func TestMirrorsOfTheCluster(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"repositoryDigestMirrors": []any{
		map[string]any{"source": "quay.io/os", "mirrors": []any{"here/os"}},
	}}}}
	policy.SetGroupVersionKind(kind)
	policy.SetName("release")
	w := newWorld(t, policy, configMap(names.RegistryMirrors, map[string]string{"mirrors.yaml": "[{source: docker.io, mirrors: [here/hub]}]"}))
	w.openShift = append(w.openShift, kind)
	require.NoError(t, w.settle())
	places, _ := w.through.Places(image("rhel-9-1"))
	assert.Equal(t, []string{strings.Replace(image("rhel-9-1"), "quay.io", "here", 1), image("rhel-9-1")}, places)
	places, _ = w.through.Places("quay.io/os/rhel-9:1")
	assert.Equal(t, []string{"quay.io/os/rhel-9:1"}, places, "it has no mirrors of tags")
	places, _ = w.through.Places("docker.io/os:1")
	assert.Equal(t, []string{"docker.io/os:1"}, places, "nor has a ConfigMap")
}
