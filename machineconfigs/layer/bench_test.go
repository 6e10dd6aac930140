package layer_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/layerwright/layerwright/machineconfigs"
	"github.com/layerwright/layerwright/machineconfigs/layer"
)

// bigConfig is 200 files with 2 MB together, some of them units.
func bigConfig(b *testing.B) *machineconfigs.Config {
	b.Helper()
	const count, size = 200, 10_000
	var list, unitList []string
	for i := range count {
		data := make([]byte, size)
		_, err := rand.Read(data)
		require.NoError(b, err)
		list = append(list, fmt.Sprintf(`{"path":"/etc/app%d/conf.d/file-%d.conf","mode":420,"user":{"name":"core"},"contents":{"source":"data:;base64,%s"}}`,
			i%20, i, base64.StdEncoding.EncodeToString(data)))
	}
	for i := range 20 {
		unitList = append(unitList, unit(fmt.Sprintf("app%d.service", i), "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n", `"enabled":true`))
	}
	return config(b, `{"storage":{"files":[`+strings.Join(list, ",")+`]},"systemd":{"units":[`+strings.Join(unitList, ",")+`]}}`)
}

// BenchmarkLayer is the budget: 200 files with 2 MB, from a configuration to a written layer, in
// less than 20 ms.
func BenchmarkLayer(b *testing.B) {
	cfg, index := bigConfig(b), ostree().index(b)
	b.ReportAllocs()
	for b.Loop() {
		plan, err := layer.Split(cfg, index)
		require.NoError(b, err)
		l, err := plan.Build(layer.Inputs{})
		require.NoError(b, err)
		_, err = l.WriteTo(io.Discard)
		require.NoError(b, err)
	}
}
