//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
)

// comparison is a configuration twice: as a MachineConfig, and as what an administrator would do by
// hand in a container of the base image.
type comparison struct {
	// storage and units are those of the MachineConfig, in YAML.
	storage, units string
	// by is a shell script that runs in the container.
	by string
	// systemctl are calls of the machine's systemctl on the container's file system, after the
	// script.
	systemctl []string
	// presets are the lines of the preset file that keeps a first boot from undoing what was
	// enabled.
	presets string
	// absent are paths that are the node's, and no image's.
	absent []string
}

// packed is a base64 data URL of something gzip has compressed.
func packed(content string) string {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write([]byte(content)) // into memory
	_ = w.Close()
	return "data:;base64," + base64.StdEncoding.EncodeToString(out.Bytes())
}

// bigLine is repeated in the big file.
const (
	bigLine  = "0123456789abcdef"
	bigLines = 1 << 20
)

// longName is as long as a name can be.
var longName = strings.Repeat("n", 255)

// comparisons are configurations of all kinds, on the base of pushBases.
func comparisons() map[string]comparison {
	all := map[string]comparison{
		"files": {
			storage: `
files:
- {path: /etc/app/plain.conf, contents: {source: "data:,plain%0A"}}
- {path: /etc/app/deep/er/private.conf, mode: 0600, contents: {source: "data:,private"}}
- {path: /etc/app/of-chrony, mode: 0640, user: {name: chrony}, group: {name: chrony}, contents: {source: "data:,chrony"}}
- {path: /etc/app/of-numbers, mode: 0664, user: {id: 4711}, group: {id: 4712}, contents: {source: "data:,numbers"}}
- {path: /usr/bin/setuid, mode: 04755, contents: {source: "data:,setuid"}}
- {path: /usr/bin/setgid, mode: 02755, group: {name: adm}, contents: {source: "data:,setgid"}}
- {path: /usr/lib/sysctl.d/50-app.conf, contents: {source: "data:,vm.swappiness=1%0A"}}
`,
			by: `
mkdir -p /etc/app/deep/er /usr/lib/sysctl.d
printf 'plain\n' >/etc/app/plain.conf
printf private >/etc/app/deep/er/private.conf; chmod 0600 /etc/app/deep/er/private.conf
printf chrony >/etc/app/of-chrony; chown chrony:chrony /etc/app/of-chrony; chmod 0640 /etc/app/of-chrony
printf numbers >/etc/app/of-numbers; chown 4711:4712 /etc/app/of-numbers; chmod 0664 /etc/app/of-numbers
printf setuid >/usr/bin/setuid; chmod 0755 /usr/bin/setuid
printf setgid >/usr/bin/setgid; chown root:adm /usr/bin/setgid; chmod 0755 /usr/bin/setgid
printf 'vm.swappiness=1\n' >/usr/lib/sysctl.d/50-app.conf
`,
		},
		"behind-links": {
			storage: `
files:
- {path: /bin/tool, mode: 0755, contents: {source: "data:,tool"}}
- {path: /sbin/admin-tool, mode: 0750, contents: {source: "data:,admin"}}
- {path: /lib/app/data, contents: {source: "data:,data"}}
- {path: /lib64/libapp.so, mode: 0755, contents: {source: "data:,library"}}
- {path: /usr/local/bin/on-node, mode: 0755, contents: {source: "data:,node"}}
- {path: /opt/on-node, contents: {source: "data:,node"}}
- {path: /home/core/on-node, contents: {source: "data:,node"}}
`,
			by: `
printf tool >/bin/tool; chmod 0755 /bin/tool
printf admin >/sbin/admin-tool; chmod 0750 /sbin/admin-tool
mkdir /lib/app; printf data >/lib/app/data
printf library >/lib64/libapp.so; chmod 0755 /lib64/libapp.so
`,
			absent: []string{"var/usrlocal/bin/on-node", "var/opt/on-node", "var/home/core/on-node"},
		},
		"directories": {
			storage: `
directories:
- {path: /etc/app, mode: 0750, group: {name: adm}}
- {path: /etc/app/sticky, mode: 01777}
- {path: /etc/app/shared, mode: 02770, user: {id: 12}, group: {id: 13}}
- {path: /etc/ssh, mode: 0700}
- {path: /etc/hidden, overwrite: true, mode: 0711}
- {path: /usr/share/a/b/c}
files:
- {path: /etc/app/shared/file, contents: {source: "data:,shared"}}
- {path: /etc/marked/file, contents: {source: "data:,below"}}
`,
			by: `
mkdir /etc/app; chown root:adm /etc/app; chmod 0750 /etc/app
mkdir /etc/app/sticky; chmod 0777 /etc/app/sticky
mkdir /etc/app/shared; chown 12:13 /etc/app/shared; chmod 0770 /etc/app/shared
chmod 0700 /etc/ssh
rm -rf /etc/hidden; mkdir /etc/hidden; chmod 0711 /etc/hidden
mkdir -p /usr/share/a/b/c
printf shared >/etc/app/shared/file; chown root:root /etc/app/shared/file
printf below >/etc/marked/file; chown root:root /etc/marked/file
`,
		},
		"links": {
			storage: `
files:
- {path: /etc/app/original, mode: 0640, contents: {source: "data:,original"}}
links:
- {path: /etc/localtime, target: ../usr/share/zoneinfo/Europe/Berlin}
- {path: /etc/app/absolute, target: /etc/app/original}
- {path: /etc/app/dangling, target: /nowhere/at/all}
- {path: /bin/motd, target: ../../etc/motd}
- {path: /etc/app/owned, target: original, user: {id: 1000}, group: {id: 1000}}
- {path: /etc/os-release, target: /usr/lib/other-release, overwrite: true}
- {path: /etc/chrony.conf, target: chrony/chrony.conf, overwrite: true}
- {path: /etc/app/hard, target: /etc/app/original, hard: true}
- {path: /usr/bin/bootc-too, target: /usr/bin/bootc, hard: true}
`,
			by: `
mkdir /etc/app
printf original >/etc/app/original; chmod 0640 /etc/app/original
ln -s ../usr/share/zoneinfo/Europe/Berlin /etc/localtime
ln -s /etc/app/original /etc/app/absolute
ln -s /nowhere/at/all /etc/app/dangling
ln -s ../../etc/motd /bin/motd
ln -s original /etc/app/owned; chown -h 1000:1000 /etc/app/owned
ln -sf /usr/lib/other-release /etc/os-release
ln -sf chrony/chrony.conf /etc/chrony.conf
ln /etc/app/original /etc/app/hard
ln /usr/bin/bootc /usr/bin/bootc-too
`,
		},
		"units-enabled": {
			units: `
- name: app.service
  enabled: true
  contents: "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\nRequiredBy=app.target\nAlias=ours.service\nAlso=app.socket\n"
  dropins: [{name: 10-more.conf, contents: "[Service]\nRestart=always\n"}]
- {name: app.socket, contents: "[Socket]\nListenStream=/run/app\n[Install]\nWantedBy=sockets.target\n"}
- {name: getty@tty7.service, enabled: true}
- name: kubelet.service
  enabled: true
  dropins: [{name: 20-app.conf, contents: "[Install]\nWantedBy=graphical.target\n"}]
`,
			by: `
cd /etc/systemd/system
mkdir app.service.d kubelet.service.d
printf '[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\nRequiredBy=app.target\nAlias=ours.service\nAlso=app.socket\n' >app.service
printf '[Service]\nRestart=always\n' >app.service.d/10-more.conf
printf '[Socket]\nListenStream=/run/app\n[Install]\nWantedBy=sockets.target\n' >app.socket
printf '[Install]\nWantedBy=graphical.target\n' >kubelet.service.d/20-app.conf
`,
			systemctl: []string{"enable app.service getty@tty7.service kubelet.service"},
			presets:   "enable getty@.service tty7\nenable app.service\nenable kubelet.service\n",
		},
		"units-disabled": {
			units: `
- {name: chronyd.service, enabled: false}
- {name: sshd.service, mask: true}
- name: crio.service
  enabled: false
  dropins: [{name: 10-proxy.conf, contents: "[Service]\nEnvironment=HTTPS_PROXY=http://proxy\n"}]
- {name: own.service, mask: true}
- {name: was-masked.service, mask: false, enabled: true}
`,
			by: `
mkdir /etc/systemd/system/crio.service.d
printf '[Service]\nEnvironment=HTTPS_PROXY=http://proxy\n' >/etc/systemd/system/crio.service.d/10-proxy.conf
`,
			systemctl: []string{
				"disable chronyd.service crio.service", "mask sshd.service own.service", "unmask was-masked.service", "enable was-masked.service",
			},
			presets: "enable was-masked.service\ndisable chronyd.service\ndisable crio.service\n",
		},
		"presets": {
			units: `
- {name: NetworkManager.service, contents: "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=network.target\n"}
- {name: unknown.service, contents: "[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n"}
- {name: no-install.service, contents: "[Service]\nExecStart=/usr/bin/true\n"}
`,
			by: `
cd /etc/systemd/system
printf '[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=network.target\n' >NetworkManager.service
printf '[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n' >unknown.service
printf '[Service]\nExecStart=/usr/bin/true\n' >no-install.service
`,
			systemctl: []string{"preset NetworkManager.service unknown.service"},
		},
		"replaced": {
			storage: `
files:
- {path: /etc/motd, contents: {source: "data:,another"}}
- {path: /etc/chrony.conf, mode: 0600, user: {name: chrony}, overwrite: true, contents: {source: "data:,server%20ntp"}}
- {path: /etc/os-release, overwrite: true, contents: {source: "data:,ID=other"}}
- {path: /usr/bin/bootc, mode: 0700, contents: {source: "data:,bootc"}}
- {path: /etc/capable, mode: 0755, contents: {source: "data:,no%20capabilities"}}
- {path: /etc/shells, mode: 0444}
`,
			by: `
rm /etc/motd; printf another >/etc/motd
rm /etc/chrony.conf; printf 'server ntp' >/etc/chrony.conf; chown chrony:root /etc/chrony.conf; chmod 0600 /etc/chrony.conf
rm /etc/os-release; printf ID=other >/etc/os-release
rm /usr/bin/bootc; printf bootc >/usr/bin/bootc; chmod 0700 /usr/bin/bootc
rm /etc/capable; printf 'no capabilities' >/etc/capable; chmod 0755 /etc/capable
chmod 0444 /etc/shells
`,
		},
		"appended": {
			storage: `
files:
- {path: /etc/profile, append: [{source: "data:,192.0.2.1%20one%0A"}, {source: "data:;base64,MTkyLjAuMi4yIHR3bwo="}]}
- {path: /etc/os-release, append: [{source: "data:,VARIANT%3Dours%0A"}]}
- {path: /etc/attributed.conf, append: [{source: "data:,more%0A"}]}
- {path: /etc/app.conf, contents: {source: "data:,first%0A"}, append: [{source: "data:,second%0A"}]}
- {path: /etc/new.conf, append: [{source: "data:,only%0A"}]}
`,
			by: `
printf '192.0.2.1 one\n192.0.2.2 two\n' >>/etc/profile
printf 'VARIANT=ours\n' >>/etc/os-release
printf 'more\n' >>/etc/attributed.conf
printf 'first\nsecond\n' >/etc/app.conf
printf 'only\n' >/etc/new.conf
`,
		},
		"accounts": {
			storage: `
directories:
- {path: /etc/app, mode: 0700, user: {id: 900}, group: {id: 901}}
files:
- {path: /etc/passwd, append: [{source: "data:,app:x:900:901:App:/:/usr/sbin/nologin%0A"}]}
- {path: /etc/group, append: [{source: "data:,app:x:901:core%0A"}]}
- {path: /etc/shadow, append: [{source: "data:,app:!:0:0:99999:7:::%0A"}]}
- {path: /etc/app/secret, mode: 0400, user: {id: 900}, group: {id: 901}, contents: {source: "data:,secret"}}
- {path: /etc/app/of-nobody, user: {name: nobody}, group: {name: nobody}, contents: {source: "data:,nobody"}}
- {path: /usr/lib/sysusers.d/app.conf, contents: {source: "data:,u%20app%20900%0A"}}
`,
			by: `
echo 'app:x:900:901:App:/:/usr/sbin/nologin' >>/etc/passwd
echo 'app:x:901:core' >>/etc/group
echo 'app:!:0:0:99999:7:::' >>/etc/shadow
mkdir /etc/app; chmod 0700 /etc/app
printf secret >/etc/app/secret; chmod 0400 /etc/app/secret; chown app:app /etc/app/secret /etc/app
printf nobody >/etc/app/of-nobody; chown nobody:nobody /etc/app/of-nobody
mkdir -p /usr/lib/sysusers.d; printf 'u app 900\n' >/usr/lib/sysusers.d/app.conf
`,
		},
		"encodings": {
			storage: `
files:
- {path: /etc/encoded/gzip, contents: {compression: gzip, source: "` + packed("compressed\n\x00\xff") + `"}}
- {path: /etc/encoded/base64, contents: {source: "data:text/plain;charset=utf-8;base64,w7bDpMO8Cg=="}}
- {path: /etc/encoded/percent, contents: {source: "data:,%C3%B6%C3%A4%20%23%25%00end"}}
- {path: /etc/encoded/joined, contents: {source: "data:,a"}, append: [{compression: gzip, source: "` + packed("b") + `"}, {source: "data:;base64,Yw=="}]}
`,
			by: `
mkdir /etc/encoded; cd /etc/encoded
printf 'compressed\n\000\377' >gzip
printf '\303\266\303\244\303\274\n' >base64
printf '\303\266\303\244 #%%\000end' >percent
printf abc >joined
`,
		},
		"names": {
			storage: `
directories:
- {path: "/etc/na mes/ü"}
files:
- {path: "/etc/na mes/with space", contents: {source: "data:,1"}}
- {path: "/etc/na mes/ü/größe", contents: {source: "data:,2"}}
- {path: "/etc/na mes/-rf", contents: {source: "data:,3"}}
- {path: "/etc/na mes/$HOME;*?", contents: {source: "data:,4"}}
- {path: "/etc/na mes/back\\slash'\"", contents: {source: "data:,5"}}
- {path: "/etc/na mes/.hidden", contents: {source: "data:,6"}}
- {path: "/etc/na mes/` + longName + `", contents: {source: "data:,7"}}
links:
- {path: "/etc/na mes/link to", target: "with space"}
- {path: "/etc/na mes/` + longName[1:] + `", target: "/` + strings.Repeat("d/", 120) + `end"}
`,
			by: `
mkdir -p '/etc/na mes/ü'; cd '/etc/na mes'
printf 1 >'with space'
printf 2 >'ü/größe'
printf 3 >./-rf
printf 4 >'$HOME;*?'
printf 5 >'back\slash'\''"'
printf 6 >.hidden
printf 7 >` + longName + `
ln -s 'with space' 'link to'
ln -s /` + strings.Repeat("d/", 120) + `end ` + longName[1:] + `
`,
		},
		"sizes": {
			storage: `
files:
- {path: /usr/share/big, contents: {compression: gzip, source: "` + packed(strings.Repeat(bigLine, bigLines)) + `"}}
- {path: /etc/empty, contents: {source: "data:,"}}
- {path: /etc/nothing-said, mode: 0600}
`,
			by: `
yes ` + bigLine + ` | tr -d '\n' | head -c 16777216 >/usr/share/big
: >/etc/empty
: >/etc/nothing-said; chmod 0600 /etc/nothing-said
`,
		},
	}
	return all
}

// everything is parts of the others at once, for bases of other formats.
func everything() comparison {
	all := comparisons()
	var c comparison
	for _, name := range []string{"units-enabled", "units-disabled"} {
		c.units += all[name].units
		c.by += all[name].by
		c.systemctl = append(all[name].systemctl, c.systemctl...)
	}
	c.storage, c.by = all["files"].storage, c.by+all["files"].by
	c.presets = "enable getty@.service tty7\nenable app.service\nenable kubelet.service\nenable was-masked.service\ndisable chronyd.service\ndisable crio.service\n"
	return c
}
