package archtest

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = Module

// TestImportRule applies the rules to this repository.
func TestImportRule(t *testing.T) {
	t.Parallel()
	checker := Checker{Module: module, Rules: Rules()}
	packages, err := Load(t.Context(), "../..", checker)
	require.NoError(t, err)

	seen := map[string]Package{}
	for _, p := range packages {
		seen[p.Path] = p
	}
	require.Contains(t, seen, module+"/internal/archtest", "the module is listed")
	program := seen[module+"/cmd/layerwright"]
	require.Contains(t, program.Graph, "sigs.k8s.io/controller-runtime/pkg/manager", "whole graphs are seen")
	require.Contains(t, seen[module+"/builder/engine"].Imports, "go.podman.io/buildah/imagebuildah", "what is behind build tags is seen")

	for _, violation := range checker.Check(packages) {
		t.Error(violation)
	}
}

// TestRulesFindWhatTheyForbid breaks every rule on purpose, in made-up packages.
func TestRulesFindWhatTheyForbid(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rule string
		bad  []Package
		good []Package
	}{
		"api": {
			rule: "api imports nothing of ours",
			bad: []Package{
				importing("api/operator/v1", own("internal/names")),
				importing("api/machineconfiguration/v1", own("machineconfigs")),
				importing("api", own("internal/version")),
			},
			good: []Package{
				importing("api/machineconfiguration/v1alpha1", own("api/machineconfiguration/v1"), "k8s.io/apimachinery/pkg/apis/meta/v1"),
				importing("apiary", own("internal/names")),
			},
		},
		"view": {
			rule: "view imports api, nodes and what is pure of rollouts",
			bad: []Package{
				importing("view", own("rollout")),
				importing("view", own("rollout/drain")),
				importing("view", own("internal/status")),
				importing("view", own("builder/plan")),
				{Path: own("view"), ClockUses: []string{"tree.go:12: time.Now"}},
			},
			good: []Package{
				importing("view", own("api/operator/v1")),
				importing("view", own("rollout/plan")),
				importing("view", own("rollout/words")),
			},
		},
		"pure": {
			rule: "pure packages import api, nodes, words and the index of an OS image only",
			bad: []Package{
				importing("machineconfigs", own("internal/fault")),
				importing("machineconfigs", own("streams")),
				importing("nodes", own("pools")),
				importing("containerfiles/lint", own("machineconfigs")),
				importing("builder/plan", own("builder")),
				importing("builder/plan", own("builder/backend")),
				importing("rollout/plan", "sigs.k8s.io/controller-runtime/pkg/client"),
				importing("rollout/plan", "sigs.k8s.io/controller-runtime"),
				importing("rollout/bootimages/plan", "net"),
				importing("streams", "net/http"),
				importing("streams", "net/http/httptest"),
				importing("streams", own("streams/source")),
				importing("containerfiles", "os"),
				importing("containerfiles", "os/exec"),
				{Path: own("rollout/plan"), ClockUses: []string{"plan.go:12: time.Now"}},
			},
			good: []Package{
				importing("containerfiles", own("api/machineconfiguration/v1"), own("containerfiles/lint"), "net/netip", "net/url"),
				importing("builder/plan", "k8s.io/apimachinery/pkg/util/sets", "time"),
				importing("streams/source", own("streams"), "net/http", "os"),
				importing("rollout/plan", own("nodes")),
				importing("rollout", "k8s.io/client-go/kubernetes", "os"),
				importing("rollout/planner", "os"),
				{Path: own("rollout"), ClockUses: []string{"rollout.go:1: time.Now"}},
			},
		},
		"what backends say": {
			rule: "builder/backend imports api and the classes of failures",
			bad: []Package{
				importing("builder/backend", "k8s.io/client-go/kubernetes"),
				importing("builder/backend", own("builder/pods")),
				{Path: own("builder/backend"), ClockUses: []string{"backend.go:12: time.Now"}},
			},
			good: []Package{importing("builder/backend", own("api/machineconfiguration/v1"), own("internal/fault"))},
		},
		"backends": {
			rule: "backends import builder/backend and pure packages",
			bad: []Package{
				importing("builder/jobs", own("builder")),
				importing("builder/jobs", own("pipelines")),
				importing("pipelines", own("builder/jobs")),
				importing("pipelines/run", own("pools")),
			},
			good: []Package{
				importing("builder/jobs", own("builder/backend"), own("containerfiles"), own("internal/names"), "k8s.io/api/batch/v1"),
				importing("pipelines", own("pipelines/run"), own("builder/backend"), own("api/machineconfiguration/v1")),
			},
		},
		"builder and backends": {
			rule: "builder does not import a backend",
			bad: []Package{
				importing("builder", own("builder/jobs")),
				importing("builder", own("pipelines")),
				importing("builder/engine", own("pipelines/run")),
			},
			good: []Package{
				importing("builder", own("builder/backend"), own("builder/plan")),
				importing("builder/jobs", own("builder/jobs/names")),
				importing("cmd/layerwright", own("builder/jobs"), own("pipelines")),
			},
		},
		"builder and rollout": {
			rule: "builder does not import rollout",
			bad: []Package{
				importing("builder", own("rollout")),
				importing("builder/plan", own("rollout/plan")),
				importing("pipelines", own("rollout")),
			},
			good: []Package{importing("cmd/layerwright", own("rollout"), own("builder"))},
		},
		"pools": {
			rule: "pools imports machineconfigs, nodes and streams",
			bad: []Package{
				importing("pools", own("builder/plan")),
				importing("pools", own("rollout")),
				importing("pools/render", own("containerfiles")),
			},
			good: []Package{importing("pools", own("machineconfigs"), own("streams/source"), own("pools/render"), own("internal/status"))},
		},
		"streams": {
			rule: "streams import no other domain package",
			bad: []Package{
				importing("streams/controller", own("pools")),
				importing("streams/source", own("osimage/baseimage")),
			},
			good: []Package{
				importing("streams/controller", own("streams/source"), own("streams"), own("internal/status"), "k8s.io/client-go/util/workqueue"),
				importing("streams/source", own("internal/registry"), "os"),
			},
		},
		"trust": {
			rule: "trust signs and judges by itself",
			bad:  []Package{importing("trust/sign", own("images")), importing("trust", own("builder/plan"))},
			good: []Package{importing("trust", own("trust/sign")), importing("trust/enforcement", own("builder/wanted/preflight"))},
		},
		"signature policy": {
			rule: "the signature policy is pure",
			bad:  []Package{importing("trust/signaturepolicy", "os"), importing("trust/signaturepolicy", own("trust/sign"))},
			good: []Package{importing("trust/signaturepolicy", own("machineconfigs"))},
		},
		"images": {
			rule: "images imports no builder",
			bad: []Package{
				importing("images", own("builder")),
				importing("images", own("builder/maker")),
				importing("images/provenance", own("builder/plan")),
				importing("images/sbom", own("rollout")),
			},
			good: []Package{importing("images", own("images/sbom"), own("trust/sign"))},
		},
		"rollout": {
			rule: "rollout imports neither what makes images nor what judges them",
			bad: []Package{
				importing("rollout/plan", own("images")),
				importing("rollout", own("builder/plan")),
				importing("rollout/agent", own("pools")),
				importing("rollout/host", own("pipelines")),
			},
			good: []Package{importing("rollout", own("rollout/plan"), own("streams"), own("internal/status"))},
		},
		"cmd": {
			rule: "cmd is imported by no package",
			bad: []Package{
				importing("internal/status", own("cmd/layerwright")),
				importing("test/cluster", own("cmd/layerwright")),
				importing("cmd/kubectl-machineconfig", own("cmd/layerwright/offline")),
				importing("cmd/layerwright/offline", own("cmd/layerwright")),
			},
			good: []Package{importing("internal/status", own("cmdline")), importing("cmd/layerwright", own("cmd/layerwright/offline"))},
		},
		"programs": {
			rule: "a program imports no other program",
			bad:  []Package{importing("cmd/layerwright", own("cmd/layerwright-agent"))},
			good: []Package{importing("cmd/layerwright", own("cmd/layerwright/offline"))},
		},
		"reconcilers": {
			rule: "reconcilers of builds do not know each other",
			bad: []Package{
				importing("builder/configs", own("builder/builds")),
				importing("trials", own("builder")),
				importing("builder/wanted", own("builder/configs")),
			},
			good: []Package{importing("builder", own("builder/builds")), importing("trials", own("builder/wanted"), own("trials/trial"))},
		},
		"trials": {
			rule: "builder does not know trials",
			bad:  []Package{importing("builder", own("trials")), importing("builder/wanted", own("trials/trial"))},
			good: []Package{importing("trials", own("builder/maker"))},
		},
		"test": {
			rule: "test is imported by no package",
			bad: []Package{
				importing("cmd/layerwright", own("test/cluster")),
				importing("rollout", own("test/sim")),
			},
			good: []Package{importing("test/e2e", own("test/cluster"))},
		},
		"internal": {
			rule: "internal imports no domain package",
			bad:  []Package{importing("internal/status", own("pools")), importing("internal/events", own("rollout/plan"))},
			good: []Package{importing("internal/status", own("api/machineconfiguration/v1"), own("internal/fault"))},
		},
		"Tekton": {
			rule: "only pipelines imports Tekton",
			bad: []Package{
				importing("builder", "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1"),
				importing("cmd/layerwright", "github.com/tektoncd/pipeline/pkg/client/clientset/versioned"),
			},
			good: []Package{importing("pipelines", "github.com/tektoncd/pipeline/pkg/apis/pipeline/v1")},
		},
		"Buildah": {
			rule: "only the builder imports Buildah",
			bad: []Package{
				importing("cmd/layerwright", "go.podman.io/buildah"),
				importing("builder", "github.com/containers/buildah/imagebuildah"),
				importing("test/e2e", "go.podman.io/buildah/define"),
				importing("internal/registry", "go.podman.io/image/v5/copy"),
				importing("builder/jobs", "go.podman.io/storage"),
				importing("containerfiles", "github.com/openshift/imagebuilder/dockerfile/parser"),
			},
			good: []Package{
				importing("cmd/layerwright-builder", "go.podman.io/buildah"),
				importing("builder/engine", "go.podman.io/buildah/define", "go.podman.io/image/v5/copy"),
			},
		},
		"light binaries": {
			rule: "light binaries stay light",
			bad: []Package{
				linking("cmd/layerwright", "go.podman.io/image/v5/copy"),
				linking("cmd/layerwright", "github.com/containers/storage"),
				linking("cmd/layerwright", "k8s.io/kubernetes/pkg/apis/core"),
				linking("cmd/layerwright", "k8s.io/apiserver/pkg/authentication/authenticatorfactory"),
				linking("cmd/kubectl-machineconfig", "github.com/sigstore/cosign/v2/cmd/cosign/cli"),
				linking("cmd/kubectl-machineconfig", "go.etcd.io/etcd/server/v3/embed"),
				importing("cmd/kubectl-machineconfig", "go.podman.io/buildah"),
			},
			good: []Package{
				linking("cmd/layerwright", "github.com/sigstore/cosign/v2/pkg/cosign"),
				linking("cmd/layerwright", "go.etcd.io/etcd/client/v3"),
				linking("cmd/layerwright-builder", "go.podman.io/image/v5/copy"),
			},
		},
		"the builder": {
			rule: "the builder starts quickly",
			bad:  []Package{linking("cmd/layerwright-builder", "k8s.io/client-go/kubernetes/scheme"), linking("cmd/layerwright-builder", "sigs.k8s.io/controller-runtime/pkg/client")},
			good: []Package{linking("cmd/layerwright-builder", "k8s.io/api/core/v1"), linking("cmd/layerwright", "k8s.io/client-go/kubernetes")},
		},
		"vSphere": {
			rule: "only the controller links the library of vSphere",
			bad:  []Package{linking("cmd/layerwright-agent", "github.com/vmware/govmomi/vim25")},
			good: []Package{linking("cmd/layerwright", "github.com/vmware/govmomi/vim25")},
		},
		"cosign": {
			rule: "only the controller links cosign",
			bad:  []Package{linking("cmd/layerwright-agent", "github.com/sigstore/cosign/v2/pkg/cosign"), linking("cmd/layerwright-builder", "github.com/sigstore/rekor/pkg/types")},
			good: []Package{linking("cmd/layerwright", "github.com/sigstore/cosign/v2/pkg/cosign")},
		},
		"errors": {
			rule: "errors come from the standard library",
			bad:  []Package{importing("streams", "github.com/pkg/errors")},
			good: []Package{importing("streams", "errors")},
		},
		"package comment": {
			rule: "every package says what it is for",
			bad:  []Package{{Path: own("streams")}},
			good: []Package{{Path: own("streams"), HasPackageComment: true}},
		},
	}
	tested := map[string]bool{}
	for name, tt := range tests {
		tested[tt.rule] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checker := Checker{Module: module, Rules: []Rule{ruleNamed(t, tt.rule)}}
			for _, p := range tt.bad {
				found := checker.Check([]Package{p})
				if assert.Len(t, found, 1, "%+v", p) {
					assert.Equal(t, p.Path, found[0].Path)
				}
			}
			assert.Empty(t, checker.Check(tt.good))
		})
	}
	for _, rule := range Rules() {
		assert.True(t, tested[rule.Name], "no made-up package breaks the rule %q", rule.Name)
		assert.NotEmpty(t, rule.Reason, rule.Name)
	}
}

