package systemd_test

import "strings"

const (
	vendor = "/usr/lib/systemd/system/"
	admin  = "/etc/systemd/system/"
	preset = "/usr/lib/systemd/system-preset/"
)

// scenario is a tree and what is done to it.
type scenario struct {
	tree       files
	operations []string
	// since is the version of systemd that has what the scenario is about; 0 for those that have it
	// all along.
	since int
}

// install is a unit file with an [Install] section.
func install(lines string) string { return "[Unit]\nDescription=x\n\n[Install]\n" + lines }

// scenarios are what is compared with the real systemctl.
func scenarios() map[string]scenario {
	all := map[string]scenario{}
	for _, group := range []map[string]scenario{enabling(), names(), parsing(), disabling(), presetting()} {
		for name, s := range group {
			all[name] = s
		}
	}
	return all
}

func enabling() map[string]scenario {
	return map[string]scenario{
		"wanted and required": {
			tree:       files{vendor + "a.service": install("WantedBy=multi-user.target basic.target\nRequiredBy=c.target\n")},
			operations: []string{"enable a.service"},
		},
		"upheld": {
			tree:       files{vendor + "a.service": install("UpheldBy=c.target\n")},
			operations: []string{"enable a.service"},
			since:      254,
		},
		"an administrator's unit wins": {
			tree: files{
				vendor + "a.service": install("WantedBy=vendor.target\n"),
				admin + "a.service":  install("WantedBy=admin.target\n"),
			},
			operations: []string{"enable a.service"},
		},
		"an existing link to the same unit elsewhere stays": {
			tree: files{
				vendor + "a.service":               install("WantedBy=x.target\n"),
				admin + "a.service":                install("WantedBy=x.target\n"),
				admin + "x.target.wants/a.service": "-> /usr/lib/systemd/system/a.service",
			},
			operations: []string{"enable a.service"},
		},
		"an existing relative link stays": {
			tree: files{
				vendor + "a.service":               install("WantedBy=x.target\n"),
				admin + "x.target.wants/a.service": "-> ../../../../usr/lib/systemd/system/a.service",
			},
			operations: []string{"enable a.service"},
		},
		"an existing link to another unit is replaced": {
			tree: files{
				vendor + "a.service":               install("WantedBy=x.target\n"),
				vendor + "b.service":               install(""),
				admin + "x.target.wants/a.service": "-> /usr/lib/systemd/system/b.service",
			},
			operations: []string{"enable a.service"},
		},
		"also with a cycle": {
			tree: files{
				vendor + "a.service": install("Also=b.socket c.timer\nWantedBy=x.target\n"),
				vendor + "b.socket":  install("Also=a.service\nWantedBy=sockets.target\n"),
				vendor + "c.timer":   install("Also=b.socket c.timer\nWantedBy=timers.target\n"),
			},
			operations: []string{"enable a.service"},
		},
		"also a missing one and a masked one": {
			tree: files{
				vendor + "a.service": install("Also=b.service c.service\nWantedBy=x.target\n"),
				vendor + "c.service": "-> /dev/null",
			},
			operations: []string{"enable a.service"},
		},
		"no install section": {
			tree:       files{vendor + "a.service": "[Unit]\nDescription=x\n"},
			operations: []string{"enable a.service"},
		},
		"missing": {
			tree:       files{vendor + "a.service": install("WantedBy=x.target\n")},
			operations: []string{"enable b.service"},
		},
		"masked by a link": {
			tree: files{
				vendor + "a.service": install("WantedBy=x.target\n"),
				admin + "a.service":  "-> /dev/null",
			},
			operations: []string{"enable a.service"},
		},
		"masked by an empty file": {
			tree:       files{vendor + "a.service": ""},
			operations: []string{"enable a.service"},
		},
		"linked from elsewhere": {
			tree: files{
				"/opt/a.service":    install("WantedBy=x.target\n"),
				admin + "a.service": "-> /opt/a.service",
			},
			operations: []string{"enable a.service"},
		},
		"several at once": {
			tree: files{
				vendor + "a.service":  install("WantedBy=x.target\n"),
				vendor + "b@.service": install("WantedBy=x.target\n"),
			},
			operations: []string{"enable a.service b@1.service b@2.service"},
		},
	}
}

