package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// notSaid stands for what is not known.
const notSaid = "NOASSERTION"

// customLicense is the beginning of identifiers of licenses that are none of SPDX's list.
const customLicense = "LicenseRef-"

var customLicenseID = regexp.MustCompile(`^LicenseRef-[A-Za-z0-9.-]+$`)

// declaredLicense is what a package states as an expression of SPDX. Statements in another
// language, such as those of older rpm packages, get an identifier of their own; extracted are the
// texts of such identifiers.
func declaredLicense(stated string) (expression string, extracted map[string]string) {
	stated = strings.TrimSpace(stated)
	if stated == "" {
		return notSaid, nil
	}
	custom, ok := parseExpression(stated)
	if ok {
		extracted = map[string]string{}
		for _, id := range custom {
			extracted[id] = "The package names the license " + id + ", without its text."
		}
		return strings.Join(strings.Fields(stated), " "), extracted
	}
	sum := sha256.Sum256([]byte(stated))
	id := customLicense + "stated-" + hex.EncodeToString(sum[:8])
	return id, map[string]string{id: clean(stated)}
}

// parseExpression reports whether a text is a license expression of SPDX 2.3 (annex D) that names
// licenses of its list, and which others it names.
func parseExpression(text string) (custom []string, ok bool) {
	tokens := strings.Fields(strings.NewReplacer("(", " ( ", ")", " ) ").Replace(text))
	depth, wantsLicense, mayHaveException := 0, true, false
	for i := 0; i < len(tokens); i++ {
		token := tokens[i]
		switch {
		case wantsLicense && token == "(":
			depth++
		case wantsLicense && (isListed(token) || customLicenseID.MatchString(token)):
			if strings.HasPrefix(token, customLicense) {
				custom = append(custom, token)
			}
			wantsLicense, mayHaveException = false, true
		case !wantsLicense && token == ")" && depth > 0:
			depth, mayHaveException = depth-1, false
		case !wantsLicense && (token == "AND" || token == "OR"):
			wantsLicense, mayHaveException = true, false
		case mayHaveException && token == "WITH" && i+1 < len(tokens) && listedExceptions[tokens[i+1]]:
			i++
			mayHaveException = false
		default:
			return nil, false
		}
	}
	return custom, !wantsLicense && depth == 0
}

func isListed(id string) bool { return listedLicenses[strings.TrimSuffix(id, "+")] }

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, word := range strings.Fields(text) {
		set[word] = true
	}
	return set
}

// listedLicenses are the licenses of SPDX's list that operating systems' packages mostly have. What
// is missing here is told in the package's own words, so that nothing is lost.
var listedLicenses = words(`
0BSD AFL-2.1 AFL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-1.0 Apache-1.1 Apache-2.0 APSL-2.0 Artistic-1.0 Artistic-1.0-Perl Artistic-2.0
Beerware Bitstream-Vera blessing BlueOak-1.0.0 BSD-1-Clause BSD-2-Clause BSD-2-Clause-Patent BSD-2-Clause-Views BSD-3-Clause
BSD-3-Clause-Attribution BSD-3-Clause-Clear BSD-3-Clause-LBNL BSD-4-Clause BSD-4-Clause-UC BSD-Source-Code BSL-1.0 bzip2-1.0.6
CC-BY-3.0 CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-PDDC CC0-1.0 CDDL-1.0 CDDL-1.1 CECILL-2.0 CECILL-2.1 CECILL-B CECILL-C CPL-1.0 curl
ECL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 FSFAP FSFUL FSFULLR FSFULLRWD FTL
GFDL-1.1-only GFDL-1.1-or-later GFDL-1.2-only GFDL-1.2-or-later GFDL-1.3-no-invariants-or-later GFDL-1.3-only GFDL-1.3-or-later
GPL-1.0-only GPL-1.0-or-later GPL-2.0-only GPL-2.0-or-later GPL-3.0-only GPL-3.0-or-later
HPND HPND-sell-variant ICU IJG ImageMagick Intel ISC JasPer-2.0
LGPL-2.0-only LGPL-2.0-or-later LGPL-2.1-only LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later Latex2e Libpng libpng-2.0 libtiff LPL-1.02 LPPL-1.3c
MIT MIT-0 MIT-CMU MIT-Modern-Variant MirOS MPL-1.0 MPL-1.1 MPL-2.0 MPL-2.0-no-copyleft-exception MS-PL
NCSA Net-SNMP NTP OFL-1.0 OFL-1.1 OLDAP-2.8 OpenSSL PHP-3.01 PostgreSQL PSF-2.0 Python-2.0 Python-2.0.1 Qhull QPL-1.0 RSA-MD Ruby
Sendmail SGI-B-2.0 SISSL Sleepycat SMLNJ Spencer-94 SSH-OpenSSH SSH-short SunPro TCL TCP-wrappers TU-Berlin-1.0 Unicode-3.0 Unicode-DFS-2015
Unicode-DFS-2016 Unlicense UPL-1.0 Vim W3C W3C-19980720 WTFPL X11 X11-distribute-modifications-variant XFree86-1.1 xinetd Zend-2.0 Zlib
zlib-acknowledgement ZPL-2.0 ZPL-2.1
`)

// listedExceptions are exceptions of SPDX's list, chosen as the licenses are.
var listedExceptions = words(`
389-exception Autoconf-exception-2.0 Autoconf-exception-3.0 Autoconf-exception-generic Bison-exception-1.24 Bison-exception-2.2
Bootloader-exception Classpath-exception-2.0 cryptsetup-OpenSSL-exception Font-exception-2.0 GCC-exception-2.0 GCC-exception-3.1
GNU-compiler-exception Libtool-exception Linux-syscall-note LLVM-exception openvpn-openssl-exception PS-or-PDF-font-exception-20170817
Qt-GPL-exception-1.0 stunnel-exception SWI-exception Texinfo-exception u-boot-exception-2.0 Universal-FOSS-exception-1.0 vsftpd-openssl-exception
x11vnc-openssl-exception
`)
