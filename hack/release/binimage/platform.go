package binimage

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ErrNotStatic is a program that would need files which the image does not have.
var ErrNotStatic = errors.New("the program is not static (build it with CGO_ENABLED=0)")

// platformOf reads for which platform a program was built, and refuses one that could not start on
// its own.
func platformOf(program []byte) (v1.Platform, error) {
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return v1.Platform{}, fmt.Errorf("reading it as an ELF program: %w", err)
	}
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return v1.Platform{}, ErrNotStatic
		}
	}
	architecture, ok := architectures[machine{file.Machine, file.Data}]
	if !ok {
		return v1.Platform{}, fmt.Errorf("unknown architecture %s %s", file.Machine, file.Data)
	}
	return v1.Platform{OS: "linux", Architecture: architecture}, nil
}

type machine struct {
	machine elf.Machine
	order   elf.Data
}

// architectures are those that OS images exist for, by Go's names.
var architectures = map[machine]string{
	{elf.EM_X86_64, elf.ELFDATA2LSB}:  "amd64",
	{elf.EM_AARCH64, elf.ELFDATA2LSB}: "arm64",
	{elf.EM_PPC64, elf.ELFDATA2LSB}:   "ppc64le",
	{elf.EM_S390, elf.ELFDATA2MSB}:    "s390x",
	{elf.EM_RISCV, elf.ELFDATA2LSB}:   "riscv64",
}