func names() map[string]scenario {
	return map[string]scenario{
		"alias": {
			tree:       files{vendor + "a.service": install("Alias=b.service dbus-x.service\n")},
			operations: []string{"enable a.service"},
		},
		"alias in the place of another link": {
			tree: files{
				vendor + "a.service": install("Alias=b.service\nWantedBy=x.target\n"),
				vendor + "c.service": install(""),
				admin + "b.service":  "-> /usr/lib/systemd/system/c.service",
			},
			operations: []string{"enable a.service"},
		},
		"alias in the place of a file": {
			tree: files{
				vendor + "a.service": install("Alias=b.service\nWantedBy=x.target\n"),
				admin + "b.service":  install(""),
			},
			operations: []string{"enable a.service"},
		},
		"alias of another type": {
			tree:       files{vendor + "a.service": install("Alias=a.socket b.service\n")},
			operations: []string{"enable a.service"},
		},
		"alias where the type has none": {
			tree:       files{vendor + "a.mount": install("Alias=b.mount\nWantedBy=x.target\n")},
			operations: []string{"enable a.mount"},
		},
		"alias that is a dependency": {
			tree:       files{vendor + "a.service": install("Alias=x.target.wants/a.service\n")},
			operations: []string{"enable a.service"},
		},
		"alias in a strange folder": {
			tree:       files{vendor + "a.service": install("Alias=x/a.service\nWantedBy=x.target\n")},
			operations: []string{"enable a.service"},
		},
		"alias of a template": {
			tree:       files{vendor + "a@.service": install("Alias=b@.service c@z.service\nWantedBy=x.target\nDefaultInstance=z\n")},
			operations: []string{"enable a@.service"},
		},
		"alias of an instance": {
			tree:       files{vendor + "a@.service": install("Alias=b@.service\nWantedBy=x.target\n")},
			operations: []string{"enable a@i.service"},
		},
		"alias of an instance that is plain": {
			tree:       files{vendor + "a@.service": install("Alias=b.service\nWantedBy=x.target\n")},
			operations: []string{"enable a@i.service"},
		},
		"by another name": {
			tree: files{
				vendor + "a.service": install("WantedBy=x.target\n"),
				vendor + "b.service": "-> a.service",
				vendor + "c.service": "-> /usr/lib/systemd/system/b.service",
			},
			operations: []string{"enable c.service"},
		},
		"an instance by another name": {
			tree: files{
				vendor + "a@.service": install("WantedBy=x.target\n"),
				vendor + "b@.service": "-> a@.service",
			},
			operations: []string{"enable b@i.service"},
		},
		"template with default instance": {
			tree:       files{vendor + "a@.service": install("WantedBy=x.target\nDefaultInstance=tty1\n")},
			operations: []string{"enable a@.service"},
		},
		"template without default instance": {
			tree:       files{vendor + "a@.service": install("WantedBy=x.target\n")},
			operations: []string{"enable a@.service"},
		},
		"template for a template": {
			tree:       files{vendor + "a@.service": install("WantedBy=x@.target\n")},
			operations: []string{"enable a@.service"},
		},
		"instance": {
			tree:       files{vendor + "a@.service": install("WantedBy=x.target\nDefaultInstance=tty1\n")},
			operations: []string{"enable a@b-c.service"},
		},
		"instance with a file of its own": {
			tree: files{
				vendor + "a@.service":  install("WantedBy=x.target\n"),
				vendor + "a@b.service": install("WantedBy=own.target\nDefaultInstance=q\n"),
			},
			operations: []string{"enable a@b.service"},
		},
		"default instance that is masked": {
			tree: files{
				vendor + "a@.service": install("WantedBy=x.target\nDefaultInstance=b\n"),
				admin + "a@b.service": "-> /dev/null",
			},
			operations: []string{"enable a@.service"},
		},
		"escaped names": {
			tree:       files{vendor + `a\x2db.service`: install("WantedBy=x\\x2dy.target\n")},
			operations: []string{`enable a\x2db.service`},
		},
	}
}

