package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/layerwright/layerwright/hack/release/images"
	"github.com/layerwright/layerwright/hack/release/sbom"
)

// clientPlatforms are those of the program of administrators' machines.
var clientPlatforms = []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64", "windows-amd64", "windows-arm64"}

// clientProgram is its name in archives, by which kubectl finds a plug-in, and clientLinks are its
// other names: docs call it by the first, and kubectl and oc find the second as "machineconfig".
const clientProgram = "kubectl-layerwright"

var clientLinks = []file{{name: "layerwright", link: clientProgram}, {name: "kubectl-machineconfig", link: clientProgram}}

// file is one of an archive. One with a link is a link, to another file of the folder.
type file struct {
	name    string
	mode    os.FileMode
	content []byte
	link    string
}

// Modes of files in archives.
const (
	program = 0o755
	text    = 0o644
)

// writeArchives writes the archive of each platform with its SBOM, and the manifest for krew.
func (r *release) writeArchives(ctx context.Context) error {
	completions, err := r.completions(ctx)
	if err != nil {
		return err
	}
	var archives []krewPlatform
	for _, platform := range r.clients {
		binary := filepath.Join(r.programs, platform, "client", "layerwright")
		content, err := os.ReadFile(binary) //nolint:gosec // the folder is the caller's
		if err != nil {
			return err
		}
		licenses, err := r.licenses(ctx, binary)
		if err != nil {
			return err
		}
		goos, goarch, _ := strings.Cut(platform, "-")
		one := krewPlatform{Bin: clientProgram}
		one.Selector.MatchLabels = map[string]string{"os": goos, "arch": goarch}
		base, pack := "layerwright-"+r.Version+"-"+platform, tarball
		if goos == "windows" {
			one.Bin, base, pack = clientProgram+".exe", base+".zip", zipped
		} else {
			base += ".tar.gz"
		}
		files := []file{{name: one.Bin, mode: program, content: content}}
		if goos != "windows" { // it has no links that whoever unpacks may make
			files = append(files, clientLinks...)
		}
		files = append(files, completions...)
		for _, name := range slices.Sorted(maps.Keys(licenses)) {
			files = append(files, file{name: path.Base(name), mode: text, content: licenses[name]})
		}
		archive, err := pack(files, r.Created)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(archive)
		one.SHA256 = hex.EncodeToString(sum[:])
		one.URI = images.Source + "/releases/download/" + r.Version + "/" + base
		archives = append(archives, one)
		document, err := sbom.Make(sbom.Subject{
			Name: base, Version: r.Version, Digest: "sha256:" + one.SHA256, Created: r.Created,
			PackageURL: "pkg:golang/github.com/layerwright/layerwright/cmd/layerwright@" + r.Version,
			Programs:   []sbom.Program{{Path: binary, Platform: platform}},
		})
		if err != nil {
			return err
		}
		for name, content := range map[string][]byte{base: archive, base + ".spdx.json": document} {
			if err := os.WriteFile(filepath.Join(r.dist, name), content, text); err != nil {
				return err
			}
		}
	}
	return r.writeKrew(archives)
}

// completions are what shells need to complete commands and flags, as the program for this machine
// writes them, and what kubectl starts to complete those of a plug-in.
func (r *release) completions(ctx context.Context) ([]file, error) {
	files := []file{{name: "completions/kubectl_complete-layerwright", mode: program, content: []byte("#!/bin/sh\nexec " + clientProgram + " __complete \"$@\"\n")}}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := output(ctx, filepath.Join(r.programs, host, "client", "layerwright"), "completion", shell)
		if err != nil {
			return nil, fmt.Errorf("asking for the completion of %s: %w", shell, err)
		}
		files = append(files, file{name: "completions/layerwright." + shell, mode: text, content: []byte(script + "\n")})
	}
	return files, nil
}

// tarball makes a tar.gz. Files have the time that is given and no owner.
func tarball(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: at}
		if f.link != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, program
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	err = compressed.Close()
	return out.Bytes(), err
}

// zipped makes a zip.
func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// krewPlatform is where krew finds the archive of a platform.
type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// writeKrew writes the manifest that krew's index has of a plug-in of kubectl.
func (r *release) writeKrew(platforms []krewPlatform) error {
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "layerwright"},
		"spec": map[string]any{
			"version":          r.Version,
			"homepage":         images.Source,
			"shortDescription": "Build and roll out layered operating-system images of nodes",
			"description":      "Shows how pools, builds and rollouts of Layerwright are and what they wait for, and steers them.\nSays which operating-system image MachineConfigs, a stream and a Containerfile mean, and makes it\nwithout a cluster.\n",
			"platforms":        platforms,
		},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "krew.yaml"), content, text)
}

// writeBundle writes the archive for networks without internet: what was released, and the program
// that loads it.
func (r *release) writeBundle(context.Context) (err error) {
	root := "layerwright-" + r.Version + "-bundle"
	out, err := os.Create(filepath.Join(r.dist, root+".tar")) //nolint:gosec // the folder is the caller's
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	// It is not compressed: layers are already.
	add := func(name, from string, mode int64) error {
		content, err := os.Open(from) //nolint:gosec // the folders are the caller's
		if err != nil {
			return err
		}
		defer func() { _ = content.Close() }()
		info, err := content.Stat()
		if err != nil {
			return err
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(root, name), Mode: mode, Size: info.Size(), ModTime: r.Created}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.Copy(archive, content)
		return err
	}
	if err := add("load", filepath.Join(r.root, "hack", "release", "load", "load.sh"), program); err != nil {
		return err
	}
	for _, platform := range r.platforms {
		if err := add("bin/load-"+platform, filepath.Join(r.programs, platform, "load"), program); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(filepath.Join(r.dist, releasedFolder), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.dist, path)
		if err != nil {
			return err
		}
		return add(filepath.ToSlash(name), path, text)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}