func TestViolationText(t *testing.T) {
	t.Parallel()
	checker := Checker{Module: module, Rules: Rules()}
	p := linking("cmd/layerwright", "k8s.io/kubernetes/pkg/features")
	p.HasPackageComment = true
	found := checker.Check([]Package{p})
	require.Len(t, found, 1)
	assert.Equal(t, module+"/cmd/layerwright: links "+module+"/cmd/layerwright -> example.test/between -> k8s.io/kubernetes/pkg/features\n"+
		"\trule: light binaries stay light\n"+
		"\tbecause they run on every node and on laptops: what they link is memory, download and attack surface", found[0].String())
}

func TestNeedsGraph(t *testing.T) {
	t.Parallel()
	checker := Checker{Module: module, Rules: Rules()}
	assert.True(t, checker.NeedsGraph(own("cmd/layerwright")))
	assert.True(t, checker.NeedsGraph(own("cmd/layerwright-builder")))
	assert.False(t, checker.NeedsGraph(own("builder")))
}

func TestClockUses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		source string
		want   []string
	}{
		"a call":                {`import "time"; var a = time.Now()`, []string{"p.go:1: time.Now"}},
		"a function value":      {`import "time"; var now = time.Now`, []string{"p.go:1: time.Now"}},
		"behind another name":   {`import clk "time"; func f() { clk.Sleep(1) }`, []string{"p.go:1: time.Sleep"}},
		"a dot import":          {`import . "time"; var a = Now()`, []string{"p.go:1: dot import of time"}},
		"timers":                {`import "time"; var a, b = time.NewTimer(1), time.After(2)`, []string{"p.go:1: time.NewTimer", "p.go:1: time.After"}},
		"arithmetic is allowed": {`import "time"; func f(now time.Time) bool { return now.After(now.Add(time.Minute)) }`, nil},
		"another package's Now": {`import time2 "example.test/time"; var a = time2.Now()`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, "p.go", "package p; "+tt.source, parser.SkipObjectResolution)
			require.NoError(t, err)
			assert.Equal(t, tt.want, clockUses(files, file))
		})
	}
}

