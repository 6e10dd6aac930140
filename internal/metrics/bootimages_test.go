package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBootImagesListWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	b := NewBootImages()
	of := func(name string, state BootImageState, reason string) BootImage {
		return BootImage{Kind: "MAPI MachineSets", Namespace: "m", Name: name, Platform: "AWS", State: state, Reason: reason}
	}
	b.From(func() []BootImage {
		return []BootImage{
			of("a", BootImageSkipped, "CustomImage"), of("b", BootImageSkipped, "CustomImage"), of("c", BootImageUnmanaged, "PartOfAnother"), of("d", BootImageFailed, "HotLoop"),
		}
	})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(b))
	assert.Equal(t, []string{
		"layerwright_boot_image_failing{kind=MAPI MachineSets,name=d,namespace=m,reason=HotLoop} 1",
		"layerwright_boot_image_resources{kind=MAPI MachineSets,platform=AWS,reason=CustomImage,state=Skipped} 2",
		"layerwright_boot_image_resources{kind=MAPI MachineSets,platform=AWS,reason=HotLoop,state=Failed} 1",
		"layerwright_boot_image_resources{kind=MAPI MachineSets,platform=AWS,reason=PartOfAnother,state=Unmanaged} 1",
		"layerwright_boot_image_skipped{kind=MAPI MachineSets,name=a,namespace=m,reason=CustomImage} 1",
		"layerwright_boot_image_skipped{kind=MAPI MachineSets,name=b,namespace=m,reason=CustomImage} 1",
		"mcc_boot_image_skew_enforcement_none{} 0",
	}, gather(t, registry))
}
