package deployments

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

const (
	// sourceKey begins the fields of an entry that say which of its options are whose.
	sourceKey = "x-options-source-"
	// stagedSources lies beside what is staged, and so does the mark that it is locked. ostree
	// 2022.7 knows of neither.
	stagedSources = "run/ostree/staged-deployment.sources"
	stagedMark    = "run/ostree/staged-deployment.locked"
	// lockFile is what ostree 2022.7 looks for.
	lockFile = "run/ostree/staged-deployment-locked"
)

// BootedSources are the kernel arguments of what has booted, by who set them, as bootc tracks them.
func (s *Sysroot) BootedSources(list []Deployment) (args []string, sources map[string]string, err error) {
	all, err := s.entries()
	if err != nil {
		return nil, nil, err
	}
	at := 0
	for _, d := range list {
		switch {
		case d.Booted:
			e := all[at]
			return withoutLink(e.fields["options"]), sourcesOf(e.fields), nil
		case !d.Staged:
			at++
		}
	}
	return nil, nil, errors.New("nothing has booted")
}

func sourcesOf(fields map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range fields {
		if name, is := strings.CutPrefix(key, sourceKey); is && value != "" {
			out[name] = value
		}
	}
	return out
}

// StagedSources are those of what is staged.
func (s *Sysroot) StagedSources() (sources map[string]string, err error) {
	text, err := os.ReadFile(s.path(stagedSources))
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &sources)
	return sources, err
}

// keepSources writes them beside what is staged, and into it, as ostree 2026.1 does.
func (s *Sysroot) keepSources(sources map[string]string) error {
	text, err := json.Marshal(sources)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path(stagedSources), text, 0o644); err != nil {
		return err
	}
	staged, err := os.ReadFile(s.path(stagedFile))
	if err != nil {
		return err
	}
	var pairs [][]byte
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		pairs = append(pairs, variantPair(sourceKey+name, append([]byte(sources[name]), 0), 1))
	}
	entries, err := variantEntries(staged)
	if err != nil {
		return err
	}
	entries = append(entries, variantPair("bootconfig-extra", append(variantArray(pairs, 1), "\x00a{ss}"...), variantAlignment))
	return replaceFile(s.path(stagedFile), variantArray(entries, variantAlignment))
}

// finishSources writes them into the entry that has just become the first one.
func (s *Sysroot) finishSources(sources map[string]string) error {
	all, err := s.entries()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(all[0].path)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		text = fmt.Appendf(text, "%s%s %s\n", sourceKey, name, sources[name])
	}
	return replaceFile(all[0].path, text)
}

// Lock keeps what is staged from booting, or lets it: by a mark of its own and the file of before.
func (s *Sysroot) Lock(locked bool) error {
	for _, file := range []string{stagedMark, lockFile} {
		err := os.Remove(s.path(file))
		if locked {
			err = os.WriteFile(s.path(file), nil, 0o640)
		}
		if err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// IsLocked reports whether what is staged has the mark, and hasLockFile whether there is the file.
func (s *Sysroot) IsLocked() bool { return fileExists(s.path(stagedMark)) }

// HasLockFile reports whether there is the file that locks whatever is staged.
func (s *Sysroot) HasLockFile() bool { return fileExists(s.path(lockFile)) }

// variantAlignment is that of a dictionary's entries whose values are of any type.
const variantAlignment = 8

// errVariant is of a file that ostree did not write.
var errVariant = errors.New("what is staged is no GVariant of type a{sv}")

// variantEntries takes a dictionary in GVariant's format apart.
func variantEntries(data []byte) ([][]byte, error) {
	width := 4
	if len(data) < 1<<8 {
		width = 1
	} else if len(data) < 1<<16 {
		width = 2
	}
	number := func(at int) int {
		var n [4]byte
		copy(n[:], data[at:at+width])
		return int(binary.LittleEndian.Uint32(n[:]))
	}
	if len(data) < width || number(len(data)-width) > len(data)-width {
		return nil, errVariant
	}
	var out [][]byte
	begin := 0
	for at := number(len(data) - width); at < len(data); at += width {
		begin = (begin + variantAlignment - 1) / variantAlignment * variantAlignment
		end := number(at)
		if end < begin || end > len(data) {
			return nil, errVariant
		}
		out = append(out, data[begin:end])
		begin = end
	}
	return out, nil
}

func variantPair(key string, value []byte, alignment int) []byte {
	out := append([]byte(key), 0)
	end := len(out)
	out = append(out, make([]byte, (alignment-end%alignment)%alignment)...)
	return variantEnds(append(out, value...), end)
}

func variantArray(elements [][]byte, alignment int) []byte {
	var out []byte
	var ends []int
	for _, e := range elements {
		out = append(out, make([]byte, (alignment-len(out)%alignment)%alignment)...)
		out = append(out, e...)
		ends = append(ends, len(out))
	}
	return variantEnds(out, ends...)
}

// variantEnds adds where parts end, in as few bytes each as the whole allows.
func variantEnds(out []byte, ends ...int) []byte {
	width := 4
	for _, w := range []int{2, 1} {
		if len(out)+w*len(ends) < 1<<(8*w) {
			width = w
		}
	}
	for _, end := range ends {
		out = append(out, binary.LittleEndian.AppendUint32(nil, uint32(end))[:width]...)
	}
	return out
}
