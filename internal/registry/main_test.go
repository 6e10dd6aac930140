package registry_test

import (
	"flag"
	"io"
	"os"
	"testing"

	"github.com/sirupsen/logrus"
)

var update = flag.Bool("update", false, "write what the tests get to testdata, instead of comparing")

func TestMain(m *testing.M) {
	flag.Parse()
	logrus.SetOutput(io.Discard) // the registry on disk logs every 404 as an error
	os.Exit(m.Run())
}
