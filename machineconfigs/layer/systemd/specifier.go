package systemd

import (
	"fmt"
	"strings"
)

// expand replaces the specifiers in a value of an [Install] section of the unit (systemd.unit(5),
// "Specifiers"). Those that depend on the machine that systemctl runs on are refused: an image is
// for many machines.
func expand(value string, unit unitName, defaultInstance string) (string, error) {
	if unit.kind == template {
		unit.instance = defaultInstance
	}
	text := &strings.Builder{}
	for i := 0; i < len(value); i++ {
		if value[i] != '%' || i+1 == len(value) {
			text.WriteByte(value[i])
			continue
		}
		i++
		with, err := specifier(value[i], unit)
		if err != nil {
			return "", fmt.Errorf("%q: %w", cut(value), err)
		}
		text.WriteString(with)
	}
	return text.String(), nil
}

func specifier(letter byte, unit unitName) (string, error) {
	switch letter {
	case '%':
		return "%", nil
	case 'i':
		return unit.instance, nil
	case 'j':
		return unit.prefix[strings.LastIndexByte(unit.prefix, '-')+1:], nil
	case 'p':
		return unit.prefix, nil
	case 'n':
		return unit.String(), nil
	case 'N':
		return strings.TrimSuffix(unit.String(), "."+unit.suffix), nil
	case 'u', 'g': // of the system's manager, whose units these are
		return "root", nil
	case 'U', 'G':
		return "0", nil
	}
	switch {
	case strings.IndexByte("aAbBHlmMoTvVwW", letter) >= 0:
		return "", fmt.Errorf("%%%c depends on the machine, and an image is for many: write what it stands for", letter)
	case letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z' || letter >= '0' && letter <= '9':
		return "", fmt.Errorf("systemd knows no %%%c in [Install]: remove it, or write %%%% for a percent sign", letter)
	}
	return "%" + string(letter), nil
}
