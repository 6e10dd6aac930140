package binimage

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program is the smallest file that looks like a program: an ELF header and one program header.
func program(t *testing.T, machine elf.Machine, order binary.ByteOrder, segment elf.ProgType) []byte {
	t.Helper()
	data := elf.ELFDATA2LSB
	if order == binary.BigEndian {
		data = elf.ELFDATA2MSB
	}
	segments := map[elf.ProgType]uint32{elf.PT_LOAD: uint32(elf.PT_LOAD), elf.PT_INTERP: uint32(elf.PT_INTERP)}
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(data), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	var out bytes.Buffer
	require.NoError(t, binary.Write(&out, order, header))
	require.NoError(t, binary.Write(&out, order, elf.Prog64{Type: segments[segment]}))
	return out.Bytes()
}

// writeProgram writes a static amd64 program called layerwright.
func writeProgram(t *testing.T) string {
	t.Helper()
	return writeFile(t, "layerwright", program(t, elf.EM_X86_64, binary.LittleEndian, elf.PT_LOAD))
}

func writeFile(t *testing.T, base string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), base)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

type file struct {
	Type    byte
	Mode    int64
	Content string
	// Link is what it points to.
	Link string
}

// filesOf unpacks a tar, checking what every entry must have in common.
func filesOf(t *testing.T, reader io.Reader) (files map[string]file, order []string) {
	t.Helper()
	files = map[string]file{}
	for r := tar.NewReader(reader); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		require.NoError(t, err)
		assert.Equal(t, time.Unix(0, 0).UTC(), header.ModTime.UTC(), header.Name)
		assert.Zero(t, header.Uid+header.Gid, header.Name)
		assert.Empty(t, header.Uname+header.Gname, header.Name)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		files[header.Name] = file{Type: header.Typeflag, Mode: header.Mode, Content: string(content), Link: header.Linkname}
		order = append(order, header.Name)
	}
}

func rootfs(t *testing.T, image v1.Image) map[string]file {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer func() { assert.NoError(t, content.Close()) }()
	files, order := filesOf(t, content)
	assert.True(t, slices.IsSorted(order), "a directory comes before what is in it")
	return files
}

func TestBuildHoldsTheProgramAndNothingElse(t *testing.T) {
	t.Parallel()
	binaryFile := writeProgram(t)
	content, err := os.ReadFile(binaryFile)
	require.NoError(t, err)
	dir := file{Type: tar.TypeDir, Mode: 0o755}
	accounts := map[string]file{
		"etc/":       dir,
		"etc/passwd": {Type: tar.TypeReg, Mode: 0o644, Content: "nonroot:x:65532:65532::/:/sbin/nologin\n"},
		"etc/group":  {Type: tar.TypeReg, Mode: 0o644, Content: "nonroot:x:65532:\n"},
	}
	executable := file{Type: tar.TypeReg, Mode: 0o755, Content: string(content)}
	const certificate = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
	bundle, other := writeFile(t, "ca.pem", []byte(certificate)), writeFile(t, "other", content)

	tests := map[string]struct {
		options Options
		want    map[string]file
	}{
		"by default": {
			want: map[string]file{"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable},
		},
		"at another path": {
			options: Options{Path: "/pause"},
			want:    map[string]file{"pause": executable},
		},
		"with CA certificates on request": {
			options: Options{CABundle: bundle},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable, "etc/ssl/": dir, "etc/ssl/certs/": dir,
				"etc/ssl/certs/ca-certificates.crt": {Type: tar.TypeReg, Mode: 0o644, Content: certificate},
			},
		},
		"with a folder to write to": {
			options: Options{Folders: []string{"/var/tmp"}},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable, "var/": dir, "var/tmp/": {Type: tar.TypeDir, Mode: 0o1777},
			},
		},
		"with a further program by several names": {
			options: Options{Others: map[string][]string{other: {"one", "two"}}},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable, "usr/bin/other": executable,
				"usr/bin/one": {Type: tar.TypeSymlink, Mode: 0o777, Link: "other"}, "usr/bin/two": {Type: tar.TypeSymlink, Mode: 0o777, Link: "other"},
			},
		},
		"with a further file": {
			options: Options{Files: map[string][]byte{"/licenses/LICENSE": []byte("Apache")}},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable, "licenses/": dir, "licenses/LICENSE": {Type: tar.TypeReg, Mode: 0o644, Content: "Apache"},
			},
		},
		"for root": {
			options: Options{Root: true, User: 1000},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable,
				"etc/passwd": {Type: tar.TypeReg, Mode: 0o644, Content: "root:x:0:0::/:/sbin/nologin\n"},
				"etc/group":  {Type: tar.TypeReg, Mode: 0o644, Content: "root:x:0:\n"},
			},
		},
		"for another user": {
			options: Options{User: 1000},
			want: map[string]file{
				"usr/": dir, "usr/bin/": dir, "usr/bin/layerwright": executable,
				"etc/passwd": {Type: tar.TypeReg, Mode: 0o644, Content: "nonroot:x:1000:1000::/:/sbin/nologin\n"},
				"etc/group":  {Type: tar.TypeReg, Mode: 0o644, Content: "nonroot:x:1000:\n"},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := map[string]file{}
			for _, files := range []map[string]file{accounts, tt.want} {
				for path, f := range files {
					want[path] = f
				}
			}
			tt.options.Binary = binaryFile
			image, err := Build(tt.options)
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(want, rootfs(t, image)))
		})
	}
}

