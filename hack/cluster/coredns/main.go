// Command coredns is CoreDNS with the plugins that a test cluster needs, and
// none of the cloud providers' that the released executable carries.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() {
	// The order of the directives is the order in which a query passes them.
	dnsserver.Directives = []string{"bind", "errors", "hosts", "kubernetes"}
	coremain.Run()
}
