package streams

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionAndVariantOfAName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		major   int
		variant string
	}{
		"rhel-10":              {10, ""},
		"rhel10-coreos":        {10, ""},
		"rhel-10.2":            {10, ""},
		"rhel-coreos-10":       {10, ""},
		"rhel-10-nvidia":       {10, "nvidia"},
		"rhel10-coreos-nvidia": {10, "nvidia"},
		"rhel-nvidia-10":       {10, "nvidia"},
		"rhel-9-nvidia-64k":    {9, "nvidia-64k"},
		"centos-10":            {10, ""},
		"fedora-coreos":        {0, ""},
		"":                     {0, ""},
	} {
		assert.Equal(t, want.major, EnterpriseMajor(name), name)
		assert.Equal(t, want.variant, Variant(name), name)
	}
}