func parsing() map[string]scenario {
	return map[string]scenario{
		"specifiers": {
			tree: files{vendor + "foo-bar@.service": install(
				"WantedBy=%i-i.target %j-j.target %p-p.target %n.target %N-N.target %u.target %U.target\n")},
			operations: []string{"enable foo-bar@in-st.service"},
		},
		"specifiers of a template with default": {
			tree:       files{vendor + "a@.service": install("DefaultInstance=d\nWantedBy=%i-i.target %n.target %N-N.target\n")},
			operations: []string{"enable a@.service"},
		},
		"unknown specifier": {
			tree:       files{vendor + "a@.service": install("WantedBy=first.target %I.target last.target\nRequiredBy=r.target\n")},
			operations: []string{"enable a@b.service"},
		},
		"percent signs that are no specifiers": {
			tree:       files{vendor + "a.service": install("WantedBy=x.target\nAlso=b%%.service\n")},
			operations: []string{"enable a.service"},
		},
		"empty assignments": {
			tree: files{vendor + "a.service": install(
				"WantedBy=a.target\nWantedBy=\nWantedBy=b.target\nRequiredBy=c.target\nRequiredBy=\nAlias=x.service\nAlias=\n")},
			operations: []string{"enable a.service"},
		},
		"empty also resets nothing": {
			tree: files{
				vendor + "a.service": install("Also=b.service\nAlso=\n"),
				vendor + "b.service": install("WantedBy=x.target\n"),
			},
			operations: []string{"enable a.service"},
		},
		"continued lines and comments": {
			tree: files{vendor + "a.service": "; c\n[Install]\n#WantedBy=n.target\nWantedBy=a.target \\\n# no\n  b.target\\\n;\n c.target\n" +
				"  RequiredBy = d.target\n"},
			operations: []string{"enable a.service"},
		},
		"a last line that is continued": {
			tree:       files{vendor + "a.service": "[Install]\nWantedBy=a.target \\"},
			operations: []string{"enable a.service"},
		},
		"quotes": {
			tree:       files{vendor + "a.service": install("WantedBy=\"x.target\" 'y.target' z\".target\"\n")},
			operations: []string{"enable a.service"},
		},
		"carriage returns, a byte order mark and no last newline": {
			tree:       files{vendor + "a.service": "\uFEFF[Install]\r\nWantedBy=x.target\r\nRequiredBy=y.target"},
			operations: []string{"enable a.service"},
		},
		"other sections and strange lines": {
			tree: files{vendor + "a.service": "WantedBy=o.target\nno assignment\n[X-Own]\nWantedBy=p.target\n[Install]\nno assignment\n" +
				"=y.target\nWantedBy=x.target\n[Service]\nWantedBy=q.target\n[Install]\nRequiredBy=r.target\nBogus=1\n"},
			operations: []string{"enable a.service"},
		},
		"a long line": {
			tree:       files{vendor + "a.service": "[Service]\nExecStart=/bin/true " + long("x", 3000) + "\n[Install]\nWantedBy=x.target\n"},
			operations: []string{"enable a.service"},
		},
		"a broken section header": {
			tree:       files{vendor + "a.service": "[Install\nWantedBy=x.target\n"},
			operations: []string{"enable a.service"},
		},
		"names that are none": {
			tree:       files{vendor + "a.service": install("WantedBy=x bad@@.x y.target ../z.target\n")},
			operations: []string{"enable a.service"},
		},
		"drop-ins": {
			tree: files{
				vendor + "a@.service":               install("WantedBy=x.target\n"),
				vendor + "a@.service.d/20-x.conf":   "[Install]\nWantedBy=\nWantedBy=y.target\n",
				vendor + "a@.service.d/30-x.conf":   "[Install]\nWantedBy=hidden.target\n",
				admin + "a@.service.d/30-x.conf":    "[Install]\nRequiredBy=r.target\n",
				admin + "a@i.service.d/10-x.conf":   "[Install]\nWantedBy=early.target\n",
				admin + "a@i.service.d/no-conf.txt": "[Install]\nWantedBy=n.target\n",
				admin + "service.d/10-all.conf":     "[Install]\nWantedBy=all.target\n",
			},
			operations: []string{"enable a@i.service"},
		},
		"a drop-in is what makes it installable": {
			tree: files{
				vendor + "a.service":             "[Unit]\nDescription=x\n",
				admin + "a.service.d/10-in.conf": "[Install]\nWantedBy=x.target\n",
			},
			operations: []string{"enable a.service"},
		},
	}
}

