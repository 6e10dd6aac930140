package files

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes a file hold the content. A file that does already is not
// touched, apart from its mode; otherwise a reader, or a run after a crash,
// sees the old content or the new one but never a part.
func Write(path string, content []byte, mode fs.FileMode) error {
	if current, err := os.ReadFile(path); err == nil && bytes.Equal(current, content) {
		return os.Chmod(path, mode)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	if _, err := temp.Write(content); err != nil {
		_ = temp.Close()
		return err
	}
	if err := temp.Chmod(mode); err != nil {
		_ = temp.Close()
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