func TestLoadReadsEveryFileButTests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	write("go.mod", "module example.test/m\n\ngo 1.26.0\n")
	write("doc.go", "// Package m is documented.\npackage m\n")
	write("m.go", "package m\n\nimport _ \"example.test/m/between\"\n")
	write("tagged.go", "//go:build e2e\n\npackage m\n\nimport _ \"net\"\n")
	write("m_test.go", "package m\n\nimport _ \"os/exec\"\n")
	write("between/between.go", "// Package between has its comment in the wrong file.\npackage between\n\nimport _ \"encoding/json\"\n")
	write("program/doc.go", "// Package main starts wrongly.\npackage main\n")
	write("program/main.go", "package main\n\nimport \"time\"\n\nfunc main() { time.Sleep(0) }\n")

	checker := Checker{Module: "example.test/m", Rules: []Rule{{From: []string{"./..."}, WholeGraph: true}}}
	packages, err := Load(t.Context(), dir, checker)
	require.NoError(t, err)
	found := map[string]Package{}
	for _, p := range packages {
		found[strings.TrimPrefix(p.Path, "example.test/")] = p
	}

	require.Len(t, found, 3)
	assert.Equal(t, []string{"example.test/m/between", "net"}, found["m"].Imports)
	assert.True(t, found["m"].HasPackageComment)
	assert.Equal(t, []string{"example.test/m", "example.test/m/between", "encoding/json"}, found["m"].Graph["encoding/json"])
	assert.False(t, found["m/between"].HasPackageComment)
	assert.False(t, found["m/program"].HasPackageComment)
	assert.Equal(t, []string{"main.go:5: time.Sleep"}, found["m/program"].ClockUses)
}

func TestLoadReportsErrorsOfGoList(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module"), 0o600))
	_, err := Load(t.Context(), dir, Checker{})
	require.ErrorContains(t, err, "listing packages: ")
	require.ErrorContains(t, err, "go.mod", "what the go command wrote is passed on")
}

func ruleNamed(t *testing.T, name string) Rule {
	t.Helper()
	for _, rule := range Rules() {
		if rule.Name == name {
			return rule
		}
	}
	t.Fatalf("there is no rule %q", name)
	return Rule{}
}

func own(folder string) string { return module + "/" + folder }

func importing(folder string, imports ...string) Package {
	return Package{Path: own(folder), Imports: imports}
}

// linking makes a package that reaches another through one that no one forbids.
func linking(folder, dependency string) Package {
	const between = "example.test/between"
	return Package{
		Path:    own(folder),
		Imports: []string{between},
		Graph: map[string][]string{
			between:    {own(folder), between},
			dependency: {own(folder), between, dependency},
		},
	}
}