func TestBuildConfig(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		options Options
		want    v1.Config
	}{
		"by default": {
			want: v1.Config{
				User: "65532:65532", Entrypoint: []string{"/usr/bin/layerwright"}, Env: []string{"PATH=/usr/bin"}, WorkingDir: "/",
				Labels: map[string]string{"org.opencontainers.image.title": "layerwright"},
			},
		},
		"for root": {
			options: Options{Root: true},
			want: v1.Config{
				User: "0:0", Entrypoint: []string{"/usr/bin/layerwright"}, Env: []string{"PATH=/usr/bin"}, WorkingDir: "/",
				Labels: map[string]string{"org.opencontainers.image.title": "layerwright"},
			},
		},
		"as asked for": {
			options: Options{
				Path: "/opt/lw", Cmd: []string{"controller"}, User: 1000,
				Title: "Layerwright", Version: "v1.2.3", Revision: "0123abcd", Source: "https://example.test/lw",
				Labels: map[string]string{"example.test/kind": "test"},
			},
			want: v1.Config{
				User: "1000:1000", Entrypoint: []string{"/opt/lw"}, Cmd: []string{"controller"}, Env: []string{"PATH=/opt"}, WorkingDir: "/",
				Labels: map[string]string{
					"org.opencontainers.image.title":    "Layerwright",
					"org.opencontainers.image.version":  "v1.2.3",
					"org.opencontainers.image.revision": "0123abcd",
					"org.opencontainers.image.source":   "https://example.test/lw",
					"example.test/kind":                 "test",
				},
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.options.Binary = writeProgram(t)
			image, err := Build(tt.options)
			require.NoError(t, err)

			config, err := image.ConfigFile()
			require.NoError(t, err)
			assert.Empty(t, cmp.Diff(tt.want, config.Config))
			assert.Equal(t, time.Unix(0, 0).UTC(), config.Created.Time)
			assert.Equal(t, "linux/amd64", config.Platform().String())
			require.Len(t, config.History, 1)
			assert.Equal(t, time.Unix(0, 0).UTC(), config.History[0].Created.Time)

			manifest, err := image.Manifest()
			require.NoError(t, err)
			assert.Equal(t, tt.want.Labels, manifest.Annotations, "annotations say what labels say")
			assert.Equal(t, types.OCIManifestSchema1, manifest.MediaType)
			assert.Equal(t, types.OCIConfigJSON, manifest.Config.MediaType)
			assert.Equal(t, types.OCILayer, manifest.Layers[0].MediaType)
		})
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	t.Parallel()
	options := Options{Version: "v1.2.3", Labels: map[string]string{"a": "1", "b": "2", "c": "3"}, Cmd: []string{"controller"}}
	tag, err := name.NewTag("layerwright.test/layerwright:dev")
	require.NoError(t, err)

	var digest v1.Hash
	var archived []byte
	for i := range 3 {
		options.Binary = writeProgram(t) // another folder and another modification time each time
		image, err := Build(options)
		require.NoError(t, err)
		got, err := image.Digest()
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, WriteArchive(&out, tag, image))
		if i == 0 {
			digest, archived = got, out.Bytes()
		}
		assert.Equal(t, digest, got)
		assert.True(t, bytes.Equal(archived, out.Bytes()), "the archive differs")
	}

	changed := append(program(t, elf.EM_X86_64, binary.LittleEndian, elf.PT_LOAD), 'x')
	options.Binary = writeFile(t, "layerwright", changed)
	image, err := Build(options)
	require.NoError(t, err)
	got, err := image.Digest()
	require.NoError(t, err)
	assert.NotEqual(t, digest, got, "another program is another image")
}

