package sums

import (
	"bufio"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files that are about the others of a folder.
const (
	// File lists the checksums as sha256sum does.
	File = "SHA256SUMS"
	// Signature is its signature in base64, and Key the public key that verifies it.
	Signature = "SHA256SUMS.sig"
	Key       = "cosign.pub"
)

// Of lists the checksums of all files in a folder and below it, sorted by their names.
func Of(folder string) ([]byte, error) {
	var out bytes.Buffer
	files, err := filesIn(folder)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		sum, err := sumOf(filepath.Join(folder, file))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s  %s\n", sum, file)
	}
	return out.Bytes(), nil
}

// Check makes sure that the folder is as its checksums say, and that these are signed with the key
// in PEM. An empty key takes the one in the folder, and a list without a signature if there is
// none. It returns the fingerprint of the key, empty without a signature.
func Check(folder string, key []byte) (fingerprint string, err error) {
	listed, err := os.ReadFile(filepath.Join(folder, File)) //nolint:gosec // the folder is the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is missing in %q: the folder is not complete; unpack it again", File, folder)
	}
	if err != nil {
		return "", err
	}
	if fingerprint, err = checkSignature(folder, listed, key); err != nil {
		return "", err
	}
	return fingerprint, checkFiles(folder, listed)
}

func checkFiles(folder string, listed []byte) error {
	files, err := filesIn(folder)
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(listed)); lines.Scan(); {
		sum, file, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			return fmt.Errorf("%s is damaged: unpack it again", File)
		}
		wanted[file] = sum
	}
	for _, file := range files {
		want, ok := wanted[file]
		if !ok {
			return fmt.Errorf("%q is not part of the release: remove it", file)
		}
		sum, err := sumOf(filepath.Join(folder, file))
		if err != nil {
			return err
		}
		if sum != want {
			return fmt.Errorf("%q is damaged: its checksum is not the one in %s; copy or unpack it again", file, File)
		}
		delete(wanted, file)
	}
	for file := range wanted {
		return fmt.Errorf("%q is missing: copy or unpack it again", file)
	}
	return nil
}

func checkSignature(folder string, listed, key []byte) (string, error) {
	encoded, err := os.ReadFile(filepath.Join(folder, Signature)) //nolint:gosec // the folder is the caller's
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(key) == 0:
		if _, err := os.Stat(filepath.Join(folder, Key)); err == nil {
			return "", fmt.Errorf("%s is missing, though there is a key: the folder is not complete; unpack it again", Signature)
		}
		return "", nil
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s is missing: the release is not signed", Signature)
	case err != nil:
		return "", err
	}
	if len(key) == 0 {
		if key, err = os.ReadFile(filepath.Join(folder, Key)); err != nil { //nolint:gosec // the folder is the caller's
			return "", fmt.Errorf("reading the key that %s is by: %w", Signature, err)
		}
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return "", errors.New("the key is no public key in PEM")
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading the public key: %w", err)
	}
	signed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(encoded)))
	if err != nil || !verifies(public, listed, signed) {
		return "", fmt.Errorf("%s is not signed with this key: %s is wrong, and nothing of the release can be trusted", File, Signature)
	}
	fingerprint := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(fingerprint[:]), nil
}

func verifies(public any, message, signed []byte) bool {
	sum := sha256.Sum256(message)
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		return ecdsa.VerifyASN1(key, sum[:], signed)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signed) == nil
	}
	return false
}

// filesIn are the files of a folder and below it that have checksums: but those of this package. A
// folder below that has a list of its own is in it with that list alone.
func filesIn(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var end error
		if entry.IsDir() {
			path = filepath.Join(path, File)
			if _, err := os.Stat(path); path == filepath.Join(folder, File) || err != nil {
				return nil //nolint:nilerr // it has no list of its own
			}
			end = fs.SkipDir
		}
		file, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if !slices.Contains([]string{File, Signature, Key}, file) {
			files = append(files, filepath.ToSlash(file))
		}
		return end
	})
	slices.Sort(files)
	return files, err
}

func sumOf(path string) (_ string, err error) {
	file, err := os.Open(path) //nolint:gosec // the folder is the caller's
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return hex.EncodeToString(sum.Sum(nil)), err
}
