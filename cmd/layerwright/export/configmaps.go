package export

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	mcfgv1 "github.com/layerwright/layerwright/api/machineconfiguration/v1"
	"github.com/layerwright/layerwright/machineconfigs"
)

// Annotations of ConfigMaps of files, as the design of on-cluster layering expects them of bootc
// (section "ConfigMaps").
const (
	annotationConfigMap   = "bootc.coreos.io/configMap"
	annotationBaseDir     = "bootc.coreos.io/baseDir"
	annotationBaseDirMode = "bootc.coreos.io/baseDirMode"
	annotationFileMode    = "bootc.coreos.io/fileMode"
	annotationUserOwner   = "bootc.coreos.io/userOwner"
	annotationGroupOwner  = "bootc.coreos.io/groupOwner"
)

const (
	// mostBytes is what the files of one ConfigMap may have together. An object may have 1 MiB,
	// with binary content a third longer than it is.
	mostBytes = 700 << 10
	// defaultFileMode and defaultDirMode are Ignition's.
	defaultFileMode = 0o644
	defaultDirMode  = 0o755
	unitDir         = "/etc/systemd/system"
)

// place is what the files of a ConfigMap have in common.
type place struct {
	dir         string
	dirMode     int
	mode        int
	user, group string
}

// fileOf is one file of a configuration.
type fileOf struct {
	place
	name    string
	content []byte
}

// ConfigMaps are the files and units of a pool's configuration as ConfigMaps for bootc, sorted by
// folder, and what ConfigMaps have no words for: links, users, kernel arguments, files to download
// or with names that are no keys.
func ConfigMaps(pool, namespace string, config *machineconfigs.Config) (configMaps []*corev1.ConfigMap, left []string, err error) {
	files, left, err := filesOf(&config.Ignition)
	if err != nil {
		return nil, nil, err
	}
	sizes := map[*corev1.ConfigMap]int{}
	newest := map[place]*corev1.ConfigMap{}
	for _, f := range files {
		if problems := validation.IsConfigMapKey(f.name); len(problems) > 0 || len(f.content) > mostBytes {
			left = append(left, fmt.Sprintf("file %s: %s", path.Join(f.dir, f.name), cmp.Or(strings.Join(problems, "; "), "larger than a ConfigMap may be")))
			continue
		}
		in := newest[f.place]
		if in == nil || sizes[in]+len(f.content) > mostBytes {
			in = f.configMap(fmt.Sprintf("%s-files-%d", pool, len(configMaps)), namespace, pool)
			newest[f.place], configMaps = in, append(configMaps, in)
		}
		sizes[in] += len(f.content)
		if utf8.Valid(f.content) {
			in.Data[f.name] = string(f.content)
		} else {
			in.BinaryData[f.name] = f.content
		}
	}
	return configMaps, append(left, others(config)...), nil
}

func (p place) configMap(name, namespace, pool string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{
			annotationConfigMap: "true", mcfgv1.AnnotationConfigMapPool: pool,
			annotationBaseDir: p.dir, annotationBaseDirMode: fmt.Sprintf("%04o", p.dirMode), annotationFileMode: fmt.Sprintf("%04o", p.mode),
			annotationUserOwner: p.user, annotationGroupOwner: p.group,
		}},
		Data: map[string]string{}, BinaryData: map[string][]byte{},
	}
}

// filesOf are the files and units, sorted by path.
func filesOf(config *types.Config) (files []fileOf, left []string, err error) {
	dirModes := map[string]int{}
	for _, d := range config.Storage.Directories {
		if d.Mode != nil {
			dirModes[d.Path] = *d.Mode
		}
	}
	add := func(at string, mode int, owner types.Node, content []byte) {
		dir := path.Dir(at)
		p := place{dir: dir, dirMode: defaultDirMode, mode: mode, user: nameOf(owner.User.Name, owner.User.ID), group: nameOf(owner.Group.Name, owner.Group.ID)}
		if of, has := dirModes[dir]; has {
			p.dirMode = of
		}
		files = append(files, fileOf{p, path.Base(at), content})
	}
	for i := range config.Storage.Files {
		f := &config.Storage.Files[i]
		content, isRemote, err := machineconfigs.DecodeContents(f.Contents)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("file %s: %w", f.Path, err)
		case isRemote:
			left = append(left, fmt.Sprintf("file %s: its content is at an address, and has to be downloaded", f.Path))
			continue
		case len(f.Append) > 0:
			left = append(left, fmt.Sprintf("file %s: it appends to a file of the image", f.Path))
			continue
		}
		mode := defaultFileMode
		if f.Mode != nil {
			mode = *f.Mode
		}
		add(f.Path, mode, f.Node, content)
	}
	for _, u := range config.Systemd.Units {
		if u.Contents != nil {
			add(path.Join(unitDir, u.Name), defaultFileMode, types.Node{}, []byte(*u.Contents))
		}
		for _, d := range u.Dropins {
			if d.Contents != nil {
				add(path.Join(unitDir, u.Name+".d", d.Name), defaultFileMode, types.Node{}, []byte(*d.Contents))
			}
		}
	}
	slices.SortFunc(files, func(a, b fileOf) int { return strings.Compare(path.Join(a.dir, a.name), path.Join(b.dir, b.name)) })
	return files, left, nil
}

// nameOf is an owner as the annotations have it.
func nameOf(name *string, id *int) string {
	switch {
	case name != nil && *name != "":
		return *name
	case id != nil:
		return strconv.Itoa(*id)
	default:
		return "root"
	}
}

// others are the parts of a configuration that are no files.
func others(config *machineconfigs.Config) (left []string) {
	ignition := &config.Ignition
	for _, u := range ignition.Systemd.Units {
		switch {
		case u.Mask != nil && *u.Mask:
			left = append(left, fmt.Sprintf("unit %s: masked", u.Name))
		case u.Enabled != nil && *u.Enabled:
			left = append(left, fmt.Sprintf("unit %s: enabled", u.Name))
		case u.Enabled != nil:
			left = append(left, fmt.Sprintf("unit %s: disabled", u.Name))
		}
	}
	for _, l := range ignition.Storage.Links {
		left = append(left, "link "+l.Path)
	}
	full := map[string]bool{}
	for _, f := range ignition.Storage.Files {
		full[path.Dir(f.Path)] = true
	}
	for _, d := range ignition.Storage.Directories {
		if !full[d.Path] {
			left = append(left, "folder "+d.Path)
		}
	}
	for _, u := range ignition.Passwd.Users {
		left = append(left, "user "+u.Name)
	}
	for _, g := range ignition.Passwd.Groups {
		left = append(left, "group "+g.Name)
	}
	for what, words := range map[string][]string{
		"kernel arguments": config.KernelArguments, "kernel arguments to remove": config.RemoveKernelArguments, "extensions": config.Extensions,
	} {
		if len(words) > 0 {
			left = append(left, what+" "+strings.Join(words, " "))
		}
	}
	if config.KernelType != "" && config.KernelType != "default" {
		left = append(left, "kernel type "+config.KernelType)
	}
	if config.FIPS {
		left = append(left, "FIPS mode")
	}
	slices.Sort(left)
	return left
}