func TestBuildReadsThePlatformFromTheProgram(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		machine elf.Machine
		order   binary.ByteOrder
		want    string
	}{
		"amd64":   {elf.EM_X86_64, binary.LittleEndian, "linux/amd64"},
		"arm64":   {elf.EM_AARCH64, binary.LittleEndian, "linux/arm64"},
		"ppc64le": {elf.EM_PPC64, binary.LittleEndian, "linux/ppc64le"},
		"s390x":   {elf.EM_S390, binary.BigEndian, "linux/s390x"},
		"riscv64": {elf.EM_RISCV, binary.LittleEndian, "linux/riscv64"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image, err := Build(Options{Binary: writeFile(t, "p", program(t, tt.machine, tt.order, elf.PT_LOAD))})
			require.NoError(t, err)
			config, err := image.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, tt.want, config.Platform().String())
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	static := program(t, elf.EM_X86_64, binary.LittleEndian, elf.PT_LOAD)
	tests := map[string]struct {
		program []byte
		options Options
		wantErr string
	}{
		"a program that needs a loader": {
			program: program(t, elf.EM_X86_64, binary.LittleEndian, elf.PT_INTERP),
			wantErr: "the program is not static (build it with CGO_ENABLED=0)",
		},
		"a script": {
			program: []byte("#!/bin/sh\n"),
			wantErr: "reading it as an ELF program",
		},
		"an architecture without OS images": {
			program: program(t, elf.EM_PPC64, binary.BigEndian, elf.PT_LOAD),
			wantErr: "unknown architecture EM_PPC64 ELFDATA2MSB",
		},
		"no program":             {options: Options{Binary: "/no/such/program"}, wantErr: "reading the program: open /no/such/program"},
		"a relative path":        {program: static, options: Options{Path: "bin/x"}, wantErr: `path "bin/x": must be absolute and clean`},
		"a path that climbs":     {program: static, options: Options{Path: "/bin/../../x"}, wantErr: "must be absolute and clean"},
		"the root as path":       {program: static, options: Options{Path: "/"}, wantErr: "must be absolute and clean"},
		"a path of another file": {program: static, options: Options{Path: "/etc/passwd"}, wantErr: "the image has another file there"},
		"a negative user":        {program: static, options: Options{User: -1}, wantErr: "user -1: must not be negative"},
		"no further program": {
			program: static, options: Options{Others: map[string][]string{"/no/such/program": nil}}, wantErr: "reading a further program: open /no/such/program",
		},
		"a further program that is none": {
			program: static, options: Options{Others: map[string][]string{os.DevNull: nil}}, wantErr: `making an image with "/dev/null": reading it as an ELF program`,
		},
		"no CA bundle":              {program: static, options: Options{CABundle: "/no/such/ca.pem"}, wantErr: "reading the CA bundle: open /no/such/ca.pem"},
		"a CA bundle that has none": {program: static, options: Options{CABundle: "/"}, wantErr: "reading the CA bundle"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.program != nil {
				tt.options.Binary = writeFile(t, "program", tt.program)
			}
			_, err := Build(tt.options)
			require.ErrorContains(t, err, tt.wantErr)
		})
	}

	t.Run("a CA bundle without certificates", func(t *testing.T) {
		t.Parallel()
		_, err := Build(Options{Binary: writeFile(t, "p", static), CABundle: writeFile(t, "ca.pem", []byte("-----BEGIN PRIVATE KEY-----"))})
		require.ErrorContains(t, err, "no PEM certificate in")
	})
}

func TestNotStaticCanBeAskedFor(t *testing.T) {
	t.Parallel()
	dynamic := program(t, elf.EM_X86_64, binary.LittleEndian, elf.PT_INTERP)
	_, err := Build(Options{Binary: writeFile(t, "dynamic", dynamic)})
	require.ErrorIs(t, err, ErrNotStatic)
}

func TestWriteArchive(t *testing.T) {
	t.Parallel()
	image, err := Build(Options{Binary: writeProgram(t), Version: "v1.2.3"})
	require.NoError(t, err)
	digest, err := image.Digest()
	require.NoError(t, err)
	tag, err := name.NewTag("registry.test:5000/layerwright/layerwright:v1.2.3")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, WriteArchive(&out, tag, image))

	files, order := filesOf(t, &out)
	assert.True(t, slices.IsSorted(order))
	assert.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, files["oci-layout"].Content)
	var index v1.IndexManifest
	require.NoError(t, json.Unmarshal([]byte(files["index.json"].Content), &index))
	require.Len(t, index.Manifests, 1)
	assert.Equal(t, map[string]string{
		"io.containerd.image.name":          "registry.test:5000/layerwright/layerwright:v1.2.3",
		"org.opencontainers.image.ref.name": "v1.2.3",
	}, index.Manifests[0].Annotations)
	assert.Equal(t, digest, index.Manifests[0].Digest, "the digest of the image is kept")

	// Another reader of the format finds the same image.
	dir := t.TempDir()
	for path, f := range files {
		target := filepath.Join(dir, path)
		if f.Type == tar.TypeDir {
			require.NoError(t, os.MkdirAll(target, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(target), 0o755))
		require.NoError(t, os.WriteFile(target, []byte(f.Content), 0o600))
	}
	opened, err := layout.FromPath(dir)
	require.NoError(t, err)
	read, err := opened.Image(digest)
	require.NoError(t, err)
	require.NoError(t, validate.Image(read))
	assert.Empty(t, cmp.Diff(rootfs(t, image), rootfs(t, read)))
}

func TestWriteArchiveReportsAFullDisk(t *testing.T) {
	t.Parallel()
	image, err := Build(Options{Binary: writeProgram(t)})
	require.NoError(t, err)
	tag, err := name.NewTag("a.test/b:c")
	require.NoError(t, err)
	require.ErrorIs(t, WriteArchive(fullDisk{}, tag, image), errFull)
}

var errFull = errors.New("no space left on device")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }
