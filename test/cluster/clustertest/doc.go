// Package clustertest gives Go tests a real Kubernetes control plane: etcd,
// kube-apiserver and kube-controller-manager on loopback, without root. All
// tests of a package share one, started when the first asks for it:
//
//	func TestMain(m *testing.M) { clustertest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		config := clustertest.ControlPlane(t)
//		namespace := clustertest.Namespace(t)
//		...
//	}
//
// The programs must have been built (`make tools`); that they are missing fails
// the test instead of skipping it.
package clustertest
