package sign_test

import (
	"io"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(pluginMode); mode != "" {
		os.Exit(actAsPlugin(mode))
	}
	logrus.SetOutput(io.Discard) // the registry on disk logs every 404 as an error
	os.Exit(m.Run())
}