func disabling() map[string]scenario {
	enabled := files{
		vendor + "a.service":                    install("WantedBy=x.target\nAlias=al.service\nAlso=b.socket\n"),
		vendor + "b.socket":                     install("WantedBy=sockets.target\n"),
		vendor + "x.target.wants/a.service":     "-> ../a.service",
		vendor + "other.service":                install("WantedBy=x.target\n"),
		admin + "x.target.wants/a.service":      "-> /usr/lib/systemd/system/a.service",
		admin + "x.target.wants/other.service":  "-> /usr/lib/systemd/system/other.service",
		admin + "y.target.requires/q.service":   "-> ../../../../usr/lib/systemd/system/a.service",
		admin + "sockets.target.wants/b.socket": "-> /usr/lib/systemd/system/b.socket",
		admin + "al.service":                    "-> /usr/lib/systemd/system/a.service",
		admin + "README":                        "-> /usr/lib/systemd/system/a.service",
	}
	instances := files{
		vendor + "a@.service":                         install("WantedBy=x.target\n"),
		admin + "x.target.wants/a@1.service":          "-> /usr/lib/systemd/system/a@.service",
		admin + "x.target.wants/a@2.service":          "-> /usr/lib/systemd/system/a@.service",
		admin + "multi-user.target.wants/a@1.service": "-> /etc/systemd/system/a@.service",
	}
	return map[string]scenario{
		"everything that leads to it": {tree: enabled, operations: []string{"disable a.service"}},
		"only the other one":          {tree: enabled, operations: []string{"disable b.socket"}},
		"by its alias":                {tree: enabled, operations: []string{"disable al.service"}},
		"one instance":                {tree: instances, operations: []string{"disable a@1.service"}},
		"all instances":               {tree: instances, operations: []string{"disable a@.service"}},
		"not enabled":                 {tree: instances, operations: []string{"disable a@3.service"}},
		"links without a unit": {
			tree:       files{admin + "x.target.wants/a.service": "-> /usr/lib/systemd/system/a.service"},
			operations: []string{"disable a.service"},
		},
		"missing without links": {tree: instances, operations: []string{"disable nothing.service"}},
		"masked stays masked": {
			tree: files{
				admin + "a.service":                "-> /dev/null",
				admin + "x.target.wants/a.service": "-> /usr/lib/systemd/system/a.service",
			},
			operations: []string{"disable a.service"},
		},
		"after enabling": {
			tree: files{
				vendor + "a.service": install("WantedBy=x.target\nAlias=al.service\nAlso=b.socket\n"),
				vendor + "b.socket":  install("WantedBy=sockets.target\n"),
			},
			operations: []string{"enable a.service", "disable a.service", "enable b.socket"},
		},
		"a linked unit": {
			tree: files{
				"/opt/a.service":    install("WantedBy=x.target\n"),
				admin + "a.service": "-> /opt/a.service",
			},
			operations: []string{"enable a.service", "disable a.service"},
		},
	}
}

func presetting() map[string]scenario {
	units := func(more files) files {
		all := files{
			vendor + "a.service":                   install("WantedBy=x.target\n"),
			vendor + "b.service":                   install("WantedBy=x.target\nAlso=c.service\n"),
			vendor + "c.service":                   install("WantedBy=x.target\n"),
			vendor + "t@.service":                  install("WantedBy=x.target\nDefaultInstance=d\n"),
			vendor + "static.service":              "[Unit]\nDescription=x\n",
			admin + "old.target.wants/c.service":   "-> /usr/lib/systemd/system/c.service",
			admin + "old.target.wants/t@3.service": "-> /usr/lib/systemd/system/t@.service",
		}
		for name, content := range more {
			all[name] = content
		}
		return all
	}
	everything := []string{"preset a.service b.service c.service t@.service t@2.service static.service"}
	return map[string]scenario{
		"without presets all are enabled": {tree: units(nil), operations: everything},
		"the first rule counts": {
			tree: units(files{
				preset + "90-x.preset": "disable *\n",
				preset + "10-x.preset": "# c\n; c\n\n  enable a.service\ndisable b.service\nenable b.service\n\tenable\tc.service\t\n",
			}),
			operations: everything,
		},
		"an administrator's file hides the vendor's": {
			tree: units(files{
				preset + "10-x.preset":                   "enable *\n",
				"/etc/systemd/system-preset/10-x.preset": "enable a.service\n",
				preset + "20-x.preset":                   "disable *\n",
			}),
			operations: everything,
		},
		"an administrator masks the vendor's": {
			tree: units(files{
				preset + "10-x.preset":                   "disable *\n",
				"/etc/systemd/system-preset/10-x.preset": "-> /dev/null",
			}),
			operations: everything,
		},
		"patterns": {
			tree:       units(files{preset + "10-x.preset": "enable ?.servic[a-f]\nenable t@[!3].service\ndisable [*\ndisable *\n"}),
			operations: everything,
		},
		"instances of a template": {
			tree:       units(files{preset + "10-x.preset": "enable t@.service 1 2\nenable a.service x y\ndisable *\n"}),
			operations: everything,
		},
		"a template rule does not mean its instances": {
			tree:       units(files{preset + "10-x.preset": "enable t@.service\ndisable *\n"}),
			operations: everything,
		},
		"other lines mean nothing": {
			tree:       units(files{preset + "10-x.preset": "enabled a.service\nENABLE b.service\n", preset + "10-y.conf": "disable *\n"}),
			operations: everything,
		},
	}
}

func long(s string, n int) string { return strings.Repeat(s, n) }
